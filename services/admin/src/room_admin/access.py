"""Who calls, and what they may do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers

from room_admin.problems import Problem
from room_common.domain.tokens import token_digest
from room_common.postgres import access
from room_common.postgres.access import Caller
from room_common.postgres.database import Database

_MAX_TOKEN: Final = 512
_bearer = HTTPBearer(auto_error=False, description="A token with the role viewer or operator.")


def database_of(request: Request) -> Database:
    """The database of this process."""
    database: Database = request.app.state.database
    return database


DatabaseOf = Annotated[Database, Depends(database_of)]


async def viewer(
    database: DatabaseOf, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Caller:
    """Any caller with a valid token."""
    if credentials is None or not 0 < len(credentials.credentials) <= _MAX_TOKEN:
        raise Problem(401, "send a token: Authorization: Bearer ...")
    # The digest is compared, not the token, and by an index look-up: timing tells nothing about stored tokens.
    async with database.transaction() as conn:
        caller = await access.find_caller(conn, token_digest(credentials.credentials))
    if caller is None:
        raise Problem(401, "this token is not valid")
    return caller


async def operator(caller: Annotated[Caller, Depends(viewer)]) -> Caller:
    """A caller with the role operator."""
    if caller.role != "operator":
        raise Problem(403, "this takes the role operator")
    return caller


Viewer = Annotated[Caller, Depends(viewer)]
Operator = Annotated[Caller, Depends(operator)]


def digest_of(headers: Headers) -> bytes:
    """The digest of the token that a request brings, whether it is valid or not."""
    return token_digest(headers.get("authorization", "").partition(" ")[2].strip())


def still_valid(request: Request, database: Database) -> Callable[[], Awaitable[bool]]:
    """Asks whether the token of a request that was let in is still valid: a stream outlives its first look."""
    token = digest_of(request.headers)

    async def holds() -> bool:
        async with database.transaction() as conn:
            return await access.find_caller(conn, token) is not None

    return holds
