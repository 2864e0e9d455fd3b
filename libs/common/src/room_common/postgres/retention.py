"""What goes when, table by table (design, tables). Everything is deleted in small batches, each its own transaction.

Rows that somebody holds are passed over, so that any number of processes may delete at the same time and none waits.
What is not finished (pending, processing and failed events, unread replies, open messages) never goes, except with the
room it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from room_common.postgres.database import Connection
from room_common.postgres.partitions import KEPT_DAYS

WORK_DAYS: Final = 30
"""Cycles, their transcripts, and messages."""
INPUT_DAYS: Final = 90
"""Completed events, and replies that were read or ignored."""
USAGE_DAYS: Final = 400
PURGE_DAYS: Final = 30
"""Between a soft deletion, or a token's end, and the real one."""
STATE_HOURS: Final = 24
"""A process not seen for so long is gone."""
RUNS_DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class Rule:
    """Rows of ``table`` for which ``condition`` holds may go. ``kind`` is what they are called in metrics.

    ``oldest`` orders them by an index, so that a batch is found without reading the table.
    """

    kind: str
    table: str
    condition: str
    oldest: str | None = None


def _days(count: int) -> str:
    return f"now() - interval '{count} days'"


_PURGED: Final = f"{{0}}.deleted_at < {_days(PURGE_DAYS)}"

RULES: Final = (
    Rule(
        "deliveries",
        "webhook_deliveries_default",
        f"received_at < ((now() at time zone 'UTC')::date - {KEPT_DAYS})::timestamp at time zone 'UTC'",
        "received_at",
    ),
    Rule("dedup_keys", "webhook_dedup", "expires_at <= now()", "expires_at"),
    Rule(
        "messages",
        "outbound_messages",
        f"created_at < {_days(WORK_DAYS)} and status in ('sent', 'failed', 'unknown')"
        f" and coalesce(sent_at, created_at) < {_days(WORK_DAYS)}",
        "created_at",
    ),
    Rule(
        "events",
        "event_backlog",
        f"status = 'completed' and completed_at < {_days(INPUT_DAYS)}",
        "completed_at",
    ),
    Rule(
        "replies",
        "room_inbox",
        f"received_at < {_days(INPUT_DAYS)} and status in ('read', 'ignored')"
        f" and coalesce(read_at, received_at) < {_days(INPUT_DAYS)}",
        "received_at",
    ),
    Rule("token_usage", "token_usage", f"day < (now() at time zone 'UTC')::date - {USAGE_DAYS}", "day"),
    Rule(
        "tokens",
        "source_tokens",
        f"valid_until < {_days(PURGE_DAYS)} or exists (select from event_sources s"
        f" where s.id = source_tokens.source_id and {_PURGED.format('s')})",
    ),
    Rule(
        "definitions",
        "event_definitions",
        f"({_PURGED.format('event_definitions')} or exists (select from event_sources s"
        f" where s.id = event_definitions.event_source_id and {_PURGED.format('s')}))"
        " and not exists (select from event_backlog b where b.event_definition_id = event_definitions.id)",
    ),
    Rule(
        "sources",
        "event_sources",
        f"{_PURGED.format('event_sources')}"
        " and not exists (select from source_tokens t where t.source_id = event_sources.id)"
        " and not exists (select from event_definitions d where d.event_source_id = event_sources.id)"
        " and not exists (select from event_backlog b where b.source_id = event_sources.id)",
    ),
    Rule("processes", "service_state", f"seen_at < now() - interval '{STATE_HOURS} hours'"),
    Rule("job_runs", "job_runs", f"day < (now() at time zone 'UTC')::date - {RUNS_DAYS}"),
)
"""In an order that respects references: tokens and definitions before their source."""

KINDS: Final = (*(rule.kind for rule in RULES), "cycles", "instances")

# A cycle goes with its transcript, and after its messages.
_OLD_CYCLES: Final = f"""
    from room_cycles c
    where started_at < {_days(WORK_DAYS)} and finished_at < {_days(WORK_DAYS)} and status <> 'running'
      and not exists (select from outbound_messages o where o.cycle_id = c.id)
"""

