"""Making an instance match its document, on a real database."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from room_common.contracts import source_config
from room_common.contracts.source_config import read_config
from room_common.crypto import Keyring
from room_common.domain.tokens import token_digest
from room_common.postgres import configuration
from room_testing.administering import KEYRING, PUBLIC_URL, Administering, apply_body, room_document

pytestmark = pytest.mark.integration

TABLES = (
    "instances",
    "instance_room",
    "instance_channels",
    "event_sources",
    "event_definitions",
    "source_tokens",
    "audit_log",
)


async def _everything(admin: Administering) -> dict[str, list[dict[str, Any]]]:
    return {table: await admin.query(f"select * from {table} order by 1") for table in TABLES}


def _actions(answer: Any) -> dict[str, str]:
    return {f"{change['kind']} {change['name']}": change["action"] for change in answer["changes"]}


def _changed(answer: Any) -> dict[str, str]:
    return {name: action for name, action in _actions(answer).items() if action != "unchanged"}


def _fields(answer: Any, name: str) -> dict[str, tuple[Any, Any]]:
    change = next(one for one in answer["changes"] if f"{one['kind']} {one['name']}" == name)
    return {field["field"]: (field["before"], field["after"]) for field in change["fields"]}


def _sealed(row_id: UUID, keyring: Keyring = KEYRING) -> bytes:
    return keyring.encrypt(
        b'{"secrets":["x"]}',
        table=source_config.CONFIG_TABLE,
        column=source_config.CONFIG_COLUMN,
        row_id=str(row_id),
    )


def _secrets(row: dict[str, Any], keyring: Keyring = KEYRING) -> tuple[str, ...]:
    plain = keyring.decrypt(
        row["config"], table=source_config.CONFIG_TABLE, column=source_config.CONFIG_COLUMN, row_id=str(row["id"])
    )
    return read_config(plain).secrets


async def test_a_new_room_gets_everything_and_its_urls_once(admin: Administering) -> None:
    document = room_document("new")
    answer = await admin.apply(document)
    assert answer["changed"] and answer["applied"]
    assert set(_actions(answer).values()) == {"create"}
    assert {(url["kind"], url["name"]) for url in answer["urls"]} == {
        ("source", "crm"),
        ("source", "ci"),
        ("channel", "local"),
    }
    for url in answer["urls"]:
        path, _, token = url["url"].rpartition("/")
        assert path == PUBLIC_URL + ("/webhooks" if url["kind"] == "source" else "/channels/local")
        assert len(await admin.query("select 1 from source_tokens where token_sha256 = %s", token_digest(token))) == 1
    [crm] = await admin.query(
        "select s.* from event_sources s join instances i on i.id = s.instance_id"
        " where slug = 'new' and config is not null"
    )
    assert _secrets(crm) == ("secret-1",)
    assert b"secret-1" not in crm["config"]


async def test_a_second_time_changes_nothing(own_admin: Administering) -> None:
    document = room_document()
    await own_admin.apply(document)
    before = await _everything(own_admin)
    answer = await own_admin.apply(document)
    assert (answer["changed"], answer["applied"], answer["urls"]) == (False, False, [])
    assert await _everything(own_admin) == before


async def test_a_dry_run_writes_nothing(own_admin: Administering) -> None:
    empty = await _everything(own_admin)
    answer = await own_admin.apply(room_document(), dry_run=True)
    assert (answer["changed"], answer["applied"], answer["urls"]) == (True, False, [])
    assert await _everything(own_admin) == empty
    await own_admin.apply(room_document())
    before = await _everything(own_admin)
    planned = await own_admin.apply(room_document(name="Other", sources=[]), "secret-2", dry_run=True)
    assert await _everything(own_admin) == before
    done = await own_admin.apply(room_document(name="Other", sources=[]), "secret-2")
    assert done["changes"] == planned["changes"]


async def test_a_rename_keeps_the_instance(admin: Administering) -> None:
    await admin.apply(room_document("rename"))
    [before] = await admin.query("select id from instances where slug = 'rename'")
    answer = await admin.apply(room_document("rename", name="Other", timezone="UTC", mandate="", enabled=False))
    assert _changed(answer) == {"room rename": "update"}
    assert _fields(answer, "room rename") == {
        "name": ("Desk", "Other"),
        "mandate": ("Watch.", ""),
        "timezone": ("Europe/Rome", "UTC"),
        "enabled": (True, False),
    }
    [after] = await admin.query(
        "select i.id, name, timezone, enabled from instances i join instance_room r on r.instance_id = i.id"
        " where slug = 'rename'"
    )
    assert after == {"id": before["id"], "name": "Other", "timezone": "UTC", "enabled": False}


async def test_only_what_differs_is_written(admin: Administering) -> None:
    document = room_document("narrow")
    await admin.apply(document)
    query = (
        "select s.name, s.updated_at from event_sources s join instances i on i.id = s.instance_id"
        " where slug = 'narrow' union all"
        " select d.name, d.updated_at from event_definitions d join event_sources s on s.id = d.event_source_id"
        " join instances i on i.id = s.instance_id where slug = 'narrow'"
    )
    before = {row["name"]: row["updated_at"] for row in await admin.query(query)}
    document["sources"][1]["definitions"][1]["priority"] = 30
    assert _changed(await admin.apply(document)) == {"definition ci / slow": "update"}
    after = {row["name"]: row["updated_at"] for row in await admin.query(query)}
    assert {name for name, moment in after.items() if moment != before[name]} == {"slow"}


async def test_a_new_prompt_is_a_new_version_and_another_priority_is_not(admin: Administering) -> None:
    document = room_document("version")
    await admin.apply(document)
    definition = document["sources"][0]["definitions"][0]

    async def version() -> int:
        [row] = await admin.query(
            "select d.version from event_definitions d join event_sources s on s.id = d.event_source_id"
            " join instances i on i.id = s.instance_id where slug = 'version' and d.name = 'won'"
        )
        return int(row["version"])

    assert await version() == 1
    definition["priority"] = 11
    await admin.apply(document)
    assert await version() == 1
    definition["match"] = "another"
    await admin.apply(document)
    assert await version() == 2


async def test_a_source_that_goes_takes_its_definitions_and_its_urls(admin: Administering) -> None:
    document = room_document("gone")
    await admin.apply(document)
    [source] = await admin.query(
        "select s.id from event_sources s join instances i on i.id = s.instance_id"
        " where slug = 'gone' and s.name = 'ci'"
    )
    answer = await admin.apply(room_document("gone", sources=document["sources"][:1]))
    assert _changed(answer) == {
        "source ci": "delete",
        "definition ci / broken": "delete",
        "definition ci / slow": "delete",
    }
    living = "select count(*) as n from {} where {} = %s and deleted_at is null"
    assert (await admin.query(living.format("event_definitions", "event_source_id"), source["id"]))[0]["n"] == 0
    [token] = await admin.query(
        "select valid_until <= now() as over from source_tokens where source_id = %s", source["id"]
    )
    assert token["over"]
    assert (await admin.call("POST", f"/sources/{source['id']}/reveal")).status_code == 404
    again = await admin.apply(document)
    assert _changed(again)["source ci"] == "create"
    assert [url["name"] for url in again["urls"]] == ["ci"]
    [new] = await admin.query(
        "select s.id from event_sources s join instances i on i.id = s.instance_id"
        " where slug = 'gone' and s.name = 'ci' and s.deleted_at is null"
    )
    assert new["id"] != source["id"]


async def test_another_channel_takes_the_place_of_the_one_before(admin: Administering) -> None:
    await admin.apply(room_document("channel"))
    await admin.query(
        "update instance_channels set channel_type = 'slack' from instances i"
        " where i.id = instance_id and slug = 'channel'"
    )
    await admin.query(
        "update instance_room set outbound_channel = 'slack', outbound_target = 'U1' from instances i"
        " where i.id = instance_id and slug = 'channel'"
    )
    answer = await admin.apply(room_document("channel"))
    assert _changed(answer) == {"channel local": "create", "channel slack": "delete"}
    assert [(url["kind"], url["name"]) for url in answer["urls"]] == [("channel", "local")]
    rows = await admin.query(
        "select channel_type, c.enabled, r.outbound_channel as talks, r.outbound_target as target"
        " from instance_channels c"
        " join instance_room r using (instance_id) join instances i on i.id = instance_id where slug = 'channel'"
    )
    assert {(row["channel_type"], row["enabled"]) for row in rows} == {("slack", False), ("local", True)}
    assert {(row["talks"], row["target"]) for row in rows} == {("local", "you")}


async def test_a_channel_that_goes_and_comes_back_keeps_its_url(admin: Administering) -> None:
    await admin.apply(room_document("back"))
    answer = await admin.apply(room_document("back", channel=None))
    assert _changed(answer) == {"channel local": "delete"}
    answer = await admin.apply(room_document("back"))
    assert _changed(answer) == {"channel local": "create"}
    assert answer["urls"] == []


async def test_secrets_rotate(admin: Administering) -> None:
    document = room_document("rotate")
    await admin.apply(document, "old")

    async def stored() -> tuple[str, ...]:
        [row] = await admin.query(
            "select s.* from event_sources s join instances i on i.id = s.instance_id"
            " where slug = 'rotate' and s.name = 'crm'"
        )
        return _secrets(row)

    both = copy.deepcopy(document)
    both["sources"][0]["secrets"].append({"file": "new"})
    body = apply_body(both)
    body["secrets"]["crm"] = ["old", "new"]
    answer = (await admin.call("POST", "/apply", json=body)).json()
    assert _fields(answer, "source crm") == {"secrets": ("1 secret", "2 secrets (changed)")}
    assert await stored() == ("old", "new")
    answer = await admin.apply(document, "new")
    assert _fields(answer, "source crm") == {"secrets": ("2 secrets", "1 secret (changed)")}
    assert await stored() == ("new",)


@pytest.mark.parametrize("damage", ["cut", "changed", "another row's", "another key's"])
async def test_a_config_that_cannot_be_read_is_shown_and_applied_anew(own_admin: Administering, damage: str) -> None:
    document = room_document()
    await own_admin.apply(document)
    [row] = await own_admin.query("select id, config from event_sources where config is not null")
    config = bytes(row["config"])
    damaged = {
        "cut": config[:-3],
        "changed": config[:-1] + bytes([config[-1] ^ 1]),
        "another row's": _sealed(UUID(int=1)),
        "another key's": _sealed(row["id"], Keyring("k9", {"k9": b"\x09" * 32})),
    }[damage]
    await own_admin.query("update event_sources set config = %s where id = %s", damaged, row["id"])
    answer = await own_admin.apply(document, dry_run=True)
    assert _changed(answer) == {"source crm": "update"}
    assert _fields(answer, "source crm") == {"secrets": ("unreadable", "1 secret (changed)")}
    await own_admin.apply(document)
    [row] = await own_admin.query("select id, config from event_sources where config is not null")
    assert _secrets(row) == ("secret-1",)
    assert (await own_admin.apply(document))["changed"] is False


async def test_two_at_once_of_a_new_room_make_one(own_admin: Administering) -> None:
    answers = await asyncio.gather(*(own_admin.apply(room_document()) for _ in range(6)))
    assert Counter(answer["applied"] for answer in answers) == {True: 1, False: 5}
    counts = await own_admin.query("select count(*) as n from instances")
    tokens = await own_admin.query("select count(*) as n from source_tokens")
    assert (counts[0]["n"], tokens[0]["n"]) == (1, 3)


async def test_two_documents_at_once_leave_one_of_them_whole(own_admin: Administering) -> None:
    documents = [room_document(name=f"Desk {number}", mandate=f"Mandate {number}") for number in range(6)]
    await asyncio.gather(*(own_admin.apply(document) for document in documents))
    [row] = await own_admin.query("select name, prompt from instances i join instance_room r on r.instance_id = i.id")
    assert row["name"].removeprefix("Desk ") == row["prompt"].removeprefix("Mandate ")


async def test_apply_and_reveal_are_audited_without_secrets(
    own_admin: Administering, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    answer = await own_admin.apply(room_document(), "secret-word")
    [source, channel] = [
        (await own_admin.query(f"select id from {table} order by id limit 1"))[0]["id"]
        for table in ("event_sources", "instance_channels")
    ]
    urls = {url["url"] for url in answer["urls"]}
    for path in (f"/sources/{source}/reveal", f"/channels/{channel}/reveal"):
        assert (await own_admin.call("POST", path)).json()["url"] in urls
    rows = await own_admin.query("select * from audit_log order by occurred_at, id")
    assert [row["action"] for row in rows] == ["apply", "reveal_source", "reveal_channel"]
    assert {row["actor"] for row in rows} == {"the operator"}
    assert all(row["instance_id"] is not None for row in rows)
    assert "create source crm" in rows[0]["detail"]["changes"]
    said = json.dumps(rows, default=str) + "".join(repr(record.__dict__) for record in caplog.records)
    for secret in ("secret-word", *(url.rpartition("/")[2] for url in urls)):
        assert secret not in said


async def test_a_reveal_that_cannot_be_decrypted_says_so(own_admin: Administering) -> None:
    await own_admin.apply(room_document())
    [source] = await own_admin.query("select id from event_sources where name = 'ci'")
    for damage in ("set token_encrypted = '\\x0102'::bytea", "set token_encrypted = %s"):
        sealed = Keyring("k9", {"k9": b"\x09" * 32}).encrypt(b"x", table="t", column="c", row_id="r")
        await own_admin.query(f"update source_tokens {damage}", *([sealed] if "%s" in damage else []))
        answer = await own_admin.call("POST", f"/sources/{source['id']}/reveal")
        assert answer.status_code == 409
        assert answer.headers["content-type"] == "application/problem+json"
    assert [row["action"] for row in await own_admin.query("select action from audit_log")] == ["apply"]


async def test_a_timezone_that_only_python_knows_is_refused(
    admin: Administering, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await psycopg.AsyncConnection.connect(admin.dsn, row_factory=dict_row) as conn:
        assert await configuration.knows_timezone(conn, "Europe/Rome")
        assert not await configuration.knows_timezone(conn, "Mars/Olympus")
        await conn.execute("select 1")  # the transaction goes on

    async def unknown(*_: object) -> bool:
        return False

    monkeypatch.setattr(configuration, "knows_timezone", unknown)
    answer = await admin.call("POST", "/apply", json=apply_body(room_document("refused")))
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/room/timezone")


def _with(path: str, value: object) -> dict[str, Any]:
    body = apply_body(room_document("refused"))
    node: Any = body
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in parents:
        node = node[part]
    node[last] = value
    return body


@pytest.mark.parametrize(
    ("path", "value", "pointer"),
    [
        ("room/slug", "Upper", "/room/slug"),
        ("room/slug", "new\n", "/room/slug"),
        ("room/slug", "", "/room/slug"),
        ("room/name", "a\0b", "/room/name"),
        ("room/name", "a\nb", "/room/name"),
        ("room/name", "a\x1b[31m", "/room/name"),
        ("room/name", "\ud800", "/room/name"),
        ("room/name", " ", "/room/name"),
        ("room/name", "x" * 121, "/room/name"),
        ("room/mandate", "a\0b", "/room/mandate"),
        ("room/mandate", "\udfff", "/room/mandate"),
        ("room/timezone", "Mars/Olympus", "/room/timezone"),
        ("room/timezone", "../../etc/passwd", "/room/timezone"),
        ("room/version", 2, "/room/version"),
        ("room/version", 10**400, "/room/version"),
        ("room/channel/type", "pigeon", "/room/channel/type"),
        ("room/channel/type", "slack", "/room/channel"),
        ("room/channel/allow", ["a\x00"], "/room/channel/allow/0"),
        ("channel_secrets", {"bot_token": "x"}, "/channel_secrets/bot_token"),
        ("room/channel/target", "a\0", "/room/channel/target"),
        ("room/unknown", 1, "/room/unknown"),
        ("room/un\ud800known", 1, "/room"),
        ("room/sources/0/definitions/0/priority", 2**31, "/room/sources/0/definitions/0/priority"),
        ("room/sources/0/definitions/0/priority", 1e300, "/room/sources/0/definitions/0/priority"),
        ("room/sources/0/definitions/0/cooldown_seconds", 10**30, "/room/sources/0/definitions/0/cooldown_seconds"),
        ("room/sources/0/definitions/0/match", " ", "/room/sources/0/definitions/0/match"),
        ("room/sources/1/name", "crm", "/room"),
        ("room/sources/1/definitions/1/name", "broken", "/room/sources/1"),
        ("room/sources/1/secrets", [{"env": "A"}], "/room/sources/1"),
        ("secrets/crm", ["secret-word", "b"], "/secrets/crm"),
        ("secrets/crm", [], "/secrets/crm"),
        ("secrets/crm", [""], "/secrets/crm/0"),
        ("secrets/crm", ["\ud800secret-word"], "/secrets/crm/0"),
        ("secrets/a~b", ["secret-word"], "/secrets/a~0b"),
        ("dry_run", "perhaps", "/dry_run"),
        ("more", 1, "/more"),
    ],
)
async def test_a_wrong_document_is_refused_where_it_is_wrong(
    admin: Administering, path: str, value: object, pointer: str
) -> None:
    answer = await admin.call(
        "POST", "/apply", content=json.dumps(_with(path, value)), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert "secret-word" not in answer.text
    assert await admin.query("select id from instances where slug = 'refused'") == []


@pytest.mark.parametrize(
    ("content", "media", "statuses"),
    [
        (b"", "application/json", {422}),
        (b"{", "application/json", {422}),
        (b"[]", "application/json", {422}),
        (b"null", "application/json", {422}),
        (b"\xff\xfe", "application/json", {400, 422}),
        (b'{"room": NaN}', "application/json", {422}),
        (b'{"a":' * 20_000, "application/json", {400, 422}),
        (b"1" * 10_000, "application/json", {400, 422}),
        (b"room=1", "application/x-www-form-urlencoded", {422}),
        (b"{}", "text/plain", {422}),
    ],
)
async def test_what_is_no_document_is_refused(
    admin: Administering, content: bytes, media: str, statuses: set[int]
) -> None:
    answer = await admin.call("POST", "/apply", content=content, headers={"content-type": media})
    assert answer.status_code in statuses
    assert answer.headers["content-type"] == "application/problem+json"


async def test_an_exported_room_is_applied_without_a_change_and_without_its_secrets(admin: Administering) -> None:
    document = room_document("exported")
    await admin.apply(document, "hunter2")
    before = await _everything(admin)
    exported = await admin.get("/instances/exported/export")
    assert "hunter2" not in json.dumps(exported)
    assert exported["room"]["sources"][1]["secrets"][0]["stored"] == 1
    again = await admin.call("POST", "/apply", json=exported)
    assert again.status_code == 200, again.text
    assert again.json()["changed"] is False
    assert await _everything(admin) == before
    edited = exported["room"] | {"mandate": "Watch closely."}
    answer = await admin.call("POST", "/apply", json={"room": edited})
    assert _changed(answer.json()) == {"room exported": "update"}
    assert (await admin.get("/instances/exported/export"))["room"] == edited


async def test_a_stored_secret_that_is_not_there_is_refused_with_its_place(admin: Administering) -> None:
    document = room_document("unstored")
    document["sources"][0]["secrets"] = [{"stored": 1}]
    answer = await admin.call("POST", "/apply", json={"room": document})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/room/sources/0/secrets/0"
    assert (await admin.call("GET", "/instances/unstored/export")).status_code == 404
    assert (await admin.call("GET", "/instances/unstored/export", "viewer")).status_code == 403
