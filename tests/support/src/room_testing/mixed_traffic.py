"""Mixed deliveries for the conservation run: each with its number and what its outcome may be."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from room_common.domain.deliveries import Outcome
from room_common.domain.signing import sign_github, sign_hubspot
from room_common.domain.tokens import make_token, parse_token_keys
from room_testing.matching import TOKEN_KEYS, Matching, SeededSource

NUMBER: Final = "x-request-id"
"""The request header that carries a delivery's number; ingest keeps it."""

POISON: Final = "poisonous"
"""The stand-in model refuses prompts with this word, by their own fault."""

SECRET: Final = "conserve"

_BOMB: Final = gzip.compress(b"0" * 20_000_000)
_VERDICTS: Final[frozenset[Outcome]] = frozenset({"matched", "no_match", "duplicate"})


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request. ``items`` rows are expected (0: never published), each with one of ``outcomes``."""

    kind: str
    token: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str]
    items: int
    outcomes: frozenset[Outcome]


KINDS: Final = (
    ("match", 25),
    ("no match", 25),
    ("duplicate", 10),
    ("array", 5),
    ("over cap", 8),
    ("bad signature", 6),
    ("undecodable", 6),
    ("unknown token", 5),
    ("wrong tag", 3),
    ("disabled", 4),
    ("too large", 0.3),
    ("bomb", 1),
    ("odd text", 1.4),
    ("poison", 0.3),
)
"""Each kind with its weight."""


class Traffic:
    """Deliveries from a seed. ``seed_database`` first."""

    def __init__(self, world: Matching, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.seed = seed
        self.full: SeededSource
        self._last: Delivery | None = None

    async def seed_database(self, deliveries: int) -> None:
        """Instances and sources: events spread so that only the one that should reaches its cap."""
        instances = min(40, max(4, deliveries // 300))
        self.github = [
            await self.world.source(
                await self.world.instance(budget=None), "github", secrets=[SECRET], criteria=["hot"]
            )
            for _ in range(instances)
        ]
        self.hubspot = [
            await self.world.source(
                await self.world.instance(budget=None), "hubspot", secrets=[SECRET], criteria=["hot"]
            )
            for _ in range(instances)
        ]
        self.plain = await self.world.source(await self.world.instance(budget=None), criteria=["hot"])
        self.full = await self.world.source(await self.world.instance(budget=None), criteria=["hot"])
        self.off = await self.world.source(await self.world.instance(), enabled=False)
        self.keys = parse_token_keys(TOKEN_KEYS)

    async def _signed(self, kind: str) -> SeededSource:
        return await self.world.source(await self.world.instance(budget=None), kind, secrets=[SECRET], criteria=["hot"])

    def make(self, number: int) -> Delivery:
        """The delivery of that number."""
        kinds, weights = zip(*KINDS, strict=True)
        (kind,) = self.random.choices(kinds, weights)
        delivery: Delivery = getattr(self, "_" + kind.replace(" ", "_"))(number)
        return Delivery(
            kind,
            delivery.token,
            delivery.body,
            {
                **delivery.headers,
                NUMBER: str(number),
                "content-type": delivery.headers.get("content-type", "application/json"),
            },
            delivery.items,
            delivery.outcomes,
        )

    def _github(self, number: int, body: bytes, outcomes: frozenset[Outcome]) -> Delivery:
        source = self.random.choice(self.github)
        headers = {
            **sign_github(SECRET.encode(), body),
            "x-github-delivery": f"{self.seed}-{number}",
            "x-github-event": "push",
        }
        return Delivery("", source.token, body, headers, 1, outcomes)

    def _match(self, number: int) -> Delivery:
        # The cap of an instance can be reached by chance; that is an outcome of its own.
        body = json.dumps({"what": "hot", "variant": self.random.randrange(40)}).encode()
        self._last = self._github(number, body, _VERDICTS | {"backlog_full"})
        return self._last

    def _no_match(self, number: int) -> Delivery:
        body = json.dumps({"what": "cold", "variant": self.random.randrange(40)}).encode()
        return self._github(number, body, _VERDICTS | {"backlog_full"})

    def _duplicate(self, number: int) -> Delivery:
        return self._last or self._match(number)

    def _array(self, number: int) -> Delivery:
        source = self.random.choice(self.hubspot)
        count = self.random.randrange(1, 8)
        elements = [
            {"eventId": number * 100 + index, "what": self.random.choice(("hot", "cold")), "variant": index}
            for index in range(count)
        ]
        body = json.dumps(elements).encode()
        uri = source.uri
        headers = sign_hubspot(SECRET.encode(), body, method="POST", uri=uri, timestamp_ms=_now_ms())
        return Delivery("", source.token, body, headers, count, _VERDICTS | {"backlog_full"})

    def _over_cap(self, number: int) -> Delivery:
        body = json.dumps({"what": "hot", "number": number % 400}).encode()
        return Delivery("", self.full.token, body, {}, 1, _VERDICTS | {"backlog_full"})

    def _bad_signature(self, number: int) -> Delivery:
        good = self._github(number, b'{"what":"hot"}', frozenset({"bad_signature"}))
        forged = {
            "x-hub-signature-256": self.random.choice(("sha256=" + "0" * 64, "sha256=", "", "sha1=ab", "\xff" * 20))
        }
        return Delivery("", good.token, good.body, {**good.headers, **forged}, 1, good.outcomes)

    def _undecodable(self, number: int) -> Delivery:
        bodies = (b"", b"null", b"7", b'{"a":NaN}', b'{"a":', b"[" * 200 + b"]" * 200, b'{"a":"\xff\xfe"}', b'"text"')
        return Delivery("", self.plain.token, self.random.choice(bodies), {}, 1, frozenset({"undecodable"}))

    def _bomb(self, number: int) -> Delivery:
        return Delivery("", self.plain.token, _BOMB, {"content-encoding": "gzip"}, 1, frozenset({"too_large"}))

    def _odd_text(self, number: int) -> Delivery:
        body = b'{"text":"\\u0000 \\ud800 x","n":%d,"n":123456789012345678901234567890}' % (number % 50)
        return Delivery("", self.plain.token, body, {}, 1, _VERDICTS)

    def _unknown_token(self, number: int) -> Delivery:
        token = make_token(self.keys, os.urandom(24))
        return Delivery("", token, b'{"a":1}', {}, 1, frozenset({"unknown_token"}))

    def _wrong_tag(self, number: int) -> Delivery:
        return Delivery("", os.urandom(32).hex(), b'{"a":1}', {}, 0, frozenset())

    def _disabled(self, number: int) -> Delivery:
        return Delivery("", self.off.token, b'{"a":1}', {}, 1, frozenset({"source_disabled"}))

    def _too_large(self, number: int) -> Delivery:
        return Delivery("", self.plain.token, b"x" * 70_000, {}, 1, frozenset({"too_large"}))

    def _poison(self, number: int) -> Delivery:
        body = json.dumps({"what": POISON, "number": number}).encode()
        return self._github(number, body, frozenset({"dead", "backlog_full"}))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
