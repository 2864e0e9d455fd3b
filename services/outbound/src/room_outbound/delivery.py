"""Delivering one message: claim the row, call the provider for each part, settle the row.

No connection is held while the provider is called. The window for a duplicate is one call: a crash after the provider
accepted and before that was recorded sends the part again (on ``at_least_once`` channels).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from prometheus_client import CollectorRegistry

from room_common.contracts.channel_config import ChannelConfig
from room_common.crypto import UnknownKey
from room_common.domain.contacts import canonical
from room_common.errors import DependencyUnavailable, Refused
from room_common.faults import crash_point
from room_common.postgres import opt_outs, sending
from room_common.postgres.database import Connection, Database
from room_common.postgres.sending import Claimed
from room_common.telemetry.metrics import counter, histogram
from room_common.telemetry.tracing import annotate, context_of, span
from room_outbound.adapters.accounts import Accounts
from room_outbound.domain.provider import Letter, Provider
from room_outbound.domain.retry import LONGEST_WISH, NOT_ACCEPTED, delay_after
from room_outbound.domain.splitting import split
from room_outbound.metrics import MESSAGE_AGE, MESSAGES

_log = logging.getLogger(__name__)
_RECORD_PAUSE: Final = 0.5
_LONGEST_PACE: Final = 1.0
"""Seconds that a delivery waits for its turn with the row in hand; for longer it gives the row back."""
_KEY_PAUSE: Final = 30.0
_LEAST_CLOSED: Final = 1.0

T = TypeVar("T")


class Delivery:
    """Delivers messages of any channel that has a provider."""

    def __init__(
        self,
        database: Database,
        providers: Mapping[str, Provider],
        accounts: Accounts,
        *,
        owner: str,
        lease_seconds: float,
        registry: CollectorRegistry,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._database = database
        self._providers = providers
        self._accounts = accounts
        self._owner = owner
        self._lease = lease_seconds
        self._jitter = jitter
        self._messages = counter(registry, MESSAGES)
        self._age = histogram(registry, MESSAGE_AGE)

    async def deliver(self, message_id: UUID, came_by: str | None = None) -> UUID | None:
        """Deliver one row if it can be claimed now. Returns the target's next open row, if this one made way for it.

        ``came_by`` is the trace context of the record that woke this; without one the row's own counts.

        Raises ``DependencyUnavailable`` when PostgreSQL is away; the row is taken up again after its lease.
        """
        async with self._database.transaction() as conn:
            claimed = await sending.claim(conn, message_id, self._owner, self._lease)
            opted_out = claimed is not None and await _opted_out(conn, claimed)
        if claimed is None:
            return None
        with span("deliver message", parent=context_of(came_by or claimed.traceparent)) as delivery:
            delivery.set_attribute("room.message.id", str(claimed.id))
            delivery.set_attribute("room.channel", claimed.channel)
            delivery.set_attribute("room.attempt", claimed.attempt)
            settled = await self._attempt(claimed, opted_out)
        if not settled:
            return None
        async with self._database.transaction() as conn:
            return await sending.next_of_target(conn, claimed)

    async def _attempt(self, claimed: Claimed, opted_out: bool) -> bool:
        """One try. True when the row is settled for good."""
        try:
            if opted_out:
                raise Refused("opted_out")
            provider = self._providers.get(claimed.channel)
            if provider is None:
                raise Refused("channel_not_configured")
            provider_message_id = await self._send(claimed, provider, self._accounts.open(claimed))
        except UnknownKey as error:
            return await self._postpone(claimed, error.kind, _KEY_PAUSE)
        except _Later as later:
            return await self._postpone(claimed, "rate_limit", later.seconds)
        except (DependencyUnavailable, TimeoutError) as error:
            return await self._again(claimed, error)
        except Refused as error:
            await self._fail(claimed, error.reason)
            return True
        if provider_message_id is None:
            self._count(claimed, "overtaken")
            return True
        age = await self._record(lambda conn: sending.settle_sent(conn, claimed, self._owner, provider_message_id))
        crash_point("outbound.after_settle")
        if age is not None:
            self._age.observe(age)
        self._count(claimed, "overtaken" if age is None else "sent")
        return True

    async def _send(self, claimed: Claimed, provider: Provider, config: ChannelConfig) -> str | None:
        """Send the parts that are still to be sent; None when another process took the row meanwhile."""
        parts = [claimed.text] if provider.longest is None else split(claimed.text, provider.longest)
        if not parts:
            raise Refused("empty")
        provider_message_id = ""
        for number in range(min(claimed.parts_sent, len(parts) - 1), len(parts)):
            letter = Letter(claimed.id, claimed.slug, claimed.target, parts[number], claimed.created_at, number)
            provider_message_id = await self._call(provider, letter, config)
            if number + 1 == len(parts):
                break
            advance = partial(
                sending.advance,
                claimed=claimed,
                owner=self._owner,
                parts_sent=number + 1,
                lease_seconds=self._lease,
            )
            if not await self._record(advance):
                return None
        return provider_message_id

    async def _call(self, provider: Provider, letter: Letter, config: ChannelConfig) -> str:
        bucket = None if provider.pace is None else self._accounts.bucket(config, provider.pace, time.monotonic())
        while bucket is not None and (seconds := bucket.take(time.monotonic())) > 0:
            if seconds > _LONGEST_PACE:
                raise _Later(seconds)
            await asyncio.sleep(seconds)
        crash_point("outbound.before_send")
        try:
            # The call ends well before the lease does, so that nobody else is sending the same row by then.
            async with asyncio.timeout(self._lease / 2):
                provider_message_id = await provider.send(letter, config)
        except DependencyUnavailable as error:
            if bucket is not None and error.kind == "rate_limit":
                # Whoever else uses this account waits as well.
                wish = min(error.retry_after or _LEAST_CLOSED, LONGEST_WISH)
                bucket.close(time.monotonic(), max(wish, _LEAST_CLOSED))
            raise
        except (TimeoutError, Refused):
            raise
        except Exception as error:
            # Without its text, which may repeat an address with a token in it.
            _log.error("provider failed unforeseen", extra={"message_id": str(letter.id), "kind": type(error).__name__})
            raise DependencyUnavailable("provider", type(error).__name__) from None
        crash_point("outbound.after_send")
        return provider_message_id

    async def _postpone(self, claimed: Claimed, kind: str, seconds: float) -> bool:
        """Give the row back: the provider was not asked, so no try is spent."""
        await self._record(lambda conn: sending.postpone(conn, claimed, self._owner, kind, seconds))
        self._count(claimed, "postponed")
        return False

    async def _record(self, write: Callable[[Connection], Awaitable[T]]) -> T:
        """Write down what the provider accepted, as long as the lease lasts: unrecorded, it would be sent again."""
        deadline = asyncio.get_running_loop().time() + self._lease / 2
        while True:
            try:
                async with self._database.transaction() as conn:
                    return await write(conn)
            except DependencyUnavailable:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(_RECORD_PAUSE)

    async def _again(self, claimed: Claimed, error: DependencyUnavailable | TimeoutError) -> bool:
        """Give the row back for another try, unless there is none or there must be none. True when it is settled."""
        kind, wish = (error.kind, error.retry_after) if isinstance(error, DependencyUnavailable) else ("timeout", None)
        if claimed.once_only and kind not in NOT_ACCEPTED:
            await self._record(lambda conn: sending.settle_unknown(conn, claimed, self._owner, kind))
            self._count(claimed, "unknown")
            _log.warning("message may or may not have been sent", extra={"message_id": str(claimed.id), "kind": kind})
            return True
        delay = delay_after(claimed.attempt, wish, self._jitter())
        if delay is None:
            await self._fail(claimed, kind)
            return True
        await self._record(lambda conn: sending.settle_retry(conn, claimed, self._owner, kind, delay))
        self._count(claimed, "retry")
        return False

    async def _fail(self, claimed: Claimed, kind: str) -> None:
        """Close the row for good. Its dead letter is written from the row, so that it can wait for Kafka."""
        await self._record(lambda conn: sending.settle_failed(conn, claimed, self._owner, kind))
        self._count(claimed, "failed")
        _log.warning("message failed for good", extra={"message_id": str(claimed.id), "kind": kind})

    def _count(self, claimed: Claimed, status: str) -> None:
        self._messages.labels(claimed.channel, status).inc()
        annotate("room.message.status", status)


class _Later(Exception):
    """The account has to wait."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


async def _opted_out(conn: Connection, claimed: Claimed) -> bool:
    if claimed.channel != "whatsapp" or claimed.channel_id is None:
        return False
    return await opt_outs.holds(conn, claimed.channel_id, canonical(claimed.channel, claimed.target))
