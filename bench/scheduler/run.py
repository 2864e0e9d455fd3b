"""What a tick costs, and that it follows the rooms that are due and not those there are (``make bench-scheduler``).

For each number of rooms a database is filled: all are enabled and 10,000 have an event that is due; then every other
room gets an event that waits for a week. One scheduler process emits ticks over it, and nobody takes them, so that each
tick finds the same. Everything shares the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from room_local.parts.kafka_jars import available
from room_testing import cpu_time
from room_testing.parts import Parts, choose
from room_testing.processes import ServiceProcess
from room_testing.scheduling import Scheduling

TICK_SECONDS = 5
ROOMS = """
    insert into instances (id, slug, name) select gen_random_uuid(), 'r' || n, 'Desk' from generate_series(1, %s) n
"""
OPENED = """
    insert into instance_room (instance_id, prompt, outbound_channel, outbound_target)
    select id, 'Watch the pipeline.', 'local', 'me' from instances
"""
CHOSEN = "create table chosen as select id from instances order by md5(id::text) limit %s"
SOURCES = """
    insert into event_sources (id, instance_id, name, source_type)
    select gen_random_uuid(), id, 'CRM', 'generic' from chosen
"""
DEFINITIONS = """
    insert into event_definitions (id, event_source_id, name, matching_prompt)
    select gen_random_uuid(), id, 'Won', 'anything' from event_sources
"""
DUE = """
    insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body, verified,
                               received_at)
    select gen_random_uuid(), s.instance_id, s.id, d.id, gen_random_uuid(), convert_to(repeat('x', 500), 'UTF8'), true,
           now()
    from event_sources s join event_definitions d on d.event_source_id = s.id
"""
WAITING = """
    insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body, verified,
                               received_at, next_attempt_at)
    select gen_random_uuid(), i.id, s.id, s.definition, gen_random_uuid(), convert_to(repeat('x', 500), 'UTF8'), true,
           now(), now() + interval '7 days'
    from instances i,
         (select s.id, d.id as definition from event_sources s join event_definitions d on d.event_source_id = s.id
          limit 1) s
    where not exists (select from event_backlog b where b.instance_id = i.id)
"""
BLOCKS = """
    select sum(blks_hit + blks_read)::bigint as blocks from pg_stat_database where datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """The ticks of one window. ``cpu`` and ``database_cpu`` are seconds for each tick, ``blocks`` of 8 KB."""

    emitted: list[float]
    sent: list[int]
    cpu: float
    database_cpu: float
    blocks: float


def fill(dsn: str, rooms: int, due: int) -> None:
    """Make the rooms, and what is due."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(ROOMS, (rooms,))
        conn.execute(OPENED)
        conn.execute(CHOSEN, (due,))
        for statement in (SOURCES, DEFINITIONS, DUE):
            conn.execute(statement)
        conn.execute("vacuum analyze")
        conn.execute("checkpoint")


def let_wait(dsn: str) -> None:
    """Give every other room an event whose time has not come."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(WAITING)
        conn.execute("vacuum analyze event_backlog")
        conn.execute("checkpoint")


async def window(parts: Parts, world: Scheduling, ticks: int, spread: float) -> Figures:
    """Let one scheduler emit ``ticks``, after one that is not counted."""
    settings = world.scheduler_environment(
        ROOM_SCHEDULER__TICK_SECONDS=str(TICK_SECONDS), ROOM_SCHEDULER__SPREAD=str(spread)
    )
    scheduler = ServiceProcess("room_scheduler", settings, Path(tempfile.mkdtemp(prefix="room-bench-")))
    blocks = await _blocks(world)
    scheduler.launch()
    try:
        await asyncio.to_thread(scheduler.wait_ready)
        await _until(scheduler, 1)
        # From the middle of one interval to the middle of another: only whole ticks are in between.
        await asyncio.sleep(TICK_SECONDS * (1 - spread) / 2)
        assert scheduler.pid is not None
        process = psutil.Process(scheduler.pid)
        before = (cpu_time.seconds([process]), cpu_time.seconds(cpu_time.of_postgres(parts)))
        await _until(scheduler, 1 + ticks)
        await asyncio.sleep(TICK_SECONDS * (1 - spread) / 2)
        after = (cpu_time.seconds([process]), cpu_time.seconds(cpu_time.of_postgres(parts)))
    finally:
        scheduler.kill()
    # A server process reports what it has read when it ends, at the latest; so all ticks are counted.
    await asyncio.sleep(1.0)
    told = _told(scheduler)
    return Figures(
        [line["seconds"] for line in told[1 : 1 + ticks]],
        [int(line["rooms"]) for line in told],
        (after[0] - before[0]) / ticks,
        (after[1] - before[1]) / ticks,
        (await _blocks(world) - blocks) / len(told),
    )


