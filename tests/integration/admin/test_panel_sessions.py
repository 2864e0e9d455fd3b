"""Who is signed in to the panel, how long, and from where it may be used."""

from __future__ import annotations

import logging

import pytest

from room_admin.panel.sessions import COOKIE
from room_testing.administering import TOKENS, Administering
from room_testing.panel_browser import ORIGIN, Browser, outside, signed_in

pytestmark = pytest.mark.integration


async def test_a_session_ends_by_time_by_revocation_and_by_signing_out(own_admin: Administering) -> None:
    async with signed_in(own_admin, "operator") as first, signed_in(own_admin, "operator") as second:
        assert (await first.change("/panel/logout")).headers["hx-redirect"] == "/panel/login"
        assert COOKIE not in first.client.cookies
        assert (await first.client.get("/panel/")).status_code == 303
        await second.page("/panel/")
        await own_admin.query("update panel_sessions set expires_at = now()")
        assert (await second.client.get("/panel/")).status_code == 303
    async with signed_in(own_admin, "viewer") as third:
        # Signing in takes away what is over.
        assert len(await own_admin.query("select 1 as one from panel_sessions")) == 1
        await own_admin.query("update api_tokens set revoked_at = now() where role = 'viewer'")
        assert (await third.client.get("/panel/")).status_code == 303


async def test_the_cookie_of_one_session_does_not_change_in_another(own_admin: Administering) -> None:
    async with signed_in(own_admin, "operator") as first, signed_in(own_admin, "operator") as second:
        crossed = Browser(first.client, second.csrf)
        assert (await crossed.change("/panel/logout")).status_code == 403


async def test_signing_in_shows_the_token_nowhere(own_admin: Administering, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = TOKENS["operator"]
    async with outside(own_admin) as client:
        wrong = await client.post("/panel/login", data={"token": token + "x"}, headers=ORIGIN)
        assert (wrong.status_code, COOKIE in client.cookies) == (401, False)
        empty = await client.post("/panel/login", data={"token": " "}, headers=ORIGIN)
        assert empty.status_code == 422
        answer = await client.post("/panel/login", data={"token": f" {token}\n"}, headers=ORIGIN)
        home = await client.get("/panel/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie
    for text in (wrong.text, empty.text, answer.text, home.text, str(answer.headers), caplog.text):
        assert token not in text
    stored = await own_admin.query("select panel_sessions::text as row from panel_sessions")
    session = client.cookies[COOKIE]
    assert len(stored) == 1
    assert session not in stored[0]["row"]
    assert [row["action"] for row in await own_admin.query("select action from audit_log")] == ["panel_sign_in"]


async def test_over_https_the_cookie_stays_there(own_admin: Administering) -> None:
    async with outside(own_admin) as client:
        answer = await client.post(
            "/panel/login", data={"token": TOKENS["viewer"]}, headers={"Origin": "https://room", "Host": "room"}
        )
    assert "secure" in answer.headers["set-cookie"].lower()


@pytest.mark.parametrize("origin", [None, "null", "http://evil", "ftp://room", "http://room:8"])
async def test_signing_in_from_elsewhere_is_refused(own_admin: Administering, origin: str | None) -> None:
    async with outside(own_admin) as client:
        headers = {} if origin is None else {"Origin": origin}
        answer = await client.post("/panel/login", data={"token": TOKENS["viewer"]}, headers=headers)
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize(
    ("target", "leads"),
    [
        ("/panel/cycles?status=failed", "/panel/cycles?status=failed"),
        ("https://evil.example/panel/", "/panel/"),
        ("//evil.example/panel/", "/panel/"),
        ("/panel/\\evil.example", "/panel/"),
        ("/panel/../api", "/panel/"),
        ("/panel/x\r\nSet-Cookie: a=b", "/panel/"),
        ("javascript:alert(1)", "/panel/"),
        ("/panel/login", "/panel/"),
        ("http://[", "/panel/"),
        ("", "/panel/"),
    ],
)
async def test_signing_in_leads_only_into_the_panel(own_admin: Administering, target: str, leads: str) -> None:
    async with outside(own_admin) as client:
        answer = await client.post("/panel/login", data={"token": TOKENS["viewer"], "next": target}, headers=ORIGIN)
    assert (answer.status_code, answer.headers["location"]) == (303, leads)


async def test_a_link_from_elsewhere_is_asked_for_once_more_from_here(own_admin: Administering) -> None:
    async with outside(own_admin) as client:
        answer = await client.get("/panel/cycles?room=a", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200
    assert 'content="0; url=/panel/cycles?room=a"' in answer.text
