"""The shape of every error."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from room_admin import problems
from room_admin.problems import FieldError, Problem, pointer, respond
from room_common.errors import DependencyUnavailable


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ((), ""),
        (("body",), ""),
        (("body", "room", "sources", 0, "name"), "/room/sources/0/name"),
        (("body", "a/b", "m~n"), "/a~1b/m~0n"),
        (("body", ""), "/"),
        (("query", "limit"), "?limit"),
        (("path", "slug"), "slug"),
    ],
)
def test_pointer(location: tuple[Any, ...], expected: str) -> None:
    assert pointer(location) == expected


@given(st.lists(st.text()))
def test_a_pointer_leads_back(parts: list[str]) -> None:
    tokens = pointer(("body", *parts)).split("/")[1:]
    assert [token.replace("~1", "/").replace("~0", "~") for token in tokens] == parts


@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=()), max_size=1000))
def test_any_text_can_be_answered(detail: str, where: str) -> None:
    answer = respond(422, detail, (FieldError.model_construct(pointer=where, detail=detail),))
    body = json.loads(bytes(answer.body))
    assert body["status"] == 422
    assert len(body["errors"][0]["pointer"]) <= 300


def _app() -> FastAPI:
    app = FastAPI()
    problems.install(app)

    @app.get("/problem")
    async def problem() -> None:
        raise Problem(401, "who are you?")

    @app.get("/away")
    async def away() -> None:
        raise DependencyUnavailable("postgresql", "connect")

    @app.get("/defect")
    async def defect() -> None:
        raise ValueError("s3cr3t")

    return app


async def _get(path: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(_app()), base_url="http://room") as client:
        return await client.request(method, path)


@pytest.mark.parametrize(("path", "status"), [("/problem", 401), ("/away", 503), ("/defect", 500), ("/nowhere", 404)])
async def test_errors_have_one_shape(path: str, status: int) -> None:
    answer = await _get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["type"] == "about:blank"
    assert answer.json()["title"]


async def test_headers_say_what_to_do() -> None:
    assert (await _get("/problem")).headers["www-authenticate"] == "Bearer"
    assert int((await _get("/away")).headers["retry-after"]) > 0
    assert (await _get("/away", "POST")).headers["allow"] == "GET"


async def test_a_defect_is_logged_without_its_message(caplog: pytest.LogCaptureFixture) -> None:
    answer = await _get("/defect")
    assert "s3cr3t" not in answer.text
    [record] = caplog.records
    assert record.__dict__["error"] == "ValueError"
    assert any("test_problems.py" in place for place in record.__dict__["where"])
    assert "s3cr3t" not in repr(record.__dict__)
    assert record.exc_info is None