_ITS_SOURCES: Final = "select id from event_sources where instance_id = %(instance)s"
_ITS_CHANNELS: Final = "select id from instance_channels where instance_id = %(instance)s"
_OF_AN_INSTANCE: Final = (
    ("outbound_messages", "instance_id = %(instance)s"),
    ("cycle_messages", "cycle_id in (select id from room_cycles where instance_id = %(instance)s)"),
    ("room_cycles", "instance_id = %(instance)s"),
    ("event_backlog", "instance_id = %(instance)s"),
    ("room_inbox", "instance_id = %(instance)s"),
    ("room_activity_log", "instance_id = %(instance)s"),
    ("token_usage", "instance_id = %(instance)s"),
    ("source_tokens", f"source_id in ({_ITS_SOURCES})"),
    ("source_tokens", f"channel_id in ({_ITS_CHANNELS})"),
    ("channel_opt_outs", f"channel_id in ({_ITS_CHANNELS})"),
    ("channel_opt_outs", "channel_id in (select id from instance_channels where instance_id = %(instance)s)"),
    ("event_definitions", f"event_source_id in ({_ITS_SOURCES})"),
    ("event_sources", "instance_id = %(instance)s"),
    ("instance_channels", "instance_id = %(instance)s"),
    ("instance_tools", "instance_id = %(instance)s"),
    ("instance_room", "instance_id = %(instance)s"),
    ("instances", "id = %(instance)s"),
)
"""Everything that refers to an instance, in an order in which it can go."""


async def delete_some(rule: Rule, conn: Connection, limit: int) -> int:
    """Delete up to ``limit`` rows that nobody holds. Fewer than that: no more are to be had."""
    order = f"order by {rule.oldest}" if rule.oldest else ""
    cursor = await conn.execute(
        f"""
        delete from {rule.table} where ctid = any(array(
            select ctid from {rule.table} where {rule.condition} {order} limit %s for update skip locked))
        """,
        (limit,),
    )
    return cursor.rowcount


async def delete_cycles(conn: Connection, limit: int) -> int:
    """Delete up to ``limit`` finished cycles with their transcripts. Returns how many cycles."""
    cursor = await conn.execute(
        f"""
        with old as (select id {_OLD_CYCLES} order by started_at limit %s for update of c skip locked),
             transcripts as (delete from cycle_messages where cycle_id in (select id from old))
        delete from room_cycles where id in (select id from old)
        """,
        (limit,),
    )
    return cursor.rowcount


async def claim_purgeable(conn: Connection, skip: Sequence[UUID] = ()) -> UUID | None:
    """Lock an instance that was deleted long ago and that nobody holds, until the transaction ends."""
    cursor = await conn.execute(
        f"""
        select id from instances where {_PURGED.format("instances")} and id <> all(%s)
        order by id limit 1 for update skip locked
        """,
        (list(skip),),
    )
    row = await cursor.fetchone()
    return None if row is None else row["id"]


async def purge_instance(conn: Connection, instance_id: UUID, limit: int) -> int:
    """Delete up to ``limit`` rows of a claimed instance, at last its own. Returns how many."""
    deleted = 0
    for table, condition in _OF_AN_INSTANCE:
        cursor = await conn.execute(
            f"delete from {table} where ctid = any(array(select ctid from {table} where {condition} limit %(limit)s))",
            {"instance": instance_id, "limit": limit - deleted},
        )
        deleted += cursor.rowcount
        if deleted >= limit:
            break
    return deleted


async def count(conn: Connection) -> dict[str, int]:
    """How many rows of each kind may go now; for instances, those that were deleted long ago."""
    counts = {}
    for rule in RULES:
        cursor = await conn.execute(f"select count(*) as rows from {rule.table} where {rule.condition}")
        row = await cursor.fetchone()
        counts[rule.kind] = 0 if row is None else int(row["rows"])
    for kind, rest in (("cycles", _OLD_CYCLES), ("instances", f"from instances where {_PURGED.format('instances')}")):
        cursor = await conn.execute(f"select count(*) as rows {rest}")
        row = await cursor.fetchone()
        counts[kind] = 0 if row is None else int(row["rows"])
    return counts
