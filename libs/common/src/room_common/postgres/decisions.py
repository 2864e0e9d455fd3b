"""What the ledger knows of deliveries already: their rows, their receipts, and the verdicts that are remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from room_common.postgres import usage

Key = tuple[datetime, UUID]
"""``(received_at, id)`` of a delivery as the ledger has them."""


@dataclass(frozen=True, slots=True)
class Known:
    """A delivery whose verdict is still remembered under a dedup key."""

    content_sha256: bytes
    delivery_id: UUID
    item: int


async def decided(conn: AsyncConnection[Any], keys: Sequence[Key]) -> dict[UUID, set[int]]:
    """The items that have a row already, for each delivery of ``keys`` that has any.

    ``offset 0`` makes the planner look each key up in the one partition it can be in. A plain join reads all of them
    while a day is young and its partition has no statistics yet.
    """
    cursor = await conn.execute(
        """
        select k.id, d.item
        from unnest(%s::timestamptz[], %s::uuid[]) k (received_at, id)
        cross join lateral (select item from webhook_deliveries d
                            where d.received_at = k.received_at and d.id = k.id offset 0) d
        """,
        ([received_at for received_at, _ in keys], [delivery_id for _, delivery_id in keys]),
    )
    found: dict[UUID, set[int]] = {}
    async for row in cursor:
        found.setdefault(row["id"], set()).add(row["item"])
    return found


async def receipts(conn: AsyncConnection[Any], ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """The ``received_at`` of those of ``ids`` that have a row: a look into every partition, for the doubtful few."""
    cursor = await conn.execute(
        """
        select k.id, d.received_at
        from unnest(%s::uuid[]) k (id)
        cross join lateral (select min(received_at) as received_at from webhook_deliveries d
                            where d.id = k.id offset 0) d
        where d.received_at is not null
        """,
        (list(ids),),
    )
    return {row["id"]: row["received_at"] async for row in cursor}


async def remembered(
    conn: AsyncConnection[Any], keys: Sequence[tuple[UUID, str]]
) -> dict[tuple[UUID, str], list[Known]]:
    """The verdicts remembered under each of ``(source, dedup key)``: more than one where an id came with other
    contents; no entry where there is none."""
    cursor = await conn.execute(
        """
        select k.source_id, k.dedup_key, d.content_sha256, d.delivery_id, d.item
        from unnest(%s::uuid[], %s::text[]) k (source_id, dedup_key)
        cross join lateral (select content_sha256, delivery_id, item from webhook_dedup d
                            where d.source_id = k.source_id and d.dedup_key = k.dedup_key and d.expires_at > now()
                            offset 0) d
        """,
        ([source_id for source_id, _ in keys], [key for _, key in keys]),
    )
    found: dict[tuple[UUID, str], list[Known]] = {}
    async for row in cursor:
        known = Known(bytes(row["content_sha256"]), row["delivery_id"], row["item"])
        found.setdefault((row["source_id"], row["dedup_key"]), []).append(known)
    return found


@dataclass(frozen=True, slots=True)
class Question:
    """What has to be known about an item before anything is paid for it."""

    key: Key
    item: int
    source_id: UUID
    dedup_key: str
    instance_id: UUID


@dataclass(frozen=True, slots=True)
class Prior:
    """The answer: whether the item has its row, what its key is remembered for, whether its instance may spend."""

    decided: bool
    known: tuple[Known, ...]
    exhausted: bool


async def priors(conn: AsyncConnection[Any], questions: Sequence[Question]) -> dict[Question, Prior]:
    """Answer all ``questions`` with three statements."""
    rows = await decided(conn, list({question.key for question in questions}))
    known = await remembered(conn, list({(question.source_id, question.dedup_key) for question in questions}))
    broke = await usage.exhausted(conn, list({question.instance_id for question in questions}))
    return {
        question: Prior(
            question.item in rows.get(question.key[1], ()),
            tuple(known.get((question.source_id, question.dedup_key), ())),
            question.instance_id in broke,
        )
        for question in questions
    }
