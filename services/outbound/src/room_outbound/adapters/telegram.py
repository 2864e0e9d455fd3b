"""Telegram: ``sendMessage`` with MarkdownV2, and as plain text where Telegram refuses the markup.

https://core.telegram.org/bots/api#sendmessage: Telegram knows no idempotency key.
"""

from __future__ import annotations

from typing import Any

import httpx

from room_common.contracts.channel_config import ChannelConfig, TelegramConfig
from room_common.domain.contacts import canonical
from room_common.errors import Defect, DependencyUnavailable, Refused
from room_outbound.adapters.http import fields, post, provider_client
from room_outbound.domain.markup import to_markdown_v2
from room_outbound.domain.pacing import Pace
from room_outbound.domain.provider import Letter


class Telegram:
    """Sends as the channel's bot."""

    longest: int | None = 4000
    pace: Pace | None = Pace(rate=1.0, burst=5.0)

    def __init__(self, base_url: str, client: httpx.AsyncClient | None = None) -> None:
        self._base = base_url.rstrip("/")
        self._client = client or provider_client()

    async def send(self, letter: Letter, config: ChannelConfig) -> str:
        """See :class:`~room_outbound.domain.provider.Provider`."""
        if not isinstance(config, TelegramConfig):
            raise Defect("not a Telegram channel")
        chat = canonical("telegram", letter.target)
        marked = {"chat_id": chat, "text": to_markdown_v2(letter.text), "parse_mode": "MarkdownV2"}
        answer, found = await self._call(config, marked)
        if answer.status_code == 400 and "parse entities" in str(found.get("description")):
            answer, found = await self._call(config, {"chat_id": chat, "text": letter.text})
        if answer.status_code >= 300:
            raise Refused(f"telegram_{answer.status_code}")
        result = found.get("result")
        if found.get("ok") is not True or not isinstance(result, dict) or "message_id" not in result:
            raise DependencyUnavailable("provider", "bad_answer")
        return str(result["message_id"])

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _call(self, config: TelegramConfig, body: dict[str, Any]) -> tuple[httpx.Response, dict[str, Any]]:
        answer = await post(
            self._client, f"{self._base}/bot{config.bot_token}/sendMessage", json=body, rate_limit_in=_wish
        )
        if answer.status_code >= 300:
            try:
                return answer, fields(answer)
            except DependencyUnavailable:
                return answer, {}
        return answer, fields(answer)


def _wish(answer: httpx.Response) -> object:
    """Telegram says in the body how long to wait."""
    parameters = fields(answer).get("parameters")
    return parameters.get("retry_after") if isinstance(parameters, dict) else None
