"""Idempotency keys: a POST that is sent again with the same key gets the same answer, and is done once."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final

import orjson
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from room_admin.access import digest_of
from room_admin.limits import MAX_BODY
from room_admin.problems import respond
from room_common.crypto import Keyring, UnknownKey
from room_common.errors import DependencyUnavailable, Refused
from room_common.postgres import access, answered
from room_common.postgres.database import Database

HEADER: Final = "idempotency-key"
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
_TABLE, _COLUMN = "api_answers", "answer"
_REPEATED: Final = "idempotency-replayed"
_PARAMETER: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": "^[!-~]{1,200}$", "title": "Idempotency-Key"},
    "description": "Sent again with the same key, the request is done once and answered the same for 24 hours.",
}
_KEPT_HEADERS: Final = frozenset({"content-type", "etag", "location"})


class Idempotency:
    """Keeps the answers of POSTs under the API that carry ``Idempotency-Key`` and succeed, by caller and key.

    An error frees its key: it may be sent again. So does, after a while, a process that died over a request; whether
    that request was carried out is not known then, as without a key.
    """

    def __init__(self, app: ASGIApp, database: Database | None, keyring: Keyring | None) -> None:
        self._app = app
        self._database = database
        self._keyring = keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key_of(scope)
        if key is None or self._database is None or self._keyring is None:
            await self._app(scope, receive, send)
            return
        if not _KEY.fullmatch(key):
            await respond(400, "Idempotency-Key is 1 to 200 visible ASCII characters")(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            await respond(413, f"a body may have {MAX_BODY} bytes")(scope, receive, send)
            return
        try:
            await self._once(self._database, self._keyring, key, body, scope, send)
        except DependencyUnavailable as error:
            detail = f"{error.dependency} does not answer; try again"
            await respond(503, detail, headers={"Retry-After": "5"})(scope, receive, send)

    async def _once(
        self, database: Database, keyring: Keyring, key: str, body: bytes, scope: Scope, send: Send
    ) -> None:
        receive = _replaying(body)
        token = digest_of(Headers(scope=scope))
        digest = sha256(token + key.encode()).digest()
        request = sha256(
            b"\n".join((scope["method"].encode(), scope["raw_path"], scope["query_string"], body))
        ).digest()
        async with database.transaction() as conn:
            known = await access.find_caller(conn, token) is not None
            earlier = await answered.claim(conn, digest, request) if known else None
        if not known:  # no business of ours: it is refused
            await self._app(scope, receive, send)
            return
        if earlier is not None:
            await _again(earlier, request, keyring, digest, scope, receive, send)
            return
        kept = _Kept(send)
        try:
            await self._app(scope, receive, kept.send)
        finally:
            answer = kept.answer()
            async with database.transaction() as conn:
                if answer is None:
                    await answered.give_back(conn, digest)
                else:
                    sealed = keyring.encrypt(answer, table=_TABLE, column=_COLUMN, row_id=digest.hex())
                    await answered.keep(conn, digest, sealed)
        await kept.forward()


def declare(document: dict[str, Any]) -> None:
    """Name the header at every POST of an OpenAPI document."""
    for operations in document["paths"].values():
        if "post" in operations:
            operations["post"].setdefault("parameters", []).append(_PARAMETER)


class _Kept:
    """An answer on its way: held back until it is stored, so that nobody has it who would not get it again."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: list[Message] = []

    async def send(self, message: Message) -> None:
        self._messages.append(message)

    async def forward(self) -> None:
        for message in self._messages:
            await self._send(message)

    def answer(self) -> bytes | None:
        """What is stored of it, None for an error or an answer that did not come to its end."""
        if not self._messages or not 200 <= self._messages[0].get("status", 500) < 300:
            return None
        if self._messages[-1].get("more_body", False) or len(self._messages) == 1:
            return None
        headers = {name.decode(): value.decode("latin-1") for name, value in self._messages[0]["headers"]}
        return orjson.dumps(
            {
                "status": self._messages[0]["status"],
                "headers": {name: value for name, value in headers.items() if name in _KEPT_HEADERS},
                "body": b"".join(message.get("body", b"") for message in self._messages[1:]).decode(),
            }
        )


async def _again(
    earlier: answered.Answered,
    request: bytes,
    keyring: Keyring,
    digest: bytes,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    if earlier.request_sha256 != request:
        await respond(409, "this Idempotency-Key was used for another request")(scope, receive, send)
        return
    if earlier.answer is None:
        detail = "the request with this Idempotency-Key is still worked on"
        await respond(409, detail, headers={"Retry-After": "2"})(scope, receive, send)
        return
    try:
        plain = keyring.decrypt(earlier.answer, table=_TABLE, column=_COLUMN, row_id=digest.hex())
    except (Refused, UnknownKey):
        await respond(409, "it was done, but its answer can't be decrypted any more")(scope, receive, send)
        return
    answer = orjson.loads(plain)
    body: bytes = answer["body"].encode()
    headers = answer["headers"] | {_REPEATED: "true", "content-length": str(len(body))}
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer["status"], "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _key_of(scope: Scope) -> str | None:
    if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith("/api/v1/"):
        return None
    return Headers(scope=scope).get(HEADER)


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None when it is larger than any may be."""
    parts, size, more = [], 0, True
    while more:
        try:
            message = await receive()
        except HTTPException:  # the limit of the whole API is as large as this one
            return None
        if message["type"] != "http.request":
            break
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


def _replaying(body: bytes) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive
