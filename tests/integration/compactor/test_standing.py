"""What waits for people or for a free slot, as the compactor counts it."""

from __future__ import annotations

import pytest

from room_common.identity import new_id
from room_common.postgres import conservation
from room_common.postgres.database import Database
from room_testing.activity_log import ActivityLog

pytestmark = pytest.mark.integration

DUE = "wake_at = now() - interval '90 seconds'"


async def test_only_rooms_that_a_worker_may_claim_are_due(log: ActivityLog, database: Database) -> None:
    changes = [
        DUE,
        f"{DUE}, next_try_at = now() - interval '30 seconds'",
        f"{DUE}, next_try_at = now() + interval '1 hour'",
        f"{DUE}, enabled = false",
        f"{DUE}, parked_reason = 'fails'",
        f"{DUE}, lease_owner = 'w', lease_until = now() + interval '1 minute'",
        "wake_at = now() + interval '1 hour'",
        "wake_at = null",
    ]
    ids = [new_id() for _ in range(len(changes) + 2)]
    log.instances(ids)
    for id_, change in zip(ids, [*changes, DUE, DUE], strict=True):
        log.query(f"update instance_room set {change} where instance_id = %s", id_)
    log.query("update instances set status = 'paused' where id = %s", ids[-2])
    log.query("update instances set deleted_at = now() where id = %s", ids[-1])
    async with database.transaction() as conn:
        found = await conservation.standing(conn)
    assert (found.due_rooms, found.parked_rooms) == (2, 1)
    assert 90 <= found.due_seconds < 150


async def test_events_and_messages_of_unknown_fate_are_counted(log: ActivityLog, database: Database) -> None:
    async with database.transaction() as conn:
        before = await conservation.standing(conn)
    assert (before.due_rooms, before.due_seconds) == (0, 0.0)
    instance, source, definition = new_id(), new_id(), new_id()
    log.instances([instance])
    log.query(
        "insert into event_sources (id, instance_id, name, source_type) values (%s, %s, 's', 'generic')",
        source, instance,
    )  # fmt: skip
    log.query(
        "insert into event_definitions (id, event_source_id, name, matching_prompt) values (%s, %s, 'd', 'm')",
        definition, source,
    )  # fmt: skip
    for status in ("pending", "pending", "pending", "failed", "failed", "completed"):
        log.query(
            "insert into event_backlog (id, instance_id, source_id, event_definition_id, delivery_id, raw_body,"
            " verified, status, received_at) values (%s, %s, %s, %s, %s, '', true, %s, now())",
            new_id(), instance, source, definition, new_id(), status,
        )  # fmt: skip
    for number, (status, age) in enumerate([("unknown", "23 hours"), ("unknown", "25 hours"), ("failed", "1 hour")]):
        log.query(
            "insert into outbound_messages (id, instance_id, channel, target, seq, text, status, created_at)"
            " values (%s, %s, 'local', 'x', %s, 't', %s, now() - %s::interval)",
            new_id(), instance, number, status, age,
        )  # fmt: skip
    async with database.transaction() as conn:
        found = await conservation.standing(conn)
    assert (found.pending_events, found.failed_events, found.unknown_messages) == (3, 2, 1)
