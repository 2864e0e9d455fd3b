"""Payloads read back, deliveries sent again, and what is told of a delivery's life."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from room_common.contracts.envelope import ITEM, decode
from room_common.contracts.topics import WEBHOOKS_DEAD, WEBHOOKS_RAW
from room_common.identity import new_id
from room_testing.administering import Administering, ListedRoom

pytestmark = pytest.mark.integration

BATCH = b'[{"eventId": 1}, {"eventId": 2}]'


@pytest.fixture
async def room(admin: Administering) -> ListedRoom:
    return await admin.listed(f"deliveries-{uuid4().hex[:8]}")


async def delivered(
    admin: Administering,
    room: ListedRoom,
    outcome: str = "no_match",
    *,
    items: int = 1,
    offset: int = 0,
    reason: str | None = None,
    replay_of: UUID | None = None,
) -> UUID:
    """Ledger rows of one more delivery."""
    delivery_id = new_id()
    for item in range(items):
        await admin.query(
            "insert into webhook_deliveries (received_at, id, item, source_id, instance_id, outcome, reason, size,"
            ' topic, "partition", "offset", replay_of)'
            " values (date_trunc('minute', now()), %s, %s, %s, %s, %s, %s, 2, 't', 0, %s, %s)",
            delivery_id,
            item,
            room.source_id if outcome != "unknown_token" else None,
            room.instance_id if outcome != "unknown_token" else None,
            outcome,
            reason,
            offset,
            replay_of,
        )
    return delivery_id


async def replay(admin: Administering, delivery_id: UUID, status: int = 200, **body: object) -> Any:
    answer = await admin.call("POST", f"/deliveries/{delivery_id}/replay", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def payload(admin: Administering, delivery_id: UUID, status: int = 200, query: str = "") -> Any:
    answer = await admin.call("GET", f"/deliveries/{delivery_id}/payload{query}")
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_payload_is_what_was_received_and_what_a_model_sees(admin: Administering, room: ListedRoom) -> None:
    body = b'{"a": "x\\u0000y", "b": 1}'
    delivery_id = await delivered(admin, room, offset=7)
    admin.records.keep(delivery_id, body, offset=7, http={"x-github-event": "push"})
    shown = await payload(admin, delivery_id)
    assert base64.b64decode(shown["raw"]) == body
    assert shown["decoded"]["b"] == 1 and "\x00" not in shown["decoded"]["a"]
    assert shown["changes"] and shown["reason"] is None
    assert (shown["topic"], shown["offset"], shown["items"]) == ("t", 7, 1)
    assert shown["headers"] == {"x-github-event": "push"}
    [audited] = await admin.query(
        "select actor, instance_id from audit_log where action = 'show_payload' and subject = %s", str(delivery_id)
    )
    assert audited == {"actor": "the operator", "instance_id": room.instance_id}


async def test_an_item_of_a_batch_is_shown_alone(admin: Administering, room: ListedRoom) -> None:
    delivery_id = await delivered(admin, room, items=2)
    admin.records.keep(delivery_id, BATCH)
    assert (await payload(admin, delivery_id, query="?item=1"))["decoded"] == {"eventId": 2}
    assert (await payload(admin, delivery_id))["items"] == 2
    await payload(admin, delivery_id, 404, "?item=2")
    await payload(admin, delivery_id, 422, "?item=-1")


@pytest.mark.parametrize("body", [b"\xff\xfe\x00", b"NaN", b""])
async def test_what_cannot_be_decoded_is_shown_as_bytes(admin: Administering, room: ListedRoom, body: bytes) -> None:
    delivery_id = await delivered(admin, room, "undecodable")
    admin.records.keep(delivery_id, body)
    shown = await payload(admin, delivery_id)
    assert base64.b64decode(shown["raw"]) == body
    assert shown["decoded"] is None and shown["reason"]


async def test_an_expired_record_is_gone_and_so_is_another_one(admin: Administering, room: ListedRoom) -> None:
    delivery_id = await delivered(admin, room)
    for _ in range(2):
        answer = await payload(admin, delivery_id, 410)
        assert answer["title"] == "Gone"
        await replay(admin, delivery_id, 410)
        admin.records.keep(new_id())
    admin.records.kept.clear()
    assert admin.records.sent == []
    for unknown in (new_id(), uuid4()):
        await payload(admin, unknown, 404)
        await replay(admin, unknown, 404)


async def test_kafka_away_is_503(admin: Administering, room: ListedRoom) -> None:
    delivery_id = await delivered(admin, room)
    admin.records.keep(delivery_id)
    admin.records.away = True
    assert "kafka" in (await payload(admin, delivery_id, 503))["detail"]
    await replay(admin, delivery_id, 503)


async def test_a_replay_is_the_same_record_under_a_new_id(admin: Administering, room: ListedRoom) -> None:
    delivery_id = await delivered(admin, room)
    place = admin.records.keep(delivery_id, b'{"exact":  "bytes"}', http={"x-github-delivery": "g"})
    answer = await replay(admin, delivery_id)
    [sent] = admin.records.sent
    first, copy = decode(admin.records.kept[place]), decode(sent)
    assert (sent.topic, sent.key, sent.value) == (WEBHOOKS_RAW, b"key", b'{"exact":  "bytes"}')
    assert answer == {
        "id": str(copy.id),
        "replay_of": str(delivery_id),
        "topic": WEBHOOKS_RAW,
        "partition": 3,
        "offset": 0,
    }
    assert copy.id != delivery_id and copy.replay_of == delivery_id and not copy.forced and copy.item is None
    assert (copy.http, copy.content_type, copy.token_sha256) == (first.http, first.content_type, first.token_sha256)
    assert copy.received_at_us > 1_700_000_000_000_000
    [audited] = await admin.query(
        "select actor, detail from audit_log where action = 'replay_delivery' and subject = %s", str(delivery_id)
    )
    assert audited == {"actor": "the operator", "detail": {"id": str(copy.id), "force": False}}


@pytest.mark.parametrize("outcome", ["bad_signature", "unknown_token"])
async def test_whose_sender_is_unknown_takes_force(admin: Administering, room: ListedRoom, outcome: str) -> None:
    delivery_id = await delivered(admin, room, outcome)
    admin.records.keep(delivery_id)
    assert "force" in (await replay(admin, delivery_id, 409))["detail"]
    assert admin.records.sent == []
    await replay(admin, delivery_id, force=True)
    assert decode(admin.records.sent[0]).forced


async def test_what_had_no_body_is_not_sent_again(admin: Administering, room: ListedRoom) -> None:
    delivery_id = await delivered(admin, room, "too_large")
    admin.records.keep(delivery_id, b"")
    await replay(admin, delivery_id, 409, force=True)
    assert admin.records.sent == []


async def test_one_item_is_sent_again_alone(admin: Administering, room: ListedRoom) -> None:
    delivery_id = await delivered(admin, room, items=2)
    admin.records.keep(delivery_id, BATCH)
    await replay(admin, delivery_id, item=1)
    assert decode(admin.records.sent[0]).item == 1
    await replay(admin, delivery_id, 404, item=2)
    await replay(admin, delivery_id, 422, item=100)
    await replay(admin, delivery_id, 422, forced=True)


async def test_a_dead_one_is_found_among_the_dead(admin: Administering, room: ListedRoom) -> None:
    known = await delivered(admin, room, "dead", reason="context_length")
    forgotten = new_id()
    admin.records.keep(new_id(), topic=WEBHOOKS_DEAD, offset=1)
    admin.records.keep(known, topic=WEBHOOKS_DEAD, offset=2, more=((ITEM, b"1"), ("error", b"x"), ("attempts", b"1")))
    admin.records.keep(forgotten, topic=WEBHOOKS_DEAD, offset=3)
    for delivery_id in (known, forgotten):
        assert (await payload(admin, delivery_id))["topic"] == WEBHOOKS_DEAD
        await replay(admin, delivery_id)
    first, second = admin.records.sent
    assert (decode(first).replay_of, decode(first).item) == (known, 1)
    assert (decode(second).replay_of, decode(second).item) == (forgotten, None)
    assert not {"error", "attempts", "origin"} & {name for name, _ in first.headers}


async def test_a_record_without_an_envelope_is_shown_and_not_sent(admin: Administering, room: ListedRoom) -> None:
    delivery_id = await delivered(admin, room, "dead", reason="bad_envelope")
    place = admin.records.keep(delivery_id, b"anything")
    record = admin.records.kept[place]
    admin.records.kept[place] = type(record)("t", 0, 0, 0, None, b"anything", (("id", b"\xff"),))
    shown = await payload(admin, delivery_id)
    assert base64.b64decode(shown["raw"]) == b"anything" and shown["reason"] == "bad_envelope"
    await replay(admin, delivery_id, 409)


async def test_the_life_of_a_match(admin: Administering, room: ListedRoom) -> None:
    call = {"id": "c1", "function": {"name": "complete_event", "arguments": '{"id": "x"}'}}
    for seq, role, content in (
        (2, "assistant", {"tool_calls": [call]}),
        (3, "tool", {"tool_call_id": "c1", "content": "done"}),
        (4, "assistant", {"content": "said", "tool_calls": None}),
    ):
        await admin.query(
            "insert into cycle_messages (cycle_id, seq, role, content) values (%s, %s, %s, %s)",
            room.cycle_id,
            seq,
            role,
            json.dumps({"role": role, **content}),
        )
    await admin.query("update room_cycles set started_at = now() where id = %s", room.cycle_id)
    again = await delivered(admin, room, replay_of=room.delivery_id)
    life = await admin.get(f"/deliveries/{room.delivery_id}/life")
    assert (life["id"], life["room"], life["source"]) == (str(room.delivery_id), room.slug, "crm")
    assert [one["id"] for one in life["replays"]] == [str(again)]
    [item] = life["items"]
    assert item["outcome"] == "matched" and item["definition"] == "won"
    assert all(check["passed"] for check in item["checks"])
    assert item["event"]["id"] == str(room.event_id)
    [cycle] = item["event"]["cycles"]
    assert cycle["id"] == str(room.cycle_id)
    [called] = cycle["tool_calls"]
    assert (called["name"], called["arguments"], called["result"]) == ("complete_event", '{"id": "x"}', "done")
    assert [message["text"] for message in cycle["messages"]] == ["private"]
    other = await admin.get(f"/deliveries/{again}/life")
    assert other["replay_of"] == str(room.delivery_id) and other["items"][0]["event"] is None
    assert other["items"][0]["checks"][-1] == {"check": "a definition matches", "passed": False, "reason": None}


async def test_a_cycle_that_gave_the_event_back_is_part_of_its_life(admin: Administering, room: ListedRoom) -> None:
    await admin.query(
        "update cycle_messages set content = %s where cycle_id = %s",
        json.dumps({"role": "user", "content": f"Event {room.event_id} from crm"}),
        room.cycle_id,
    )
    await admin.query("update room_cycles set started_at = now(), status = 'failed' where id = %s", room.cycle_id)
    await admin.query("update event_backlog set cycle_id = null where id = %s", room.event_id)
    life = await admin.get(f"/deliveries/{room.delivery_id}/life")
    assert [cycle["status"] for cycle in life["items"][0]["event"]["cycles"]] == ["failed"]


async def test_an_unknown_life_is_404(admin: Administering) -> None:
    assert (await admin.call("GET", f"/deliveries/{new_id()}/life")).status_code == 404
