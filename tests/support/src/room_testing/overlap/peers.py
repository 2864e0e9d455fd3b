"""The model provider and the person's inbox of a run, in the checker's own process: they see everything."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from room_testing.overlap.history import Delivered, History, Request
from room_testing.running import calls, events_in, says

REPLY = re.compile(r"reply-[0-9a-f]{12}")


def answer(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One message for each event and reply, all at once; then marks the events; then is silent."""
    step = sum(message["role"] == "assistant" for message in messages)
    events = events_in(messages)
    given = str(messages[1]["content"]).partition("# Human messages")[2]
    texts = [f"event {event}" for event in events] + [f"re {reply}" for reply in dict.fromkeys(REPLY.findall(given))]
    if step == 0:
        return calls(*(("send_message_to_human", {"message": text}) for text in texts))
    if step == 1 and events:
        return calls(("mark_events_completed", {"event_ids": events}))
    return says("NO_MESSAGE")


def fingerprint(messages: Sequence[Mapping[str, Any]]) -> str:
    """What a cycle is known by to a provider: the two messages it opens with."""
    return hashlib.sha256(f"{messages[0]['content']}{messages[1]['content']}".encode()).hexdigest()[:16]


class Peers:
    """Serves both on free ports and writes the history. ``slowest`` seconds are the longest model call."""

    def __init__(self, history: History, slowest: float) -> None:
        self.model_url = ""
        self.inbox_url = ""
        self._history = history
        self._random = random.Random(history.seed)
        self._slowest = slowest
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen."""
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/messages", self._deliver)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        base = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.model_url, self.inbox_url = f"{base}/v1", base

    async def stop(self) -> None:
        """Close."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        messages = body["messages"]
        if "tools" in body:
            step = sum(message["role"] == "assistant" for message in messages)
            self._history.requests.append(Request(time.monotonic(), fingerprint(messages), step))
            draw = self._random.random()
            await asyncio.sleep(self._slowest if draw > 0.95 else draw * self._slowest / 2)
            said = answer(messages)
        else:
            said = says("OK")
        message = {"role": "assistant", **said}
        choice = {"index": 0, "finish_reason": "tool_calls" if "tool_calls" in said else "stop", "message": message}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return web.json_response(
            {"id": "c", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}
        )

    async def _deliver(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        await asyncio.sleep(self._random.random() * 0.05)
        self._history.delivered.append(Delivered(time.monotonic(), body["id"]))
        return web.json_response({"message_id": body["id"]})
