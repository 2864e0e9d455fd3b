"""Replies from Slack's Events API. https://docs.slack.dev/apis/events-api

The signature covers the received bytes; its age is measured against the time of receipt, never against our clock now.
"""

from __future__ import annotations

import hmac
from typing import Final

from room_common.contracts.channel_config import ChannelConfig, SlackConfig
from room_common.domain.contacts import canonical
from room_common.domain.signing import SLACK_SIGNATURE, SLACK_TIMESTAMP, slack_mac
from room_common.errors import Defect, Refused
from room_scheduler.domain.replies import Post, Reply, make_reply, part, read_object, text_of

TOLERANCE: Final = 300.0
"""Seconds between the signature's timestamp and the receipt."""

_WRITTEN: Final = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""Subtypes of messages that a person wrote. Others say that something was changed, deleted, joined..."""


def read_slack(post: Post, config: ChannelConfig) -> Reply | None:
    """The reply, or None for an event that is none: of a bot (ourselves as well), a change, another type.

    A person's id as the room's target means the direct conversation with our bot; anything else is the conversation.
    Raises ``Refused`` with ``bad_signature``, ``undecodable`` or ``not_an_object``.
    """
    if not isinstance(config, SlackConfig):
        raise Defect("not a Slack channel")
    if not _signed(post, config.signing_secret.encode()):
        raise Refused("bad_signature")
    data = read_object(post.body)
    event = part(data, "event")
    user, conversation = text_of(event, "user"), text_of(event, "channel")
    if (
        data.get("type") != "event_callback"
        or event.get("type") != "message"
        or text_of(event, "subtype") not in _WRITTEN
        or event.get("bot_id")
        or event.get("bot_profile")
        or not user
        or not conversation
        or user in _ourselves(data)
    ):
        return None
    names = [conversation, user] if event.get("channel_type") == "im" else [conversation]
    return make_reply(
        user,
        _plain(text_of(event, "text")),
        text_of(data, "event_id") or None,
        tuple(canonical("slack", name) for name in names),
    )


def _signed(post: Post, secret: bytes) -> bool:
    timestamp = post.http.get(SLACK_TIMESTAMP, "")
    given = post.http.get(SLACK_SIGNATURE, "")
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12):
        return False
    expected = f"v0={slack_mac(secret, timestamp, post.body).hex()}"
    same = hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))
    return same and abs(post.received_at - int(timestamp)) <= TOLERANCE


def _ourselves(data: dict[str, object]) -> set[str]:
    found = data.get("authorizations")
    items = found if isinstance(found, list) else []
    return {text_of(item, "user_id") for item in items if isinstance(item, dict) and item.get("is_bot") is True}


def _plain(text: str) -> str:
    """Slack escapes three characters. https://docs.slack.dev/messaging/formatting-message-text#escaping"""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
