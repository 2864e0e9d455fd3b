"""Contacts of channels in the form in which they are compared: who a message goes to, and who a reply came from."""

from __future__ import annotations

import re
from typing import Final

_PHONE_FILL: Final = re.compile(r"[\s().-]+")
_PHONE: Final = re.compile(r"\+[1-9][0-9]{5,14}")
_SLACK: Final = re.compile(r"[CDGUW][A-Z0-9]{2,20}")
_TELEGRAM: Final = re.compile(r"-?[0-9]{1,20}|@[a-z][a-z0-9_]{3,31}")


def canonical(channel: str, contact: str) -> str:
    """The compared form of a contact: ``whatsapp:+39 06..`` and ``+3906..`` are the same person. Total."""
    trimmed = contact.strip()
    if channel == "whatsapp":
        number = trimmed.casefold().removeprefix("whatsapp:")
        number = _PHONE_FILL.sub("", number)
        return f"+{number[2:]}" if number.startswith("00") else number
    if channel == "slack":
        return trimmed.upper()
    if channel == "webhook":
        return trimmed
    return trimmed.casefold()


def target_problem(channel: str, target: str) -> str | None:
    """Why nothing can be sent to ``target`` on this channel, None when it has the right form."""
    contact = canonical(channel, target)
    if channel == "slack" and not _SLACK.fullmatch(contact):
        return "a Slack target is the id of a channel (C...) or a person (U...), not a name"
    if channel == "telegram" and not _TELEGRAM.fullmatch(contact):
        return "a Telegram target is the number of a chat, or @name of a public channel"
    if channel == "whatsapp" and not _PHONE.fullmatch(contact):
        return "a WhatsApp target is a phone number with its country, for example +390612345678"
    if channel == "webhook" and not re.fullmatch(r"https?://[^\s/?#@]+([/?][^\s#]*)?", contact):
        return "the target of a webhook is a URL: https://host[:port]/path, without user or fragment"
    return None
