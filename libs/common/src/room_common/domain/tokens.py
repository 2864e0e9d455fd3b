"""Tokens in webhook and channel URLs: 24 random bytes and their tag, written as 64 lower-case hex digits.

The tag is the first 8 bytes of HMAC-SHA256(key, the 24 bytes). It lets ingest tell a token that Room made from one that
somebody guessed, without a look-up: a flood of guesses costs nothing and learns nothing. A database never stores the
token itself, only its SHA-256 and an encrypted copy.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

RANDOM_BYTES: Final = 24
TAG_BYTES: Final = 8
TOKEN_LENGTH: Final = 2 * (RANDOM_BYTES + TAG_BYTES)
_HEX: Final = frozenset(b"0123456789abcdef")


@dataclass(frozen=True, slots=True)
class TokenKeys:
    """The keys of ``ROOM_TOKEN_KEYS``: the first makes tokens, all verify them."""

    keys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if not self.keys:
            raise ValueError("at least one token key is needed")

    def __repr__(self) -> str:
        return f"TokenKeys({len(self.keys)} keys)"


def make_token(keys: TokenKeys, randomness: bytes) -> str:
    """A token from 24 random bytes. Raises ``ValueError`` when there are not exactly 24."""
    if len(randomness) != RANDOM_BYTES:
        raise ValueError(f"a token is made of {RANDOM_BYTES} random bytes, not {len(randomness)}")
    return (randomness + _tag(keys.keys[0], randomness)).hex()


def is_ours(keys: TokenKeys, token: bytes) -> bool:
    """Whether ``token`` has the right shape and a tag that one of the keys made. Total over any bytes."""
    if len(token) != TOKEN_LENGTH or not _HEX.issuperset(token):
        return False
    raw = bytes.fromhex(token.decode("ascii"))
    return any(hmac.compare_digest(_tag(key, raw[:RANDOM_BYTES]), raw[RANDOM_BYTES:]) for key in keys.keys)


def token_digest(token: bytes | str) -> bytes:
    """SHA-256 of the token's text: what is stored, carried in records and compared."""
    return sha256(token.encode("latin-1", "replace") if isinstance(token, str) else token).digest()


def record_key(digest: bytes) -> bytes:
    """The Kafka key of a webhook record: the first 16 hex digits of the token's SHA-256 (design, topics)."""
    return digest.hex()[:16].encode("ascii")


def parse_token_keys(text: str) -> TokenKeys:
    """Keys from ``id:64hex,id:64hex``. Raises ``ValueError`` that says what is wrong and shows no key."""
    return TokenKeys(tuple(key for _, key in parse_keys(text)))


def parse_keys(text: str) -> Sequence[tuple[str, bytes]]:
    """``(id, 32 bytes)`` pairs of ``id:64hex,...``. Raises ``ValueError`` that says what is wrong and shows no key."""
    pairs: list[tuple[str, bytes]] = []
    for position, part in enumerate(text.split(","), start=1):
        name, colon, digits = part.strip().partition(":")
        if not colon or not name:
            raise ValueError(f"key {position} is not of the form id:64hex")
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum() or len(name) > 32:
            raise ValueError(f"the id of key {position} may have up to 32 letters, digits, - and _")
        try:
            key = bytes.fromhex(digits)
        except ValueError:
            raise ValueError(f"key {position} has characters that are not hex digits") from None
        if len(key) != 32 or len(digits) != 64:
            raise ValueError(f"key {position} has {len(digits)} hex digits, 64 are needed")
        if any(name == other for other, _ in pairs):
            raise ValueError(f"the id of key {position} is there already")
        pairs.append((name, key))
    return pairs


def _tag(key: bytes, randomness: bytes) -> bytes:
    return hmac.digest(key, randomness, "sha256")[:TAG_BYTES]
