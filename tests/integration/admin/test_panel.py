"""The panel's pages on a real database: who sees what, how many statements a page takes, and outside text as text."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from typing import Any, Literal

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from room_admin import spending
from room_admin.allowance import Allowance
from room_admin.panel.sessions import COOKIE, CSRF_HEADER
from room_common.identity import new_id
from room_testing.administering import TOKENS, Administering, ListedRoom, opened
from room_testing.panel_browser import ORIGIN, Browser, outside, signed_in

pytestmark = pytest.mark.integration

MARK = "<xss-mark onclick=alert(1)>\"'&\u202e\x1b</script></pre>"
MOST_STATEMENTS = 10
"""Of one page, the session included; sign-in and changes are no pages."""
PAGES = (
    "/panel/",
    "/panel/volume",
    "/panel/services",
    "/panel/rooms/{slug}",
    "/panel/deliveries",
    "/panel/deliveries?room={slug}&source=crm&outcome=matched&period=7d&until=2999-01-01T00:00",
    "/panel/deliveries/{delivery_id}",
    "/panel/backlog",
    "/panel/backlog/{event_id}",
    "/panel/inbox",
    "/panel/cycles",
    "/panel/cycles/{cycle_id}",
    "/panel/cycles/{cycle_id}/live",
    "/panel/messages",
    "/panel/activity",
    "/panel/charts",
    "/panel/charts?room={slug}&period=7d",
    "/panel/charts/drawn?room={slug}",
    "/panel/rooms/{slug}/chronicle",
    "/panel/rooms/{slug}/chronicle?by=week",
    "/panel/rooms/{slug}/chronicle?by=month",
    "/panel/sources/{source_id}",
)
FOR_OPERATORS = (
    "/panel/new",
    "/panel/rooms/{slug}/edit",
    "/panel/rooms/{slug}/channel",
    "/panel/rooms/{slug}/channel?type=whatsapp",
    "/panel/rooms/{slug}/conversation",
    "/panel/rooms/{slug}/sources/new",
    "/panel/rooms/{slug}/sources/new?type=generic",
    "/panel/sources/{source_id}/edit",
    "/panel/sources/{source_id}/definitions/new",
    "/panel/sources/{source_id}/definitions/{definition_id}",
    "/panel/settings",
    "/panel/audit",
    "/panel/audit?room={slug}&action=apply&actor=the+operator",
)
CHANGES = (
    "/panel/sources/{source_id}/reveal",
    "/panel/sources/{source_id}/rotate",
    "/panel/sources/{source_id}/switch?on=true",
    "/panel/channels/{channel_id}/reveal",
    "/panel/rooms/{slug}/switch?on=true",
    "/panel/rooms/{slug}/tick",
    "/panel/rooms/{slug}/definitions/{definition_id}/move?up=true",
    "/panel/definitions/{definition_id}/switch?on=true",
    "/panel/messages/{cycle_id}/resend",
    "/panel/rooms/{slug}/channel/test",
)
HOSTILE_FORMS = tuple(path for path in FOR_OPERATORS if "/channel" not in path and "{source_id}/edit" not in path)
"""Those that are drawn without the room's document, which can't be made of names with control characters."""
FORMS = (
    "/panel/new",
    "/panel/rooms/{slug}/edit",
    "/panel/rooms/{slug}/delete",
    "/panel/rooms/{slug}/channel?type=local",
    "/panel/rooms/{slug}/channel/remove",
    "/panel/rooms/{slug}/conversation",
    "/panel/rooms/{slug}/sources/new?type=github",
    "/panel/sources/{source_id}/edit",
    "/panel/sources/{source_id}/delete",
    "/panel/sources/{source_id}/order",
    "/panel/sources/{source_id}/definitions/try",
    "/panel/sources/{source_id}/definitions/save",
    "/panel/sources/{source_id}/definitions/{definition_id}/delete",
    "/panel/backlog/{event_id}/retry",
    "/panel/backlog/{event_id}/complete",
    "/panel/inbox/{event_id}/retry",
    "/panel/settings/tokens",
    "/panel/settings/tokens/0123456789abcdef/revoke",
)
"""Changes that need a form, or another state than the room's."""


def filled(path: str, room: ListedRoom) -> str:
    """A path with the ids of a room."""
    return path.format(
        slug=room.slug,
        source_id=room.source_id,
        channel_id=room.channel_id,
        definition_id=room.definition_id,
        delivery_id=room.delivery_id,
        event_id=room.event_id,
        cycle_id=room.cycle_id,
    )


