"""Where the API is, and calling it.

``ROOM_API_URL`` with ``ROOM_API_TOKEN`` (or ``ROOM_API_TOKEN_FILE``) names any installation; without them the stack
that runs in this folder is used.
"""

from __future__ import annotations

import json
import os
import shlex
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import quote

import httpx

from room_cli.failures import FAILED, UNREACHABLE, WRONG_INPUT, fail
from room_local.files import StackFiles
from room_local.status import status

_TIMEOUT: Final = httpx.Timeout(30.0, connect=5.0)
_FEED_TIMEOUT: Final = httpx.Timeout(60.0, connect=5.0)
"""A feed says every 15 seconds that it is still there."""


class Api:
    """The operator's API. Every failure ends the command with a message."""

    def __init__(
        self, base_url: str, token: str, transport: httpx.BaseTransport | None = None, *, seconds: float | None = None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        if not (token.isascii() and token.isprintable()):
            fail("the token has characters that no token has; was it copied whole?", WRONG_INPUT)
        self._client = httpx.Client(
            base_url=f"{self.base_url}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT if seconds is None else httpx.Timeout(seconds),
            trust_env=False,
            transport=transport,
        )
        weakref.finalize(self, self._client.close)  # commands let go of it by ending

    def get(self, path: str, **parameters: object) -> Any:
        """The JSON answer of a GET; parameters that are None are left out."""
        given = {name: str(value) for name, value in parameters.items() if value is not None}
        return self._call("GET", path, params=given)

    def post(self, path: str, body: object = None, *, seconds: float | None = None) -> Any:
        """The JSON answer of a POST, which may take ``seconds``."""
        options = {} if seconds is None else {"timeout": httpx.Timeout(seconds, connect=5.0)}
        return self._call("POST", path, json=body, **options)

    def put(self, path: str, body: object) -> Any:
        """The JSON answer of a PUT."""
        return self._call("PUT", path, json=body)

    def patch(self, path: str, body: object) -> Any:
        """The JSON answer of a PATCH."""
        return self._call("PATCH", path, json=body)

    def delete(self, path: str) -> Any:
        """The JSON answer of a DELETE."""
        return self._call("DELETE", path)

    def call(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> Any:
        """The JSON answer of any call."""
        return self._call(method, path, headers=headers, **({} if body is None else {"json": body}))

    @staticmethod
    def segment(text: str) -> str:
        """A word of a person's as one part of a path."""
        return quote(text, safe="")

    def items(self, path: str, limit: int, **parameters: object) -> list[dict[str, Any]]:
        """The first ``limit`` rows of a list, over as many pages as it takes."""
        rows: list[dict[str, Any]] = []
        cursor = None
        while len(rows) < limit:
            page = self.get(path, limit=min(limit - len(rows), 500), cursor=cursor, **parameters)
            rows += page["items"]
            cursor = page["next"]
            if cursor is None:
                break
        return rows

    def events(self, path: str, **parameters: object) -> Iterator[tuple[str, dict[str, Any]]]:
        """The server-sent events of a feed, by name, until it ends. A feed that falls silent ends the command."""
        given = {name: str(value) for name, value in parameters.items() if value is not None}
        try:
            with self._client.stream("GET", path, params=given, timeout=_FEED_TIMEOUT) as answer:
                if not answer.is_success:
                    answer.read()
                    _explain(answer)
                name = "message"
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        name = line.removeprefix("event: ")
                    elif line.startswith("data: "):
                        yield name, json.loads(line.removeprefix("data: "))
        except (httpx.HTTPError, ValueError) as error:
            fail(f"the feed of {self.base_url} broke off ({type(error).__name__})", UNREACHABLE)

    def _call(self, method: str, path: str, **options: Any) -> Any:
        try:
            answer = self._client.request(method, path, **options)
        except httpx.HTTPError as error:
            fail(f"the API at {self.base_url} does not answer ({type(error).__name__})", UNREACHABLE)
        if not answer.is_success:
            return _explain(answer)
        if answer.status_code == httpx.codes.NO_CONTENT:
            return None
        try:
            return answer.json()
        except ValueError:
            fail(f"what answers at {self.base_url} is not the API of Room", UNREACHABLE)


def connect(directory: Path, *, seconds: float | None = None) -> Api:
    """The API that the environment names, else the one of the stack in ``directory``; ``seconds`` bounds each call."""
    url = os.environ.get("ROOM_API_URL")
    if url:
        _check_url(url)
        return Api(url, _token_from_environment(), seconds=seconds)
    found = status(directory)
    if found.state != "running" or "admin" not in found.urls or found.token_file is None:
        fail(
            "no stack runs here: start one with `room up`, or set ROOM_API_URL and ROOM_API_TOKEN "
            "to use another installation",
            UNREACHABLE,
        )
    try:
        token = Path(found.token_file).read_text().strip()
    except OSError as error:
        fail(f"the operator's token in {found.token_file} can't be read ({error.strerror})", FAILED)
    return Api(found.urls["admin"], token, seconds=seconds)


def service_environment(directory: Path) -> Mapping[str, str]:
    """The environment for reading service settings: this process's own, over what the stack in ``directory`` says."""
    return dict(_exports(StackFiles(directory).environment)) | dict(os.environ)


def _exports(file: Path) -> Iterator[tuple[str, str]]:
    if not file.exists():
        return
    for word in shlex.split(file.read_text(), comments=True):
        name, equals, value = word.partition("=")
        if equals:
            yield name, value


def _check_url(url: str) -> None:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        fail("ROOM_API_URL is not an address like https://room.example.com", WRONG_INPUT)


def _token_from_environment() -> str:
    token, file = os.environ.get("ROOM_API_TOKEN"), os.environ.get("ROOM_API_TOKEN_FILE")
    if not token and file:
        try:
            token = Path(file).read_text().strip()
        except OSError as error:
            fail(f"ROOM_API_TOKEN_FILE can't be read ({error.strerror})", WRONG_INPUT)
        except UnicodeDecodeError:
            fail("ROOM_API_TOKEN_FILE is not text", WRONG_INPUT)
    if not token:
        fail("ROOM_API_URL is set, but neither ROOM_API_TOKEN nor ROOM_API_TOKEN_FILE", WRONG_INPUT)
    return token


def _explain(answer: httpx.Response) -> NoReturn:
    try:
        problem = answer.json()
        lines = [str(problem.get("detail") or problem.get("title") or answer.reason_phrase)]
        lines += [f"  {error['pointer'] or 'body'}: {error['detail']}" for error in problem.get("errors", ())]
        message = "\n".join(lines)
    except (ValueError, AttributeError, KeyError, TypeError):
        message = f"the API answered {answer.status_code} {answer.reason_phrase}"
    fail(message, UNREACHABLE if answer.status_code in (502, 503, 504) else FAILED)
