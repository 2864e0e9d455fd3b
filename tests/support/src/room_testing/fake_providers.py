"""Slack, Telegram, Twilio and a webhook receiver, as small servers that check what the real ones check."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final
from urllib.parse import parse_qs

from aiohttp import web
from standardwebhooks.webhooks import Webhook

from room_testing.fake_peer import FakePeer

SLACK_TOKEN: Final = "xoxb-test-token"
TELEGRAM_TOKEN: Final = "123456:test-token-of-a-bot"
ACCOUNT_SID: Final = "AC" + "0" * 32
AUTH_TOKEN: Final = "twilio-auth-token"
WEBHOOK_SECRET: Final = "whsec_" + base64.b64encode(b"k" * 24).decode()

_SLACK_ANGLE: Final = re.compile(r"<https?://[^<>|]+(\|[^<>|]*)?>")
_MARKDOWN_V2: Final = re.compile(
    r"```\n(?:[^`\\]|\\[`\\])*```|`(?:[^`\\]|\\[`\\])+`"
    r"|\[(?:[^\[\]\\]|\\.)+\]\((?:[^)\\]|\\[)\\])+\)|\*(?:[^_*\[\]()~`>#+\-=|{}.!\\]|\\.)+\*"
    r"|\\.|[^_*\[\]()~`>#+\-=|{}.!\\]",
    re.DOTALL,
)
"""One piece of well-formed MarkdownV2, of the kinds that we send."""


class FakeSlack(FakePeer):
    """``chat.postMessage`` and ``conversations.open`` of one bot. ``members`` are the people it may write to."""

    def __init__(self) -> None:
        super().__init__()
        self.members = {"U0ADA", "W0BOB"}
        self.channels = {"C0OPS"}
        self.error: str | None = None

    async def accept(self, request: web.Request, body: bytes) -> web.Response:
        """Slack answers 200 and says in the body what is wrong."""
        if request.headers.get("Authorization") != f"Bearer {SLACK_TOKEN}":
            return self._no("invalid_auth")
        if request.content_type != "application/json":
            return self._no("invalid_arguments")
        fields = json.loads(body)
        if self.error is not None:
            return self._no(self.error)
        if request.path == "/conversations.open":
            user = fields.get("users")
            if user not in self.members:
                return self._no("user_not_found")
            self.channels.add(f"D{user[1:]}")
            return web.json_response({"ok": True, "channel": {"id": f"D{user[1:]}"}})
        assert request.path == "/chat.postMessage", request.path
        if fields.get("channel") not in self.channels:
            return self._no("channel_not_found")
        text = fields.get("text", "")
        if not text.strip():
            return self._no("no_text")
        if len(text) > 40_000:
            return self._no("msg_too_long")
        assert "<" not in _SLACK_ANGLE.sub("", text), "markup that we did not mean"
        self.accepted.append(fields)
        return web.json_response(
            {"ok": True, "channel": fields["channel"], "ts": f"1700000000.{len(self.accepted):06}"}
        )

    def _no(self, error: str) -> web.Response:
        return web.json_response({"ok": False, "error": error})


class FakeTelegram(FakePeer):
    """``sendMessage`` of one bot."""

    def __init__(self) -> None:
        super().__init__()
        self.chats = {"42", "@news"}
        self.refuse_markup = False

    async def accept(self, request: web.Request, body: bytes) -> web.Response:
        """Telegram answers with the status that it repeats in the body."""
        if request.path != f"/bot{TELEGRAM_TOKEN}/sendMessage":
            return self._no(401, "Unauthorized")
        fields = json.loads(body)
        if str(fields.get("chat_id")) not in self.chats:
            return self._no(400, "Bad Request: chat not found")
        text = fields.get("text", "")
        if not text.strip():
            return self._no(400, "Bad Request: message text is empty")
        shown = text
        if fields.get("parse_mode") == "MarkdownV2":
            if self.refuse_markup or _MARKDOWN_V2.sub("", text):
                return self._no(400, "Bad Request: can't parse entities: character is reserved")
            shown = re.sub(r"\\(.)", r"\1", text)
        if len(shown.encode("utf-16-le")) // 2 > 4096:
            return self._no(400, "Bad Request: message is too long")
        self.accepted.append(fields)
        return web.json_response({"ok": True, "result": {"message_id": len(self.accepted), "text": shown}})

    def _no(self, status: int, description: str) -> web.Response:
        return web.json_response({"ok": False, "error_code": status, "description": description}, status=status)


class FakeTwilio(FakePeer):
    """The Messages resource of one account."""

    def __init__(self) -> None:
        super().__init__()
        self.unsubscribed: set[str] = set()

    async def accept(self, request: web.Request, body: bytes) -> web.Response:
        """Twilio wants a form and basic authentication."""
        expected = base64.b64encode(f"{ACCOUNT_SID}:{AUTH_TOKEN}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {expected}":
            return self._no(401, 20003)
        if request.path != f"/2010-04-01/Accounts/{ACCOUNT_SID}/Messages.json":
            return self._no(404, 20404)
        if request.content_type != "application/x-www-form-urlencoded":
            return self._no(400, 21602)
        form = {name: values[0] for name, values in parse_qs(body.decode(), strict_parsing=True).items()}
        if not re.fullmatch(r"whatsapp:\+\d{6,15}", form.get("To", "")):
            return self._no(400, 21211)
        if not re.fullmatch(r"whatsapp:\+\d{6,15}", form.get("From", "")):
            return self._no(400, 21212)
        if len(form.get("Body", "")) > 1600:
            return self._no(400, 21617)
        if form["To"] in self.unsubscribed:
            return self._no(400, 21610)
        self.accepted.append(form)
        return web.json_response({"sid": f"SM{len(self.accepted):032}", "status": "queued"}, status=201)

    def _no(self, status: int, code: int) -> web.Response:
        return web.json_response({"status": status, "code": code, "message": "scripted"}, status=status)


class FakeReceiver(FakePeer):
    """A receiver of Standard Webhooks that checks with their own library."""

    async def accept(self, request: web.Request, body: bytes) -> web.Response:
        """Keeps the verified payloads."""
        verified: dict[str, Any] = Webhook(WEBHOOK_SECRET).verify(body, dict(request.headers))
        self.accepted.append(verified)
        return web.Response(status=204)
