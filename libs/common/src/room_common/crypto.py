"""Encryption of what is stored: AES-256-GCM, bound to the place where it is stored.

A sealed value is ``01 | length of the key id | key id | nonce (12) | ciphertext and tag (16)``. The head, table,
column and row id are authenticated with it, so that a value that was changed, shortened or copied to another row does
not open.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from room_common.domain.tokens import parse_keys
from room_common.errors import ConfigurationError, DependencyUnavailable, Refused

NONCE_BYTES = 12
TAG_BYTES = 16

_FORMAT = 1
_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_NAME = re.compile(r"[a-z_][a-z0-9_]*")


class UnknownKey(DependencyUnavailable):
    """The key that sealed a value is not among ours: the operator has to put it back."""

    def __init__(self) -> None:
        super().__init__("key", "unknown_key")


class Unreadable(Refused):
    """A sealed value was changed, cut, or belongs to another place."""

    def __init__(self, reason: str = "unreadable") -> None:
        super().__init__(reason, "a stored secret can't be decrypted: it was changed, cut, or belongs to another row")


@dataclass(frozen=True, slots=True, repr=False)
class Keyring:
    """Keys by id. The first one encrypts, all of them decrypt."""

    first: str
    keys: Mapping[str, bytes]

    @classmethod
    def parse(cls, text: str) -> Keyring:
        """From ``id:64hex,...``. Raises ConfigurationError, which repeats nothing of ``text``."""
        try:
            keys = dict(parse_keys(text))
        except ValueError as error:
            raise ConfigurationError(f"encryption keys: {error}") from None
        return cls(next(iter(keys)), keys)

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self.keys)})"

    def encrypt(self, plaintext: bytes, *, table: str, column: str, row_id: str, nonce: bytes | None = None) -> bytes:
        """Encrypt for one place. ``nonce`` must never repeat under one key; by default it is random."""
        fresh = os.urandom(NONCE_BYTES) if nonce is None else nonce
        if len(fresh) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes")
        head = _head(self.first)
        sealed = AESGCM(self.keys[self.first]).encrypt(fresh, plaintext, head + _place(table, column, row_id))
        return head + fresh + sealed

    def decrypt(self, sealed: bytes, *, table: str, column: str, row_id: str) -> bytes:
        """Decrypt what was encrypted for this place. Raises UnknownKey or Unreadable."""
        key_id = key_id_of(sealed)
        key = self.keys.get(key_id)
        if key is None:
            raise UnknownKey
        head = _head(key_id)
        nonce, rest = sealed[len(head) : len(head) + NONCE_BYTES], sealed[len(head) + NONCE_BYTES :]
        try:
            return AESGCM(key).decrypt(nonce, rest, head + _place(table, column, row_id))
        except InvalidTag:
            raise Unreadable from None

    def stale(self, sealed: bytes) -> bool:
        """Whether ``sealed`` was made with another key than the first, so that rotation has to encrypt it anew."""
        return key_id_of(sealed) != self.first


def key_id_of(sealed: bytes) -> str:
    """Id of the key that sealed a value. Raises Unreadable for what is not in our format."""
    if len(sealed) < 2 or sealed[0] != _FORMAT or len(sealed) < 2 + sealed[1] + NONCE_BYTES + TAG_BYTES:
        raise Unreadable("truncated")
    key_id = sealed[2 : 2 + sealed[1]].decode("ascii", "replace")
    if not _ID.fullmatch(key_id):
        raise Unreadable
    return key_id


def _head(key_id: str) -> bytes:
    encoded = key_id.encode("ascii")
    return bytes((_FORMAT, len(encoded))) + encoded


def _place(table: str, column: str, row_id: str) -> bytes:
    """Associated data; unambiguous, since neither table nor column can hold the separator."""
    if not _NAME.fullmatch(table) or not _NAME.fullmatch(column) or not row_id:
        raise ValueError("a place is a table, a column and a row id")
    return f"{table}|{column}|{row_id}".encode()
