"""The local channel: the inbox of the person at this machine, over HTTP."""

from __future__ import annotations

import httpx

from room_common.contracts.channel_config import ChannelConfig
from room_common.errors import DependencyUnavailable
from room_outbound.adapters.http import fields, post, provider_client, refuse_4xx
from room_outbound.domain.pacing import Pace
from room_outbound.domain.provider import Letter


class LocalInbox:
    """Posts to the inbox's ``/v1/messages``, which keeps one message per id."""

    longest: int | None = None
    pace: Pace | None = None

    def __init__(self, base_url: str, client: httpx.AsyncClient | None = None) -> None:
        self._url = f"{base_url.rstrip('/')}/v1/messages"
        self._client = client or provider_client()

    async def send(self, letter: Letter, config: ChannelConfig) -> str:
        """See :class:`~room_outbound.domain.provider.Provider`."""
        body = {
            "id": str(letter.id),
            "room": letter.room,
            "target": letter.target,
            "text": letter.text,
            "created_at": letter.created_at.isoformat(),
        }
        answer = await post(self._client, self._url, json=body, headers={"Idempotency-Key": letter.key})
        refuse_4xx(answer)
        message_id = fields(answer).get("message_id")
        if not isinstance(message_id, str):
            raise DependencyUnavailable("provider", "bad_answer")
        return message_id

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
