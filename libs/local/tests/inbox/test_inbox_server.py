"""The inbox as a process: delivered to, read, waited for, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest


class Process:
    """``python -m room_local.inbox`` on a port that stays the same."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "room_local.inbox", "--port", str(self.port)]
        self.process = subprocess.Popen([*command, "--directory", str(self.directory)])
        until = time.monotonic() + 30
        while True:
            try:
                httpx.get(self.url, trust_env=False)
                return
            except httpx.ConnectError:
                assert time.monotonic() < until
                assert self.process.poll() is None
                time.sleep(0.05)

    def end(self, how: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(timeout=20)


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("inbox"))
    process.start()
    yield process
    process.end(signal.SIGTERM)


@pytest.fixture
async def http(inbox: Process) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=inbox.url, trust_env=False, timeout=30) as client:
        yield client


def message(identity: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": identity,
        "room": "desk",
        "target": "me",
        "text": "hello",
        "created_at": "2026-01-01T00:00:00Z",
        **changes,
    }


async def deliver(http: httpx.AsyncClient, id: str, **changes: Any) -> httpx.Response:
    return await http.post("/v1/messages", json=message(id, **changes), headers={"Idempotency-Key": id})


async def test_a_message_arrives_once(http: httpx.AsyncClient) -> None:
    first, second = await deliver(http, "once", room="r1"), await deliver(http, "once", room="r1", text="other")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["message_id"] == second.json()["message_id"]
    listed = (await http.get("/v1/messages", params={"room": "r1"})).json()
    assert [item["text"] for item in listed["messages"]] == ["hello"]
    assert listed["messages"][0]["message_id"] == first.json()["message_id"]
    assert listed["next"] == listed["messages"][0]["seq"]
    after = (await http.get("/v1/messages", params={"room": "r1", "after": listed["next"]})).json()
    assert after == {"messages": [], "next": listed["next"]}


async def test_three_copies_at_once_are_one(http: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(deliver(http, "copy", room="r2") for _ in range(3)))
    assert len({answer.json()["message_id"] for answer in answers}) == 1
    assert len((await http.get("/v1/messages", params={"room": "r2"})).json()["messages"]) == 1


async def test_a_reader_is_told_at_once(http: httpx.AsyncClient) -> None:
    waiting = asyncio.create_task(http.get("/v1/messages", params={"room": "r3", "wait": 25}))
    await deliver(http, "elsewhere", room="r4")
    await deliver(http, "news", room="r3")
    assert [item["id"] for item in (await waiting).json()["messages"]] == ["news"]


async def test_a_wait_ends(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/messages", params={"room": "nobody", "wait": 0.05})).json()["messages"] == []


async def test_the_page_shows_text_as_text(http: httpx.AsyncClient) -> None:
    evil = "<script>alert(1)</script>"
    await deliver(http, "evil", room=f"room' {evil}", target=evil, text=evil)
    page = await http.get("/")
    assert "<script" not in page.text
    assert "&lt;script&gt;" in page.text
    assert "room reply" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    "change", [{"id": 1}, {"text": " "}, {"room": ""}, {"room": "x" * 201}, {"target": None}, {"created_at": 7}]
)
async def test_what_is_no_message_is_refused(http: httpx.AsyncClient, change: dict[str, Any]) -> None:
    answer = await http.post("/v1/messages", json=message("bad", **change))
    assert answer.status_code == 400
    assert next(iter(change)) in answer.json()["error"]["message"]


async def test_other_bad_requests(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/messages", json=message("a"), headers={"Idempotency-Key": "b"})).status_code == 400
    assert (await http.post("/v1/messages", json=[1])).status_code == 400
    assert (await http.post("/v1/messages", json=message("a", text="x" * 300_000))).status_code == 413
    assert (await http.post("/v1/messages", content="{}", headers={"content-type": "text/plain"})).status_code == 415
    for name, value in (("after", "x"), ("wait", "nan"), ("after", "-1"), ("wait", "inf")):
        assert (await http.get("/v1/messages", params={name: value})).status_code == 400
    assert (await http.get("/v1/messages", headers={"host": "evil.example"})).status_code == 400


async def test_what_was_acknowledged_survives_a_kill(inbox: Process, http: httpx.AsyncClient) -> None:
    answer = await deliver(http, "durable", room="r5")
    inbox.end(signal.SIGKILL)
    inbox.start()
    listed = (await http.get("/v1/messages", params={"room": "r5"})).json()["messages"]
    assert [item["message_id"] for item in listed] == [answer.json()["message_id"]]
    assert (await deliver(http, "durable", room="r5")).status_code == 200


async def test_a_waiting_reader_does_not_hold_up_the_end(inbox: Process, http: httpx.AsyncClient) -> None:
    waiting = asyncio.create_task(http.get("/v1/messages", params={"room": "r6", "wait": 60}))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(inbox.end, signal.SIGTERM)
    await asyncio.gather(waiting, return_exceptions=True)
    inbox.start()


def test_a_directory_that_can_not_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "room_local.inbox", "--port", "1", "--directory", str(tmp_path / "file" / "d")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ))
    assert ended.returncode == 2
    assert "file" in ended.stderr
