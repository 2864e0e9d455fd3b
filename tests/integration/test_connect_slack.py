"""Every command of docs/how-to/connect-slack.md is run, on a stack of its own, with a stand-in for Slack."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from slack_sdk.signature import SignatureVerifier

from room_testing.fake_providers import SLACK_TOKEN, FakeSlack
from room_testing.following import Page, Reader

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE = Page("connect-slack.md")
SIGNING_SECRET = "signing-secret-of-the-test"


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    """Slack, on a loop of its own: the test waits for commands."""
    peer = FakeSlack()
    peer.members.add("U0123456789")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(peer.__aenter__(), loop).result(30)
    yield peer
    asyncio.run_coroutine_threadsafe(peer.__aexit__(None, None, None), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def reader(server_folder: Path, slack: FakeSlack) -> Iterator[Reader]:
    reader = Reader(
        server_folder,
        {
            "ROOM_OUTBOUND__SLACK_URL": slack.url,
            "SLACK_BOT_TOKEN": SLACK_TOKEN,
            "SLACK_SIGNING_SECRET": SIGNING_SECRET,
        },
    )
    reader.run("room up -d --tick-seconds 1 --ingest-port 0 --operations-port 0 --admin-port 0")
    yield reader
    reader.run("room down")


def test_the_page_leads_to_a_message_and_an_answer(reader: Reader, slack: FakeSlack) -> None:
    (document,) = PAGE.blocks("yaml")
    (reader.folder / "slack-desk.yaml").write_text(document)
    exports, apply, urls, send, verify, answers = PAGE.blocks("sh")
    assert exports.count("export SLACK_") == 2
    printed = reader.run(apply)
    assert SLACK_TOKEN not in printed and SIGNING_SECRET not in printed
    for name, path in (("SOURCE_URL", "webhooks"), ("CHANNEL_URL", "channels/slack")):
        (url,) = re.findall(rf"\S+/{path}/[0-9a-f]{{64}}", printed)
        reader.environment[name] = url
        assert f"export {name}=http://127.0.0.1:8080/{path}/" in urls

    assert reader.run(send).startswith('{"ok":true}')
    reader.until("room messages --room slack-desk --json", lambda output: '"sent"' in output)
    assert [message["channel"] for message in slack.accepted] == ["D0123456789"]
    assert "won" in slack.accepted[0]["text"]

    assert reader.run(verify) == "it works"
    answer(reader.environment["CHANNEL_URL"])
    inbox, cycles = answers.strip().splitlines()
    reader.until(f"{inbox} --json", lambda output: [row["status"] for row in json.loads(output)] == ["read"])
    reader.until(f"{cycles} --json", lambda output: len(json.loads(output)) == 2)
    assert "Who is it" in reader.run(inbox)
    logs = "".join(file.read_text(errors="replace") for file in (reader.folder / ".room").rglob("*.log"))
    assert SLACK_TOKEN not in logs and SIGNING_SECRET not in logs and "Who is it" not in logs


def answer(url: str) -> None:
    """What Slack posts when the person answers, and once more because its first try was slow."""
    event = {
        "type": "message",
        "user": "U0123456789",
        "channel": "D0123456789",
        "channel_type": "im",
        "text": "Who is it?",
    }
    body = json.dumps({"type": "event_callback", "event_id": "Ev1", "event": event}).encode()
    for retry in ({}, {"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_timeout"}):
        now = str(int(time.time()))
        signature = SignatureVerifier(SIGNING_SECRET).generate_signature(timestamp=now, body=body)
        stamped = {"X-Slack-Signature": str(signature), "X-Slack-Request-Timestamp": now}
        posted = httpx.post(url, content=body, headers={**stamped, **retry, "Content-Type": "application/json"})
        assert (posted.status_code, posted.content) == (200, b"")


def test_the_manifest_is_json() -> None:
    (manifest,) = PAGE.blocks("json")
    assert set(json.loads(manifest)["oauth_config"]["scopes"]["bot"]) >= {"chat:write", "im:write", "im:history"}
