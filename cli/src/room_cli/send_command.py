"""``room send``: post a sample webhook the way its provider would, signed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode
from uuid import NAMESPACE_URL, uuid4, uuid5

import httpx
import orjson
import typer

from room_cli.completion import source_names
from room_cli.connection import connect
from room_cli.failures import FAILED, UNREACHABLE, WRONG_INPUT, fail
from room_cli.lookup import find_source
from room_cli.options import AsJson, Directory, RoomName
from room_cli.output import console, print_json
from room_common.contracts.source_config import AuthKeyCheck, Verify
from room_common.domain.signing import (
    GITLAB_TOKEN,
    sign_generic,
    sign_github,
    sign_hubspot,
    sign_shopify,
    sign_slack,
    sign_standard,
    sign_stripe,
)

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class Kind(StrEnum):
    """The providers whose webhooks can be imitated."""

    github = "github"
    gitlab = "gitlab"
    stripe = "stripe"
    hubspot = "hubspot"
    slack = "slack"
    shopify = "shopify"
    standard = "standard"
    generic = "generic"


_EVENT_HEADERS = {
    Kind.github: ("x-github-delivery", "x-github-event", "push"),
    Kind.gitlab: ("idempotency-key", "x-gitlab-event", "Push Hook"),
    Kind.shopify: ("x-shopify-webhook-id", "x-shopify-topic", "orders/create"),
    Kind.standard: ("webhook-id", None, None),
}
"""Header of the delivery's id, header of the event's name and the name when none is given."""


@dataclass(frozen=True, slots=True)
class Post:
    """A request that is ready to go."""

    url: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """Where to post, as whom, how that is verified, and whether it is."""

    url: str
    kind: Kind
    verify: Verify | None = None
    signed: bool = False


def register(app: typer.Typer) -> None:
    """Add this command to ``app``."""
    app.command()(send)


def send(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Name of a source, or a whole webhook URL.", autocompletion=source_names),
    ],
    file: Annotated[Path, typer.Option("--file", "-f", help="The payload.", exists=True, dir_okay=False)],
    kind: Annotated[
        Kind | None,
        typer.Option("--type", metavar="TYPE", help=f"The provider; needed with a URL: {', '.join(Kind)}."),
    ] = None,
    room: RoomName = None,
    secret_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Sign with the secret in this environment variable.")
    ] = None,
    event: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The event's name in the header of GitHub, GitLab or Shopify, for example workflow_run.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="LINE", help="A further header, `Name: value`.")
    ] = None,
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
    to = _target(source, kind, room, directory)
    body = file.read_bytes()
    post = build(
        to.kind,
        to.url,
        body if exact else with_new_ids(to.kind, body),
        secret=_secret(secret_env),
        verify=to.verify,
        event=event,
        extra=_headers(header or []),
        form=form,
        now=time.time(),
        # GitHub's id is in a header: one made of the payload stays the same
        delivery=str(uuid5(NAMESPACE_URL, body.hex()) if exact else uuid4()),
    )
    answer = deliver(post)
    if as_json:
        print_json({"status": answer.status_code, "answer": answer.text})
    else:
        console.print(f"{answer.status_code} {answer.text}", markup=False, soft_wrap=True)
    taken = answer.status_code == httpx.codes.OK and _is_ok(answer)
    if taken and not as_json:
        for doubt in doubts(to, body, signed=secret_env is not None or bool(header)):
            console.print(doubt, markup=False, soft_wrap=True)
        console.print("taken in; what becomes of it: `room deliveries`", markup=False, soft_wrap=True)
    if not taken:
        raise typer.Exit(FAILED)


def build(
    kind: Kind,
    url: str,
    body: bytes,
    *,
    secret: bytes | None,
    verify: Verify | None = None,
    event: str | None,
    extra: Mapping[str, str],
    form: bool,
    now: float,
    delivery: str,
) -> Post:
    """A request in the provider's shape. ``verify`` is how a generic source verifies, ``now`` Unix time in seconds;
    headers in ``extra`` win."""
    content_type = "application/json"
    if form:
        body, content_type = urlencode({"payload": body}).encode(), "application/x-www-form-urlencoded"
    headers = {"content-type": content_type, "user-agent": f"room-send ({kind})"}
    if kind in _EVENT_HEADERS:
        id_header, event_header, usual = _EVENT_HEADERS[kind]
        headers[id_header] = delivery
        if event_header is not None:
            headers[event_header] = event or str(usual)
    if secret is not None:
        headers |= _signature(kind, secret, url, body, now, delivery, verify)
    return Post(url, body, headers | {name.lower(): value for name, value in extra.items()})


def with_new_ids(kind: Kind, body: bytes) -> bytes:
    """The payload with ids of its own, where the provider's ids are in the payload; unchanged if it is not JSON."""
    if kind not in (Kind.stripe, Kind.hubspot, Kind.slack):
        return body
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body
    fresh = uuid4()
    if kind is Kind.stripe and isinstance(data, dict):
        data["id"] = f"evt_{fresh.hex[:24]}"
    if kind is Kind.slack and isinstance(data, dict) and "event_id" in data:
        data["event_id"] = f"Ev{fresh.hex[:10].upper()}"
    for number, item in enumerate(data if isinstance(data, list) else ()):
        if isinstance(item, dict) and "eventId" in item:
            item["eventId"] = (fresh.int >> 80) + number
    return orjson.dumps(data)


