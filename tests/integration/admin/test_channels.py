"""Channels with credentials: applied, kept sealed, changed, and messages sent again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from room_common.contracts.channel_config import CONFIG_COLUMN, CONFIG_TABLE, read_channel_config
from room_testing.administering import KEYRING, Administering, apply_body, room_document

pytestmark = pytest.mark.integration

SLACK = {"bot_token": "xoxb-hidden", "signing_secret": "hidden-too"}


def slack(slug: str, target: str = "U0ADA", **changes: object) -> dict[str, Any]:
    references = {name: {"env": name.upper()} for name in SLACK}
    return room_document(slug, channel={"type": "slack", "target": target, "secrets": references, **changes})


async def apply(admin: Administering, document: Mapping[str, Any], secrets: Mapping[str, str]) -> Any:
    answer = await admin.call("POST", "/apply", json={**apply_body(document), "channel_secrets": dict(secrets)})
    assert answer.status_code == 200, answer.text
    assert not any(value in answer.text for value in secrets.values())
    return answer.json()


def channel_of(answer: Any) -> tuple[str, list[str]]:
    (change,) = [one for one in answer["changes"] if one["kind"] == "channel"]
    return change["action"], [field["field"] for field in change["fields"]]


async def test_credentials_are_sealed_compared_and_replaced(admin: Administering) -> None:
    answer = await apply(admin, slack("sealed"), SLACK)
    assert channel_of(answer)[0] == "create"
    (url,) = [one["url"] for one in answer["urls"] if one["kind"] == "channel"]
    assert "/channels/slack/" in url

    async def stored() -> Any:
        (row,) = await admin.query(
            "select c.id, c.config from instance_channels c join instances i on i.id = c.instance_id"
            " where i.slug = 'sealed'"
        )
        assert b"hidden" not in row["config"]
        plain = KEYRING.decrypt(row["config"], table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(row["id"]))
        return read_channel_config("slack", plain)

    assert (await stored()).bot_token == "xoxb-hidden"
    assert (await apply(admin, slack("sealed"), SLACK))["changed"] is False
    answer = await apply(admin, slack("sealed"), SLACK | {"bot_token": "xoxb-newer"})
    assert channel_of(answer) == ("update", ["secrets"]) and answer["urls"] == []
    assert (await stored()).bot_token == "xoxb-newer"
    answer = await apply(admin, slack("sealed", "C0OPS", allow=["U1"]), SLACK | {"bot_token": "xoxb-newer"})
    assert channel_of(answer) == ("update", ["target", "allow"])
    assert (await stored()).allow == ("U1",)


async def test_a_config_that_can_not_be_read_is_replaced(admin: Administering) -> None:
    await apply(admin, slack("spoilt"), SLACK)
    await admin.query(
        "update instance_channels c set config = '\\x00' from instances i"
        " where i.id = c.instance_id and slug = 'spoilt'"
    )
    assert channel_of(await apply(admin, slack("spoilt"), SLACK)) == ("update", ["secrets"])
    assert (await apply(admin, slack("spoilt"), SLACK))["changed"] is False


async def test_a_channel_that_takes_no_replies_has_no_url(admin: Administering) -> None:
    document = room_document(
        "out", channel={"type": "webhook", "target": "https://example.com/", "secrets": {"secret": {"env": "S"}}}
    )
    answer = await apply(admin, document, {"secret": "whsec_aGlkZGVuLWhpZGRlbg=="})
    assert [one["kind"] for one in answer["urls"]] == ["source", "source"]


@pytest.mark.parametrize(
    ("secrets", "pointer"),
    [
        ({"bot_token": "xoxb-hidden"}, "/channel_secrets/signing_secret"),
        (SLACK | {"more": "x"}, "/channel_secrets/more"),
        (SLACK | {"bot_token": "with space"}, "/channel_secrets/bot_token"),
        ({}, "/channel_secrets/bot_token"),
    ],
)
async def test_secrets_that_do_not_fit(admin: Administering, secrets: Mapping[str, str], pointer: str) -> None:
    answer = await admin.call("POST", "/apply", json={**apply_body(slack("unfit")), "channel_secrets": dict(secrets)})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert "hidden" not in answer.text and "with space" not in answer.text


async def test_messages_are_sent_again(admin: Administering) -> None:
    room = await admin.listed("resent")
    await admin.query("delete from outbound_messages where instance_id = %s", room.instance_id)
    ids = {}
    for number, status in enumerate(("failed", "unknown", "sent", "queued"), start=1):
        (row,) = await admin.query(
            "insert into outbound_messages (id, instance_id, channel, target, seq, text, status, attempts, error)"
            " values (gen_random_uuid(), %s, 'local', 'you', %s, 'hi', %s, 8, 'timeout') returning id",
            room.instance_id,
            number,
            status,
        )
        ids[status] = row["id"]
    for status in ("failed", "unknown"):
        answer = await admin.call("POST", f"/messages/{ids[status]}/resend")
        assert (answer.status_code, answer.json()["status"], answer.json()["attempts"]) == (200, "queued", 0)
        assert (await admin.call("POST", f"/messages/{ids[status]}/resend")).status_code == 409
    assert (await admin.call("POST", f"/messages/{ids['sent']}/resend")).status_code == 409
    assert (await admin.call("POST", f"/messages/{room.cycle_id}/resend")).status_code == 404
    rows = await admin.query("select id from outbound_messages where instance_id = %s order by seq", room.instance_id)
    assert [row["id"] for row in rows] == [ids["sent"], ids["queued"], ids["failed"], ids["unknown"]]
    audited = await admin.query("select count(*) as n from audit_log where action = 'resend_message'")
    assert audited[0]["n"] == 2
