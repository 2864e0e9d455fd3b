"""A model provider that answers what a test says, over the real protocol; it can hang, fail, and tell what it saw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from aiohttp import web

Reply = str | int
"""The text of a completion, or the status of an error."""


@dataclass(slots=True)
class ScriptedLlm:
    """An OpenAI-compatible server on a free port. ``script`` gets the last user message and decides the reply.

    ``hold(text)`` makes every call whose message contains ``text`` wait until the returned event is set. ``status``
    overrides the script with an error for everybody. ``error_body`` is the ``error`` object of such answers.
    ``unknown_models`` are answered with 404. ``delays`` lets calls whose message contains a text take so many seconds.
    """

    script: Callable[[str], Reply]
    status: int | None = None
    error_body: dict[str, object] = field(default_factory=lambda: {"message": "scripted"})
    unknown_models: set[str] = field(default_factory=set)
    delays: dict[str, float] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    url: str = ""
    _holds: dict[str, asyncio.Event] = field(default_factory=dict)
    _waiting: dict[str, asyncio.Event] = field(default_factory=dict)
    _runner: web.AppRunner | None = None

    def hold(self, text: str) -> asyncio.Event:
        """Let calls about ``text`` hang until the event is set."""
        self._waiting[text] = asyncio.Event()
        return self._holds.setdefault(text, asyncio.Event())

    async def hangs(self, text: str) -> None:
        """Return once a call about ``text`` hangs."""
        await self._waiting[text].wait()

    def calls_about(self, text: str) -> int:
        """How many calls contained ``text``."""
        return sum(text in call for call in self.calls)

    async def __aenter__(self) -> ScriptedLlm:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for event in self._holds.values():
            event.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        if body["model"] in self.unknown_models:
            missing = {"message": "The model does not exist", "code": "model_not_found"}
            return web.json_response({"error": missing}, status=404)
        text = str(body["messages"][-1]["content"])
        self.calls.append(text)
        for name, event in self._holds.items():
            if name in text:
                self._waiting[name].set()
                await event.wait()
        await asyncio.sleep(max((seconds for name, seconds in self.delays.items() if name in text), default=0))
        reply: Reply = self.status if self.status is not None else self.script(text)
        if isinstance(reply, int):
            return web.json_response({"error": self.error_body}, status=reply)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
        usage = {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101}
        return web.json_response(
            {"id": "c", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}
        )
