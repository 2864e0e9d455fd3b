"""Slack: ``chat.postMessage`` with mrkdwn. A person's id (``U...``) opens a direct conversation first.

https://docs.slack.dev/reference/methods/chat.postMessage: Slack knows no idempotency key.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from typing import Any, Final

import httpx

from room_common.contracts.channel_config import ChannelConfig, SlackConfig
from room_common.domain.contacts import canonical
from room_common.errors import Defect, DependencyUnavailable, Refused
from room_outbound.adapters.http import fields, post, provider_client, rate_limited, refuse_4xx
from room_outbound.domain.markup import to_mrkdwn
from room_outbound.domain.pacing import Pace
from room_outbound.domain.provider import Letter

_ERROR: Final = re.compile(r"[a-z_]{1,60}")
_PASSING: Final = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
_REMEMBERED: Final = 10_000


class Slack:
    """Posts as the channel's bot."""

    longest: int | None = 3900
    pace: Pace | None = Pace(rate=1.0, burst=5.0)

    def __init__(self, base_url: str, client: httpx.AsyncClient | None = None) -> None:
        self._base = base_url.rstrip("/")
        self._client = client or provider_client()
        self._conversations: OrderedDict[tuple[bytes, str], str] = OrderedDict()

    async def send(self, letter: Letter, config: ChannelConfig) -> str:
        """See :class:`~room_outbound.domain.provider.Provider`."""
        if not isinstance(config, SlackConfig):
            raise Defect("not a Slack channel")
        conversation = await self._conversation(config, canonical("slack", letter.target))
        body = {"channel": conversation, "text": to_mrkdwn(letter.text), "mrkdwn": True, "unfurl_links": False}
        answer = await self._call(config, "chat.postMessage", body)
        message_id = answer.get("ts")
        if not isinstance(message_id, str):
            raise DependencyUnavailable("provider", "bad_answer")
        return message_id

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _conversation(self, config: SlackConfig, target: str) -> str:
        if target[:1] not in ("U", "W"):
            return target
        key = (hashlib.sha256(config.bot_token.encode()).digest(), target)
        known = self._conversations.get(key)
        if known is not None:
            return known
        try:
            opened = (await self._call(config, "conversations.open", {"users": target})).get("channel")
        except DependencyUnavailable as error:
            # Opening sends nothing, so even a channel that wants nothing twice may try again.
            kind = error.kind if error.kind == "rate_limit" else "connect"
            raise DependencyUnavailable("provider", kind, retry_after=error.retry_after) from None
        if not isinstance(opened, dict) or not isinstance(opened.get("id"), str):
            raise DependencyUnavailable("provider", "connect")
        self._conversations[key] = conversation = str(opened["id"])
        if len(self._conversations) > _REMEMBERED:
            self._conversations.popitem(last=False)
        return conversation

    async def _call(self, config: SlackConfig, method: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {config.bot_token}"}
        answer = await post(self._client, f"{self._base}/{method}", json=body, headers=headers)
        refuse_4xx(answer)
        found = fields(answer)
        if found.get("ok") is True:
            return found
        error = str(found.get("error"))
        if error in ("ratelimited", "rate_limited"):
            raise rate_limited(answer)
        if error in _PASSING:
            raise DependencyUnavailable("provider", f"slack_{error}")
        raise Refused(f"slack_{error}" if _ERROR.fullmatch(error) else "slack_error")