@pytest.fixture(scope="module")
def room(postgres_dsn: str) -> ListedRoom:
    """One room with rows in every list."""

    async def make() -> ListedRoom:
        async with opened(postgres_dsn) as world:
            made = await world.listed("panel")
            await world.query("update outbound_messages set id = cycle_id, status = 'failed', error = 'refused'")
            return made

    return asyncio.run(make())


@pytest.mark.parametrize("path", PAGES)
async def test_a_viewer_sees_lists_and_no_texts(admin: Administering, room: ListedRoom, path: str) -> None:
    async with signed_in(admin, "viewer") as browser:
        shown = await browser.page(filled(path, room))
    assert "private" not in shown
    assert "hx-post" not in shown.replace('hx-post="/panel/logout"', "")
    assert TOKENS["viewer"] not in shown


@pytest.mark.parametrize("path", PAGES)
async def test_an_operator_sees_texts(admin: Administering, room: ListedRoom, path: str) -> None:
    async with signed_in(admin, "operator") as browser:
        shown = await browser.page(filled(path, room))
    with_texts = ("/deliveries/", "/backlog/", "/inbox", "/cycles/", "/messages")
    assert ("private" in shown) == any(part in path for part in with_texts)
    assert TOKENS["operator"] not in shown


@pytest.mark.parametrize("path", PAGES)
async def test_without_a_session_there_is_only_the_door(admin: Administering, room: ListedRoom, path: str) -> None:
    async with outside(admin) as client:
        for cookie in ({}, {COOKIE: "x" * 43}, {COOKIE: "\x00"}, {COOKIE: TOKENS["operator"]}):
            client.cookies = httpx.Cookies(cookie)
            answer = await client.get(filled(path, room))
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/panel/login?next=%2Fpanel%2F")
            polled = await client.get(filled(path, room), headers={"HX-Request": "true"})
            assert (polled.status_code, polled.headers["hx-redirect"], polled.text) == (401, "/panel/login", "")


@pytest.mark.parametrize("path", PAGES)
async def test_statements_of_a_page(
    admin: Administering, room: ListedRoom, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with signed_in(admin, "operator") as browser:
        ran: list[object] = []
        execute = psycopg.AsyncConnection.execute

        async def counted(self: Any, query: Any, *args: Any, **options: Any) -> Any:
            ran.append(query)
            return await execute(self, query, *args, **options)

        monkeypatch.setattr(psycopg.AsyncConnection, "execute", counted)
        await browser.page(filled(path, room))
    assert 0 < len(ran) <= MOST_STATEMENTS, ran


@pytest.mark.parametrize("path", CHANGES)
async def test_changes_are_for_operators(admin: Administering, room: ListedRoom, path: str) -> None:
    async with signed_in(admin, "viewer") as viewer:
        assert (await viewer.change(filled(path, room))).status_code == 403
    async with signed_in(admin, "operator") as operator:
        answer = await operator.change(filled(path, room))
        assert answer.status_code == 200, answer.text
        if "reveal" in path or "rotate" in path:
            assert "https://hooks.example.com/" in answer.text
            assert "no-store" in answer.headers["cache-control"]


async def test_forms_are_for_operators_and_from_here(admin: Administering, room: ListedRoom) -> None:
    form = {"name": "x", "text": "x", "sure": room.slug, "type": "local"}
    async with signed_in(admin, "viewer") as viewer, signed_in(admin, "operator") as operator:
        elsewhere = Browser(operator.client, viewer.csrf)
        for path in FORMS:
            assert (await viewer.change(filled(path, room), **form)).status_code == 403, path
            assert (await elsewhere.change(filled(path, room), **form)).status_code == 403, path
            headers = {"Origin": "http://room.evil", CSRF_HEADER: operator.csrf}
            answer = await operator.client.post(filled(path, room), headers=headers, data=form)
            assert answer.status_code == 403, path


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("read", "/panel/deliveries/{delivery_id}/payload"),
        ("replay", "/panel/deliveries/{delivery_id}/replay"),
        ("write", "/panel/rooms/{slug}/conversation"),
        ("write", "/panel/rooms/{slug}/channel/test"),
    ],
)
async def test_what_is_limited_in_the_api_is_limited_here(
    admin: Administering, room: ListedRoom, monkeypatch: pytest.MonkeyPatch, kind: spending.Kind, path: str
) -> None:
    monkeypatch.setitem(admin.app.state.allowances, kind, Allowance(0, 1.0))
    async with signed_in(admin, "operator") as operator:
        answer = await operator.change(filled(path, room), text="yes")
    assert answer.status_code == 429
    assert "these calls are expensive" in answer.text


async def test_pages_for_operators(admin: Administering, room: ListedRoom) -> None:
    async with signed_in(admin, "viewer") as viewer, signed_in(admin, "operator") as operator:
        for path in FOR_OPERATORS:
            assert (await viewer.client.get(filled(path, room))).status_code == 403, path
            shown = await operator.page(filled(path, room))
            assert TOKENS["operator"] not in shown
            assert "secret-1" not in shown


