"""Rooms built and changed by the panel's forms, and what is audited of reading there."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest

from room_common.identity import new_id
from room_common.postgres import panel_charts, panel_parts
from room_testing.administering import Administering, room_document
from room_testing.panel_browser import signed_in

pytestmark = pytest.mark.integration


async def test_building_a_room_by_its_forms(own_admin: Administering) -> None:
    async with signed_in(own_admin, "operator") as browser:
        wrong = await browser.change("/panel/new", name="Übung", timezone="Rome", talks="local", target="you")
        assert wrong.status_code == 422
        assert 'aria-describedby="hint-timezone wrong-timezone"' in wrong.text
        made = await browser.change("/panel/new", name="Übung", timezone="Europe/Rome", talks="local", target="you")
        assert made.headers["hx-redirect"] == "/panel/rooms/ubung"
        again = await browser.change("/panel/new", name="Übung", timezone="UTC", talks="none")
        assert again.status_code == 422

        bad = await browser.change("/panel/rooms/ubung/sources/new?type=standard", name="s", secret="no whsec")
        assert bad.status_code == 422
        assert "no whsec" not in bad.text
        source = await browser.change("/panel/rooms/ubung/sources/new?type=github", name="s", secret="first-secret")
        page = source.headers["hx-redirect"].partition("?")[0]
        for name in ("one", "two"):
            saved = await browser.change(f"{page}/definitions/save", name=name, match="it is so", enabled="on")
            assert saved.headers["hx-redirect"].startswith("/panel/rooms/ubung#source-")
        rows = (await own_admin.get("/instances/ubung/definitions"))["items"]
        assert [(row["name"], row["priority"]) for row in rows] == [("one", 10), ("two", 20)]
        order = [row["id"] for row in reversed(rows)]
        assert (await browser.change(f"{page}/order", definition=order)).status_code == 204
        assert (await browser.change(f"{page}/order", definition=order[:1])).status_code == 422

        path = f"{page}/definitions/{order[0]}"
        seen = _hidden(await browser.page(path), "seen")
        other = await browser.change(f"{page}/definitions/save?id={order[1]}", match="other", seen=seen, enabled="on")
        assert "hx-redirect" in other.headers
        late = await browser.change(f"{page}/definitions/save?id={order[0]}", match="late", seen=seen, enabled="on")
        assert late.status_code == 422
        assert "Somebody else has changed this" in late.text

        seen = _hidden(await browser.page(f"{page}/edit"), "seen")
        kept = await browser.change(f"{page}/edit", secret="second-secret", keep="keep", seen=seen)
        assert kept.headers["hx-redirect"] == page
        document = (await own_admin.get("/instances/ubung/export"))["room"]
        assert len(document["sources"][0]["secrets"]) == 2

        answered = await browser.change("/panel/rooms/ubung/conversation", text="Hello <b>you</b>")
        assert answered.status_code == 200
        [record] = own_admin.records.sent
        assert (record.topic, json.loads(record.value or b"")["text"]) == ("room.replies.raw", "Hello <b>you</b>")
        assert (await browser.change("/panel/rooms/ubung/conversation", text=" ")).status_code == 422

        token = await browser.change("/panel/settings/tokens", name="guest", role="viewer")
        secret = re.search('value="(room_[^"]+)"', token.text)
        assert secret is not None
        assert secret[1] not in await browser.page("/panel/settings")
        assert (await browser.change("/panel/rooms/ubung/delete", sure="no")).status_code == 422
        assert (await browser.change("/panel/rooms/ubung/delete", sure="ubung")).headers["hx-redirect"] == "/panel/"


def _hidden(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None
    return unescape(found[1])


async def test_following_a_cycle_is_audited(own_admin: Administering) -> None:
    room = await own_admin.listed("followed")
    async with signed_in(own_admin, "operator") as browser:
        answer = await browser.client.get(f"/panel/cycles/{room.cycle_id}/feed")
    assert "event: transcript" in answer.text
    [read] = (await own_admin.get("/audit", action="show_transcript"))["items"]
    assert read["subject"] == str(room.cycle_id)


async def test_reading_a_conversation_is_audited(own_admin: Administering) -> None:
    room = await own_admin.listed("talked")
    async with signed_in(own_admin, "operator") as browser:
        await browser.page("/panel/rooms/talked/conversation")
    [read] = (await own_admin.get("/audit", action="show_conversation"))["items"]
    assert read["subject"] == str(room.instance_id)


async def test_definitions_are_moved(own_admin: Administering) -> None:
    await own_admin.apply(room_document("ordered"))

    async def order() -> list[tuple[str, Any]]:
        rows = (await own_admin.get("/instances/ordered/definitions"))["items"]
        return [(row["name"], row["id"]) for row in rows if row["source"] == "ci"]

    before = await order()
    async with signed_in(own_admin, "operator") as browser:
        answer = await browser.change(f"/panel/rooms/ordered/definitions/{before[1][1]}/move?up=true")
        assert (answer.status_code, answer.headers["hx-refresh"]) == (200, "true")
        assert await order() == before[::-1]
        again = await browser.change(f"/panel/rooms/ordered/definitions/{before[1][1]}/move?up=true")
        assert again.status_code == 200
        assert await order() == before[::-1]
        gone = await browser.change(f"/panel/rooms/ordered/definitions/{new_id()}/move?up=true")
        assert gone.status_code == 404
        assert 'role="alert"' in gone.text
        assert "<html" not in gone.text


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/panel/rooms/late/edit", {"name": "Late", "timezone": "UTC"}),
        ("/panel/rooms/late/channel?type=local", {"target": "you", "delivery": "at_least_once"}),
    ],
)
async def test_a_form_drawn_before_another_change_is_refused(
    own_admin: Administering, path: str, form: dict[str, str]
) -> None:
    await own_admin.apply(room_document("late"))
    async with signed_in(own_admin, "operator") as browser:
        drawn = _hidden(await browser.page(path), "seen")
        meanwhile = {"name": "Other", "timezone": "UTC", "seen": drawn}
        assert "hx-redirect" in (await browser.change("/panel/rooms/late/edit", **meanwhile)).headers
        late = await browser.change(path, seen=drawn, **form)
        assert late.status_code == 422
        assert "Somebody else has changed this" in late.text
        fresh = _hidden(await browser.page(path), "seen")
        assert "hx-redirect" in (await browser.change(path, seen=fresh, **form)).headers


async def test_secrets_do_not_come_back_with_a_channel_that_is_wrong(own_admin: Administering) -> None:
    await own_admin.apply(room_document("told"))
    async with signed_in(own_admin, "operator") as browser:
        seen = _hidden(await browser.page("/panel/rooms/told/channel?type=slack"), "seen")
        form = {"target": "", "bot_token": "xoxb-never-told", "signing_secret": "never-told-either"}
        wrong = await browser.change("/panel/rooms/told/channel?type=slack", seen=seen, **form)
        assert wrong.status_code == 422
        assert "never-told" not in wrong.text


async def test_charts_and_failures_count_what_they_say(own_admin: Administering) -> None:
    room = await own_admin.listed("counted")
    for outcome, replay_of in (("bad_signature", None), ("no_match", None), ("matched", room.delivery_id)):
        await own_admin.query(
            "insert into webhook_deliveries (received_at, id, source_id, instance_id, outcome, reason, size, topic,"
            ' "partition", "offset", replay_of) values'
            " (now() - interval '2 minutes', %s, %s, %s, %s, 'a reason', 1, 't', 0, 0, %s)",
            new_id(), room.source_id, room.instance_id, outcome, replay_of,
        )  # fmt: skip
    async with own_admin.database.transaction() as conn:
        [decided] = await panel_charts.deciding(conn, room.instance_id, slots=1, slot_seconds=3600)
        volume = await panel_charts.volume(conn, room.instance_id, slots=1, slot_seconds=3600)
        [failure] = await panel_parts.signature_failures(conn, room.source_id)
    assert decided["items"] == 3, "a replay is decided when somebody wants it"
    assert sum(row["items"] for row in volume) == 4
    assert (failure["reason"], failure["items"]) == ("a reason", 1)
