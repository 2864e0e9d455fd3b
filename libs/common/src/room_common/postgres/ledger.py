"""The ledger: exactly one row per item of every delivery, and the transaction that decides (design, section 5).

The row is inserted first, on conflict do nothing: whoever inserts it decides, everybody else finds that it was decided.
``webhook_dedup`` is written with a verdict only, so that the retry of a delivery that was dropped for another reason is
judged anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import orjson
import psycopg
from psycopg import AsyncConnection

from room_common.domain.deliveries import Outcome
from room_common.domain.jsonview import storable_text
from room_common.errors import Defect
from room_common.postgres import activity, backlog, usage
from room_common.postgres.failures import unavailable

_K = TypeVar("_K")

_MAX_TEXT: Final = 500


class RowRefused(Defect):
    """The database refuses a row itself, by ``sqlstate``. Its own text is left out: it quotes values."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__(f"ledger row refused ({sqlstate})")
        self.sqlstate = sqlstate


@dataclass(frozen=True, slots=True)
class Dedup:
    """By what a verdict is remembered as given: the sender's delivery id, or the body's hash where there is none."""

    key: str
    content_sha256: bytes
    ttl_seconds: int


@dataclass(frozen=True, slots=True)
class VerdictEntry:
    """One definition's verdict as the ledger shows it. ``answer``: the start of one that was neither yes nor no."""

    definition_id: UUID
    name: str
    verdict: str
    warning: str | None
    answer: str | None
    input_tokens: int
    output_tokens: int
    remembered: bool
    ms: int

    def document(self) -> dict[str, object]:
        """The entry as JSON values."""
        return {
            "definition_id": str(self.definition_id),
            "name": storable_text(self.name),
            "verdict": self.verdict,
            "warning": self.warning,
            "answer": None if self.answer is None else storable_text(self.answer),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "remembered": self.remembered,
            "ms": self.ms,
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """One item's row. ``size`` is the body's bytes, ``dedup`` is set for verdicts (matched, no_match) only, ``items``
    is how many there are of the delivery.

    A replay (of the delivery ``replay_of``) is never a duplicate; its verdict is remembered where none is.
    """

    received_at: datetime
    id: UUID
    item: int
    outcome: Outcome
    size: int
    topic: str
    partition: int
    offset: int
    reason: str | None = None
    source_id: UUID | None = None
    instance_id: UUID | None = None
    definition_id: UUID | None = None
    verdicts: tuple[VerdictEntry, ...] = ()
    changes: tuple[str, ...] = ()
    id_conflict: bool = False
    llm_calls: int = 0
    tokens: int = 0
    trace_id: str | None = None
    dedup: Dedup | None = None
    replay_of: UUID | None = None
    items: int = 1


async def decide(
    conn: AsyncConnection[Any], entry: Entry, event: backlog.Event, label: str, cap: int = backlog.CAP
) -> Outcome | None:
    """The deciding transaction of a match. Returns the outcome that was recorded, or None when there was one already.

    ``entry`` is the row of a match (with ``dedup``), ``event`` what enters the backlog if it may, ``label`` names both
    for people. Ends as ``matched``, ``duplicate`` or ``backlog_full``. Tokens count whatever the end: they were paid.
    """
    ended: Outcome | None = None
    if await _insert(conn, [entry]) == [True]:
        ended = await _end_of_match(conn, entry, event, cap)
        if ended == "matched":
            await activity.append(conn, event.instance_id, "event_matched", label)
    if entry.instance_id is not None:
        await usage.add(conn, entry.instance_id, "fast", entry.tokens)
    return ended


async def _end_of_match(conn: AsyncConnection[Any], entry: Entry, event: backlog.Event, cap: int) -> Outcome:
    if await _remember(conn, [entry]) == [False] and entry.replay_of is None:
        await _amend(conn, entry, "duplicate", "decided_elsewhere")
        return "duplicate"
    admitted = await backlog.admit(conn, event, cap)
    if admitted == "admitted":
        return "matched"
    if admitted == "known":
        await _amend(conn, entry, "duplicate", "in_backlog")
        return "duplicate"
    await _forget(conn, entry)
    await _amend(conn, entry, "backlog_full", "at_commit")
    return "backlog_full"


async def record(conn: AsyncConnection[Any], entries: Sequence[Entry]) -> list[Outcome | None]:
    """Write rows that bring nothing into the backlog, many in one transaction.

    Returns for each the outcome that was recorded (a ``no_match`` may end as ``duplicate``), or None when there was a
    row already. Raises ``RowRefused`` when the database takes one of them never: roll back, write them one by one.
    """
    try:
        return await _record(conn, entries)
    except psycopg.Error as error:
        if unavailable(error) is not None:
            raise
        raise RowRefused(error.sqlstate) from None


async def _record(conn: AsyncConnection[Any], entries: Sequence[Entry]) -> list[Outcome | None]:
    order = sorted(range(len(entries)), key=lambda index: _order(entries[index]))
    rows = [entries[index] for index in order]
    fresh = await _insert(conn, rows)
    ended: list[Outcome | None] = [row.outcome if new else None for row, new in zip(rows, fresh, strict=True)]
    verdicts = [index for index, row in enumerate(rows) if fresh[index] and row.dedup is not None]
    for index, kept in zip(verdicts, await _remember(conn, [rows[index] for index in verdicts]), strict=True):
        if not kept and rows[index].replay_of is None:
            await _amend(conn, rows[index], "duplicate", "decided_elsewhere")
            ended[index] = "duplicate"
    await _count_tokens(conn, rows)
    results: list[Outcome | None] = [None] * len(entries)
    for index, outcome in zip(order, ended, strict=True):
        results[index] = outcome
    return results


def _order(entry: Entry) -> tuple[int, str, datetime, int, int]:
    """The same order of locks in every process: two batches can't wait for each other."""
    key = entry.dedup.key if entry.dedup else ""
    return (entry.source_id.int if entry.source_id else -1, key, entry.received_at, entry.id.int, entry.item)


async def _count_tokens(conn: AsyncConnection[Any], rows: Sequence[Entry]) -> None:
    tokens: dict[UUID, int] = {}
    for row in rows:
        if row.instance_id is not None and row.tokens > 0:
            tokens[row.instance_id] = tokens.get(row.instance_id, 0) + row.tokens
    for instance_id in sorted(tokens):
        await usage.add(conn, instance_id, "fast", tokens[instance_id])


async def _insert(conn: AsyncConnection[Any], rows: Sequence[Entry]) -> list[bool]:
    """Which of ``rows`` are new. One statement for all: that is ten times less work than one for each.

    Almost always all of them are, and then no row comes back.
    """
    if not rows:
        return []
    cursor = await conn.execute(
        """
        with new as (
            insert into webhook_deliveries (received_at, id, item, items, source_id, instance_id, outcome,
                                            definition_id, reason, verdicts, changes, id_conflict, llm_calls, tokens,
                                            size, trace_id, topic, "partition", "offset", replay_of)
            select received_at, id, item, items, source_id, instance_id, outcome, definition_id, reason, verdicts,
                   changes, id_conflict, llm_calls, tokens, size, trace_id, topic, "partition", "offset", replay_of
            from json_to_recordset(%s) as r (
                received_at timestamptz, id uuid, item integer, items integer, source_id uuid, instance_id uuid,
                outcome text, definition_id uuid, reason text, verdicts jsonb, changes jsonb, id_conflict boolean,
                llm_calls integer, tokens integer, size integer, trace_id text, topic text, "partition" integer,
                "offset" bigint, replay_of uuid)
            on conflict do nothing
            returning received_at, id, item),
        counted as (select count(*) = %s as complete from new)
        select received_at, id, item, complete from counted left join new on not complete
        """,
        (_json([_columns(row) for row in rows]), len(rows)),
    )
    found = await cursor.fetchall()
    if found[0]["complete"]:
        return [True] * len(rows)
    new = {(row["received_at"], row["id"], row["item"]) for row in found}
    return [_first(new, (row.received_at, row.id, row.item)) for row in rows]


async def _remember(conn: AsyncConnection[Any], rows: Sequence[Entry]) -> list[bool]:
    """Remember the verdicts of ``rows``; False where one is remembered already, also by a row before it."""
    if not rows:
        return []
    first = {_dedup_key(row): row for row in reversed(rows)}
    cursor = await conn.execute(
        """
        insert into webhook_dedup as d (source_id, dedup_key, content_sha256, delivery_id, item, expires_at)
        select source_id, key, decode(content, 'hex'), id, item, now() + make_interval(secs => ttl)
        from json_to_recordset(%s) as r (source_id uuid, key text, content text, id uuid, item integer, ttl float8)
        on conflict (source_id, dedup_key, content_sha256) do update
        set delivery_id = excluded.delivery_id, item = excluded.item, expires_at = excluded.expires_at
        where d.expires_at <= now()
        returning source_id, dedup_key, content_sha256
        """,
        (_json([_dedup_columns(row) for row in first.values()]),),
    )
    kept = {(row["source_id"], row["dedup_key"], bytes(row["content_sha256"])) for row in await cursor.fetchall()}
    return [_first(kept, _dedup_key(row)) for row in rows]


def _first(keys: set[_K], key: _K) -> bool:
    """Whether ``key`` is there and has not been asked for before."""
    if key not in keys:
        return False
    keys.remove(key)
    return True


async def _forget(conn: AsyncConnection[Any], row: Entry) -> None:
    await conn.execute(
        """
        delete from webhook_dedup
        where source_id = %(source_id)s and dedup_key = %(key)s and content_sha256 = %(content)s
          and delivery_id = %(id)s and item = %(item)s
        """,
        {
            "source_id": row.source_id,
            "key": _dedup_key(row)[1],
            "content": _dedup_key(row)[2],
            "id": row.id,
            "item": row.item,
        },
    )


async def _amend(conn: AsyncConnection[Any], row: Entry, outcome: Outcome, reason: str) -> None:
    await conn.execute(
        """
        update webhook_deliveries set outcome = %s, reason = %s
        where received_at = %s and id = %s and item = %s
        """,
        (outcome, reason, row.received_at, row.id, row.item),
    )


def _json(rows: Sequence[Mapping[str, object]]) -> str:
    return orjson.dumps(rows).decode()


def _columns(row: Entry) -> dict[str, object]:
    return {
        "received_at": row.received_at,
        "id": row.id,
        "item": row.item,
        "items": row.items,
        "source_id": row.source_id,
        "instance_id": row.instance_id,
        "outcome": row.outcome,
        "definition_id": row.definition_id,
        "reason": None if row.reason is None else storable_text(row.reason)[:_MAX_TEXT],
        "verdicts": [verdict.document() for verdict in row.verdicts],
        "changes": [storable_text(change)[:_MAX_TEXT] for change in row.changes],
        "id_conflict": row.id_conflict,
        "llm_calls": row.llm_calls,
        "tokens": row.tokens,
        "size": row.size,
        "trace_id": row.trace_id,
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "replay_of": row.replay_of,
    }


def _dedup_key(row: Entry) -> tuple[UUID | None, str, bytes]:
    dedup = cast("Dedup", row.dedup)
    return row.source_id, dedup.key, dedup.content_sha256


def _dedup_columns(row: Entry) -> dict[str, object]:
    dedup = cast("Dedup", row.dedup)
    return {
        "source_id": row.source_id,
        "key": dedup.key,
        "content": dedup.content_sha256.hex(),
        "ttl": dedup.ttl_seconds,
        "id": row.id,
        "item": row.item,
    }
