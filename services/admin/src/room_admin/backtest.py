"""Asking a definition's question about deliveries that are stored, without deciding anything."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from room_admin.deliveries import Deliveries
from room_admin.domain.backtest import GONE, UNDECODABLE, Compared, said_before
from room_common.domain import classification_prompt
from room_common.domain.decoding import Decoded, Item
from room_common.domain.verdict import verdict
from room_common.errors import DependencyUnavailable
from room_common.llm.port import ChatRequest, EventRejected, Llm

CHUNK: Final = 50
"""Payloads held in memory at once."""

MAX_OUTPUT_TOKENS: Final = 64


@dataclass(frozen=True, slots=True)
class Question:
    """Whose deliveries are asked about, and what. ``definition_id``: the definition as it is stored, None for a new
    one; ``model``: the instance's own model of tier fast."""

    source_name: str
    source_type: str
    criterion: str = field(repr=False)
    definition_id: UUID | None
    model: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it, in the order asked. ``stopped``: why it did not come to the end."""

    results: tuple[Compared, ...]
    calls: int
    seconds: float
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """An item with the payload that is asked about."""

    row: Compared
    item: Item
    headers: Mapping[str, str] = field(repr=False)


class Backtest:
    """Runs questions over deliveries: so many calls at once, so many seconds in all."""

    def __init__(
        self,
        deliveries: Deliveries,
        llm: Llm,
        *,
        calls_at_once: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deliveries = deliveries
        self._llm = llm
        self._calls_at_once = calls_at_once
        self._seconds = seconds
        self._clock = clock

    async def over_stored(self, question: Question, rows: Sequence[Mapping[str, Any]]) -> Outcome:
        """Ask about rows of the ledger. Raises ``DependencyUnavailable`` when nothing could be asked at all."""
        run = _Run(self._llm, question, self._calls_at_once, self._clock)
        try:
            async with asyncio.timeout(self._seconds):
                for start in range(0, len(rows), CHUNK):
                    chunk = rows[start : start + CHUNK]
                    found = await self._deliveries.read_many(chunk)
                    await run.ask([*self._subjects(question, chunk, found, run)])
        except TimeoutError:
            return run.outcome("time")
        except DependencyUnavailable as error:
            if not run.answered:
                raise
            return run.outcome(str(error))
        return run.outcome(None)

    async def over_sample(self, question: Question, items: Sequence[Item], headers: Mapping[str, str]) -> Outcome:
        """Ask about the items of one payload that was never received. Raises ``DependencyUnavailable``."""
        run = _Run(self._llm, question, self._calls_at_once, self._clock)
        subjects = [_Asked(Compared(None, item.index, None, None, None, None, None), item, headers) for item in items]
        try:
            async with asyncio.timeout(self._seconds):
                await run.ask(subjects)
        except TimeoutError:
            return run.outcome("time")
        return run.outcome(None)

    def _subjects(
        self, question: Question, rows: Sequence[Mapping[str, Any]], found: Mapping[UUID, Any], run: _Run
    ) -> Iterator[_Asked]:
        for row in rows:
            base = Compared(
                delivery_id=row["id"],
                item=row["item"],
                received_at=row["received_at"],
                outcome=row["outcome"],
                matched_by=row["definition"],
                before=said_before(row["verdicts"], question.definition_id),
                after=None,
            )
            received = found.get(row["id"])
            if received is None or received.envelope is None:
                run.note(replace(base, error=GONE))
                continue
            decoded = self._deliveries.decode(received, row)
            items = decoded.items if isinstance(decoded, Decoded) else ()
            item = next((one for one in items if one.index == row["item"] and one.problem is None), None)
            if item is None:
                run.note(replace(base, error=UNDECODABLE))
                continue
            yield _Asked(base, item, received.envelope.http)


class _Run:
    """One test under way."""

    def __init__(self, llm: Llm, question: Question, calls_at_once: int, clock: Callable[[], float]) -> None:
        self._llm = llm
        self._question = question
        self._slots = asyncio.Semaphore(calls_at_once)
        self._clock = clock
        self._started = clock()
        self._results: list[Compared] = []
        self._calls = 0

    @property
    def answered(self) -> bool:
        """Whether any question was answered."""
        return any(row.after is not None for row in self._results)

    def note(self, row: Compared) -> None:
        """A result without a question."""
        self._results.append(row)

    def outcome(self, stopped: str | None) -> Outcome:
        """What has come of it so far, newest delivery first."""
        ordered = sorted(self._results, key=_newest_first)
        return Outcome(tuple(ordered), self._calls, round(self._clock() - self._started, 3), stopped)

    async def ask(self, subjects: Sequence[_Asked]) -> None:
        """Ask about all, a few at a time. The first ``DependencyUnavailable`` ends it; answers until then count."""
        tasks = [asyncio.create_task(self._one(subject)) for subject in subjects]
        try:
            for task in asyncio.as_completed(tasks):
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, subject: _Asked) -> None:
        question = self._question
        prompt = classification_prompt.Delivery(
            source_name=question.source_name,
            source_type=question.source_type,
            headers=subject.headers,
            view=subject.item.view,
            nonce=os.urandom(8).hex(),
        ).ask(question.criterion)
        request = ChatRequest(
            tier="fast",
            messages=({"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}),
            max_output_tokens=MAX_OUTPUT_TOKENS,
            temperature=0.0,
            model=question.model,
        )
        async with self._slots:
            started = self._clock()
            self._calls += 1
            try:
                completion = await self._llm.complete(request)
            except EventRejected as error:
                self._results.append(replace(subject.row, error=str(error)))
                return
        understood = verdict(completion.text)
        self._results.append(
            replace(
                subject.row,
                after=understood.answer.value,
                why=understood.excerpt,
                input_tokens=completion.input_tokens,
                output_tokens=completion.output_tokens,
                cached_tokens=completion.cached_tokens,
                ms=int((self._clock() - started) * 1000),
            )
        )


def _newest_first(row: Compared) -> tuple[float, str, int]:
    return (0.0 if row.received_at is None else -row.received_at.timestamp(), str(row.delivery_id), row.item)
