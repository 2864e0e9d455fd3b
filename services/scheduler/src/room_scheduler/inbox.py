"""Replies of people: from the topic into the room's inbox, and a tick at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry

from room_common.contracts import envelope as envelopes
from room_common.contracts import topics
from room_common.contracts.channel_config import ChannelConfig
from room_common.contracts.envelope import Envelope
from room_common.crypto import UnknownKey
from room_common.errors import DeadLetter, DependencyUnavailable, Refused
from room_common.faults import crash_point
from room_common.kafka.producer import Producer
from room_common.kafka.records import Record
from room_common.kafka.spans import process_span
from room_common.postgres import opt_outs, replies, waiting_replies
from room_common.postgres.database import Connection, Database
from room_common.postgres.replies import ReplyChannel
from room_common.telemetry.metrics import DEAD_LETTERS, counter, dead_letter_reason
from room_common.telemetry.tracing import traceparent_now
from room_scheduler.channel_secrets import ChannelSecrets
from room_scheduler.domain.local import read_local
from room_scheduler.domain.replies import Post, Reply, fate
from room_scheduler.domain.slack import read_slack
from room_scheduler.domain.telegram import read_telegram
from room_scheduler.domain.twilio import read_whatsapp
from room_scheduler.metrics import REPLIES, TICKS
from room_scheduler.ticker import tick_record

_log = logging.getLogger(__name__)

OPTING: Final = frozenset({"whatsapp"})
"""Channels whose people may opt out with a word."""

_BURIED: Final = (
    *("bad_envelope", "bad_signature", "no_sender", "no_text", "not_an_object", "too_large", "undecodable"),
    *("unforeseen", "unknown_channel"),
)
"""Why replies end as dead letters."""
_TRIES: Final = 3
_PAUSE: Final = 0.2

READERS: Mapping[str, Callable[[Post, ChannelConfig], Reply | None]] = {
    "local": read_local,
    "slack": read_slack,
    "telegram": read_telegram,
    "whatsapp": read_whatsapp,
}
"""How the posts of each channel are checked and read."""


WAIT_SECONDS: Final = 30.0
"""Seconds between two tries of a reply that was put aside."""


class Inbox:
    """Handles batches of reply records. Everything it does may be done again: rows carry a dedup key."""

    def __init__(
        self,
        database: Database,
        producer: Producer,
        secrets: ChannelSecrets,
        registry: CollectorRegistry,
        *,
        debounce_seconds: float,
    ) -> None:
        self._database = database
        self._producer = producer
        self._secrets = secrets
        self._debounce = debounce_seconds
        self._replies = counter(registry, REPLIES)
        self._ticks = counter(registry, TICKS).labels("reply")
        self._letters = counter(registry, DEAD_LETTERS)
        for reason in _BURIED:
            self._letters.labels(topics.REPLIES_DEAD, reason)

    async def handle(self, records: Sequence[Record]) -> None:
        """Take each reply in turn. Raises ``DependencyUnavailable``; the batch is then handled again."""
        for record in records:
            try:
                await self.take(record)
            except UnknownKey as error:
                await self._put_aside(record, error)

    async def take(self, record: Record) -> None:
        """Give one reply its fate. Raises ``UnknownKey`` when only another key can, else ``DependencyUnavailable``."""
        try:
            with process_span(record, topics.SCHEDULER_GROUP):
                await self._try(record)
        except DeadLetter as error:
            await self._bury(record, error)

    async def _try(self, record: Record) -> None:
        """Take one reply. What fails unforeseen is tried again, then parked: it must not hold up those behind it."""
        for _ in range(_TRIES):
            try:
                return await self._take(record)
            except (DeadLetter, DependencyUnavailable):
                raise
            except Exception as error:
                # Without its text, which may repeat what a person wrote.
                _log.error("reply failed unforeseen", extra={"kind": type(error).__name__})
                await asyncio.sleep(_PAUSE)
        raise DeadLetter("unforeseen")

    async def _take(self, record: Record) -> None:
        envelope = envelopes.decode(record)
        received_at = datetime.fromtimestamp(envelope.received_at_us / 1e6, UTC)
        async with self._database.transaction() as conn:
            channel = await replies.find_channel(conn, envelope.token_sha256, received_at)
        if channel is None:
            self._count("unknown", "unknown_token")
            return
        if envelope.outcome == "too_large":
            raise DeadLetter("too_large")
        reader = READERS.get(channel.channel_type)
        if reader is None:
            raise DeadLetter("unknown_channel")
        try:
            opened = self._secrets.open(channel, envelope.token_sha256, envelope.query)
            post = Post(
                body=record.value or b"",
                content_type=envelope.content_type or "",
                http=envelope.http,
                uri=opened.uri,
                received_at=envelope.received_at_us / 1e6,
            )
            reply = reader(post, opened.config)
        except Refused as error:
            raise DeadLetter(error.reason) from None
        if reply is None:
            self._count(channel.channel_type, "not_a_reply")
            return
        await self._put(channel, opened.config, envelope, reply, envelope.traceparent)

    async def _put(
        self, channel: ReplyChannel, config: ChannelConfig, envelope: Envelope, reply: Reply, traceparent: str | None
    ) -> None:
        async with self._database.transaction() as conn:
            reason = fate(
                reply,
                channel=channel.channel_type,
                channel_enabled=channel.enabled,
                room_exists=channel.room_exists,
                room_enabled=channel.room_enabled,
                outbound_channel=channel.outbound_channel,
                outbound_target=channel.outbound_target,
                allow=config.allow,
                opted_out=await _opted_out(conn, channel, reply),
            )
            fresh = await replies.put(
                conn,
                channel,
                sender=reply.sender,
                text=reply.text,
                dedup_key=f"{channel.channel_type}:{channel.id}:{reply.id or envelope.id}",
                reason=reason,
                received_at=datetime.fromtimestamp(envelope.received_at_us / 1e6, UTC),
                traceparent=traceparent_now(traceparent),
            )
            if fresh:
                await _follow_wish(conn, channel, reply)
            now = await replies.wake(conn, channel.instance_id, self._debounce) if fresh and reason is None else None
        crash_point("scheduler.after_reply")
        self._count(channel.channel_type, (reason or "unread") if fresh else "duplicate")
        if now is not None:
            # The row already wakes the room; the tick only makes it sooner, so its loss costs seconds.
            record = tick_record(channel.instance_id, 0, "reply", now)
            await self._producer.send(record.topic, key=record.key, value=record.value)
            self._ticks.inc()

    async def _put_aside(self, record: Record, error: UnknownKey) -> None:
        """Let the replies of everybody else go on; this one is tried again until the key is back."""
        reply_id = envelopes.decode(record).id
        async with self._database.transaction() as conn:
            await waiting_replies.put_aside(conn, reply_id, record, error.kind, WAIT_SECONDS)
        self._count("unknown", "waiting")
        _log.error(
            "a reply waits: its channel is sealed with a key that ROOM_ENCRYPTION__KEYS does not have; "
            "add the key, or apply the room again",
            extra={"reply_id": str(reply_id)},
        )

    async def _bury(self, record: Record, error: DeadLetter) -> None:
        await self._producer.send(
            topics.REPLIES_DEAD,
            key=record.key,
            value=record.value,
            headers=envelopes.dead_headers(record, error, 1),
        )
        self._letters.labels(topics.REPLIES_DEAD, dead_letter_reason(error.kind)).inc()
        self._count("unknown", "dead")
        _log.warning(
            "reply dead-lettered",
            extra={"kind": error.kind, "partition": record.partition, "offset": record.offset},
        )

    def _count(self, channel: str, outcome: str) -> None:
        self._replies.labels(channel, outcome).inc()


async def _opted_out(conn: Connection, channel: ReplyChannel, reply: Reply) -> bool:
    """Whether the person wants no messages, this reply included."""
    if reply.wish is not None:
        return reply.wish == "stop"
    return channel.channel_type in OPTING and await opt_outs.holds(conn, channel.id, reply.contacts[0])


async def _follow_wish(conn: Connection, channel: ReplyChannel, reply: Reply) -> None:
    """Whatever the room makes of the reply. Once only: an old STOP that comes again must not undo a later START."""
    if reply.wish == "stop":
        await opt_outs.put(conn, channel.id, reply.contacts[0])
    elif reply.wish == "start":
        await opt_outs.drop(conn, channel.id, reply.contacts[0])
