"""Replies on the local channel: ``{"sender": ..., "text": ..., "id": optional}``."""

from __future__ import annotations

from room_common.contracts.channel_config import ChannelConfig
from room_common.domain.contacts import canonical
from room_common.errors import Refused
from room_scheduler.domain.replies import Post, Reply, make_reply, read_object


def read_local(post: Post, config: ChannelConfig) -> Reply:
    """The reply; it is not signed, the URL alone is the secret.

    Raises ``Refused`` with the reason ``undecodable``, ``not_an_object``, ``no_sender`` or ``no_text``.
    """
    data = read_object(post.body)
    sender, text, own_id = data.get("sender"), data.get("text"), data.get("id")
    if not isinstance(sender, str) or not canonical("local", sender):
        raise Refused("no_sender")
    if not isinstance(text, str) or not text.strip():
        raise Refused("no_text")
    return make_reply(sender, text, own_id if isinstance(own_id, str) else None, (canonical("local", sender),))
