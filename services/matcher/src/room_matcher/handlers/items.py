"""One item of an accepted delivery, from the duplicate check to the deciding transaction."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from room_common.coalescing import Coalescer
from room_common.contracts.topics import WEBHOOKS_SLOW
from room_common.domain import classification_prompt
from room_common.domain.decoding import Item
from room_common.domain.deliveries import Definition, Outcome, Source
from room_common.errors import DeadLetter, DependencyUnavailable
from room_common.faults import crash_point
from room_common.identity import new_id
from room_common.postgres import backlog, decisions, ledger, usage
from room_common.postgres.database import Database
from room_common.telemetry.tracing import Attributes, annotate, span, traceparent_now, tracer
from room_matcher.adapters.admission import Admission
from room_matcher.adapters.key_locks import KeyLocks
from room_matcher.adapters.ledger_writer import LedgerWriter
from room_matcher.adapters.source_cache import SourceCache
from room_matcher.domain.cascade import Stop, check_room, check_source
from room_matcher.domain.delivery_identity import Identity, identify, is_handshake_confirmation
from room_matcher.handlers.classifier import Classifier, Tally
from room_matcher.handlers.dead_gate import DeadGate
from room_matcher.handlers.dead_letters import DeadLetters
from room_matcher.handlers.delivery import Delivery
from room_matcher.handlers.fallback_alerts import FallbackAlerts
from room_matcher.metrics import MatcherMetrics


@dataclass(frozen=True, slots=True)
class Subject:
    """An item with what the request told about it."""

    delivery: Delivery
    item: Item
    source: Source
    verified: bool
    body_ttl_seconds: int
    of: int = 1
    """Items of the delivery."""

    def entry(self, stop: Stop, source: Source | None = None) -> ledger.Entry:
        """The row of this item if it ended with ``stop``; ``source`` replaces the one it was accepted for."""
        row = self.delivery.stopped(stop, source or self.source, item=self.item.index, size=len(self.item.raw))
        return replace(row, changes=self.item.changes, items=self.of)

    def identity(self) -> Identity:
        """By what a second copy of it is recognised."""
        return identify(
            self.source.source_type,
            self.delivery.envelope.http,
            self.item,
            body_ttl_seconds=self.body_ttl_seconds,
        )


class Items:
    """Decides items. Every call ends with one row in the ledger, or with an error that says what to do."""

    def __init__(
        self,
        *,
        database: Database,
        sources: SourceCache,
        writer: LedgerWriter,
        admission: Admission,
        classifier: Classifier,
        dead_letters: DeadLetters,
        fallbacks: FallbackAlerts,
        gate: DeadGate,
        metrics: MatcherMetrics,
        cap: int,
    ) -> None:
        self._database = database
        self._sources = sources
        self._writer = writer
        self._admission = admission
        self._classifier = classifier
        self._dead_letters = dead_letters
        self._fallbacks = fallbacks
        self._gate = gate
        self._metrics = metrics
        self._cap = cap
        self._locks = KeyLocks()
        self._priors: Coalescer[decisions.Question, decisions.Prior] = Coalescer(self._read_priors)

    async def decide(self, subject: Subject) -> None:
        """Bring one item to its outcome.

        Raises ``DependencyUnavailable``: nothing is decided, try again later. A ``DeadLetter`` is handled here: the
        delivery goes to the dead-letter topic, then into the ledger.
        """
        with span("decide item", attributes=None if tracer() is None else _described(subject)):
            await self._to_outcome(subject)

    async def _to_outcome(self, subject: Subject) -> None:
        if subject.item.problem is not None:
            await self.record(subject.entry(Stop("undecodable", str(subject.item.problem))))
        elif is_handshake_confirmation(subject.item.view):
            await self.record(subject.entry(Stop("handshake", "confirmation")))
        else:
            identity = subject.identity()
            async with self._locks.hold((subject.source.id, identity.key)):
                await self._unless_known(subject, identity)

    async def record(self, entry: ledger.Entry) -> bool:
        """Write a row that brings nothing into the backlog. False when the item had its row already."""
        outcome = await self._writer.write(entry)
        self._recorded(entry, outcome)
        return outcome is not None

    async def bury(
        self, subject_entry: ledger.Entry, delivery: Delivery, error: DeadLetter, *, attempts: int, item: int | None
    ) -> None:
        """The dead path: publish, then the ledger; the offset completes afterwards.

        Raises ``DependencyUnavailable`` also when too many died already: then this one waits as it is.
        """
        with self._gate.dying():
            await self._dead_letters.publish(delivery.record, error, attempts=attempts, item=item)
            row = replace(subject_entry, outcome="dead", reason=str(error), definition_id=None, dedup=None)
            await self.record(row)

    def _recorded(self, entry: ledger.Entry, outcome: Outcome | None) -> None:
        self._metrics.recorded(outcome, time.time() - entry.received_at.timestamp())
        if outcome is not None:
            self._gate.ended(outcome)
            annotate("room.outcome", outcome)
        if outcome not in (entry.outcome, None):
            self._metrics.wasted(entry.llm_calls, outcome)

    async def _unless_known(self, subject: Subject, identity: Identity) -> None:
        delivery, source_id, instance_id = subject.delivery, subject.source.id, subject.source.instance_id
        prior = await self._priors.ask(
            decisions.Question(delivery.key, subject.item.index, source_id, identity.key, instance_id)
        )
        if prior.decided:
            self._metrics.already_decided(1)
            return
        known_as = () if delivery.replayed else prior.known
        same = next((known for known in known_as if known.content_sha256 == identity.content_sha256), None)
        if same is not None:
            await self.record(subject.entry(Stop("duplicate", f"of {same.delivery_id}/{same.item}")))
            return
        source, stop = await self._current(subject)
        if stop is None and prior.exhausted:
            stop = Stop("budget_exhausted")
        if stop is None and not source.definitions:
            full = await self._admission.full(source.instance_id)
            stop = Stop("backlog_full", "pending") if full else Stop("no_definitions")
        if stop is not None:
            await self.record(replace(subject.entry(stop, source), id_conflict=bool(known_as)))
            return
        await self._ask(replace(subject, source=source), identity, conflict=bool(known_as))

    async def _read_priors(
        self, questions: Sequence[decisions.Question]
    ) -> Mapping[decisions.Question, decisions.Prior]:
        crash_point("matcher.before_priors")
        async with self._database.transaction() as conn:
            found = await decisions.priors(conn, questions)
        crash_point("matcher.after_priors")
        return found

    async def _current(self, subject: Subject) -> tuple[Source, Stop | None]:
        """The source as it is now, and why it takes nothing. A no from memory is read again before it counts."""
        token = subject.delivery.envelope.token_sha256
        found = await self._sources.find(token)
        stop = self._refusal(found.source, subject.delivery)
        since = subject.delivery.settled_at_s
        if found.read_at <= since and (stop is not None or not (found.source and found.source.definitions)):
            found = await self._sources.find(token, since=since)
            stop = self._refusal(found.source, subject.delivery)
        return found.source or subject.source, stop

    @staticmethod
    def _refusal(source: Source | None, delivery: Delivery) -> Stop | None:
        stop = check_source(source, delivery.received_at, replayed=delivery.replayed)
        return stop if stop is not None or source is None else check_room(source)

    async def _ask(self, subject: Subject, identity: Identity, *, conflict: bool) -> None:
        source = subject.source
        async with self._admission.place(source.instance_id) as admitted:
            if not admitted:
                await self.record(replace(subject.entry(Stop("backlog_full", "pending"), source), id_conflict=conflict))
                return
            tally = Tally()
            try:
                definition = await self._classifier.first_match(
                    self._question(subject), source.definitions, source.fast_model, tally, self._share(subject)
                )
                crash_point("matcher.after_llm")
            except DeadLetter as error:
                row = replace(_with(subject.entry(Stop("dead"), source), tally), id_conflict=conflict)
                item = subject.item.index if subject.item.sliced else None
                await self.bury(row, subject.delivery, error, attempts=1, item=item)
                return
            except Exception:
                await self._count_tokens(source, tally)
                raise
            finally:
                if tally.fallback:
                    await self._fallbacks.tell(source)
            await self._decide(subject, identity, definition, tally, conflict=conflict)

    @staticmethod
    def _share(subject: Subject) -> Hashable:
        """Whose share of the model calls this is: the source's, or the slow lane's for everything in it."""
        topic = subject.delivery.record.topic
        return topic if topic == WEBHOOKS_SLOW else subject.source.id

    @staticmethod
    def _question(subject: Subject) -> classification_prompt.Delivery:
        return classification_prompt.Delivery(
            source_name=subject.source.name,
            source_type=subject.source.source_type,
            headers=subject.delivery.envelope.http,
            view=subject.item.view,
            nonce=os.urandom(8).hex(),
        )

    async def _decide(
        self, subject: Subject, identity: Identity, definition: Definition | None, tally: Tally, *, conflict: bool
    ) -> None:
        dedup = ledger.Dedup(identity.key, identity.content_sha256, identity.ttl_seconds)
        stop = Stop("no_match" if definition is None else "matched")
        row = replace(_with(subject.entry(stop), tally), id_conflict=conflict, dedup=dedup)
        if definition is None:
            await self.record(row)
            return
        row = replace(row, definition_id=definition.id)
        label = f"{subject.source.name}: {definition.name}"
        crash_point("matcher.before_decide")
        async with self._database.transaction() as conn:
            outcome = await ledger.decide(conn, row, _event(subject, definition), label, self._cap)
            crash_point("matcher.before_commit")
        crash_point("matcher.after_commit")
        self._recorded(row, outcome)

    async def _count_tokens(self, source: Source, tally: Tally) -> None:
        """Tokens of a classification that did not end count all the same, as far as the database answers."""
        if tally.tokens:
            try:
                async with self._database.transaction(timeout=5) as conn:
                    await usage.add(conn, source.instance_id, "fast", tally.tokens)
            except DependencyUnavailable:
                pass


def _with(row: ledger.Entry, tally: Tally) -> ledger.Entry:
    return replace(row, verdicts=tuple(tally.verdicts), llm_calls=tally.calls, tokens=tally.tokens)


def _described(subject: Subject) -> Attributes:
    """What an operator looks for among traces."""
    return {
        "room.delivery.id": str(subject.delivery.envelope.id),
        "room.item": subject.item.index,
        "room.source.id": str(subject.source.id),
        "room.instance.id": str(subject.source.instance_id),
    }


def _event(subject: Subject, definition: Definition) -> backlog.Event:
    """The item as it enters the backlog: the bytes, and the headers under which they decode to the same view again."""
    item, delivery = subject.item, subject.delivery
    headers = {name: value for name, value in delivery.envelope.http.items() if name != "content-encoding"}
    if item.content_encoding is not None:
        headers["content-encoding"] = item.content_encoding
    return backlog.Event(
        id=new_id(),
        instance_id=subject.source.instance_id,
        source_id=subject.source.id,
        definition_id=definition.id,
        delivery_id=delivery.envelope.id,
        item=item.index,
        raw_body=item.raw,
        content_type=item.content_type,
        headers=headers,
        verified=subject.verified,
        traceparent=traceparent_now(delivery.envelope.traceparent),
        received_at=delivery.received_at,
    )
