"""Who looks at the panel: a session cookie in place of the token, and proof that a change was meant.

The API token is seen once, at sign-in. After that the browser holds a random id in a cookie that no script and no other
site can use. A change needs, besides, a header that only our pages can set (its value is derived from the id, so it
names the session without giving it away) and an ``Origin`` that is ours.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.responses import Response

from room_admin.access import DatabaseOf
from room_admin.problems import Problem
from room_admin.spending import Kind, spend
from room_common.postgres import panel_sessions
from room_common.postgres.access import Caller
from room_common.postgres.database import Database

COOKIE: Final = "room_panel"
PATH: Final = "/panel"
CSRF_HEADER: Final = "X-Room-Panel"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_PORTS: Final = {"http": 80, "https": 443}


class SignedOut(Exception):
    """There is no session, or it is over."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request within a session. ``now`` is the database's time."""

    caller: Caller
    now: datetime
    csrf: str

    @property
    def operator(self) -> bool:
        """Whether payloads, texts and changes are theirs."""
        return self.caller.role == "operator"


def new_session_id() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def digest(session_id: str) -> bytes:
    """What is stored of an id."""
    return sha256(session_id.encode()).digest()


def session_id(request: Request) -> str | None:
    """The id in the cookie, or None if there is none that could be ours."""
    found = request.cookies.get(COOKIE, "")
    return found if _ID.fullmatch(found) else None


def csrf_of(session: str) -> str:
    """The value that a change of this session sends along."""
    return sha256(b"room panel change:" + session.encode()).hexdigest()


async def visit(request: Request, database: DatabaseOf) -> Visit:
    """The session of this request. Raises ``SignedOut``."""
    found = session_id(request)
    if found is None:
        raise SignedOut
    async with database.transaction() as conn:
        session = await panel_sessions.find_session(conn, digest(found))
    if session is None:
        raise SignedOut
    made = Visit(session.caller, session.now, csrf_of(found))
    request.state.visit = made  # pages of errors are drawn with it
    return made


async def visiting_operator(seen: Annotated[Visit, Depends(visit)]) -> Visit:
    """A session of an operator, who looks at something only operators see. Raises ``Problem`` 403."""
    if not seen.operator:
        raise Problem(403, "This takes the role operator.")
    return seen


async def changing(request: Request, seen: Annotated[Visit, Depends(visit)]) -> Visit:
    """A session that may make the change it asks for. Raises ``Problem`` 403."""
    check_origin(request)
    if not compare_digest(request.headers.get(CSRF_HEADER, "").encode(), seen.csrf.encode()):
        raise Problem(403, "This change did not come from a page of the panel. Load the page again.")
    return seen


async def operating(seen: Annotated[Visit, Depends(changing)]) -> Visit:
    """The same, of an operator."""
    return await visiting_operator(seen)


def still_open(request: Request, database: Database) -> Callable[[], Awaitable[bool]]:
    """Asks whether the session of a request that was let in is still open: a stream outlives its first look."""
    found = session_id(request)

    async def holds() -> bool:
        if found is None:
            return False
        async with database.transaction() as conn:
            return await panel_sessions.find_session(conn, digest(found)) is not None

    return holds


Visiting = Annotated[Visit, Depends(visit)]
VisitingOperator = Annotated[Visit, Depends(visiting_operator)]
Changing = Annotated[Visit, Depends(changing)]
Operating = Annotated[Visit, Depends(operating)]


def spends(kind: Kind) -> Any:
    """A dependency of a change that is the API's own function: it takes from the same allowance of its operator."""

    async def check(request: Request, seen: Operating) -> None:
        spend(request, kind, seen.caller)

    return Depends(check)


def check_origin(request: Request) -> None:
    """Refuse a post that another site's page sent. Raises ``Problem`` 403.

    Scheme and port are those of the address in the browser; behind a proxy only the host is known here, so it is what
    counts, with the port where both name one.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site != "same-origin" or not _same_host(request.headers.get("origin", ""), request.headers.get("host", "")):
        raise Problem(403, "This request came from a page of another address than the panel's.")


def _same_host(origin: str, host: str) -> bool:
    try:
        ours, theirs = urlsplit(f"//{host}"), urlsplit(origin)
        default = _PORTS.get(theirs.scheme)
        if default is None or not ours.hostname:
            return False
        return ours.hostname == theirs.hostname and (ours.port or default) == (theirs.port or default)
    except ValueError:
        return False


def set_cookie(request: Request, response: Response, session: str) -> None:
    """Hand the id to the browser; only over https again where it came by https."""
    response.set_cookie(
        COOKIE,
        session,
        max_age=panel_sessions.HOURS * 3600,
        path=PATH,
        httponly=True,
        samesite="strict",
        secure=_over_https(request),
    )


def clear_cookie(request: Request, response: Response) -> None:
    """Take it back."""
    response.delete_cookie(COOKIE, path=PATH, httponly=True, samesite="strict", secure=_over_https(request))


def _over_https(request: Request) -> bool:
    # Behind a proxy that ends TLS only the browser knows: its Origin was compared with the Host before.
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
