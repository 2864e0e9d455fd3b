"""Errors as problem details (RFC 9457), the same shape for every one of them."""

from __future__ import annotations

import logging
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from room_common.errors import DependencyUnavailable

_log = logging.getLogger(__name__)

_TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    422: "Not valid",
    500: "Internal error",
    503: "Unavailable",
}


class FieldError(BaseModel):
    """One field that is wrong. ``pointer`` is a JSON pointer into the body, or names a parameter."""

    pointer: str
    detail: str


class ProblemDetails(BaseModel):
    """The body of every error."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str | None = None
    errors: list[FieldError] = Field(default_factory=list)


class Problem(Exception):
    """Ends a request with an error that tells the caller what to do."""

    def __init__(self, status: int, detail: str, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors


def respond(
    status: int, detail: str | None, errors: tuple[FieldError, ...] = (), headers: dict[str, str] | None = None
) -> Response:
    """A problem as a response."""
    problem = ProblemDetails(
        title=_TITLES.get(status, "Error"), status=status, detail=detail, errors=list(errors)
    ).model_dump(exclude_defaults=True)
    return Response(
        orjson.dumps({"type": "about:blank", **problem}),
        status_code=status,
        media_type="application/problem+json",
        headers=headers,
    )


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` as a problem."""

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> Response:
        return respond(error.status, error.detail, error.errors)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        errors = tuple(FieldError(pointer=pointer(item["loc"]), detail=_detail(item)) for item in error.errors())
        return respond(422, "some fields are not valid", errors)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        return respond(error.status_code, str(error.detail), headers=dict(error.headers or {}))

    @app.exception_handler(DependencyUnavailable)
    async def unavailable(_: Request, error: DependencyUnavailable) -> Response:
        return respond(503, f"{error.dependency} does not answer; try again", headers={"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        _log.error("request failed", exc_info=error, extra={"method": request.method})
        return respond(500, "something went wrong here; the log of admin says what")


def pointer(location: tuple[Any, ...]) -> str:
    """A JSON pointer for a place in the body, ``?name`` for a query parameter, ``name`` for one in the path."""
    where, rest = (str(location[0]), location[1:]) if location else ("body", ())
    if where == "body":
        return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in rest) or "/"
    name = ".".join(str(part) for part in rest)
    return f"?{name}" if where == "query" else name


def _detail(item: dict[str, Any]) -> str:
    message = str(item.get("msg", "is not valid"))
    return message.partition(", ")[2] if item.get("type") == "value_error" else message
