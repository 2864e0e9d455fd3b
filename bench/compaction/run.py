"""Aging of the activity log beside its floor: the same rows deleted by one statement that keeps nothing but counts.

The server is the one that ``room up`` starts, as it starts it. Both begin with the same table, freshly filled, vacuumed
and analysed, in random order within a round. After each one the rows are checked: nothing daily is left and every event
is counted. Prints the ratio of each round, the median last; exits 1 when it is above ``--at-most``.

``--identical`` measures nothing: it ages the same rows in one run, in that and a second one, day by day, and from two
workers at once, and exits 1 unless all four leave the same rows.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil
import psycopg
from psycopg.rows import tuple_row
from pydantic import SecretStr

from room_common.postgres.database import Database
from room_common.postgres.migrate import migrate
from room_common.postgres.settings import DatabaseSettings
from room_common.postgres.upkeep import Pace, Upkeep
from room_local.parts.postgres import Postgres

TODAY = datetime.date(2026, 11, 30)
AGED, FLOOR = "room compact", "floor"

FILL = """
insert into seed (id, instance_id, log_date, kind, severity, content, counts, occurred_at)
select gen_random_uuid(), i.id, t.at::date, k.kind,
       case when random() < 0.03 then 'error' when random() < 0.1 then 'warning' else 'info' end,
       k.kind || ' ' || md5(random()::text), jsonb_build_object(k.kind, 1), t.at
from (select id, row_number() over (order by id) as number from instances) i,
     generate_series(1, %(each)s) n,
     lateral (select (array['event_matched', 'cycle_started', 'cycle_finished', 'tool_called', 'message_sent'])
                  [1 + (n + i.number) %% 5] as kind) k,
     -- n and number are only there to have a time of its own for each row
     lateral (select %(today)s::timestamp - interval '7 days' - random() * %(days)s * interval '1 day'
                  - interval '1 us' + (n + i.number) * interval '0 s' as at) t
"""
COUNTS_ONLY = """
with gone as (
    delete from room_activity_log where log_type = 'daily' and log_date < %(before)s
    returning instance_id, log_date - (extract(isodow from log_date)::integer - 1) as period, counts),
sums as (
    select instance_id, period, key, sum(value::bigint) as total
    from gone, jsonb_each_text(counts) group by instance_id, period, key)
insert into room_activity_log (id, instance_id, log_date, log_type, kind, content, counts, event_count, occurred_at)
select gen_random_uuid(), instance_id, period, 'weekly', 'summary', '', jsonb_object_agg(key, total), sum(total), period
from sums group by instance_id, period
"""


LEFT = """
select count(*), md5(string_agg(row, '' order by row))
from (select md5((instance_id, log_date, log_type, kind, severity, content, counts, digest, event_count,
                  occurred_at)::text) as row
      from room_activity_log) r
