"""What every process says of itself, for the API and the panel (table ``service_state``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.json import Jsonb

from room_common.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class ProcessState:
    """``held_reason`` is None while the process takes work; ``lag`` counts the records that wait for it, where it
    knows."""

    service: str
    process: str
    version: str
    held_reason: str | None = None
    lag: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


async def save(conn: Connection, state: ProcessState) -> None:
    """Write the row of this process."""
    await conn.execute(
        """
        insert into service_state (service, process, version, held_reason, lag, detail, seen_at)
        values (%s, %s, %s, %s, %s, %s, now())
        on conflict (service, process) do update
        set version = excluded.version, held_reason = excluded.held_reason, lag = excluded.lag,
            detail = excluded.detail, seen_at = excluded.seen_at
        """,
        (state.service, state.process, state.version, state.held_reason, state.lag, Jsonb(dict(state.detail))),
    )


async def remove(conn: Connection, service: str, process: str) -> None:
    """Delete the row of a process that stops."""
    await conn.execute("delete from service_state where service = %s and process = %s", (service, process))


async def remove_dead(conn: Connection, service: str, hours: float = 24.0) -> None:
    """Delete rows of processes of ``service`` that were not seen for ``hours``: they were killed and never came
    back."""
    await conn.execute(
        "delete from service_state where service = %s and seen_at < now() - make_interval(secs => %s)",
        (service, hours * 3600),
    )


async def list_states(
    conn: Connection, *, after: tuple[str, str] = ("", ""), limit: int | None = None
) -> Sequence[dict[str, Any]]:
    """The processes behind ``after``, by service and process.

    ``age_seconds`` says how long ago one reported, by the database's clock.
    """
    cursor = await conn.execute(
        """
        select service, process, version, held_reason, lag, detail, seen_at,
               extract(epoch from clock_timestamp() - seen_at)::float8 as age_seconds
        from service_state where (service, process) > (%s, %s) order by service, process limit %s
        """,
        (*after, limit),
    )
    return await cursor.fetchall()
