"""How a cycle's rows are settled at its end (behaviour 9.7 and 9.8). Each runs inside the transaction that releases."""

from __future__ import annotations

from typing import Final

from room_common.postgres import activity, cycles, events, inbox, leases, outbox
from room_common.postgres.leases import Leased
from room_common.telemetry.tracing import traceparent_now
from room_runner.domain.answers import spoken
from room_runner.opening import Opening
from room_runner.settings import CycleSettings

_UNMARKED: Final = "the cycle ended without a decision on this event"


async def succeed(leased: Leased, opening: Opening, settings: CycleSettings, final: str, *, sent: bool) -> None:
    """The model has ended the cycle; ``final`` is its last text, a message unless one was ``sent`` already."""
    cycle_id = opening.cycle_id
    returned = await events.retry(leased, cycle_id, settings.event_backoff, _UNMARKED)
    read = await inbox.mark_read(leased, cycle_id)
    await events.cool(leased, cycle_id)
    text = None if sent else spoken(final)
    if text is not None:
        await outbox.add(leased, cycle_id, text, traceparent=traceparent_now(opening.traceparent))
    await cycles.end(leased, cycle_id, "succeeded")
    await leases.succeed(leased)
    decided = opening.events - returned.pending - len(returned.failed)
    await activity.append(
        leased.conn,
        leased.instance_id,
        "cycle_finished",
        f"cycle finished: {decided} of {opening.events} event(s) decided, {read} human message(s) read",
        cycle_id=cycle_id,
        counts={"cycle_finished": 1, "events_decided": decided, "replies_read": read},
    )


async def fail(leased: Leased, opening: Opening, settings: CycleSettings, kind: str) -> None:
    """The cycle failed by its own fault."""
    cycle_id = opening.cycle_id
    await events.retry(leased, cycle_id, settings.event_backoff, f"cycle failed: {kind}")
    await inbox.retry(leased, cycle_id, settings.max_attempts)
    await events.cool(leased, cycle_id)
    await cycles.end(leased, cycle_id, "failed", kind)
    await _fail_room(leased, settings, kind, opening)


async def refuse(leased: Leased, settings: CycleSettings) -> None:
    """Something made it impossible to begin: no event can be blamed, so the room is."""
    await _fail_room(leased, settings, "not_begun", None)
    await leases.release(leased)


async def _fail_room(leased: Leased, settings: CycleSettings, kind: str, opening: Opening | None) -> None:
    standing = await leases.fail(leased, kind, settings.room_backoff)
    cycle_id = None if opening is None else opening.cycle_id
    await activity.append(
        leased.conn,
        leased.instance_id,
        "cycle_failed",
        f"cycle failed: {kind} ({standing.fails} in a row)",
        severity="error",
        cycle_id=cycle_id,
    )
    if standing.parked:
        await activity.append(
            leased.conn,
            leased.instance_id,
            "room_parked",
            f"room parked after {standing.fails} failed cycles in a row: {kind}",
            severity="error",
            cycle_id=cycle_id,
        )