@pytest.mark.parametrize("path", [*CHANGES, "/panel/logout", "/panel/deliveries/{delivery_id}/replay"])
@pytest.mark.parametrize(
    ("change", "value"),
    [
        (CSRF_HEADER, None),
        (CSRF_HEADER, "0" * 64),
        (CSRF_HEADER, "é"),
        ("Origin", None),
        ("Origin", "null"),
        ("Origin", "http://room.evil"),
        ("Origin", "http://room:81"),
        ("Origin", "http://[x"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ],
)
async def test_changes_from_elsewhere_are_refused(
    admin: Administering, room: ListedRoom, path: str, change: str, value: str | None
) -> None:
    async with signed_in(admin, "operator") as browser:
        headers = ORIGIN | {CSRF_HEADER: browser.csrf, change: value}
        sent = [(name.encode(), text.encode()) for name, text in headers.items() if text is not None]
        answer = await browser.client.post(filled(path, room), headers=sent)
        assert answer.status_code == 403
        assert (await browser.client.get("/panel/")).status_code == 200


async def test_headers_of_every_answer(admin: Administering, room: ListedRoom) -> None:
    async with signed_in(admin, "operator") as browser:
        pages = ("/panel/", "/panel/login", "/panel/nothing", "/panel/deliveries/x")
        paths = (*pages, "/panel/static/panel.css?v=1", "/panel/static/keys.js")
        for answer in [await browser.client.get(path) for path in paths]:
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self';")
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            same = answer.url.path == "/panel/login"
            assert answer.headers["referrer-policy"] == ("same-origin" if same else "no-referrer")
            named, asset = answer.url.query.startswith(b"v="), answer.url.path.startswith("/panel/static/")
            assert ("immutable" in answer.headers["cache-control"]) == named
            assert (answer.headers["cache-control"] == "no-cache") == (asset and not named)
            assert ("no-store" in answer.headers["cache-control"]) == (not asset)


async def test_the_front_door_and_what_is_not_there(admin: Administering) -> None:
    async with outside(admin) as client:
        for path in ("/", "/panel"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, "/panel/")
        assert (await client.get("/nothing")).headers["content-type"] == "application/problem+json"
        assert (await client.get("/panel/static/../pages.py")).status_code == 404
    async with signed_in(admin, "viewer") as browser:
        for path in (
            "/panel/nothing",
            "/panel/rooms/none",
            f"/panel/cycles/{new_id()}",
            f"/panel/deliveries/{new_id()}",
        ):
            answer = await browser.client.get(path)
            assert answer.status_code == 404
            assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    "query",
    [
        "outcome=nothing",
        "room=NOT+A+SLUG",
        "period=1y",
        "cursor=x",
        "until=soon",
        "until=0001-01-01T00:00",
        "source=%00",
    ],
)
async def test_filters_that_can_not_be(admin: Administering, query: str) -> None:
    async with signed_in(admin, "viewer") as browser:
        answer = await browser.client.get(f"/panel/deliveries?{query}")
    assert answer.status_code in (400, 422)
    assert "Not valid" in answer.text or "Bad Request" in answer.text


async def test_pages_of_a_list_cover_every_row_once(own_admin: Administering) -> None:
    await own_admin.listed("many", 120)
    seen: list[str] = []
    async with signed_in(own_admin, "operator") as browser:
        path: str | None = "/panel/inbox?room=many"
        pages = 0
        while path is not None:
            shown = await browser.page(path)
            pages += 1
            seen += re.findall(r'<tr role="row" id="r-([0-9a-f-]{36})"', shown)
            older = re.search(r'href="([^"]+)" data-page="older"', shown)
            path = None if older is None else older[1].replace("&amp;", "&")
    assert (pages, len(seen), len(set(seen))) == (3, 120, 120)


