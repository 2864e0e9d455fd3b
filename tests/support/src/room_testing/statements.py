"""The statements that this process sends to PostgreSQL, and how PostgreSQL would carry them out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import psycopg

from room_testing.administering import ListedRoom


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement and its parameters."""

    text: Any
    parameters: Any

    @property
    def reads(self) -> bool:
        """Whether it is a select that can be sent again."""
        return str(self.text).strip().lower().startswith(("select", "with")) and "pg_advisory" not in str(self.text)


@contextmanager
def recorded() -> Iterator[list[Statement]]:
    """The statements that are executed meanwhile on any connection of psycopg's asynchronous kind."""
    kept: list[Statement] = []
    execute = psycopg.AsyncConnection.execute

    async def noted(self: Any, query: Any, params: Any = None, **options: Any) -> Any:
        kept.append(Statement(query, params))
        return await execute(self, query, params, **options)

    with patch.object(psycopg.AsyncConnection, "execute", noted):
        yield kept


def scanned(plan: dict[str, Any]) -> Iterator[str]:
    """The tables that a plan reads from beginning to end."""
    if plan["Node Type"] == "Seq Scan":
        yield plan["Relation Name"]
    for inner in plan.get("Plans", ()):
        yield from scanned(inner)


def fill(dsn: str, room: ListedRoom, *, deliveries: int, others: int) -> None:
    """Put rows into every list: deliveries of the last five days and other rows, a tenth of both in ``room``."""
    own = {"instance": room.instance_id, "source": room.source_id, "definition": room.definition_id}
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "insert into instances (id, slug, name) select gen_random_uuid(), 'filled-' || n, 'n'"
            " from generate_series(1, 9) n"
        )
        conn.execute("insert into instance_room (instance_id) select id from instances where slug like 'filled-%'")
        conn.execute(
            "insert into event_sources (id, instance_id, name, source_type)"
            " select gen_random_uuid(), id, 'crm', 'hubspot' from instances where slug like 'filled-%'"
        )
        conn.execute(
            "insert into event_definitions (id, event_source_id, name, matching_prompt)"
            " select gen_random_uuid(), id, 'won', 'm' from event_sources"
            " where instance_id in (select id from instances where slug like 'filled-%')"
        )
        conn.execute(
            "create temporary table owners as select row_number() over () - 1 as number, * from ("
            " select %(instance)s::uuid as instance, %(source)s::uuid as source, %(definition)s::uuid as definition"
            " union all select s.instance_id, s.id, d.id from event_sources s join event_definitions d"
            " on d.event_source_id = s.id join instances i on i.id = s.instance_id where i.slug like 'filled-%%') o",
            own,
        )
        for statement in _FILL:
            conn.execute(statement.encode(), {"deliveries": deliveries, "others": others})
        conn.execute("vacuum analyze")


_AT = "now() - n * interval '5 days' / %({count})s"
_FILL = (
    f"""
    insert into webhook_deliveries
        (received_at, id, source_id, instance_id, outcome, definition_id, size, topic, "partition", "offset")
    select {_AT.format(count="deliveries")}, gen_random_uuid(), o.source, o.instance,
           (array['matched', 'no_match', 'no_match', 'no_match', 'duplicate', 'bad_signature'])[1 + n %% 6],
           o.definition, 100, 'room.webhooks.raw', 0, n
    from generate_series(1, %(deliveries)s) n join owners o on o.number = n %% 10
    """,
    f"""
    insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body, verified,
                               status, received_at, matched_at, completed_at)
    select gen_random_uuid(), o.instance, o.source, o.definition, gen_random_uuid(), '{{}}', true,
           case when n %% 50 = 0 then 'failed' else 'completed' end, now(), {_AT.format(count="others")}, now()
    from generate_series(1, %(others)s) n join owners o on o.number = n %% 10
    """,
    f"""
    insert into room_inbox (id, instance_id, channel, sender, text, dedup_key, status, received_at)
    select gen_random_uuid(), o.instance, 'local', 'you', 'yes', 'filled ' || n, 'read', {_AT.format(count="others")}
    from generate_series(1, %(others)s) n join owners o on o.number = n %% 10
    """,
    f"""
    insert into room_cycles (id, instance_id, conversation_id, epoch, reason, status, worker, started_at, finished_at)
    select gen_random_uuid(), o.instance, 'filled ' || n, 1, 'pending',
           case when n %% 50 = 0 then 'failed' else 'succeeded' end, 'w', {_AT.format(count="others")}, now()
    from generate_series(1, %(others)s) n join owners o on o.number = n %% 10
    """,
    f"""
    insert into outbound_messages (id, instance_id, channel, target, seq, text, status, created_at)
    select gen_random_uuid(), o.instance, 'local', 'you', n + 1000, 'text',
           case when n %% 50 = 0 then 'failed' else 'sent' end, {_AT.format(count="others")}
    from generate_series(1, %(others)s) n join owners o on o.number = n %% 10
    """,
    f"""
    insert into room_activity_log (id, instance_id, log_date, kind, content, occurred_at)
    select gen_random_uuid(), o.instance, current_date,
           (array['event_matched', 'cycle_started', 'error'])[1 + n %% 3], 'text', {_AT.format(count="others")}
    from generate_series(1, %(others)s) n join owners o on o.number = n %% 10
    """,
    f"""
    insert into audit_log (id, occurred_at, actor, action, instance_id, subject)
    select gen_random_uuid(), {_AT.format(count="others")}, 'filled', 'tick', o.instance, n::text
    from generate_series(1, %(others)s) n join owners o on o.number = n %% 10
    """,
)
