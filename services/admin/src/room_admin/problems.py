"""Errors as problem details (RFC 9457), the same shape for every one of them."""

from __future__ import annotations

import logging
import traceback
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from room_common.domain.jsonview import storable_text
from room_common.errors import DependencyUnavailable

_log = logging.getLogger(__name__)

_TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Gone",
    412: "Changed meanwhile",
    413: "Too large",
    422: "Not valid",
    428: "Precondition needed",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
}
_MAX_TEXT: Final = 300
_RETRY_AFTER: Final = "5"


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

    def __init__(
        self, status: int, detail: str, errors: tuple[FieldError, ...] = (), *, retry_after: int | None = None
    ) -> None:
        super().__init__(detail)
        self.retry_after = retry_after
        self.status = status
        self.detail = detail
        self.errors = errors


def respond(
    status: int, detail: str | None, errors: tuple[FieldError, ...] = (), headers: dict[str, str] | None = None
) -> Response:
    """A problem as a response."""
    problem = ProblemDetails(
        title=_TITLES.get(status, "Error"),
        status=status,
        detail=None if detail is None else storable_text(detail),
        errors=[FieldError(pointer=_short(one.pointer), detail=_short(one.detail)) for one in errors],
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
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        return respond(error.status, error.detail, error.errors, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return respond(422, "some fields are not valid", tuple(_field_error(item) for item in error.errors()))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        return respond(error.status_code, str(error.detail), headers=dict(error.headers or {}))

    @app.exception_handler(DependencyUnavailable)
    async def unavailable(_: Request, error: DependencyUnavailable) -> Response:
        return respond(503, f"{error.dependency} does not answer; try again", headers={"Retry-After": _RETRY_AFTER})

    app.add_middleware(Unexpected)


class Unexpected:
    """Answers an error that nobody expected, and logs what and where it was but not its message.

    Messages of errors may hold what was posted or stored. Starlette would hand the error on to the server, which logs
    it whole.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            fields = {"method": scope.get("method"), "error": type(error).__name__, "where": where[-8:]}
            _log.error("request failed", extra=fields)
            if not started:
                await respond(500, "something went wrong here; the log of admin says where")(scope, receive, send)


def pointer(location: tuple[Any, ...]) -> str:
    """A JSON pointer for a place in the body, ``?name`` for a query parameter, ``name`` for one in the path.

    The pointer to the whole body is the empty text (RFC 6901).
    """
    where, rest = (str(location[0]), location[1:]) if location else ("body", ())
    if where == "body":
        return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in rest)
    name = ".".join(str(part) for part in rest)
    return f"?{name}" if where == "query" else name


def _field_error(item: dict[str, Any]) -> FieldError:
    kind, message = item.get("type"), str(item.get("msg", "is not valid"))
    if kind == "json_invalid":  # its place is a position in the text
        return FieldError(pointer="", detail=f"is not valid JSON at character {item['loc'][-1]}")
    if kind == "value_error":
        message = message.partition(", ")[2]
    return FieldError(pointer=pointer(item["loc"]), detail=message)


def _short(text: str) -> str:
    text = storable_text(text)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."
