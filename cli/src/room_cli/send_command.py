"""``room send``: post a sample webhook the way its provider would, signed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import uuid4

import httpx
import orjson
import typer

from room_cli.connection import Api, connect
from room_cli.failures import FAILED, UNREACHABLE, WRONG_INPUT, fail
from room_cli.options import AsJson, Directory, RoomName
from room_cli.output import console, print_json
from room_common.domain.signing import sign_github, sign_hubspot, sign_stripe


class Kind(StrEnum):
    """The providers whose webhooks can be imitated."""

    github = "github"
    stripe = "stripe"
    hubspot = "hubspot"
    generic = "generic"


@dataclass(frozen=True, slots=True)
class Post:
    """A request that is ready to go."""

    url: str
    body: bytes
    headers: Mapping[str, str]


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command()(send)


def send(
    source: Annotated[str, typer.Argument(help="Name of a source, or a whole webhook URL.")],
    file: Annotated[Path, typer.Option("--file", "-f", help="The payload.", exists=True, dir_okay=False)],
    kind: Annotated[Kind | None, typer.Option("--type", help="The provider; needed with a URL.")] = None,
    room: RoomName = None,
    secret_env: Annotated[str | None, typer.Option(help="Sign with the secret in this environment variable.")] = None,
    event: Annotated[str | None, typer.Option(help="GitHub's event name, for example workflow_run.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="A further header, `Name: value`.")] = None,
    form: Annotated[
        bool, typer.Option("--form", help="Send as a form with the JSON in `payload`, as GitHub can.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Keep the ids in the payload: a second time is a duplicate.")
    ] = False,
    directory: Directory = Path(),
    as_json: AsJson = False,
) -> None:
    """Post a sample webhook to a source. Its ids are made new, unless --exact."""
    url, found = _target(source, kind, room, directory)
    body = file.read_bytes()
    post = build(
        found,
        url,
        body if exact else with_new_ids(found, body),
        secret=_secret(secret_env),
        event=event,
        extra=_headers(header or []),
        form=form,
        now=time.time(),
        delivery=str(uuid4()),
    )
    answer = deliver(post)
    if as_json:
        print_json({"status": answer.status_code, "answer": answer.text})
    else:
        console.print(f"{answer.status_code} {answer.text}", markup=False, soft_wrap=True)
    if answer.status_code != httpx.codes.OK or not _is_ok(answer):
        raise typer.Exit(FAILED)


def build(
    kind: Kind,
    url: str,
    body: bytes,
    *,
    secret: bytes | None,
    event: str | None,
    extra: Mapping[str, str],
    form: bool,
    now: float,
    delivery: str,
) -> Post:
    """A request in the provider's shape. ``now`` is Unix time in seconds; headers in ``extra`` win."""
    content_type = "application/json"
    if form:
        body, content_type = urlencode({"payload": body}).encode(), "application/x-www-form-urlencoded"
    headers = {"content-type": content_type, "user-agent": f"room-send ({kind})"}
    if kind is Kind.github:
        headers |= {"x-github-delivery": delivery, "x-github-event": event or "push"}
    if secret is not None:
        headers |= _signature(kind, secret, url, body, now)
    return Post(url, body, headers | {name.lower(): value for name, value in extra.items()})


def with_new_ids(kind: Kind, body: bytes) -> bytes:
    """The payload with ids of its own, where the provider's ids are in the payload; unchanged if it is not JSON."""
    if kind not in (Kind.stripe, Kind.hubspot):
        return body
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    fresh = uuid4()
    if kind is Kind.stripe and isinstance(data, dict):
        data["id"] = f"evt_{fresh.hex[:24]}"
    for number, item in enumerate(data if isinstance(data, list) else ()):
        if isinstance(item, dict) and "eventId" in item:
            item["eventId"] = (fresh.int >> 80) + number
    return orjson.dumps(data)


def deliver(post: Post) -> httpx.Response:
    """Send it. A target that does not answer ends the command."""
    try:
        return httpx.post(post.url, content=post.body, headers=dict(post.headers), timeout=15.0, trust_env=False)
    except httpx.HTTPError as error:
        # The URL holds the token, so it is not repeated.
        fail(f"ingest does not answer ({type(error).__name__})", UNREACHABLE)


def source_url(api: Api, name: str, room: str | None) -> tuple[str, str]:
    """URL and type of the source with that name. Ends the command unless there is exactly one."""
    found: list[dict[str, Any]] = []
    for item in api.get("/instances")["items"]:
        if room is None or item["slug"] == room:
            found += [row for row in api.get(f"/instances/{item['slug']}/sources")["items"] if row["name"] == name]
    if not found:
        fail(f"there is no source {name!r}; `room sources` lists them", WRONG_INPUT)
    if len(found) > 1:
        fail(f"several rooms have a source {name!r}; say which with --room", WRONG_INPUT)
    return api.post(f"/sources/{found[0]['id']}/reveal")["url"], found[0]["type"]


def _target(source: str, kind: Kind | None, room: str | None, directory: Path) -> tuple[str, Kind]:
    if source.startswith(("http://", "https://")):
        if kind is None:
            fail("a URL does not say who posts to it; add --type", WRONG_INPUT)
        return source, kind
    url, stored = source_url(connect(directory), source, room)
    return url, kind or Kind(stored)


def _signature(kind: Kind, secret: bytes, url: str, body: bytes, now: float) -> dict[str, str]:
    if kind is Kind.github:
        return sign_github(secret, body)
    if kind is Kind.stripe:
        return sign_stripe(secret, body, timestamp_s=int(now))
    if kind is not Kind.hubspot:
        fail(f"{kind} webhooks are not signed; leave out --secret-env", WRONG_INPUT)
    return sign_hubspot(secret, body, method="POST", uri=url, timestamp_ms=int(now * 1000))


def _secret(name: str | None) -> bytes | None:
    if name is None:
        return None
    value = os.environ.get(name)
    if not value:
        fail(f"the environment variable {name} is not set", WRONG_INPUT)
    return value.encode()


def _headers(lines: list[str]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            fail(f"write a header as `Name: value`, not {line!r}", WRONG_INPUT)
        headers[name.strip()] = value.strip()
    return headers


def _is_ok(answer: httpx.Response) -> bool:
    try:
        return bool(answer.json()["ok"])
    except (ValueError, KeyError, TypeError):
        return False
