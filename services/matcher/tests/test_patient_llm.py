from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from room_common.errors import DependencyUnavailable
from room_common.llm.port import CALL_LOCAL, CallKind, ChatRequest, Completion, EventRejected
from room_matcher.adapters.fair_slots import FairSlots
from room_matcher.adapters.patient_llm import (
    AVOIDED_SECONDS,
    LONGEST_PAUSE,
    LONGEST_WISH,
    PATIENCE_SECONDS,
    RATE_LIMIT_FACTOR,
    TRIES,
    PatientLlm,
)

TIMEOUT = DependencyUnavailable("llm", "timeout")
CHECK = "Answer with one word: yes."


def question(text: str, model: str | None = None) -> ChatRequest:
    return ChatRequest(tier="fast", messages=({"role": "user", "content": text},), model=model)


class Provider:
    """Answers as ``script`` says of a text, a model and how many calls there were; its clock runs in pauses only."""

    def __init__(self, script: Callable[[str, str | None, int], Exception | None], places: int = 100) -> None:
        self.script = script
        self.calls: list[str] = []
        self.pauses: list[float] = []
        self.gauge: Counter[CallKind] = Counter()
        self.gauge_in_pauses: list[Counter[CallKind]] = []
        self.slots = FairSlots(places, part=places)
        self.free_in_pauses: list[int] = []
        self.again: list[bool] = []
        self.llm = PatientLlm(
            self, self.note, clock=lambda: len(self.calls) / 1000 + sum(self.pauses), sleep=self.sleep
        )

    def note(self, kind: CallKind, by: int) -> None:
        self.gauge[kind] += by

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.gauge_in_pauses.append(self.gauge.copy())
        self.free_in_pauses.append(self.slots._free)
        await asyncio.sleep(0)

    @asynccontextmanager
    async def place(self, again: bool) -> AsyncIterator[None]:
        self.again.append(again)
        async with self.slots.hold("source"):
            yield

    async def ask(self, text: str, model: str | None = None) -> Completion:
        return await self.llm.complete(question(text, model), self.place)

    async def complete(self, request: ChatRequest) -> Completion:
        text = str(request.messages[-1]["content"])
        self.calls.append(text if request.model is None else f"{request.model}: {text}")
        for _ in range(5 if text == "hangs" else 1):  # a timeout takes longer than an answer
            await asyncio.sleep(0)
        error = self.script(text, request.model, len(self.calls))
        if error is not None:
            raise error
        return Completion(text="yes")


async def test_a_call_that_fails_is_said_again_while_the_provider_answers_others() -> None:
    provider = Provider(lambda text, _, number: TIMEOUT if text == "hangs" and number < 13 else None)
    assert (await provider.ask("hangs")).text == "yes"
    assert provider.calls[:3] == ["hangs", CHECK, "hangs"]
    assert provider.pauses == [1, 2, 4, 8, 16, LONGEST_PAUSE]
    assert provider.again == [False] + [True] * 6
    assert provider.gauge_in_pauses == [{"timeout": 1}] * 6
    assert provider.gauge == {"timeout": 0}


@pytest.mark.parametrize("kind", CALL_LOCAL)
async def test_a_call_that_always_fails_is_given_up_and_every_other_one_is_answered(kind: CallKind) -> None:
    error = DependencyUnavailable("llm", kind)
    provider = Provider(lambda text, *_: error if text == "bad" else None)
    with pytest.raises(EventRejected) as raised:
        await provider.ask("bad")
    assert raised.value.kind == kind
    patience = PATIENCE_SECONDS * (RATE_LIMIT_FACTOR if kind == "rate_limit" else 1)
    assert patience <= sum(provider.pauses) < patience + 2 * LONGEST_PAUSE
    assert provider.calls.count("bad") >= TRIES
    assert provider.gauge == {kind: 0}
    assert (await provider.ask("good")).text == "yes"


async def test_no_patience_still_means_some_tries() -> None:
    provider = Provider(lambda text, *_: TIMEOUT if text == "bad" else None)
    provider.llm._patience = 0.0
    with pytest.raises(EventRejected):
        await provider.ask("bad")
    assert provider.calls.count("bad") == TRIES


