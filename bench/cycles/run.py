"""How many cycles one room-runner process carries, and what one costs (``make bench-cycles``).

Waiting: N rooms, each in a cycle whose three model calls take 5 s, all at once in one process. Busy: the same with a
model that answers at once. PostgreSQL, the broker, the model and the load share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from room_local.parts.kafka_jars import available
from room_testing import cpu_time
from room_testing.parts import Parts, choose
from room_testing.processes import ServiceProcess
from room_testing.running import Running

MIB = 1024 * 1024
RENEWALS = """
    select min(extract(epoch from lease_until - clock_timestamp()))::float8 as least, count(*)::int as held
    from instance_room where lease_owner is not null
"""
FEED = """
    insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body, content_type,
                               verified, received_at)
    select gen_random_uuid(), s.instance_id, s.id, d.id, gen_random_uuid(), %s, 'application/json', true, now()
    from event_sources s join event_definitions d on d.event_source_id = s.id
    where not exists (select from event_backlog b
                      where b.instance_id = s.instance_id and b.status in ('pending', 'processing'))
"""
WAKE = """
    update instance_room r set wake_at = now()
    where wake_at is null and lease_owner is null
      and exists (select from event_backlog b where b.instance_id = r.instance_id and b.status = 'pending')
"""
BODY = b'{"name": "Ada", "note": "' + b"x" * 2000 + b'"}'


@dataclass(frozen=True, slots=True)
class Figures:
    """One window. ``least_lease`` is the shortest rest of a lease that was ever seen, in seconds."""

    rooms: int
    latency: float
    held: float
    cycles: float
    cpu: float
    database_cpu: float
    idle_mib: float
    peak_mib: float
    least_lease: float
    lost: int


async def window(parts: Parts, rooms: int, slots: int, latency: float, seconds: float, warm: float) -> Figures:
    """One runner process with ``slots``, fed for ``warm`` + ``seconds``."""
    folder = Path(tempfile.mkdtemp(prefix="room-bench-"))
    world = Running(parts.create_database(), parts.kafka_bootstrap(), idempotence=parts.choice.kafka != "wheels")
    await world.open()
    model = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__).with_name("model.py")), str(latency), stdout=subprocess.PIPE
    )
    assert model.stdout is not None
    url = f"http://127.0.0.1:{int(await model.stdout.readline())}/v1"
    settings = {
        **world.environment(url),
        "ROOM_RUNNER__LEASE_SECONDS": "30",
        "ROOM_RUNNER__RENEW_SECONDS": "8",
        "ROOM_RUNNER__FENCE_SECONDS": "20",
        "ROOM_RUNNER__SWEEP_SECONDS": "5",
        "ROOM_RUNNER__CLAIM_SECONDS": "0.5",
        "ROOM_RUNNER__SLOTS": str(slots),
        "ROOM_DATABASE__POOL_MAX": "16",
        "ROOM_LOG__LEVEL": "warning",
    }
    runner = ServiceProcess("room_runner", settings, folder)
    runner.launch()
    try:
        await asyncio.to_thread(runner.wait_ready)
        assert runner.pid is not None
        process = psutil.Process(runner.pid)
        for _ in range(rooms):
            await world.room(budget=None)
        idle = process.memory_info().rss / MIB
        ending = time.monotonic() + warm + seconds
        held, least, peak, begun = [], 1e9, idle, None
        while (now := time.monotonic()) < ending:
            await world.query(FEED, BODY)
            await world.query(WAKE)
            if begun is None and now > ending - seconds:
                begun = (
                    now,
                    await _done(world),
                    cpu_time.seconds([process]),
                    cpu_time.seconds(cpu_time.of_postgres(parts)),
                )
            (row,) = await world.query(RENEWALS)
            peak = max(peak, process.memory_info().rss / MIB)
            if begun is not None:
                held.append(row["held"])
                least = min(least, row["least"] if row["least"] is not None else 1e9)
            await asyncio.sleep(0.5 if latency else 0.05)
        assert begun is not None
        took = time.monotonic() - begun[0]
        return Figures(
            rooms,
            latency,
            statistics.fmean(held),
            (await _done(world) - begun[1]) / took,
            (cpu_time.seconds([process]) - begun[2]) / took,
            (cpu_time.seconds(cpu_time.of_postgres(parts)) - begun[3]) / took,
            idle,
            peak,
            least,
            runner.output().count("lease lost"),
        )
    finally:
        runner.kill()
        model.kill()
        await model.wait()
        await world.close()
        parts.drop_database(world.dsn)


async def _done(world: Running) -> int:
    (row,) = await world.query("select count(*)::int as n from room_cycles where status = 'succeeded'")
    return int(row["n"])


def main() -> None:
    """Print one line for each window."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    parts = Parts(choose(os.environ, available))
    print(f"{parts.choice.describe()}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    try:
        for rooms, slots, latency, seconds, warm in (
            (given.cycles * 3 // 2, given.cycles, 5.0, given.seconds, 30.0),
            (64, 8, 0.0, given.seconds / 2, 5.0),
            (64, 32, 0.0, given.seconds / 2, 5.0),
        ):
            found = asyncio.run(window(parts, rooms, slots, latency, seconds, warm))
            each = (found.peak_mib - found.idle_mib) * 1024 / slots
            print(
                f"{slots} slots, {rooms} rooms, calls of {latency:g} s: {found.held:.0f} cycles at once,"
                f" {found.cycles:.1f} cycles/s, runner {found.cpu * 100:.0f} % CPU,"
                f" PostgreSQL {found.database_cpu * 100:.0f} % CPU,"
                f" RSS {found.idle_mib:.0f} -> {found.peak_mib:.0f} MiB ({each:.0f} KiB a cycle),"
                f" shortest rest of a lease {found.least_lease:.1f} s, leases lost {found.lost};"
                f" load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    finally:
        parts.close()


if __name__ == "__main__":
    main()
