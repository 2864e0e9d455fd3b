"""Replies from a Telegram bot's webhook. https://core.telegram.org/bots/api#update"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from room_common.contracts.channel_config import ChannelConfig, TelegramConfig
from room_common.domain.contacts import canonical
from room_common.errors import Defect, Refused
from room_scheduler.domain.replies import Post, Reply, make_reply, part, read_object, text_of

SECRET_HEADER: Final = "x-telegram-bot-api-secret-token"  # noqa: S105 - a header's name


def read_telegram(post: Post, config: ChannelConfig) -> Reply | None:
    """The reply, or None for an update that is none: of a bot, a change, a channel's post.

    ingest keeps only the SHA-256 of the secret header. Raises ``Refused`` with ``bad_signature``, ``undecodable`` or
    ``not_an_object``.
    """
    if not isinstance(config, TelegramConfig):
        raise Defect("not a Telegram channel")
    expected = f"sha256:{hashlib.sha256(config.secret_token.encode()).hexdigest()}"
    given = post.http.get(SECRET_HEADER, "")
    if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
        raise Refused("bad_signature")
    data = read_object(post.body)
    message = part(data, "message")
    sender, chat = part(message, "from"), part(message, "chat")
    if not text_of(chat, "id") or not text_of(sender, "id") or sender.get("is_bot") is True:
        return None
    names = [text_of(chat, "id")]
    if text_of(chat, "username"):
        names.append(f"@{text_of(chat, 'username')}")
    return make_reply(
        text_of(sender, "id"),
        text_of(message, "text") or text_of(message, "caption"),
        text_of(data, "update_id") or None,
        tuple(canonical("telegram", name) for name in names),
    )