def deliver(post: Post) -> httpx.Response:
    """Send it. A target that does not answer ends the command."""
    try:
        return httpx.post(post.url, content=post.body, headers=dict(post.headers), timeout=15.0, trust_env=False)
    except httpx.InvalidURL:
        fail("this is not a URL that can be posted to", WRONG_INPUT)
    except httpx.HTTPError as error:
        # The URL holds the token, so it is not repeated.
        fail(f"ingest does not answer ({type(error).__name__})", UNREACHABLE)


def doubts(to: Target, body: bytes, *, signed: bool) -> Iterator[str]:
    """Why a delivery that ingest takes may still come to nothing: it answers before anybody has looked inside."""
    if to.signed and not signed:
        yield "warning: this source verifies signatures and there was none: the outcome will be bad_signature"
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        yield "warning: the payload is not JSON: the outcome will probably be undecodable"


def _target(source: str, kind: Kind | None, room: str | None, directory: Path) -> Target:
    if source.startswith(("http://", "https://")):
        if kind is None:
            fail("a URL does not say who posts to it; add --type", WRONG_INPUT)
        return Target(source, kind)
    api = connect(directory)
    found = find_source(api, source, room)
    revealed = api.post(f"/sources/{found['id']}/reveal")
    verify = revealed.get("verify")
    return Target(
        revealed["url"],
        kind or Kind(found["type"]),
        None if verify is None else Verify.model_validate(verify),
        signed=bool(found["signed"]),
    )


def _signature(
    kind: Kind, secret: bytes, url: str, body: bytes, now: float, delivery: str, verify: Verify | None
) -> Mapping[str, str]:
    if kind is Kind.generic:
        return _generic_signature(verify, secret, body)
    try:
        signers: Mapping[Kind, Callable[[], Mapping[str, str]]] = {
            Kind.github: lambda: sign_github(secret, body),
            Kind.gitlab: lambda: {GITLAB_TOKEN: secret.decode()},
            Kind.stripe: lambda: sign_stripe(secret, body, timestamp_s=int(now)),
            Kind.hubspot: lambda: sign_hubspot(secret, body, method="POST", uri=url, timestamp_ms=int(now * 1000)),
            Kind.slack: lambda: sign_slack(secret, body, timestamp_s=int(now)),
            Kind.shopify: lambda: sign_shopify(secret, body),
            Kind.standard: lambda: sign_standard(secret, body, message_id=delivery, timestamp_s=int(now)),
        }
        return signers[kind]()
    except ValueError as error:
        fail(str(error), WRONG_INPUT)


def _generic_signature(verify: Verify | None, secret: bytes, body: bytes) -> Mapping[str, str]:
    if verify is None:
        fail(
            "it is not known how this source verifies: name a source whose room file says `verify:`, or leave out "
            "--secret-env and add the header with -H",
            WRONG_INPUT,
        )
    if (mac := verify.hmac) is not None:
        return sign_generic(
            secret, body, header=mac.header, algorithm=mac.algorithm, encoding=mac.encoding, prefix=mac.prefix
        )
    key = verify.auth_key or AuthKeyCheck()
    return {key.header: key.text_before + secret.decode()}


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
        if not colon or not _HEADER_NAME.fullmatch(name.strip()) or not (value.isascii() and value.isprintable()):
            fail(f"write a header as `Name: value` in plain characters, not {line!r}", WRONG_INPUT)
        headers[name.strip()] = value.strip()
    return headers


def _is_ok(answer: httpx.Response) -> bool:
    try:
        return bool(answer.json()["ok"])
    except (ValueError, KeyError, TypeError):
        return False
