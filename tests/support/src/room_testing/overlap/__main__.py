"""``python -m room_testing.overlap --seed 1``: one run, its figures, and its history where something was wrong."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from room_local.parts.kafka_jars import available, fetch_jars
from room_testing.overlap.checks import violations
from room_testing.overlap.history import History
from room_testing.overlap.world import Plan, Run
from room_testing.parts import Parts, choose


def figures(history: History) -> list[str]:
    """What the run was like, in lines."""
    faults = Counter(f"{fault.kind} {fault.target.split('-')[0]}" for fault in history.faults)
    cycles = Counter(cycle["status"] for cycle in history.cycles)
    steps = sum(cycle["steps"] for cycle in history.cycles)
    return [
        f"faults: {', '.join(f'{count} x {name}' for name, count in sorted(faults.items()))}",
        f"events: {dict(Counter(event['status'] for event in history.events))},"
        f" with a lost attempt: {sum(event['attempts'] > 0 for event in history.events)}",
        f"replies: {dict(Counter(reply['status'] for reply in history.replies))}",
        f"cycles: {dict(cycles)}, resumed {sum(cycle['resumes'] for cycle in history.cycles)} times",
        f"model calls: {len(history.requests)} made, {steps} finished steps, {len(history.requests) - steps} cut off",
        f"messages: {len(history.messages)} written, {len(history.delivered)} deliveries",
        f"accepted writes checked: {len(history.writes)}",
    ]


def main() -> int:
    """Run it; 0 when nothing was wrong."""
    parser = argparse.ArgumentParser(prog="room_testing.overlap", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", type=int, default=200)
    parser.add_argument("--runners", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true", help="short leases and freezes")
    given = parser.parse_args()
    plan = Plan(given.seed, given.rooms, given.runners, given.minutes * 60, given.quick)
    choice = choose(os.environ, available)
    if choice.kafka == "apache":
        fetch_jars()
    parts = Parts(choice)
    folder = Path(tempfile.mkdtemp(prefix="room-overlap-"))
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {line}", flush=True)

    say(f"seed {plan.seed}: {plan.rooms} rooms, {plan.runners} runners, {plan.seconds:.0f} s; {choice.describe()}")
    problem = None
    try:
        run = Run(
            plan,
            parts.create_database(),
            parts.kafka_bootstrap(),
            folder,
            idempotence=choice.kafka != "wheels",
            postgres=parts.postgres() if choice.starts_database else None,
            broker=parts.broker() if choice.kafka != "address" else None,
            say=say,
        )
        try:
            asyncio.run(run.run())
        except TimeoutError:
            problem = f"work did not come to an end within {plan.settle_seconds:.0f} s"
    finally:
        parts.close()
    found = [*([problem] if problem else []), *violations(run.history, 10.0 if plan.quick else 45.0)]
    for line in figures(run.history):
        say(line)
    if not found:
        say("nothing wrong")
        return 0
    file = folder / "history.json"
    run.history.save(file)
    for line in found[:50]:
        say(f"WRONG: {line}")
    say(f"{len(found)} violations; history and logs: {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
