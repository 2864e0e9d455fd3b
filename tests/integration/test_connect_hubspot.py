"""Every command of docs/how-to/connect-hubspot.md is run, on a stack of its own, with an address of its own."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from room_common.domain.signing import sign_hubspot
from room_local.parts.addresses import free_port
from room_testing.following import Page, Reader

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE = Page("connect-hubspot.md")
SECRET = "client-secret-of-the-test"
PLACE = "https://rooms.example.com"
PORTS = "--operations-port 0 --admin-port 0"


@pytest.fixture
def reader(server_folder: Path) -> Iterator[Reader]:
    """Follows the first step: Room is up, and told what it is called from outside."""
    port = free_port()
    # Not what Room itself would say: that the URL which is signed is the public one would not be seen.
    public = f"http://localhost:{port}"
    reader = Reader(server_folder, {"HUBSPOT_CLIENT_SECRET": SECRET, "PUBLIC": public})
    (start,) = (block for block in PAGE.blocks("sh") if block.startswith("room up"))
    assert PLACE in start
    reader.run(start.strip().replace(PLACE, public) + f" --tick-seconds 1 --ingest-port {port} {PORTS}")
    yield reader
    reader.run("room down")


def test_the_page_leads_to_a_message(reader: Reader) -> None:
    _, secret, apply, url, send, read = PAGE.blocks("sh")
    assert secret.startswith("export HUBSPOT_CLIENT_SECRET=")
    (document,), (change,) = PAGE.blocks("yaml"), PAGE.blocks("json")
    (reader.folder / "hubspot-desk.yaml").write_text(document)
    (reader.folder / "change.json").write_text(change)
    printed = reader.run(apply)
    assert SECRET not in printed
    public = reader.environment["PUBLIC"]
    (source,) = re.findall(rf"{public}/webhooks/[0-9a-f]{{64}}", printed)
    assert url.startswith(f"export SOURCE_URL={PLACE}/webhooks/")
    reader.environment["SOURCE_URL"] = source

    sent, listed = send.strip().splitlines()
    reader.run(sent)
    outcomes = reader.until(f"{listed} --json", lambda output: len(json.loads(output)) == 2)
    assert sorted(row["outcome"] for row in json.loads(outcomes)) == ["matched", "no_match"]

    messages, last = read.strip().splitlines()
    reader.until(f"{messages} --json", lambda output: '"sent"' in output)
    assert "26109451377" in reader.run(last)

    # HubSpot does not know of an answer that was lost: it posts again, with another number of the attempt.
    post(source, change.encode())
    reader.until(f"{listed} --json", lambda output: len(json.loads(output)) == 4)
    post(source, change.replace('"attemptNumber": 0', '"attemptNumber": 1').encode())
    outcomes = reader.until(f"{listed} --json", lambda output: len(json.loads(output)) == 6)
    assert sorted(row["outcome"] for row in json.loads(outcomes)[:2]) == ["duplicate", "duplicate"]

    post(source, change.encode(), secret=b"another one")
    reader.until("room deliveries --outcome bad_signature --json", lambda output: len(json.loads(output)) == 1)
    logs = "".join(file.read_text(errors="replace") for file in (reader.folder / ".room").rglob("*.log"))
    assert SECRET not in logs and source not in logs


def post(url: str, body: bytes, secret: bytes = SECRET.encode()) -> None:
    """As HubSpot posts."""
    signed = sign_hubspot(secret, body, method="POST", uri=url, timestamp_ms=int(time.time() * 1000))
    answer = httpx.post(url, content=body, headers={**signed, "Content-Type": "application/json"})
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
