"""The bound on a request's body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from room_admin import problems
from room_admin.limits import MAX_BODY, BodyLimit


def _app() -> FastAPI:
    app = FastAPI()
    problems.install(app)
    app.add_middleware(BodyLimit)

    @app.post("/count")
    async def count(body: dict[str, Any]) -> int:
        return len(body["text"])

    return app


async def _post(content: bytes | AsyncIterator[bytes], **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(_app()), base_url="http://room") as client:
        return await client.post(
            "/count",
            content=content,
            headers={"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()},
        )


def _json(size: int) -> bytes:
    return b'{"text":"' + b"x" * (size - 11) + b'"}'


async def _chunks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]


async def test_a_body_at_the_limit_is_read() -> None:
    for content in (_json(MAX_BODY), _chunks(_json(MAX_BODY))):
        answer = await _post(content)
        assert (answer.status_code, answer.json()) == (200, MAX_BODY - 11)


@pytest.mark.parametrize("how", ["declared", "chunked", "lie", "absurd"])
async def test_a_larger_body_is_refused(how: str) -> None:
    body = _json(MAX_BODY + 1)
    if how == "declared":
        answer = await _post(body)
    elif how == "chunked":
        answer = await _post(_chunks(body))
    elif how == "lie":
        answer = await _post(_chunks(body), content_length="10")
    else:
        answer = await _post(_json(20), content_length="9" * 5000)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"
    assert str(MAX_BODY) in answer.json()["detail"]
