"""Which daily jobs are done (table ``job_runs``). Any number of processes may work on a job at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from room_common.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class JobState:
    """``today`` is the day in UTC by the database's clock; ``done``: nothing is left of the job for it.

    ``last_success`` is when the job was last found done, for whichever day.
    """

    today: date
    done: bool
    last_success: datetime | None


async def state(conn: Connection, job: str) -> JobState:
    """How the job stands."""
    cursor = await conn.execute(
        """
        select t.today,
               exists (select from job_runs r where r.job = %(job)s and r.day = t.today and r.finished_at is not null)
                   as done,
               (select max(finished_at) from job_runs r where r.job = %(job)s) as last_success
        from (select (now() at time zone 'UTC')::date as today) t
        """,
        {"job": job},
    )
    row = await cursor.fetchone()
    assert row is not None
    return JobState(row["today"], row["done"], row["last_success"])


async def begin(conn: Connection, job: str, day: date) -> None:
    """Note that somebody works on it; the first one counts."""
    await conn.execute("insert into job_runs (job, day) values (%s, %s) on conflict do nothing", (job, day))


async def finish(conn: Connection, job: str, day: date, worker: str) -> None:
    """Note that nothing is left; the first one counts."""
    await conn.execute(
        """
        insert into job_runs (job, day, finished_at, worker) values (%(job)s, %(day)s, now(), %(worker)s)
        on conflict (job, day) do update set finished_at = now(), worker = excluded.worker
        where job_runs.finished_at is null
        """,
        {"job": job, "day": day, "worker": worker},
    )
