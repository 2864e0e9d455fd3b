"""The webhook channel: a signed POST (Standard Webhooks) to a URL of the operator's choice.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md: ``webhook-id`` is the same
for every try, so that the receiver can drop a duplicate.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import orjson

from room_common.contracts.channel_config import ChannelConfig, WebhookConfig
from room_common.domain.signing import sign_standard
from room_common.errors import Defect
from room_outbound.adapters.http import post, refuse_4xx
from room_outbound.domain.pacing import Pace
from room_outbound.domain.provider import Letter


class OutboundWebhook:
    """Posts with the egress client: the target is not trusted."""

    longest: int | None = None
    pace: Pace | None = Pace(rate=10.0, burst=20.0)

    def __init__(self, client: httpx.AsyncClient, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._clock = clock

    async def send(self, letter: Letter, config: ChannelConfig) -> str:
        """See :class:`~room_outbound.domain.provider.Provider`. Any 2xx is an acceptance; its body is not read."""
        if not isinstance(config, WebhookConfig):
            raise Defect("not a webhook channel")
        body = orjson.dumps(
            {
                "type": "message",
                "timestamp": letter.created_at.isoformat(),
                "data": {"id": str(letter.id), "room": letter.room, "text": letter.text},
            }
        )
        signature = sign_standard(config.secret.encode(), body, message_id=letter.key, timestamp_s=int(self._clock()))
        headers = {"Content-Type": "application/json", **signature}
        refuse_4xx(await post(self._client, letter.target.strip(), content=body, headers=headers))
        return letter.key

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
