"""WhatsApp through Twilio's Messages resource.

https://www.twilio.com/docs/messaging/api/message-resource: Twilio knows no idempotency key here.
"""

from __future__ import annotations

from typing import Final

import httpx

from room_common.contracts.channel_config import ChannelConfig, WhatsAppConfig
from room_common.domain.contacts import canonical
from room_common.errors import Defect, DependencyUnavailable, Refused
from room_outbound.adapters.http import fields, post, provider_client
from room_outbound.domain.pacing import Pace
from room_outbound.domain.provider import Letter

_UNSUBSCRIBED: Final = 21610


class TwilioWhatsApp:
    """Sends from the channel's number."""

    longest: int | None = 1600
    pace: Pace | None = Pace(rate=10.0, burst=20.0)

    def __init__(self, base_url: str, client: httpx.AsyncClient | None = None) -> None:
        self._base = base_url.rstrip("/")
        self._client = client or provider_client()

    async def send(self, letter: Letter, config: ChannelConfig) -> str:
        """See :class:`~room_outbound.domain.provider.Provider`."""
        if not isinstance(config, WhatsAppConfig):
            raise Defect("not a WhatsApp channel")
        form = {
            "From": f"whatsapp:{config.sender}",
            "To": f"whatsapp:{canonical('whatsapp', letter.target)}",
            "Body": letter.text,
        }
        url = f"{self._base}/2010-04-01/Accounts/{config.account_sid}/Messages.json"
        answer = await post(self._client, url, data=form, auth=(config.account_sid, config.auth_token))
        if answer.status_code >= 300:
            raise Refused(_reason(answer))
        message_id = fields(answer).get("sid")
        if not isinstance(message_id, str):
            raise DependencyUnavailable("provider", "bad_answer")
        return message_id

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _reason(answer: httpx.Response) -> str:
    """Twilio's number of the error where it gives one: https://www.twilio.com/docs/api/errors"""
    try:
        code = fields(answer).get("code")
    except DependencyUnavailable:
        code = None
    if code == _UNSUBSCRIBED:
        return "opted_out"
    return f"twilio_{code}" if isinstance(code, int) else f"http_{answer.status_code}"
