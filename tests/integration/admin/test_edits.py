"""Making and changing rooms part by part: what is stored, whom it belongs to, and what two who change at once get."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from room_admin import spending
from room_admin.allowance import Allowance
from room_common.errors import DependencyUnavailable
from room_common.identity import new_id
from room_common.postgres import answered
from room_testing.administering import TOKENS, Administering, room_document

pytestmark = pytest.mark.integration

ANY = {"If-Match": "*"}


async def send(admin: Administering, method: str, path: str, status: int, body: Any = None, **headers: str) -> Any:
    """One request that is answered ``status``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await admin.call(method, path, headers=named, **({} if body is None else {"json": body}))
    assert answer.status_code == status, answer.text
    return answer


async def exported(admin: Administering, slug: str) -> Any:
    return (await admin.get(f"/instances/{slug}/export"))["room"]


async def test_a_room_is_made_part_by_part(admin: Administering) -> None:
    await send(admin, "POST", "/instances", 201, {"name": "Parts", "slug": "parts", "mandate": "Watch."})
    source = {"name": "crm", "type": "hubspot", "secrets": ["s" * 20]}
    made = (await send(admin, "POST", "/instances/parts/sources", 201, source)).json()
    assert made["url"].startswith("https://hooks.example.com/webhooks/")
    path = f"/sources/{made['id']}"
    definition = {"name": "won", "match": "a deal was won"}
    new = (await send(admin, "POST", f"{path}/definitions", 201, definition)).json()
    await send(admin, "PUT", "/instances/parts/channel", 200, {"type": "local", "target": "you"}, If_Match="*")
    await send(admin, "PATCH", f"/definitions/{new['id']}", 200, {"match": "a deal was lost"}, If_Match="*")
    room = await exported(admin, "parts")
    assert room["mandate"] == "Watch."
    assert room["channel"]["target"] == "you"
    assert room["sources"][0]["secrets"] == [{"env": None, "file": None, "stored": 1}]
    assert room["sources"][0]["definitions"][0]["match"] == "a deal was lost"
    shown = await admin.get(f"/definitions/{new['id']}", "viewer")
    assert (shown["room"], shown["source"], shown["version"]) == ("parts", "crm", 2)
    await send(admin, "PATCH", path, 200, {"dedup_seconds": 60}, If_Match="*")
    assert (await exported(admin, "parts"))["sources"][0]["secrets"] != []
    await send(admin, "DELETE", "/instances/parts/channel", 200)
    assert (await exported(admin, "parts"))["channel"] is None


async def test_settings_beside_the_document(admin: Administering) -> None:
    await admin.apply(room_document("settings"))
    body = {"token_budget_daily": None, "locale": "it-IT", "name": "New"}
    assert (await send(admin, "PATCH", "/instances/settings", 200, body, If_Match="*")).json()["changed"]
    shown = await admin.get("/instances/settings")
    assert (shown["token_budget_daily"], shown["locale"], shown["name"]) == (None, "it-IT", "New")
    sections = {"sections": [{"name": "tone", "text": "Be brief."}]}
    await send(admin, "PUT", "/instances/settings/prompts", 200, sections, If_Match="*")
    assert await admin.get("/instances/settings/prompts") == sections


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer"),
    [
        ("POST", "/instances/wrong/sources", {"name": "x", "type": "generic", "verify": {"auth_key": {}}}, ""),
        ("POST", "/instances/wrong/sources", {"name": "x", "type": "standard", "secrets": ["no"]}, "/secrets/0"),
        ("POST", "/instances/wrong/sources", {"name": "", "type": "stripe"}, "/name"),
        ("PUT", "/instances/wrong/channel", {"type": "slack", "target": "nobody"}, ""),
        ("PUT", "/instances/wrong/tools/crm", {"type": "mcp", "url": "ftp://x"}, ""),
        ("PATCH", "/instances/wrong", {"timezone": "Mars/Base"}, "/timezone"),
        ("PATCH", "/instances/wrong", {}, ""),
        ("POST", "/instances", {"name": "x", "slug": "Not A Slug"}, "/slug"),
    ],
)
async def test_an_error_points_to_its_field(
    admin: Administering, method: str, path: str, body: Any, pointer: str
) -> None:
    await admin.apply(room_document("wrong"))
    problem = (await send(admin, method, path, 422, body, If_Match="*")).json()
    assert problem["errors"][0]["pointer"] == pointer


