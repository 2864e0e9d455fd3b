"""What a request means: tag, handshakes, limits, then a record to Kafka and the answer once it is durable."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final, Protocol

import structlog
from aiokafka.partitioner import murmur2

from room_common.domain.tokens import TokenKeys, is_ours, record_key, token_digest
from room_ingest import answers
from room_ingest.answers import Answer
from room_ingest.domain import handshakes
from room_ingest.domain.limits import TokenBucket
from room_ingest.domain.request_headers import Kept, keep, record_headers, token_header
from room_ingest.domain.routes import Route, parse_target
from room_ingest.exchange import Exchange
from room_ingest.metrics import IngestMetrics
from room_ingest.settings import HttpSettings
from room_ingest.sink import Parcel, RecordSink, Stored

_MAX_SENDERS: Final = 50_000
REFUSALS_RATE: Final = 200.0
REFUSALS_BURST: Final = 400
REFUSAL_WAIT: Final = 0.5
"""Requests of no use (a wrong token or path, or beyond a token's rate) that one process answers at once, in a second
and in a burst; further ones get their answer after so many seconds. Whoever floods with them waits, and not those whose
requests stand behind."""
_RANDOM: Final = 32 * 128
_OVERHEAD: Final = 1024
"""Bytes counted for a record beside its body: headers and objects."""

access = structlog.get_logger("room_ingest.access")


_WORDINGS: Final = {"slack": answers.EMPTY, "telegram": answers.EMPTY, "whatsapp": answers.TWIML}


def wording_of(route: Route) -> answers.Wording:
    """What the sender expects to read when its request was taken."""
    return _WORDINGS.get(route.channel, answers.JSON)


class Refuge(Protocol):
    """Where records go that Kafka does not acknowledge in time."""

    def take(self, topic: str, parcel: Parcel, stored: Stored) -> bool:
        """Take a record and call ``stored`` once, later. False: it is not taken."""


class Sender:
    """What is remembered of one right-tagged token: its record key, and how much of it is in hand."""

    __slots__ = (
        "bucket",
        "bytes",
        "channel",
        "handshakes",
        "in_flight",
        "key",
        "route",
        "sink",
        "spread",
        "token",
        "wording",
    )

    def __init__(self, route: Route, sink: RecordSink) -> None:
        digest = token_digest(route.token)
        self.token = token_header(digest)
        self.key = digest.hex().encode("ascii") if route.name == "channels" else record_key(digest)
        self.spread = murmur2(self.key) & 0x7FFF_FFFF
        self.route = route.name
        self.handshakes = route.name == "webhooks" or route.channel == "slack"
        self.wording = wording_of(route)
        self.channel = route.channel.encode("ascii")
        self.sink = sink
        self.in_flight = 0
        self.bytes = 0
        self.bucket: TokenBucket | None = None


class _Submission(Parcel):
    """The record of one request, until it is answered."""

    __slots__ = ("_exchange", "_intake", "_sender", "size")

    def __init__(self, intake: Intake, exchange: Exchange, sender: Sender, headers: bytes) -> None:
        self._intake = intake
        self._exchange = exchange
        self._sender = sender
        self.key = sender.key
        self.spread = sender.spread
        self.value = exchange.body
        self.headers = headers
        self.size = len(exchange.body) + _OVERHEAD

    def done(self, written: bool) -> None:
        if written:
            self._settle(self._sender.wording.ok)
        elif not self._intake.shelter(self._sender.sink.topic, self, self._stored):
            self._settle(answers.UNAVAILABLE)

    def _stored(self, stored: bool) -> None:
        self._settle(self._sender.wording.overflow if stored else answers.UNAVAILABLE)

    def _settle(self, answer: Answer) -> None:
        self._intake.settled(self._sender, self.size)
        exchange = self._exchange
        exchange.answer(answers.TOO_LARGE if exchange.too_large and answer.status == 200 else answer)


class Intake:
    """The handler behind the webhook port."""

    def __init__(
        self,
        settings: HttpSettings,
        keys: TokenKeys,
        webhooks: RecordSink,
        replies: RecordSink,
        metrics: IngestMetrics,
        loop: asyncio.AbstractEventLoop,
        refuge: Refuge | None = None,
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._webhooks = webhooks
        self._replies = replies
        self._metrics = metrics
        self._refuge = refuge
        self._loop = loop
        self._now = loop.time
        self._refusals = TokenBucket(REFUSALS_RATE, REFUSALS_BURST, loop.time())
        self._senders: dict[bytes, Sender] = {}
        self._bytes = 0
        self._random_bytes = b""
        self._random_used = 0

    def handle(self, exchange: Exchange) -> None:
        """Answer the request now, or once Kafka has its record."""
        sender = self._senders.get(exchange.target)
        if sender is not None and exchange.method == b"POST":
            exchange.route = sender.route
            self._post(exchange, sender, b"")
            return
        route = parse_target(exchange.target)
        if route is None:
            self._turn_away(exchange, answers.NOT_FOUND)
            return
        exchange.route = route.name
        if exchange.method == b"POST":
            sender = self._recognise(route)
            if sender is not None:
                self._post(exchange, sender, route.query)
            else:
                self._turn_away(exchange, answers.TOO_LARGE if exchange.too_large else wording_of(route).unknown_token)
        elif exchange.method == b"GET" and route.name == "webhooks":
            answer = self._get(route)
            if answer.status == 200:
                exchange.answer(answer)
            else:
                self._turn_away(exchange, answer)
        else:
            self._turn_away(exchange, answers.METHOD_NOT_ALLOWED)

    def _turn_away(self, exchange: Exchange, answer: Answer) -> None:
        """Answer what is of no use, without haste when there is much of it. Nothing is kept of it meanwhile."""
        if self._refusals.take(self._now()):
            exchange.answer(answer)
        else:
            exchange.body, exchange.values = b"", []
            self._loop.call_later(REFUSAL_WAIT, exchange.answer, answer)

    def answered(self, exchange: Exchange, answer: Answer) -> None:
        """Count the answer."""
        seconds = self._now() - exchange.started
        size = len(exchange.body)
        self._metrics.routes[exchange.route].answered(answer, seconds, size)
        if self._settings.access_log:
            access.info(
                "request",
                route=exchange.route,
                method=exchange.method.decode("latin-1"),
                status=answer.status,
                answer=answer.name,
                bytes=size,
                milliseconds=round(seconds * 1000, 1),
            )

    def _get(self, route: Route) -> Answer:
        try:
            challenge = handshakes.hub_challenge(route.query, route.token)
        except handshakes.WrongVerifyToken:
            return answers.FORBIDDEN
        if challenge is None:
            return answers.METHOD_NOT_ALLOWED
        return answers.echo(challenge) if is_ours(self._keys, route.token) else answers.FORBIDDEN

    def _post(self, exchange: Exchange, sender: Sender, query: bytes) -> None:
        size = len(exchange.body)
        if sender.handshakes and not exchange.too_large and (size <= handshakes.MAX_BODY):
            body = exchange.body
            challenge = handshakes.slack_challenge(body) if body else handshakes.graph_validation(query, body)
            if challenge is not None:
                exchange.answer(answers.echo(challenge))
                return
        refusal = self._admit(sender, size)
        if refusal is None:
            self._publish(exchange, sender, query)
        elif refusal is answers.RATE_LIMITED:
            self._turn_away(exchange, refusal)
        else:
            exchange.answer(refusal)

    def _publish(self, exchange: Exchange, sender: Sender, query: bytes) -> None:
        self._submit(exchange, sender, query, keep(exchange.plan, exchange.values))

    def _submit(self, exchange: Exchange, sender: Sender, query: bytes, kept: Kept) -> None:
        headers = record_headers(
            kept,
            token=sender.token,
            received_at_us=time.time_ns() // 1000,
            randomness=self._random(),
            query=query,
            too_large=exchange.too_large,
            channel=sender.channel,
        )
        submission = _Submission(self, exchange, sender, headers)
        sender.in_flight += 1
        sender.bytes += submission.size
        self._metrics.in_flight += 1
        self._bytes += submission.size
        sender.sink.submit(submission)

    def _random(self) -> bytes:
        """32 bytes. The system is asked for many at once: a call for each request costs as much as its headers."""
        start = self._random_used
        if start == len(self._random_bytes):
            self._random_bytes = os.urandom(_RANDOM)
            start = 0
        self._random_used = end = start + 32
        return self._random_bytes[start:end]

    def shelter(self, topic: str, parcel: Parcel, stored: Stored) -> bool:
        """Whether a record that Kafka did not acknowledge found another place."""
        return self._refuge is not None and self._refuge.take(topic, parcel, stored)

    def settled(self, sender: Sender, size: int) -> None:
        """A record is no longer in hand."""
        sender.in_flight -= 1
        sender.bytes -= size
        self._metrics.in_flight -= 1
        self._bytes -= size

    def _admit(self, sender: Sender, size: int) -> Answer | None:
        settings = self._settings
        if (
            sender.in_flight >= settings.max_in_flight_per_token
            or sender.bytes + size > settings.max_in_flight_bytes_per_token
            or self._metrics.in_flight >= settings.max_in_flight
            or self._bytes + size > settings.max_in_flight_bytes
        ):
            return answers.BUSY
        if settings.rate_per_token:
            now = self._now()
            if sender.bucket is None:
                sender.bucket = TokenBucket(settings.rate_per_token, settings.burst_per_token, now)
            if not sender.bucket.take(now):
                return answers.RATE_LIMITED
        return None

    def _recognise(self, route: Route) -> Sender | None:
        """The sender behind a token with a right tag, remembered under its plain target.

        Guessed tokens are not remembered, so that a flood of them costs no memory.
        """
        target = b"/webhooks/" + route.token
        if route.name == "channels":
            target = b"/channels/%b/%b" % (route.channel.encode("ascii"), route.token)
        sender = self._senders.get(target)
        if sender is None and is_ours(self._keys, route.token):
            if len(self._senders) >= _MAX_SENDERS:
                self._senders.clear()
            sink = self._replies if route.name == "channels" else self._webhooks
            sender = self._senders[target] = Sender(route, sink)
        return sender