async def _blocks(world: Scheduling) -> int:
    (row,) = await world.query(BLOCKS)
    return int(row["blocks"])


async def _until(scheduler: ServiceProcess, count: int) -> None:
    deadline = time.monotonic() + (count + 6) * TICK_SECONDS * 2
    while len(_told(scheduler)) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(_told(scheduler))} of {count} ticks were emitted; log:\n{scheduler.output()}")
        await asyncio.sleep(0.1)


def _told(scheduler: ServiceProcess) -> list[dict[str, float]]:
    lines = (json.loads(line) for line in scheduler.output().splitlines() if line.startswith("{"))
    return [line for line in lines if line.get("event") == "tick emitted"]


async def measured(parts: Parts, sizes: Sequence[int], due: int, ticks: int) -> None:
    """Fill a database for each number of rooms, then measure them one after the other in each state."""
    worlds = {}
    for rooms in sizes:
        dsn = parts.create_database()
        worlds[rooms] = Scheduling(dsn, parts.kafka_bootstrap(), idempotence=parts.choice.kafka != "wheels")
        await worlds[rooms].open()
        await asyncio.to_thread(fill, dsn, rooms, due)
    try:
        await _compare(parts, worlds, "only the due ones have events", due, ticks, 0.0)
        for world in worlds.values():
            await asyncio.to_thread(let_wait, world.dsn)
        await _compare(parts, worlds, "an event of each other one waits", due, ticks, 0.0)
        await _compare(parts, worlds, "the same, spread over half of the interval", due, max(2, ticks // 3), 0.5)
    finally:
        for world in worlds.values():
            await world.close()
            parts.drop_database(world.dsn)


async def _compare(
    parts: Parts, worlds: Mapping[int, Scheduling], name: str, due: int, ticks: int, spread: float
) -> None:
    print(f"{due:,} due, {name}; load {os.getloadavg()[0]:.1f}")
    first: Figures | None = None
    for rooms, world in worlds.items():
        found = await window(parts, world, ticks, spread)
        if set(found.sent) != {due}:
            raise RuntimeError(f"ticks went to {found.sent} rooms")
        line = (
            f"  {rooms:>9,} rooms: emitted in {statistics.median(found.emitted):.2f} s"
            f" ({min(found.emitted):.2f}-{max(found.emitted):.2f}, {len(found.emitted)} ticks);"
            f" PostgreSQL {found.database_cpu:.2f} s of CPU and {found.blocks:,.0f} blocks a tick,"
            f" scheduler {found.cpu:.2f} s"
        )
        if first is not None:
            line += (
                f"; against the first: time {statistics.median(found.emitted) / statistics.median(first.emitted):.2f},"
                f" CPU {found.database_cpu / first.database_cpu:.2f}, blocks {found.blocks / first.blocks:.2f}"
            )
        print(line, flush=True)
        first = first or found


def main() -> None:
    """Print a line for each number of rooms in each state."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--due", type=int, default=10_000)
    parser.add_argument("--ticks", type=int, default=7)
    given = parser.parse_args()
    parts = Parts(choose(os.environ, available))
    print(f"{parts.choice.describe()}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    try:
        asyncio.run(measured(parts, given.rooms, given.due, given.ticks))
    finally:
        parts.close()


if __name__ == "__main__":
    main()
