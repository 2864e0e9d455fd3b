"""A model in this process: a test says what it answers, and sees what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from room_common.llm.port import ChatRequest, Completion


@dataclass(slots=True)
class AnsweringLlm:
    """:class:`room_common.llm.port.Llm`. ``answer`` gets the last message; an exception is raised, None never ends."""

    answer: Callable[[str], str | Exception | None] = lambda _: "no"
    requests: list[ChatRequest] = field(default_factory=list)
    in_flight: int = 0
    most: int = 0

    async def complete(self, request: ChatRequest) -> Completion:
        """Answer, counting how many are answered at once."""
        self.requests.append(request)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(0)
            said = self.answer(str(request.messages[-1]["content"]))
            if said is None:
                await asyncio.Event().wait()
            if isinstance(said, Exception):
                raise said
            return Completion(text=str(said), input_tokens=100, output_tokens=2, cached_tokens=60)
        finally:
            self.in_flight -= 1
