"""From an empty installation to an answered agent, with the panel alone, on the whole stack that ``make up`` starts."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from room_common.identity import new_id
from room_local.status import status

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

SECRET = "a-secret-that-both-sides-know"


def _room(folder: Path, *arguments: str) -> None:
    command = [str(Path(sys.executable).parent / "room"), *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=240)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a stack running in it, in which nobody has made anything."""
    with tempfile.TemporaryDirectory(prefix="room-newcomer-") as name:
        folder = Path(name)
        ports = ("--ingest-port", "0", "--operations-port", "0", "--admin-port", "0")
        _room(folder, "up", "-d", "--tick-seconds", "2", *ports)
        try:
            yield folder
        finally:
            _room(folder, "down")


def _post(url: str, event: str, body: dict[str, object]) -> None:
    """As GitHub does."""
    raw = json.dumps(body).encode()
    signature = hmac.new(SECRET.encode(), raw, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "x-github-event": event,
        "x-github-delivery": str(new_id()),
        "x-hub-signature-256": f"sha256={signature}",
    }
    answer = httpx.post(url, content=raw, headers=headers, timeout=30, trust_env=False)
    assert answer.json() == {"ok": True}


def _define(page: Page, name: str, match: str, interpret: str) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("It matches when").fill(match)
    page.get_by_label("Then the agent should").fill(interpret)
    page.get_by_role("button", name="Make the definition").click()
    expect(page.locator("summary strong", has_text=name)).to_be_visible()


def test_a_newcomer(folder: Path, browser: Browser) -> None:
    found = status(folder)
    assert found.token_file is not None
    address, token = f"{found.urls['admin']}/panel/", Path(found.token_file).read_text().strip()
    page = browser.new_context(viewport={"width": 1280, "height": 860}).new_page()
    page.set_default_timeout(20_000)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)

    page.goto(address)
    page.get_by_label("API token").fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="There is no room yet")).to_be_visible()
    page.get_by_role("link", name="Make the first room").click()
    page.get_by_label("Name", exact=True).fill("Repository watch")
    page.get_by_label("Mandate").fill("Tell the person in one sentence what happened.")
    page.get_by_role("button", name="Make the room").click()

    page.get_by_role("link", name="Add a source").click()
    page.get_by_role("link", name="GitHub").click()
    page.get_by_label("Secret", exact=True).fill(SECRET)
    page.get_by_role("button", name="Make the source").click()
    url = page.get_by_label("URL", exact=True)
    expect(url).to_have_value(re.compile("/webhooks/"))
    hook = url.input_value()

    page.get_by_role("link", name="Write the first definition").click()
    _define(page, "new-star", 'Somebody gave a star: there is a "starred_at".', "Say who gave the star.")
    page.get_by_role("link", name="New definition").click()
    _define(page, "build-broken", 'A run has the conclusion "failure".', "Say which run failed.")

    _post(hook, "star", {"action": "created", "starred_at": "2026-05-04T10:00:00Z", "sender": {"login": "ada"}})
    page.get_by_role("link", name="github", exact=True).click()
    arrival = page.locator(".arrival")
    expect(arrival).to_contain_text("matched", timeout=60_000)
    arrival.get_by_role("link").click()
    expect(page.locator("ol.life")).to_contain_text("Asked: new-star")

    page.goto(f"{address}rooms/repository-watch/conversation")
    expect(page.locator(".thread .agent").first).to_be_visible(timeout=90_000)
    page.get_by_label("Answer as you").fill("Thank them for it, please.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".thread .person")).to_contain_text("Thank them for it", timeout=60_000)
    expect(page.locator(".thread .agent")).to_have_count(2, timeout=90_000)
    assert token not in page.content()
    assert errors == []
    page.context.close()
