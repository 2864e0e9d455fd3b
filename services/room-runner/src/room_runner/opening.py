"""How a cycle begins: what it takes, and the two messages it starts from (behaviour 9.1 to 9.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from room_common.domain.decoding import Undecodable, decode_payload
from room_common.domain.jsonview import Json
from room_common.domain.projection import project
from room_common.llm.port import Message
from room_common.postgres import activity, cycles, events, inbox, leases, resuming, tools, usage
from room_common.postgres.cycles import Brief
from room_common.postgres.events import PendingEvent
from room_common.postgres.inbox import Reply
from room_common.postgres.leases import Leased
from room_common.telemetry.tracing import parse_traceparent
from room_runner.domain import prompt
from room_runner.domain.prompt import ActionView, EventView, ReplyView
from room_runner.domain.selection import choose, fitting
from room_runner.domain.tokens import text_tokens
from room_runner.settings import CycleSettings

_HEADS: Final = 200
_ACTIONS: Final = 20


@dataclass(frozen=True, slots=True)
class Opening:
    """A cycle that has begun, now or under an earlier lease (``resumed``).

    ``received`` are the times its events came in, ``verified`` says whether all of them are. ``traceparent`` is what
    it belongs to, ``linked`` what else led to it. What is after ``linked`` is what an earlier lease has left: see
    :class:`~room_common.postgres.resuming.RunningCycle`.
    """

    cycle_id: UUID
    messages: tuple[Message, ...]
    model: str | None
    events: int
    received: tuple[datetime, ...]
    verified: bool
    replies: int
    began_at: datetime
    conversation_id: str
    traceparent: str | None
    linked: tuple[str, ...] = ()
    resumed: bool = False
    steps: int = 0
    used_seconds: float = 0.0
    sent: bool = False
    calls_begun: frozenset[str] = frozenset()

    @property
    def trace_id(self) -> str | None:
        """For logs."""
        parent = None if self.traceparent is None else parse_traceparent(self.traceparent.encode())
        return None if parent is None else parent.trace_id


async def resume_cycle(leased: Leased) -> Opening | None:
    """Go on with the room's running cycle, None when there is none. What came in meanwhile waits for the next one."""
    running = await resuming.resume(leased)
    if running is None:
        return None
    brief = await cycles.brief(leased)
    return Opening(
        running.id,
        tuple(running.messages),
        brief.model,
        running.events,
        tuple(running.received),
        running.verified,
        running.replies,
        running.started_at,
        running.conversation_id,
        running.traceparent,
        resumed=True,
        steps=running.steps,
        used_seconds=running.used_seconds,
        sent=running.sent,
        calls_begun=frozenset(running.calls_begun),
    )


async def open_cycle(leased: Leased, cycle_id: UUID, nonce: str, settings: CycleSettings) -> Opening | None:
    """Take what waits and begin a cycle; or release the room and return None.

    None: nothing waits, or today's budget is used up and the room sleeps until midnight.
    """
    replies = await inbox.unread(leased, settings.max_replies)
    heads = await events.offerable(leased, _HEADS)
    by_trust = await tools.has_guarded(leased.conn, leased.instance_id)
    chosen = choose(heads, replies=bool(replies), limit=settings.max_events, by_trust=by_trust)
    if not chosen and not replies:
        await leases.release(leased)
        return None
    if await spent(leased):
        await leases.release(leased)
        return None
    brief = await cycles.brief(leased)
    zone = timezone(brief.timezone)
    candidates = await events.load(leased, [head.id for head in chosen])
    texts = [prompt.event_text(_view(event), nonce, zone) for event in candidates]
    sizes = [text_tokens(text) for text in texts]
    count = fitting(sizes, settings.prompt_tokens)
    if count and sizes[0] > settings.prompt_tokens:
        texts[0] = prompt.event_text(_view(candidates[0]), nonce, zone, settings.prompt_tokens)
    taken = candidates[:count]
    actions = await _earlier_actions(leased, taken, replies)
    messages = _messages(brief, zone, texts[:count], replies, actions, nonce)
    return await _begin(leased, cycle_id, brief, taken, replies, messages)


