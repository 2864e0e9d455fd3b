"""Posting to a provider, and what its failures mean. Messages and answers are never repeated in an error."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import httpx
from opentelemetry.trace import Span, SpanKind

from room_common.egress.client import EgressRefused
from room_common.errors import DependencyUnavailable, Refused
from room_common.telemetry.tracing import Attributes, failed, span, tracer

_TIMEOUT: Final = 10.0


def provider_client() -> httpx.AsyncClient:
    """A client for addresses from the settings, which are trusted."""
    return httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False)


async def post(
    client: httpx.AsyncClient,
    url: str,
    *,
    rate_limit_in: Callable[[httpx.Response], object] | None = None,
    **request: Any,
) -> httpx.Response:
    """POST, and return the answer unless it is a 429 or 5xx: what another 4xx means, the caller knows.

    ``rate_limit_in`` finds the seconds to wait in the body of a 429. Raises ``DependencyUnavailable`` for no answer,
    429 and 5xx, ``Refused`` where the rules of egress say no.
    """
    try:
        with _post_span(client, url) as call:
            answer = await client.post(url, **request)
            call.set_attribute("http.response.status_code", answer.status_code)
            if answer.status_code >= 400:
                failed(call, str(answer.status_code))
    except EgressRefused as error:
        raise Refused(f"egress_{error.reason}") from None
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
        raise DependencyUnavailable("provider", "connect") from None
    except httpx.TimeoutException:
        raise DependencyUnavailable("provider", "timeout") from None
    except httpx.HTTPError:
        raise DependencyUnavailable("provider", "reset") from None
    except httpx.InvalidURL:
        raise Refused("bad_url") from None
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        try:
            wish = None if rate_limit_in is None else rate_limit_in(answer)
        except DependencyUnavailable:
            wish = None
        raise rate_limited(answer, wish)
    if answer.status_code >= 500:
        raise DependencyUnavailable("provider", f"http_{answer.status_code}")
    return answer


def _post_span(client: httpx.AsyncClient, url: str) -> AbstractContextManager[Span]:
    """The request as a span, without its path: it may hold a token. The trace goes no further than Room."""
    if tracer() is None:
        return span("")
    try:
        at = client.base_url.join(url)
    except (httpx.InvalidURL, UnicodeError):
        return span("POST", SpanKind.CLIENT, attributes={"http.request.method": "POST"})
    port = at.port or {"http": 80}.get(at.scheme, 443)
    attributes: Attributes = {"http.request.method": "POST", "server.address": at.host, "server.port": port}
    return span("POST", SpanKind.CLIENT, attributes=attributes)


def rate_limited(answer: httpx.Response, seconds: object = None) -> DependencyUnavailable:
    """The provider wants fewer calls; ``seconds`` is its wish where the body has one, else Retry-After counts."""
    wish = float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None
    if wish is None:
        value = answer.headers.get("retry-after", "")
        wish = float(value) if value.isascii() and value.isdecimal() else None
    return DependencyUnavailable("provider", "rate_limit", retry_after=wish)


def refuse_4xx(answer: httpx.Response) -> None:
    """Raise ``Refused`` for anything but success."""
    if answer.status_code >= 300:
        raise Refused(f"http_{answer.status_code}")


def fields(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object of an answer. Raises ``DependencyUnavailable`` for anything else."""
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DependencyUnavailable("provider", "bad_answer")
    return found
