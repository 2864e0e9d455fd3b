"""The local channel: the inbox of the person at this machine, over HTTP."""

from __future__ import annotations

from typing import Final

import httpx

from room_common.errors import DependencyUnavailable, Refused
from room_outbound.domain.provider import Letter

_TIMEOUT: Final = 10.0


class LocalInbox:
    """Posts to the inbox's ``/v1/messages``, which keeps one message per id."""

    longest: int | None = None

    def __init__(self, base_url: str, client: httpx.AsyncClient | None = None) -> None:
        self._url = f"{base_url.rstrip('/')}/v1/messages"
        self._client = client or httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False)

    async def send(self, letter: Letter) -> str:
        """See :class:`~room_outbound.domain.provider.Provider`."""
        body = {
            "id": str(letter.id),
            "room": letter.room,
            "target": letter.target,
            "text": letter.text,
            "created_at": letter.created_at.isoformat(),
        }
        try:
            answer = await self._client.post(self._url, json=body, headers={"Idempotency-Key": letter.key})
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise DependencyUnavailable("provider", "connect") from None
        except httpx.TimeoutException:
            raise DependencyUnavailable("provider", "timeout") from None
        except httpx.HTTPError:
            raise DependencyUnavailable("provider", "reset") from None
        return _message_id(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _message_id(answer: httpx.Response) -> str:
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        raise DependencyUnavailable("provider", "rate_limit", retry_after=_seconds(answer.headers.get("retry-after")))
    if answer.status_code >= 500:
        raise DependencyUnavailable("provider", f"http_{answer.status_code}")
    if answer.status_code >= 300:
        raise Refused(f"http_{answer.status_code}")
    try:
        return str(answer.json()["message_id"])
    except (ValueError, KeyError, TypeError):
        raise DependencyUnavailable("provider", "bad_answer") from None


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdecimal() else None