async def test_who_pauses_holds_no_place() -> None:
    provider = Provider(lambda text, *_: TIMEOUT if text == "bad" else None, places=1)
    bad = asyncio.create_task(provider.ask("bad"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (await provider.ask("good")).text == "yes"
    assert not bad.done()
    provider.free_in_pauses.clear()
    with pytest.raises(EventRejected):
        await bad
    assert set(provider.free_in_pauses) == {1}


async def test_the_provider_s_own_wish_for_the_next_try_is_obeyed() -> None:
    wishes = [3.0, 10_000.0]
    provider = Provider(
        lambda text, *_: (
            DependencyUnavailable("llm", "rate_limit", retry_after=wishes.pop(0)) if text == "x" and wishes else None
        )
    )
    await provider.ask("x")
    assert provider.pauses == [3.0, LONGEST_WISH]


@pytest.mark.parametrize("kind", CALL_LOCAL)
async def test_a_provider_that_answers_nobody_is_away(kind: CallKind) -> None:
    error = DependencyUnavailable("llm", kind)
    provider = Provider(lambda *_: error)
    results = await asyncio.gather(*(provider.ask("hangs") for _ in range(5)), return_exceptions=True)
    assert all(isinstance(result, DependencyUnavailable) for result in results)
    assert provider.calls.count(CHECK) == 1
    assert provider.pauses == []
    assert provider.gauge.total() == 0


async def test_a_check_that_is_answered_without_a_word_is_answered() -> None:
    provider = Provider(
        lambda text, _, number: (
            EventRejected("truncated") if text == CHECK else TIMEOUT if text == "x" and number == 1 else None
        )
    )
    assert (await provider.ask("x")).text == "yes"


@pytest.mark.parametrize(
    "error",
    [
        *(
            DependencyUnavailable("llm", kind)
            for kind in ("connect", "unauthorized", "forbidden", "model_missing", "not_found", "quota")
        ),
        DependencyUnavailable("postgresql", "timeout"),
        EventRejected("refused"),
    ],
)
@pytest.mark.parametrize("model", [None, "own"])
async def test_every_other_error_is_reported_at_once(error: Exception, model: str | None) -> None:
    provider = Provider(lambda *_: error)
    with pytest.raises(type(error)):
        await provider.ask("x", model)
    assert len(provider.calls) == 1


async def test_an_answer_to_somebody_else_saves_the_check() -> None:
    provider = Provider(lambda text, _, number: TIMEOUT if text == "hangs" and number < 3 else None)
    await asyncio.gather(provider.ask("hangs"), provider.ask("other"))
    assert provider.calls == ["hangs", "other", "hangs"]


async def test_an_answer_of_another_model_is_none_of_the_default_s() -> None:
    provider = Provider(lambda _, model, __: None if model == "own" else TIMEOUT)
    asked, other = asyncio.create_task(provider.ask("hangs")), asyncio.create_task(provider.ask("other", "own"))
    assert (await other).text == "yes"
    with pytest.raises(DependencyUnavailable):
        await asked
    assert CHECK in provider.calls


@pytest.mark.parametrize("kind", CALL_LOCAL)
async def test_an_own_model_in_trouble_gives_way_to_the_default(kind: CallKind) -> None:
    error = DependencyUnavailable("llm", kind)
    provider = Provider(lambda _, model, __: error if model == "own" else None)
    answer = await provider.ask("x", "own")
    assert (answer.text, answer.fallback) == ("yes", True)
    assert provider.calls.count("own: x") == TRIES
    assert provider.calls[-1] == "x"
    assert (await provider.ask("y", "own")).fallback
    assert provider.calls[-1] == "y"
    assert "own: y" not in provider.calls
    provider.pauses.append(AVOIDED_SECONDS)
    await provider.ask("z", "own")
    assert "own: z" in provider.calls


async def test_an_own_model_that_fails_at_one_prompt_is_not_avoided_for_others() -> None:
    provider = Provider(lambda text, model, _: TIMEOUT if model == "own" and text == "bad" else None)
    bad = asyncio.create_task(provider.ask("bad", "own"))
    await asyncio.sleep(0)
    assert not (await provider.ask("good", "own")).fallback
    assert (await bad).fallback
    assert not (await provider.ask("good", "own")).fallback


async def test_a_prompt_that_the_default_fails_at_as_well_is_given_up() -> None:
    provider = Provider(lambda text, *_: TIMEOUT if text == "bad" else None)
    with pytest.raises(EventRejected):
        await provider.ask("bad", "own")
    assert provider.calls.count("own: bad") == TRIES
    assert provider.calls.count("bad") >= TRIES