async def spent(leased: Leased, needed: int = 0) -> bool:
    """Whether today's budget leaves no room for ``needed`` more tokens; if so the room sleeps and its log says so."""
    budget = await usage.today(leased.conn, leased.instance_id)
    if budget is None or budget.limit is None or (not budget.exhausted and budget.used + needed <= budget.limit):
        return False
    await leases.sleep_until(leased, budget.midnight)
    await activity.append(
        leased.conn,
        leased.instance_id,
        "budget_exhausted",
        f"token budget used up ({budget.used} of {budget.limit}): the room sleeps until {budget.midnight.isoformat()}",
        severity="warning",
    )
    return True


def timezone(name: str) -> tzinfo:
    """The zone of that name; UTC for one that this machine does not know."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


async def _begin(
    leased: Leased,
    cycle_id: UUID,
    brief: Brief,
    taken: Sequence[PendingEvent],
    replies: Sequence[Reply],
    messages: tuple[Message, ...],
) -> Opening:
    origins = [event.traceparent for event in taken] + [reply.traceparent for reply in replies]
    known = [origin for origin in origins if origin is not None]
    traceparent = known[0] if known else None
    conversation_id = await cycles.begin(
        leased,
        cycle_id,
        "reply" if replies else "pending",
        events_taken=len(taken),
        replies_taken=len(replies),
        traceparent=traceparent,
    )
    await events.take(leased, cycle_id, [event.id for event in taken])
    await inbox.take(leased, cycle_id, [reply.id for reply in replies])
    for seq, message in enumerate(messages):
        await cycles.append(leased, cycle_id, seq, message)
    return Opening(
        cycle_id,
        messages,
        brief.model,
        len(taken),
        tuple(event.received_at for event in taken),
        all(event.verified for event in taken),
        len(replies),
        brief.now,
        conversation_id,
        traceparent,
        tuple(known[1:]),
    )


async def _earlier_actions(leased: Leased, taken: Sequence[PendingEvent], replies: Sequence[Reply]) -> list[ActionView]:
    """What was done already in cycles that had something of this before, whatever ended them."""
    again = [event for event in taken if event.cycle_id is not None]
    before = {event.cycle_id for event in again if event.cycle_id is not None}
    before |= {reply.cycle_id for reply in replies if reply.cycle_id is not None}
    if not before:
        return []
    found = await cycles.earlier_actions(leased, list(before), [event.id for event in again], _ACTIONS)
    return [ActionView(action.name, action.arguments, action.result) for action in found]


def _messages(
    brief: Brief,
    zone: tzinfo,
    texts: Sequence[str],
    replies: Sequence[Reply],
    actions: Sequence[ActionView],
    nonce: str,
) -> tuple[Message, ...]:
    views = [ReplyView(reply.sender, reply.channel, reply.received_at, reply.text) for reply in replies]
    system = prompt.system_prompt(brief.sections, brief.mandate, brief.locale, brief.now, zone, brief.timezone)
    return (
        {"role": "system", "content": system},
        {"role": "user", "content": prompt.user_message(texts, views, actions, nonce, zone)},
    )


def _view(event: PendingEvent) -> EventView:
    payload, problem, changes = _payload(event)
    return EventView(
        event.id,
        event.source_name,
        event.source_type,
        event.verified,
        event.definition_name,
        event.received_at,
        event.attempts,
        event.deferrals,
        payload,
        problem,
        changes,
        event.interpretation_prompt,
    )


def _payload(event: PendingEvent) -> tuple[Json, str | None, tuple[str, ...]]:
    """The projected payload, why there is none, and what decoding changed. The matcher has decoded it before."""
    decoded = decode_payload(event.raw_body, event.content_type, event.headers, split=False)
    if isinstance(decoded, Undecodable):
        return None, decoded.reason.value, ()
    item = decoded.items[0]
    return project(item.view, event.source_type), None, item.changes