async def test_names_are_taken_once(admin: Administering) -> None:
    await admin.apply(room_document("taken"))
    source = next(row for row in (await admin.get("/instances/taken/sources"))["items"] if row["name"] == "crm")
    for path, body in (
        ("/instances", {"name": "x", "slug": "taken"}),
        ("/instances/taken/sources", {"name": "crm", "type": "generic"}),
        (f"/sources/{source['id']}/definitions", {"name": "won", "match": "m"}),
    ):
        problem = (await send(admin, "POST", path, 409, body)).json()
        assert problem["errors"][0]["pointer"] in ("/slug", "/name")
    assert len((await exported(admin, "taken"))["sources"]) == 2


async def test_who_replaces_says_what_they_saw(admin: Administering) -> None:
    await admin.apply(room_document("seen"))
    seen = (await send(admin, "GET", "/instances/seen", 200)).headers["etag"]
    await send(admin, "PATCH", "/instances/seen", 428, {"mandate": "Mine."})
    await send(admin, "PATCH", "/instances/seen", 200, {"mandate": "Mine."}, If_Match=seen)
    for stale in (seen, f"W/{seen}", '"x"', "x"):
        problem = await send(admin, "PATCH", "/instances/seen", 412, {"mandate": "Theirs."}, If_Match=stale)
        assert problem.headers["content-type"] == "application/problem+json"
    assert (await admin.get("/instances/seen"))["mandate"] == "Mine."
    [source, *_] = (await admin.get("/instances/seen/sources"))["items"]
    await send(admin, "DELETE", f"/sources/{source['id']}", 412, If_Match=seen)
    await send(admin, "PATCH", f"/sources/{source['id']}", 412, {"enabled": False}, If_Match=seen)
    now = (await send(admin, "GET", f"/sources/{source['id']}", 200)).headers["etag"]
    assert now != seen
    await send(admin, "DELETE", f"/sources/{source['id']}", 200, If_Match=f"{seen}, {now}")


async def test_what_the_room_does_itself_is_no_other_version(admin: Administering) -> None:
    room = await admin.listed("working")
    seen = (await send(admin, "GET", "/instances/working", 200)).headers["etag"]
    await admin.query("update instance_room set updated_at = now(), fails = 1 where instance_id = %s", room.instance_id)
    await admin.query("update event_definitions set cooling_until = now() where id = %s", room.definition_id)
    assert (await send(admin, "GET", "/instances/working", 200)).headers["etag"] == seen


async def test_what_somebody_changes_is_another_version(admin: Administering) -> None:
    room = await admin.listed("versions")
    await send(admin, "PUT", "/instances/versions/tools/crm", 200, {"type": "python"}, If_Match="*")
    seen: list[str] = []

    async def look() -> None:
        seen.append((await send(admin, "GET", "/instances/versions", 200)).headers["etag"])
        assert seen.count(seen[-1]) == 1

    await look()
    definition, source = f"/definitions/{room.definition_id}", f"/sources/{room.source_id}"
    for path in (definition, source, "/instances/versions"):
        await send(admin, "PATCH", path, 200, {"enabled": False})
        await look()
    for path in (definition, source):
        await send(admin, "DELETE", path, 200)
        await look()
    for table in ("instance_channels", "instance_tools"):
        await admin.query(f"update {table} set updated_at = now() where instance_id = %s", room.instance_id)
        await look()


async def test_two_who_add_at_once_both_do(admin: Administering) -> None:
    await admin.apply(room_document("both"))
    bodies = [{"name": name, "type": "generic"} for name in ("one", "two")]
    await asyncio.gather(*(send(admin, "POST", "/instances/both/sources", 201, body) for body in bodies))
    assert {source["name"] for source in (await exported(admin, "both"))["sources"]} == {"crm", "ci", "one", "two"}


async def test_a_create_that_is_sent_again_is_done_once(admin: Administering) -> None:
    await admin.apply(room_document("again"))
    body = {"name": "new", "type": "generic"}
    path = "/instances/again/sources"
    first = await send(admin, "POST", path, 201, body, Idempotency_Key="k1")
    second = await send(admin, "POST", path, 201, body, Idempotency_Key="k1")
    assert second.json() == first.json()
    assert (first.headers.get("idempotency-replayed"), second.headers["idempotency-replayed"]) == (None, "true")
    other = await send(admin, "POST", path, 409, body | {"name": "other"}, Idempotency_Key="k1")
    assert "another request" in other.json()["detail"]
    await send(admin, "POST", path, 409, body, Idempotency_Key="k2")
    kept = await admin.query("select answer from api_answers")
    assert len(kept) == 1  # what failed is not kept
    assert first.json()["url"].encode() not in bytes(kept[0]["answer"])
    await send(admin, "POST", path, 400, body, Idempotency_Key="two words")


