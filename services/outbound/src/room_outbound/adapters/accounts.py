"""A channel's credentials, and how fast its account is used."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

from room_common.contracts.channel_config import (
    CONFIG_COLUMN,
    CONFIG_TABLE,
    ChannelConfig,
    encode_channel_config,
    read_channel_config,
)
from room_common.crypto import Keyring, Unreadable
from room_common.errors import Refused
from room_common.postgres.sending import Claimed
from room_outbound.domain.pacing import Bucket, Pace

_REMEMBERED: Final = 10_000


class Accounts:
    """Opens what ``ROOM_ENCRYPTION__KEYS`` sealed, and keeps one bucket for each account in this process."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._buckets: OrderedDict[bytes, Bucket] = OrderedDict()

    def open(self, claimed: Claimed) -> ChannelConfig:
        """The config of a message's channel.

        Raises ``Refused`` (``channel_not_configured``, ``config_unreadable``), and ``UnknownKey`` for a key that the
        operator has to bring back.
        """
        if claimed.config is None:
            return read_channel_config(claimed.channel, None)
        try:
            plain = self._keyring.decrypt(
                claimed.config, table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(claimed.channel_id)
            )
        except Unreadable:
            raise Refused("config_unreadable") from None
        return read_channel_config(claimed.channel, plain)

    def bucket(self, config: ChannelConfig, pace: Pace, now: float) -> Bucket:
        """The bucket of an account, by its credentials: rooms that share a bot share its limit."""
        key = hashlib.sha256(encode_channel_config(config.model_copy(update={"allow": ()}))).digest()
        found = self._buckets.get(key)
        if found is None:
            found = self._buckets[key] = Bucket(pace, now)
            if len(self._buckets) > _REMEMBERED:
                self._buckets.popitem(last=False)
        return found
