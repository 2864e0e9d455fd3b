"""What of a source is stored encrypted: its config, and the token in its URL where a signature covers that."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from room_common.contracts.source_config import (
    CONFIG_COLUMN,
    CONFIG_TABLE,
    TOKEN_COLUMN,
    TOKEN_TABLE,
    SourceConfig,
    read_config,
)
from room_common.crypto import Keyring, Unreadable
from room_common.domain.deliveries import Source
from room_common.errors import Refused
from room_matcher.domain.cascade import Stop

_KEPT: Final = 4096
"""Configs kept in the clear, by their ciphertext: opening one costs more than all else about a dropped record."""

SIGNS_URI: Final = frozenset({"hubspot"})
"""Source types whose signature covers the address that was posted to."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A source's config in the clear. ``uri``: the public address with its query, empty where nothing signs it."""

    config: SourceConfig
    uri: str = field(repr=False)


class SourceSecrets:
    """Opens what ``ROOM_ENCRYPTION__KEYS`` sealed. ``public_url`` is what senders post to, without a last slash."""

    def __init__(self, keyring: Keyring, public_url: str) -> None:
        self._keyring = keyring
        self._public_url = public_url
        self._configs: OrderedDict[tuple[UUID, bytes], SourceConfig] = OrderedDict()

    def open(self, source: Source, token_sha256: bytes, query: str) -> Opened | Stop:
        """The config of ``source``, or the stop of one that can't be read: never as if it had no secrets.

        Raises ``DependencyUnavailable`` for a key that we don't have: the operator has to bring it back.
        """
        try:
            config = self._config(source)
        except Unreadable as error:
            return Stop("config_unreadable", error.reason)
        except Refused:
            return Stop("config_unreadable", "invalid")
        if not config.secrets or source.source_type.strip().lower() not in SIGNS_URI:
            return Opened(config, "")
        try:
            token = self._token(source, token_sha256)
        except Unreadable:
            return Stop("config_unreadable", "token")
        return Opened(config, f"{self._public_url}/webhooks/{token}" + (f"?{query}" if query else ""))

    def _config(self, source: Source) -> SourceConfig:
        if source.config is None:
            return SourceConfig()
        place = source.id, source.config
        known = self._configs.get(place)
        if known is None:
            plain = self._keyring.decrypt(place[1], table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(source.id))
            known = self._configs[place] = read_config(plain)
            while len(self._configs) > _KEPT:
                self._configs.popitem(last=False)
        return known

    def _token(self, source: Source, token_sha256: bytes) -> str:
        sealed = source.token_encrypted
        plain = self._keyring.decrypt(sealed, table=TOKEN_TABLE, column=TOKEN_COLUMN, row_id=token_sha256.hex())
        return plain.decode("ascii", "replace")