async def test_a_request_under_way_is_not_done_twice_and_one_that_died_may_be(admin: Administering) -> None:
    await admin.apply(room_document("under"))
    path, body = "/instances/under/sources", {"name": "new", "type": "generic"}
    await send(admin, "POST", path, 201, body, Idempotency_Key="k3")
    await admin.query("update api_answers set answer = null")
    waiting = await send(admin, "POST", path, 409, body, Idempotency_Key="k3")
    assert waiting.headers["retry-after"] == "2"
    await admin.query("update api_answers set expires_at = now() - interval '1 second'")
    assert "has a source" in (await send(admin, "POST", path, 409, body, Idempotency_Key="k3")).json()["detail"]


async def test_nobody_has_an_answer_that_they_would_not_get_again(
    admin: Administering, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise DependencyUnavailable("postgresql")

    monkeypatch.setattr(answered, "keep", away)
    await admin.apply(room_document("unkept"))
    body = {"name": "new", "type": "generic"}
    await send(admin, "POST", "/instances/unkept/sources", 503, body, Idempotency_Key="k5")


async def test_keys_are_each_callers_own(admin: Administering) -> None:
    await admin.apply(room_document("own"))
    made = (await send(admin, "POST", "/tokens", 201, {"name": "second", "role": "operator"})).json()
    TOKENS["second"] = made["token"]
    body = {"name": "new", "type": "generic"}
    await send(admin, "POST", "/instances/own/sources", 201, body, Idempotency_Key="k4")
    theirs = await admin.call("POST", "/instances/own/sources", "second", json=body, headers={"Idempotency-Key": "k4"})
    assert "has a source of this name" in theirs.json()["detail"]
    again = {"json": body | {"name": "theirs"}, "headers": {"Idempotency-Key": "k4"}}
    assert (await admin.call("POST", "/instances/own/sources", "second", **again)).status_code == 201
    await send(admin, "DELETE", f"/tokens/{made['id']}", 200)
    assert (await admin.call("POST", "/instances/own/sources", "second", **again)).status_code == 401
    assert (await admin.call("GET", "/me", "second")).status_code == 401
    del TOKENS["second"]


async def test_the_last_operator_stays(own_admin: Administering) -> None:
    tokens = (await own_admin.get("/tokens"))["items"]
    assert all("sha256" not in row and "token" not in row for row in tokens)
    [operator] = [row["id"] for row in tokens if row["role"] == "operator"]
    await send(own_admin, "DELETE", f"/tokens/{operator}", 409)
    assert (await own_admin.get("/me")) == {"name": "the operator", "role": "operator"}


async def test_expensive_calls_are_counted(admin: Administering) -> None:
    room = await admin.listed("spent")
    answers = [await admin.call("GET", f"/cycles/{room.cycle_id}/messages") for _ in range(70)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 0 < len(refused) <= 10
    assert int(refused[0].headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("kind", "method", "path", "body"),
    [
        ("read", "GET", "/backlog/{id}/payload", None),
        ("read", "GET", "/cycles/{id}/messages", None),
        ("read", "GET", "/deliveries/{id}/life", None),
        ("read", "GET", "/deliveries/{id}/payload", None),
        ("replay", "POST", "/deliveries/{id}/replay", {}),
        ("write", "POST", "/instances/desk/answer", {"text": "yes"}),
        ("write", "POST", "/instances/desk/channel/test", {}),
    ],
)
async def test_whoever_has_used_up_an_allowance_waits(
    admin: Administering, monkeypatch: pytest.MonkeyPatch, kind: spending.Kind, method: str, path: str, body: Any
) -> None:
    monkeypatch.setitem(admin.app.state.allowances, kind, Allowance(0, 1.0))
    refused = await send(admin, method, path.format(id=new_id()), 429, body)
    assert refused.headers["retry-after"] == "1"


async def test_every_small_list_has_pages(admin: Administering) -> None:
    await admin.listed("pages")
    await admin.listed("pages-2")
    for path in ("/instances", "/instances/pages/sources", "/instances/pages/definitions", "/tokens", "/audit"):
        whole = (await admin.get(path))["items"]
        assert len(whole) > 1
        found: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            page = await admin.get(path, limit=1, **cursor)
            found += page["items"]
            if page["next"] is None:
                break
            cursor = {"cursor": page["next"]}
        assert found == whole
