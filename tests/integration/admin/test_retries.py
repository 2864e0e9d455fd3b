"""Work that was given up: offered again or closed by an operator, and never taken out of a cycle's hands."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from room_testing.administering import Administering, ListedRoom

pytestmark = pytest.mark.integration


@pytest.fixture
async def room(admin: Administering) -> ListedRoom:
    return await admin.listed(f"retries-{uuid4().hex[:8]}")


async def reply_of(admin: Administering, room: ListedRoom) -> UUID:
    (row,) = await admin.query("select id from room_inbox where instance_id = %s", room.instance_id)
    found: UUID = row["id"]
    return found


async def test_a_failed_event_is_offered_again(admin: Administering, room: ListedRoom) -> None:
    await admin.query(
        "update event_backlog set status = 'failed', attempts = 5, next_attempt_at = now() + interval '1 day'"
        " where id = %s returning id",
        room.event_id,
    )
    answer = await admin.call("POST", f"/backlog/{room.event_id}/retry")
    assert (answer.status_code, answer.json()["status"], answer.json()["attempts"]) == (200, "pending", 0)
    (row,) = await admin.query(
        "select next_attempt_at <= now() as offered from event_backlog where id = %s", room.event_id
    )
    assert row["offered"]
    assert (await admin.call("POST", f"/backlog/{room.event_id}/retry")).status_code == 409


@pytest.mark.parametrize(("status", "code"), [("pending", 200), ("failed", 200), ("processing", 409)])
async def test_an_event_is_closed_unless_a_cycle_has_it(
    admin: Administering, room: ListedRoom, status: str, code: int
) -> None:
    await admin.query(
        "update event_backlog set status = %s, cycle_id = %s where id = %s returning id",
        status,
        room.cycle_id,
        room.event_id,
    )
    answer = await admin.call("POST", f"/backlog/{room.event_id}/complete")
    assert answer.status_code == code
    if code == 200:
        assert (answer.json()["status"], answer.json()["notes"]) == ("completed", "completed by the operator")
    audited = await admin.query("select action from audit_log where subject = %s", str(room.event_id))
    assert [row["action"] for row in audited] == (["complete_event"] if code == 200 else [])


async def test_a_failed_reply_is_read_again(admin: Administering, room: ListedRoom) -> None:
    reply = await reply_of(admin, room)
    await admin.query(
        "update room_inbox set status = 'failed', reason = null, attempts = 5 where id = %s returning id", reply
    )
    answer = await admin.call("POST", f"/inbox/{reply}/retry")
    assert (answer.status_code, answer.json()["status"], answer.json()["attempts"]) == (200, "unread", 0)
    assert (await admin.call("POST", f"/inbox/{reply}/retry")).status_code == 409


async def test_what_does_not_exist_is_404(admin: Administering) -> None:
    for path in ("/backlog/{}/retry", "/backlog/{}/complete", "/inbox/{}/retry"):
        assert (await admin.call("POST", path.format(uuid4()))).status_code == 404
