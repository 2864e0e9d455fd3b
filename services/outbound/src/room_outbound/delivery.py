"""Delivering one message: claim the row, call the provider, settle the row.

No connection is held while the provider is called. The window for a duplicate is that one call: a crash after the
provider accepted and before the row was settled sends the message again (on ``at_least_once`` channels).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from uuid import UUID

from prometheus_client import CollectorRegistry

from room_common.contracts import envelope, topics
from room_common.contracts.messages import OutboundMessage
from room_common.errors import DependencyUnavailable, Refused
from room_common.faults import crash_point
from room_common.kafka.producer import Producer
from room_common.postgres import sending
from room_common.postgres.database import Database
from room_common.postgres.sending import Claimed
from room_common.telemetry.metrics import EVENT_AGE, counter, histogram
from room_outbound.domain.provider import Letter, Provider
from room_outbound.domain.retry import delay_after
from room_outbound.metrics import MESSAGES

_log = logging.getLogger(__name__)


class Delivery:
    """Delivers messages of any channel that has a provider."""

    def __init__(
        self,
        database: Database,
        producer: Producer,
        providers: Mapping[str, Provider],
        *,
        owner: str,
        lease_seconds: float,
        registry: CollectorRegistry,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._database = database
        self._producer = producer
        self._providers = providers
        self._owner = owner
        self._lease = lease_seconds
        self._jitter = jitter
        self._messages = counter(registry, MESSAGES)
        self._age = histogram(registry, EVENT_AGE).labels(stage="delivered")

    async def deliver(self, message_id: UUID) -> UUID | None:
        """Deliver one row if it can be claimed now. Returns the target's next open row, if this one made way for it.

        Raises ``DependencyUnavailable`` when PostgreSQL or Kafka is away; the row is taken up again after its lease.
        """
        async with self._database.transaction() as conn:
            claimed = await sending.claim(conn, message_id, self._owner, self._lease)
        if claimed is None:
            return None
        provider = self._providers.get(claimed.channel)
        if provider is None:
            await self._fail(claimed, "channel_not_configured")
        elif not await self._attempt(claimed, provider):
            return None
        async with self._database.transaction() as conn:
            return await sending.next_of_target(conn, claimed)

    async def _attempt(self, claimed: Claimed, provider: Provider) -> bool:
        """One call of the provider. True when the row is settled for good."""
        crash_point("outbound.before_send")
        letter = Letter(claimed.id, claimed.slug, claimed.target, claimed.text, claimed.created_at)
        try:
            # The call ends well before the lease does, so that nobody else is sending the same row by then.
            async with asyncio.timeout(self._lease / 2):
                provider_message_id = await provider.send(letter)
        except (DependencyUnavailable, TimeoutError) as error:
            await self._retry(claimed, error)
            return False
        except Refused as error:
            await self._fail(claimed, error.reason)
            return True
        except Exception as error:
            _log.exception("provider failed unexpectedly", extra={"message_id": str(claimed.id)})
            await self._retry(claimed, DependencyUnavailable("provider", type(error).__name__))
            return False
        crash_point("outbound.after_send")
        async with self._database.transaction() as conn:
            settled = await sending.settle_sent(conn, claimed, self._owner, provider_message_id)
        crash_point("outbound.after_settle")
        self._count(claimed, "sent" if settled else "overtaken")
        return True

    async def _retry(self, claimed: Claimed, error: DependencyUnavailable | TimeoutError) -> None:
        kind, wish = (error.kind, error.retry_after) if isinstance(error, DependencyUnavailable) else ("timeout", None)
        delay = delay_after(claimed.attempt, wish, self._jitter())
        if delay is None:
            await self._fail(claimed, kind)
            return
        async with self._database.transaction() as conn:
            await sending.settle_retry(conn, claimed, self._owner, kind, delay)
        self._count(claimed, "retry")

    async def _fail(self, claimed: Claimed, kind: str) -> None:
        """Dead-letter, then close the row: a crash in between makes a second dead letter, never a lost one."""
        message = OutboundMessage(
            id=claimed.id,
            instance_id=claimed.instance_id,
            cycle_id=claimed.cycle_id,
            channel=claimed.channel,
            target=claimed.target,
            text=claimed.text,
            created_at=claimed.created_at,
        )
        await self._producer.send(
            topics.OUTBOUND_DEAD,
            key=outbound_key(claimed.instance_id, claimed.target),
            value=message.encode(),
            headers=((envelope.ERROR, kind.encode()), (envelope.ATTEMPTS, b"%d" % claimed.attempt)),
        )
        async with self._database.transaction() as conn:
            await sending.settle_failed(conn, claimed, self._owner, kind)
        self._count(claimed, "failed")
        _log.warning("message failed for good", extra={"message_id": str(claimed.id), "kind": kind})

    def _count(self, claimed: Claimed, status: str) -> None:
        self._messages.labels(claimed.channel, status).inc()


def outbound_key(instance_id: UUID, target: str) -> bytes:
    """The record key of the outbound topics: instance id and target, so that a target's records stay in order."""
    return f"{instance_id}{target}".encode()
