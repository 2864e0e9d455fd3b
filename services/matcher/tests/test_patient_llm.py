from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from room_common.errors import DependencyUnavailable
from room_common.llm.port import ChatRequest, Completion, EventRejected
from room_matcher.adapters.patient_llm import LONGEST_PAUSE, PatientLlm

TIMEOUT = DependencyUnavailable("llm", "timeout")


def question(text: str) -> ChatRequest:
    return ChatRequest(tier="fast", messages=({"role": "user", "content": text},))


class Provider:
    """Answers as ``script`` says; its clock ticks once per call."""

    def __init__(self, script: Callable[[str, int], Exception | None]) -> None:
        self.script = script
        self.calls: list[str] = []
        self.pauses: list[float] = []
        self.llm = PatientLlm(self, clock=lambda: float(len(self.calls)), sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def complete(self, request: ChatRequest) -> Completion:
        text = str(request.messages[-1]["content"])
        self.calls.append(text)
        for _ in range(5 if text == "hangs" else 1):  # a timeout takes longer than an answer
            await asyncio.sleep(0)
        error = self.script(text, len(self.calls))
        if error is not None:
            raise error
        return Completion(text="yes")


async def test_a_prompt_that_hangs_is_said_again_while_the_provider_answers_others() -> None:
    provider = Provider(lambda text, number: TIMEOUT if text == "hangs" and number < 20 else None)
    assert (await provider.llm.complete(question("hangs"))).text == "yes"
    assert provider.calls[:3] == ["hangs", "Answer with one word: yes.", "hangs"]
    assert provider.pauses[:6] == [1, 2, 4, 8, 16, LONGEST_PAUSE]


async def test_a_provider_that_answers_nobody_is_away() -> None:
    provider = Provider(lambda text, number: TIMEOUT)
    results = await asyncio.gather(
        *(provider.llm.complete(question("hangs")) for _ in range(5)), return_exceptions=True
    )
    assert all(isinstance(result, DependencyUnavailable) for result in results)
    assert provider.calls.count("Answer with one word: yes.") == 1
    assert provider.pauses == []


@pytest.mark.parametrize("error", [DependencyUnavailable("llm", "rate_limit"), EventRejected("refused")])
async def test_every_other_error_is_reported_at_once(error: Exception) -> None:
    provider = Provider(lambda text, number: error)
    with pytest.raises(type(error)):
        await provider.llm.complete(question("x"))
    assert provider.calls == ["x"]


async def test_an_answer_to_somebody_else_saves_the_check() -> None:
    provider = Provider(lambda text, number: TIMEOUT if text == "hangs" and number < 3 else None)
    await asyncio.gather(provider.llm.complete(question("hangs")), provider.llm.complete(question("other")))
    assert provider.calls == ["hangs", "other", "hangs"]
