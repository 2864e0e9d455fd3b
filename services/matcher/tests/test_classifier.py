from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from room_common.domain.classification_prompt import Delivery
from room_common.domain.deliveries import Definition
from room_common.errors import DependencyUnavailable
from room_common.llm.port import ChatRequest, Completion, EventRejected
from room_matcher.adapters.fair_slots import FairSlots
from room_matcher.adapters.patient_llm import PatientLlm
from room_matcher.handlers.classifier import AGAIN, Classifier, Tally
from room_matcher.metrics import MatcherMetrics
from room_testing.local_memory import LocalVerdictMemory

DEFINITIONS = tuple(Definition(UUID(int=number), f"d{number}", f"criterion {number}") for number in range(4))


class Script:
    """A model that gives its answers in order."""

    def __init__(self, *answers: str | Exception, fallback: bool = False) -> None:
        self.answers = list(answers)
        self.fallback = fallback
        self.requests: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> Completion:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Completion(text=answer, input_tokens=10, output_tokens=1, fallback=self.fallback)


def delivery(nonce: str = "0123456789abcdef", number: int = 1) -> Delivery:
    return Delivery(source_name="s", source_type="generic", headers={}, view={"a": number}, nonce=nonce)


def classifier(script: Script, memory: LocalVerdictMemory | None = None) -> Classifier:
    metrics = MatcherMetrics(CollectorRegistry())
    memory = memory or LocalVerdictMemory()
    llm = PatientLlm(script, metrics.retried_call)
    return Classifier(llm, memory, FairSlots(2), metrics, default_model="default", max_output_tokens=7)


async def ask(subject: Classifier, tally: Tally, definitions: Sequence[Definition] = DEFINITIONS) -> Definition | None:
    return await subject.first_match(delivery(), definitions, None, tally, "source")


async def test_the_first_yes_wins_and_the_rest_are_not_asked() -> None:
    script, tally = Script("No.", "Yes!"), Tally()
    assert await ask(classifier(script), tally) == DEFINITIONS[1]
    assert (tally.calls, tally.tokens, tally.fallback) == (2, 22, False)
    assert [(entry.verdict, entry.answer) for entry in tally.verdicts] == [("no", None), ("yes", None)]
    request = script.requests[0]
    assert (request.tier, request.temperature, request.max_output_tokens, request.model) == ("fast", 0.0, 7, None)
    assert [message["role"] for message in request.messages] == ["system", "user"]
    assert str(request.messages[1]["content"]).endswith("criterion 0")


async def test_an_unclear_answer_is_a_no_that_the_ledger_shows() -> None:
    tally = Tally()
    assert await ask(classifier(Script("Not sure " + "x" * 100)), tally, DEFINITIONS[:1]) is None
    (entry,) = tally.verdicts
    assert (entry.verdict, entry.warning) == ("unclear", "unclear_answer")
    assert entry.answer == ("Not sure " + "x" * 100)[:80]


async def test_what_was_answered_is_not_asked_again_whatever_the_nonce() -> None:
    memory = LocalVerdictMemory()
    await ask(classifier(Script("no", "yes"), memory), Tally())
    script, tally = Script(), Tally()
    found = await classifier(script, memory).first_match(delivery("f" * 16), DEFINITIONS, None, tally, "source")
    assert found == DEFINITIONS[1]
    assert script.requests == []
    assert (tally.calls, tally.tokens, [entry.remembered for entry in tally.verdicts]) == (0, 0, [True, True])


async def test_a_verdict_belongs_to_the_model_that_gave_it() -> None:
    memory = LocalVerdictMemory()
    await ask(classifier(Script("no"), memory), Tally(), DEFINITIONS[:1])
    script = Script("yes")
    found = await classifier(script, memory).first_match(delivery(), DEFINITIONS[:1], "own", Tally(), "source")
    assert found == DEFINITIONS[0]
    assert script.requests[0].model == "own"


async def test_the_default_models_answer_is_not_remembered_as_the_override_s() -> None:
    memory, tally = LocalVerdictMemory(), Tally()
    await classifier(Script("no", fallback=True), memory).first_match(
        delivery(), DEFINITIONS[:1], "own", tally, "source"
    )
    assert tally.fallback
    script = Script("yes")
    assert await classifier(script, memory).first_match(delivery(), DEFINITIONS[:1], "own", Tally(), "source")
    assert len(script.requests) == 1


@pytest.mark.parametrize("error", [DependencyUnavailable("llm", "connect"), EventRejected("refused")])
async def test_an_error_is_never_a_no_and_what_was_paid_is_known(error: Exception) -> None:
    tally = Tally()
    with pytest.raises(type(error)):
        await ask(classifier(Script("no", error)), tally)
    assert (tally.calls, tally.tokens, len(tally.verdicts)) == (2, 11, 1)


async def test_an_own_model_with_the_name_of_the_default_is_the_default() -> None:
    script = Script("yes")
    await classifier(script).first_match(delivery(), DEFINITIONS[:1], "default", Tally(), "source")
    assert script.requests[0].model is None


async def test_every_try_is_a_call_and_a_call_in_trouble_holds_no_place() -> None:
    script, tally = Script(DependencyUnavailable("llm", "server_error"), "check", "yes"), Tally()
    metrics, slots, free = MatcherMetrics(CollectorRegistry()), FairSlots(2), []

    async def sleep(_: float) -> None:
        free.append(slots._free)

    llm = PatientLlm(script, metrics.retried_call, sleep=sleep)
    subject = Classifier(llm, LocalVerdictMemory(), slots, metrics, default_model="default", max_output_tokens=7)
    assert await ask(subject, tally) == DEFINITIONS[0]
    assert (tally.calls, free, len(script.requests)) == (2, [2], 3)


async def test_calls_on_which_the_model_hangs_leave_places_to_others() -> None:
    """Further tries have their own small share: however many there are, a source that is well finds a place."""
    waiting = asyncio.Event()

    class Hanging:
        async def complete(self, request: ChatRequest) -> Completion:
            text = str(request.messages[-1]["content"])
            if "criterion" not in text or "criterion 1" in text:
                return Completion(text="yes")
            tries[text] += 1
            if tries[text] > 1:
                await waiting.wait()
            raise DependencyUnavailable("llm", "timeout")

    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    tries: Counter[str] = Counter()
    metrics, slots = MatcherMetrics(CollectorRegistry()), FairSlots(4)
    slots.limit(AGAIN, 1)
    llm = PatientLlm(Hanging(), metrics.retried_call, sleep=no_pause, patience=0.0)
    subject = Classifier(llm, LocalVerdictMemory(), slots, metrics, default_model="default", max_output_tokens=7)
    bad = [
        asyncio.create_task(
            subject.first_match(delivery(number=number), DEFINITIONS[:1], None, Tally(), "ab"[number % 2])
        )
        for number in range(20)
    ]
    while tries.total() < 21:
        await asyncio.sleep(0)
    good = await asyncio.wait_for(subject.first_match(delivery(), DEFINITIONS[1:2], None, Tally(), "c"), 5)
    assert good == DEFINITIONS[1]
    assert not any(task.done() for task in bad)
    waiting.set()
    results = await asyncio.gather(*bad, return_exceptions=True)
    assert {str(result) for result in results} == {"timeout"}