class _Elements(HTMLParser):
    """Every element with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


async def test_a_feed_without_a_session_is_not_asked_for_again(admin: Administering, room: ListedRoom) -> None:
    async with outside(admin) as client:
        path = filled("/panel/cycles/{cycle_id}/feed", room)
        assert (await client.get(path, headers={"Accept": "text/event-stream"})).status_code == 204
    async with signed_in(admin, "operator") as browser:
        answer = await browser.client.get(path)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "event: transcript" in answer.text
    assert answer.text.endswith("event: end\ndata: {}\n\n")


@pytest.fixture(scope="module")
def hostile(postgres_dsn: str) -> ListedRoom:
    """A room in which everything that anybody can write is an attempt to be more than text."""

    async def make() -> ListedRoom:
        async with opened(postgres_dsn) as world:
            made = await world.listed("hostile")
            marks = Jsonb({MARK: MARK})
            verdicts = Jsonb([{"name": MARK, "verdict": MARK, "warning": MARK, "answer": MARK}])
            call = {"id": MARK, "function": {"name": MARK, "arguments": MARK}}
            transcript = (
                ("system", {"content": MARK}),
                ("assistant", {"content": MARK, "tool_calls": [call]}),
                ("tool", {"content": MARK * 100, "tool_call_id": MARK}),
            )
            changes: tuple[tuple[str, tuple[object, ...]], ...] = (
                ("instances set name = %s where id = %s", (MARK,)),
                ("instance_room set prompt = %s, parked_reason = %s where instance_id = %s", (MARK, MARK)),
                ("event_sources set name = %s || right(id::text, 9) where instance_id = %s", (MARK,)),
                ("room_inbox set sender = %s, text = %s, status = 'failed' where instance_id = %s", (MARK, MARK)),
                ("outbound_messages set text = %s, target = %s, error = %s where instance_id = %s", (MARK,) * 3),
                ("room_activity_log set content = %s where instance_id = %s", (MARK,)),
                (
                    "event_backlog set notes = %s, raw_body = %s, headers = %s where instance_id = %s",
                    (MARK, json.dumps({"a": MARK}).encode(), marks),
                ),
                (
                    "webhook_deliveries set reason = %s, changes = %s, verdicts = %s, trace_id = %s"
                    " where instance_id = %s",
                    (MARK, Jsonb([MARK]), verdicts, MARK),
                ),
                ("room_cycles set worker = %s, error_kind = %s, reason = %s where instance_id = %s", (MARK,) * 3),
            )
            for change, values in changes:
                await world.query(f"update {change}", *values, made.instance_id)
            await world.query(
                "update event_definitions set name = %s, matching_prompt = %s, interpretation_prompt = %s"
                " where id = %s",
                *(MARK, MARK, MARK, made.definition_id),
            )
            for seq, (role, content) in enumerate(transcript, 2):
                await world.query(
                    "insert into cycle_messages (cycle_id, seq, role, content) values (%s, %s, %s, %s)",
                    *(made.cycle_id, seq, role, Jsonb(content)),
                )
            await world.query(
                "insert into service_state (service, process, version, held_reason, detail)"
                " values (%s, %s, %s, %s, %s)",
                *(MARK, MARK, MARK, MARK, marks),
            )
            return made

    return asyncio.run(make())


@pytest.mark.parametrize(
    ("role", "path"),
    [*(("viewer", path) for path in PAGES), *(("operator", path) for path in (*PAGES, *HOSTILE_FORMS))],
)
async def test_outside_text_stays_text(
    admin: Administering, hostile: ListedRoom, path: str, role: Literal["viewer", "operator"]
) -> None:
    async with signed_in(admin, role) as browser:
        shown = await browser.page(filled(path, hostile).replace("source=crm&", ""))
    assert "<xss-mark" not in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    counted = ("volume", "drawn", "/edit", "by=week", "by=month", "settings", "sources/new", "channel")
    without = any(part in path for part in counted) or path in ("/panel/new", FOR_OPERATORS[-1], FOR_OPERATORS[-2])
    if not without and (role == "operator" or "/cycles/" not in path):
        assert "&lt;xss-mark" in shown
    for tag, attributes in _Elements(shown).found:
        assert tag not in ("iframe", "object", "embed", "base")
        assert "style" not in attributes
        assert tag != "script" or str(attributes["src"]).startswith("/panel/static/")
        assert not any(name.startswith(("on", "hx-on")) for name in attributes)
        for name in ("href", "src", "action", "hx-get", "hx-post"):
            assert str(attributes.get(name, "/panel/")).startswith(("/panel/", "#")), attributes


async def test_an_installation_without_anything_says_what_to_do(own_admin: Administering) -> None:
    async with signed_in(own_admin, "viewer") as browser:
        home = await browser.page("/panel/")
        assert "room apply -f" in home
        assert "/panel/new" not in home
        for name in ("deliveries", "backlog", "inbox", "cycles", "messages", "activity"):
            assert "Nothing here yet" in await browser.page(f"/panel/{name}")
            assert "Nothing like that" in await browser.page(f"/panel/{name}?period=1h")


async def test_a_database_that_is_away_is_said(own_admin: Administering, monkeypatch: pytest.MonkeyPatch) -> None:
    async with signed_in(own_admin, "viewer") as browser:
        await own_admin.app.state.database.stop()
        answer = await browser.client.get("/panel/")
    assert answer.status_code == 503
    assert "postgresql does not answer" in answer.text
