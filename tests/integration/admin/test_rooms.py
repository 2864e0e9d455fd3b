"""What an operator tells a room, and its outside tools, on a real database."""

from __future__ import annotations

from typing import Any

import pytest

from room_common.contracts.tool_config import CONFIG_COLUMN, CONFIG_TABLE, read_tool_config
from room_testing.administering import KEYRING, Administering, apply_body, room_document

pytestmark = pytest.mark.integration

SERVER = {"name": "crm", "type": "mcp", "url": "https://tools.example.com/mcp", "allow": ["add", "find"],
          "verified_only": ["add"], "secret": {"env": "CRM"}}  # fmt: skip
FUNCTION = {"name": "business_days", "type": "python", "verified_only": True}


async def apply(admin: Administering, tools: list[dict[str, Any]], secret: str = "s3cret", **more: Any) -> Any:
    body = apply_body(room_document(tools=tools)) | {"tool_secrets": {"crm": secret}} | more
    if not any(tool.get("secret") for tool in tools) and "tool_secrets" not in more:
        body["tool_secrets"] = {}
    return await admin.call("POST", "/apply", json=body)


def fields(answer: Any, name: str) -> dict[str, Any]:
    (change,) = [one for one in answer["changes"] if one["kind"] == "tool" and one["name"] == name]
    return {"action": change["action"]} | {
        field["field"]: (field["before"], field["after"]) for field in change["fields"]
    }


async def test_tools_are_applied_changed_and_removed(own_admin: Administering) -> None:
    admin = own_admin
    created = (await apply(admin, [SERVER, FUNCTION])).json()
    assert fields(created, "crm")["action"] == fields(created, "business_days")["action"] == "create"
    assert "s3cret" not in str(created)
    row, other = await admin.query("select * from instance_tools order by name desc")
    assert (row["allowed"], row["verified_only"]) == (["add", "find"], ["add"])
    assert (other["kind"], other["allowed"], other["verified_only"], other["config"]) == (
        "python", ["business_days"], ["business_days"], None,
    )  # fmt: skip
    sealed = KEYRING.decrypt(bytes(row["config"]), table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(row["id"]))
    assert read_tool_config(sealed).secret == "s3cret"
    assert (await apply(admin, [SERVER, FUNCTION])).json()["changed"] is False

    await admin.query("update instance_tools set pins = '{\"add\": \"x\"}' where name = 'crm'")
    changed = (await apply(admin, [SERVER | {"allow": ["add"]}, FUNCTION], "other")).json()
    assert fields(changed, "crm") == {
        "action": "update",
        "allowed": (["add", "find"], ["add"]),
        "secret": ("1 secret", "1 secret (changed)"),
    }
    (row,) = await admin.query("select pins from instance_tools where name = 'crm'")
    assert row["pins"] == {"add": "x"}
    moved = (
        await apply(admin, [SERVER | {"allow": ["add"], "url": "https://elsewhere.example.com/mcp"}], "other")
    ).json()
    assert fields(moved, "business_days")["action"] == "delete"
    (row,) = await admin.query("select name, pins from instance_tools")
    assert row == {"name": "crm", "pins": {}}


@pytest.mark.parametrize(
    ("tool", "secrets"),
    [
        (SERVER, {}),
        (SERVER, {"crm": "a", "other": "b"}),
        (SERVER, {"crm": "two\nlines"}),
        (SERVER | {"url": "ftp://x/"}, None),
        (SERVER | {"url": "https://user:password@x/"}, None),
        (SERVER | {"verified_only": ["unknown"]}, None),
        (SERVER | {"name": "crm__x"}, None),
        (SERVER | {"allow": ["x" * 64]}, None),
        (FUNCTION | {"allow": ["x"]}, {}),
    ],
)
async def test_what_does_not_fit_is_refused(admin: Administering, tool: dict[str, Any], secrets: Any) -> None:
    answer = await apply(admin, [tool], **({} if secrets is None else {"tool_secrets": secrets}))
    assert answer.status_code == 422, answer.text
    assert "two\nlines" not in answer.text


async def test_tools_are_listed_without_secrets_and_confirmed(own_admin: Administering) -> None:
    admin = own_admin
    await apply(admin, [SERVER, FUNCTION])
    (function, server) = (await admin.get("/instances/desk/tools", "viewer"))["items"]
    assert {tool["state"] for tool in server["tools"]} == {"unknown"}
    assert "example.com" not in str(server) and function["name"] == "business_days"
    await admin.query(
        'update instance_tools set checked_at = now(), pins = \'{"add": "old"}\','
        ' seen = \'{"add": {"sha256": "new", "description": "Add."}}\' where name = \'crm\''
    )
    (_, server) = (await admin.get("/instances/desk/tools"))["items"]
    assert {tool["name"]: tool["state"] for tool in server["tools"]} == {"add": "changed", "find": "missing"}
    assert (await admin.call("POST", "/instances/desk/tools/crm/confirm", "viewer")).status_code == 403
    answer = await admin.call("POST", "/instances/desk/tools/crm/confirm")
    assert answer.json() == {"confirmed": ["add"]}
    (_, server) = (await admin.get("/instances/desk/tools"))["items"]
    assert server["tools"][0]["state"] == "on"
    assert (await admin.call("POST", "/instances/desk/tools/nobody/confirm")).status_code == 404


async def test_a_room_is_woken_whatever_it_waits_for(own_admin: Administering) -> None:
    admin = own_admin
    await apply(admin, [])
    await admin.query("update instance_room set next_try_at = now() + interval '1 hour'")
    assert (await admin.call("POST", "/instances/desk/tick", "viewer")).status_code == 403
    assert (await admin.call("POST", "/instances/desk/tick")).json() == {"room": "woken"}
    (row,) = await admin.query("select wake_at <= now() as awake, next_try_at from instance_room")
    assert row == {"awake": True, "next_try_at": None}
    await admin.query("update instance_room set lease_owner = 'w', lease_until = now() + interval '1 minute'")
    assert (await admin.call("POST", "/instances/desk/tick")).json() == {"room": "running"}
    await admin.query("update instance_room set enabled = false")
    assert (await admin.call("POST", "/instances/desk/tick")).status_code == 409
    assert (await admin.call("POST", "/instances/nobody/tick")).status_code == 404
    actions = [row["action"] for row in await admin.query("select action from audit_log where action = 'tick'")]
    assert len(actions) == 2


async def test_a_parked_room_runs_again_when_it_is_told_to(own_admin: Administering) -> None:
    admin = own_admin
    await apply(admin, [])
    assert (await admin.call("POST", "/instances/desk/resume")).status_code == 409
    await admin.query("update instance_room set parked_reason = 'deadline', fails = 5")
    assert (await admin.call("POST", "/instances/desk/tick")).status_code == 409
    assert (await admin.call("POST", "/instances/desk/resume")).json() == {"parked_for": "deadline"}
    (row,) = await admin.query("select parked_reason, fails, wake_at is not null as awake from instance_room")
    assert row == {"parked_reason": None, "fails": 0, "awake": True}
