"""Asking the fast model which definition a payload matches: one call each, in order, the first yes wins."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

from room_common.cache.memory import VerdictMemory
from room_common.domain.classification_prompt import PROMPT_VERSION, Delivery, Prompt, memory_key
from room_common.domain.deliveries import Definition
from room_common.domain.verdict import Verdict, verdict
from room_common.faults import crash_point
from room_common.llm.port import ChatRequest
from room_common.postgres.ledger import VerdictEntry
from room_common.telemetry.tracing import span
from room_matcher.adapters.fair_slots import FairSlots
from room_matcher.adapters.patient_llm import PatientLlm
from room_matcher.metrics import MatcherMetrics

UNCLEAR: Final = "unclear_answer"

AGAIN: Final = "again"
"""Whose share of the model calls further tries are: otherwise two sources on which the model hangs would take all."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Tally:
    """What classifying one item has cost and shown so far; it stays true when a call fails half-way."""

    verdicts: list[VerdictEntry] = field(default_factory=list)
    calls: int = 0
    tokens: int = 0
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str = field(repr=False)
    input_tokens: int = 0
    output_tokens: int = 0
    remembered: bool = False


class Classifier:
    """Verdicts of the fast model, remembered for a day where Redis lets us.

    ``default_model`` names the tier's own model: a remembered verdict is one of the model that gave it.
    """

    def __init__(
        self,
        llm: PatientLlm,
        memory: VerdictMemory,
        slots: FairSlots,
        metrics: MatcherMetrics,
        *,
        default_model: str,
        max_output_tokens: int,
    ) -> None:
        self._llm = llm
        self._slots = slots
        self._memory = memory
        self._metrics = metrics
        self._default_model = default_model
        self._max_output_tokens = max_output_tokens

    async def first_match(
        self, delivery: Delivery, definitions: Sequence[Definition], model: str | None, tally: Tally, share: Hashable
    ) -> Definition | None:
        """The first definition that matches, asking as many as it takes. ``model`` is the instance's own, or None;
        ``share`` is whose part of the model calls this takes.

        Raises ``DependencyUnavailable`` when the provider is at fault and ``EventRejected`` when this event is; what
        was learned and paid until then is in ``tally``.
        """
        for definition in definitions:
            started = time.monotonic()
            with span("verdict") as asked:
                answer = await self._answer(delivery.ask(definition.matching_prompt), model, tally, share)
                understood = verdict(answer.text)
                asked.set_attribute("room.definition.id", str(definition.id))
                asked.set_attribute("room.verdict", str(understood.answer))
                asked.set_attribute("room.verdict.remembered", answer.remembered)
            self._note(definition, answer, understood, tally, int((time.monotonic() - started) * 1000))
            if understood.matches:
                return definition
        return None

    async def _answer(self, prompt: Prompt, model: str | None, tally: Tally, share: Hashable) -> _Answer:
        key = memory_key(PROMPT_VERSION, model or self._default_model, prompt.remembered)
        crash_point("matcher.before_memory")
        remembered = await self._memory.get(key)
        crash_point("matcher.after_memory")
        if remembered is not None:
            return _Answer(remembered, remembered=True)
        completion = await self._llm.complete(
            ChatRequest(
                tier="fast",
                messages=({"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}),
                max_output_tokens=self._max_output_tokens,
                temperature=0.0,
                model=None if model == self._default_model else model,
            ),
            lambda again: self._place(AGAIN if again else share, tally),
        )
        crash_point("matcher.after_call")
        tally.tokens += completion.input_tokens + completion.output_tokens
        tally.fallback |= completion.fallback
        if not completion.fallback:
            await self._memory.put(key, completion.text)
            crash_point("matcher.after_remembering")
        return _Answer(completion.text, completion.input_tokens, completion.output_tokens)

    @asynccontextmanager
    async def _place(self, share: Hashable, tally: Tally) -> AsyncIterator[None]:
        """A place for one try; between two tries a call holds none."""
        async with self._slots.hold(share):
            tally.calls += 1
            crash_point("matcher.before_call")
            yield

    def _note(self, definition: Definition, answer: _Answer, understood: Verdict, tally: Tally, ms: int) -> None:
        self._metrics.verdict(str(understood.answer), remembered=answer.remembered, warning=understood.warning)
        if understood.warning:
            log.warning("unclear verdict", definition_id=str(definition.id))
        tally.verdicts.append(
            VerdictEntry(
                definition_id=definition.id,
                name=definition.name,
                verdict=str(understood.answer),
                warning=UNCLEAR if understood.warning else None,
                answer=understood.excerpt if understood.warning else None,
                input_tokens=answer.input_tokens,
                output_tokens=answer.output_tokens,
                remembered=answer.remembered,
                ms=ms,
            )
        )
