"""Signing in and out."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from room_admin.access import DatabaseOf
from room_admin.panel import pages, sessions
from room_admin.panel.sessions import Changing
from room_admin.problems import Problem
from room_common.domain.tokens import token_digest
from room_common.postgres import access, panel_sessions

router = APIRouter()

LOGIN: Final = "/panel/login"
_HOME: Final = "/panel/"
_MAX_FORM: Final = 4096
_MAX_TOKEN: Final = 512
_WRONG: Final = "This is not a token of this installation, or it was revoked."
# A form that a page without a referrer posts has the origin "null"; and nothing leaves our own address this way either.
_OURS_ONLY: Final = {"Referrer-Policy": "same-origin"}


def ask_to_sign_in(request: Request) -> Response:
    """Lead a browser without a session to the form, and back to this page afterwards."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = f"{LOGIN}?next={quote(wanted, safe='')}" if request.method == "GET" else LOGIN
    if request.headers.get("hx-request") == "true":
        return Response(status_code=401, headers={"HX-Redirect": LOGIN})
    if request.headers.get("accept") == "text/event-stream":
        return Response(status_code=204)  # tells a browser not to connect again
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.method == "GET":
        # The cookie does not come along from another site's page. This page asks once more, from here.
        return pages.bare("again.html", url=_local(wanted))
    return RedirectResponse(target, 303)


@router.get("/login")
async def show_form(request: Request, next: str = _HOME) -> Response:
    """The form."""
    return _form(_local(next))


@router.post("/login")
async def sign_in(request: Request, database: DatabaseOf) -> Response:
    """Open a session for the holder of a token."""
    sessions.check_origin(request)
    form = await _read_form(request)
    token, target = form.get("token", "").strip(), _local(form.get("next", _HOME))
    if not 0 < len(token) <= _MAX_TOKEN:
        return _form(target, "Paste a token first.", 422)
    session = sessions.new_session_id()
    sha256 = token_digest(token)
    async with database.transaction() as conn:
        caller = await access.find_caller(conn, sha256)
        if caller is None:
            return _form(target, _WRONG, 401)
        await panel_sessions.open_session(conn, sessions.digest(session), sha256)
        await access.audit(conn, caller.name, "panel_sign_in")
    response = RedirectResponse(target, 303)
    sessions.set_cookie(request, response, session)
    return response


@router.post("/logout")
async def sign_out(request: Request, database: DatabaseOf, _: Changing) -> Response:
    """End this session."""
    session = sessions.session_id(request)
    if session is not None:
        async with database.transaction() as conn:
            await panel_sessions.close_session(conn, sessions.digest(session))
    response = Response(headers={"HX-Redirect": LOGIN})
    sessions.clear_cookie(request, response)
    return response


def _form(target: str, wrong: str | None = None, status: int = 200) -> Response:
    response = pages.bare("login.html", status, target=target, wrong=wrong)
    response.headers.update(_OURS_ONLY)
    return response


async def _read_form(request: Request) -> dict[str, str]:
    body = await request.body()
    if len(body) > _MAX_FORM:
        raise Problem(413, "This form is larger than any that this page sends.")
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=10, keep_blank_values=True)
    except ValueError:
        raise Problem(400, "This is not a form.") from None
    return {name: values[-1] for name, values in fields.items()}


def _local(target: str) -> str:
    """A page of the panel to go to; home for everything else that is asked for."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return _HOME
    ours = target.startswith("/panel/") and target.isprintable() and "\\" not in target and ".." not in target
    return target if ours and not parts.netloc and not parts.path.startswith(LOGIN) else _HOME