"""


def fill(conn: psycopg.Connection, rooms: int, rows: int, days: int) -> None:
    conn.execute(
        "insert into instances (id, slug, name) select gen_random_uuid(), 'room-' || n, 'Desk'"
        " from generate_series(1, %s) n",
        (rooms,),
    )
    conn.execute("create table seed (like room_activity_log including defaults)")
    conn.execute(FILL, {"each": rows // rooms, "today": TODAY, "days": days})


def renew(conn: psycopg.Connection) -> None:
    conn.execute("truncate room_activity_log")
    # In the order in which rows are written in life: by time, the rooms mixed.
    conn.execute("insert into room_activity_log select * from seed order by occurred_at")
    conn.execute("vacuum analyze room_activity_log")
    conn.execute("checkpoint")


def check(conn: psycopg.Connection, rows: int) -> str:
    counts: dict[str, tuple[int, int]] = {
        kind: (number, events)
        for kind, number, events in conn.execute(
            "select log_type, count(*), sum(event_count)::bigint from room_activity_log group by log_type"
        )
    }
    if "daily" in counts or sum(events for _, events in counts.values()) != rows:
        raise SystemExit(f"rows are missing or left: {counts}")
    return ", ".join(f"{number:,} {kind}" for kind, (number, _) in sorted(counts.items()))


def cpu_seconds(conn: psycopg.Connection) -> float:
    """CPU time of the whole server, 0 where it runs elsewhere."""
    try:
        server = psutil.Process(conn.info.backend_pid).parent()
        assert server is not None
        times = [process.cpu_times() for process in [server, *server.children()]]
    except psutil.Error:
        return 0.0
    return sum(time.user + time.system for time in times)


async def age(database: Database, today: datetime.date = TODAY) -> None:
    async def pause(seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return True

    result = await Upkeep(database, Pace(), pause=pause, counted=lambda kind, rows: None).age(today)
    if not result.done or result.failures:
        raise SystemExit(f"aging did not come to its end: {result}")


async def measure(dsn: str, arguments: argparse.Namespace) -> list[float]:
    ratios = []
    database = Database(DatabaseSettings(dsn=SecretStr(dsn)))
    await database.start()
    with psycopg.connect(dsn, autocommit=True, row_factory=tuple_row) as conn:
        conn.execute("set synchronous_commit = on")
        fill(conn, arguments.rooms, arguments.rows, arguments.days)
        for number in range(arguments.rounds):
            seconds, cpu, left = {}, {}, {}
            for name in random.sample([AGED, FLOOR], 2):
                renew(conn)
                began, before = time.monotonic(), cpu_seconds(conn)
                if name == AGED:
                    await age(database)
                else:
                    conn.execute(COUNTS_ONLY, {"before": TODAY - datetime.timedelta(days=7)})
                seconds[name], cpu[name] = time.monotonic() - began, cpu_seconds(conn) - before
                left[name] = check(conn, arguments.rows)
            ratios.append(seconds[AGED] / seconds[FLOOR])
            said = [f"{name} {seconds[name]:.1f} s, CPU {cpu[name]:.1f} s ({left[name]})" for name in (FLOOR, AGED)]
            said += [f"ratio {ratios[-1]:.2f}"]
            said += [f"of CPU {cpu[AGED] / cpu[FLOOR]:.2f}"] if cpu[FLOOR] else []
            print(f"round {number + 1}: {', '.join(said)}, load {os.getloadavg()[0]:.1f}", flush=True)
    await database.stop()
    return ratios


async def compare(dsn: str, arguments: argparse.Namespace) -> bool:
    """Whether the ways of aging leave the same rows; their ids are new each time."""
    databases = [Database(DatabaseSettings(dsn=SecretStr(dsn))) for _ in range(2)]
    for database in databases:
        await database.start()

    async def once() -> None:
        await age(databases[0])

    async def twice() -> None:
        await once()
        await once()

    async def daily() -> None:
        for ago in range(arguments.days, -1, -1):
            await age(databases[0], TODAY - datetime.timedelta(days=ago))

    async def together() -> None:
        await asyncio.gather(*(age(database) for database in databases))

    found = {}
    with psycopg.connect(dsn, autocommit=True, row_factory=tuple_row) as conn:
        fill(conn, arguments.rooms, arguments.rows, arguments.days)
        ways = {"once": once, "and once more": twice, "day by day": daily, "two workers": together}
        for name, way in ways.items():
            renew(conn)
            began = time.monotonic()
            await way()
            took, kinds = time.monotonic() - began, check(conn, arguments.rows)
            ((number, digest),) = conn.execute(LEFT).fetchall()
            found[name] = (number, digest)
            print(f"{name}: {kinds} in {took:.1f} s, md5 of all rows {digest}", flush=True)
    for database in databases:
        await database.stop()
    return len(set(found.values())) == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rooms", type=int, default=10_000)
    parser.add_argument(
        "--days", type=int, default=7, help="days over which the rows are spread, from 8 days ago; 7: one week"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-most", type=float, default=3.0)
    parser.add_argument("--identical", action="store_true", help="compare what several ways of aging leave")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="room-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = Postgres(Path(folder) / "pg", Path(folder) / "postgres.log")
        server.start()
        try:
            server.create_database("bench")
            migrate(server.dsn("bench"))
            if arguments.identical:
                same = asyncio.run(compare(server.dsn("bench"), arguments))
                print("the same rows" if same else "NOT the same rows")
                sys.exit(not same)
            ratios = asyncio.run(measure(server.dsn("bench"), arguments))
        finally:
            server.stop()
    median = statistics.median(ratios)
    print(f"aging {arguments.rows:,} daily rows of {arguments.rooms:,} rooms: {median:.2f} times the floor")
    sys.exit(median > arguments.at_most)


if __name__ == "__main__":
    main()
