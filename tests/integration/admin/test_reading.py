"""Whoever reads what people and senders wrote leaves a trace, once however often they look."""

from __future__ import annotations

from uuid import uuid4

import pytest

from room_testing.administering import Administering

pytestmark = pytest.mark.integration


async def test_reading_payloads_and_transcripts_is_audited(admin: Administering) -> None:
    room = await admin.listed(f"reading-{uuid4().hex[:8]}")
    (event,) = await admin.query("select id, delivery_id from event_backlog where instance_id = %s", room.instance_id)
    reads = {
        "show_event_payload": (f"/backlog/{event['id']}/payload", event["id"]),
        "show_transcript": (f"/cycles/{room.cycle_id}/messages", room.cycle_id),
        "show_life": (f"/deliveries/{event['delivery_id']}/life", event["delivery_id"]),
    }
    for action, (path, subject) in reads.items():
        for _ in range(3):
            await admin.get(path)
        assert (await admin.call("GET", path, "viewer")).status_code == 403
        rows = await admin.query(
            "select actor, detail from audit_log where action = %s and subject = %s", action, str(subject)
        )
        assert rows == [{"actor": "the operator", "detail": {}}], action
