"""What of a channel is stored encrypted: its config, and the token of its URL where a signature covers that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from room_common.contracts.channel_config import CONFIG_COLUMN, CONFIG_TABLE, ChannelConfig, read_channel_config
from room_common.contracts.source_config import TOKEN_COLUMN, TOKEN_TABLE
from room_common.crypto import Keyring, Unreadable
from room_common.errors import Refused
from room_common.postgres.replies import ReplyChannel

SIGNS_URI: Final = frozenset({"whatsapp"})
"""Channels whose signature covers the address that was posted to."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A channel's config in the clear. ``uri``: the public address with its query, empty where nothing signs it."""

    config: ChannelConfig
    uri: str = field(repr=False)


class ChannelSecrets:
    """Opens what ``ROOM_ENCRYPTION__KEYS`` sealed. ``public_url`` is what senders post to, without a last slash."""

    def __init__(self, keyring: Keyring, public_url: str) -> None:
        self._keyring = keyring
        self._public_url = public_url

    def open(self, channel: ReplyChannel, token_sha256: bytes, query: str) -> Opened:
        """The config of ``channel``, and the address of its URL.

        Raises ``Refused`` (``config_unreadable``, ``channel_not_configured``), and ``UnknownKey`` for a key that the
        operator has to bring back.
        """
        try:
            config = read_channel_config(channel.channel_type, self._config(channel))
            uri = self._uri(channel, token_sha256, query) if channel.channel_type in SIGNS_URI else ""
        except Unreadable:
            raise Refused("config_unreadable") from None
        return Opened(config, uri)

    def _config(self, channel: ReplyChannel) -> bytes | None:
        if channel.config is None:
            return None
        return self._keyring.decrypt(channel.config, table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(channel.id))

    def _uri(self, channel: ReplyChannel, token_sha256: bytes, query: str) -> str:
        sealed = channel.token_encrypted
        plain = self._keyring.decrypt(sealed, table=TOKEN_TABLE, column=TOKEN_COLUMN, row_id=token_sha256.hex())
        token = plain.decode("ascii", "replace")
        return f"{self._public_url}/channels/{channel.channel_type}/{token}" + (f"?{query}" if query else "")
