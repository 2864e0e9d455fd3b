"""From the Markdown that models write to what Slack and Telegram read. Pure and total.

Four things are understood: code blocks, code, bold and links. All else is shown as it was written, and nothing in it
works as a provider's markup: text from outside can neither call a whole channel nor hide a link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_TOKEN: Final = re.compile(
    r"```(?:[A-Za-z0-9+#-]*\n)?(?P<block>(?s:.+?))```"
    r"|`(?P<code>[^`\n]+)`"
    r"|\*\*(?P<bold>[^\s*](?:[^*\n]*[^\s*])?)\*\*"
    r"|\[(?P<label>[^\]\[\n]+)\]\((?P<url>https?://[^\s()<>|`\\]+)\)"
)
_HEADING: Final = re.compile(r"^#{1,6} +(?P<heading>.+?) *#*$", re.MULTILINE)

_TELEGRAM_SPECIAL: Final = re.compile(r"([_*\[\]()~`>#+\-=|{}.!\\])")
_TELEGRAM_CODE: Final = re.compile(r"([`\\])")
_TELEGRAM_URL: Final = re.compile(r"([)\\])")

Writers = Mapping[str, Callable[[re.Match[str]], str]]


def to_mrkdwn(text: str) -> str:
    """Slack's mrkdwn. https://docs.slack.dev/messaging/formatting-message-text"""
    return _convert(_HEADING.sub(lambda found: f"**{found['heading'].replace('*', '')}**", text), _slack_text, _SLACK)


def to_markdown_v2(text: str) -> str:
    """Telegram's MarkdownV2. https://core.telegram.org/bots/api#markdownv2-style"""
    return _convert(text, _telegram_text, _TELEGRAM)


def _convert(text: str, plain: Callable[[str], str], writers: Writers) -> str:
    parts, position = [], 0
    for found in _TOKEN.finditer(text):
        parts.append(plain(text[position : found.start()]))
        kind = next(name for name in ("block", "code", "bold", "url") if found[name] is not None)
        parts.append(writers[kind](found))
        position = found.end()
    parts.append(plain(text[position:]))
    return "".join(parts)


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _telegram_text(text: str) -> str:
    return _TELEGRAM_SPECIAL.sub(r"\\\1", text)


def _telegram_code(text: str) -> str:
    return _TELEGRAM_CODE.sub(r"\\\1", text)


def _telegram_url(url: str) -> str:
    return _TELEGRAM_URL.sub(r"\\\1", url)


_SLACK: Final[Writers] = {
    "block": lambda found: f"```{_slack_text(found['block'])}```",
    "code": lambda found: f"`{_slack_text(found['code'])}`",
    "bold": lambda found: f"*{_slack_text(found['bold'])}*",
    "url": lambda found: f"<{_slack_text(found['url'])}|{_slack_text(found['label'].replace('|', '/'))}>",
}
_TELEGRAM: Final[Writers] = {
    "block": lambda found: f"```\n{_telegram_code(found['block'])}```",
    "code": lambda found: f"`{_telegram_code(found['code'])}`",
    "bold": lambda found: f"*{_telegram_text(found['bold'])}*",
    "url": lambda found: f"[{_telegram_text(found['label'])}]({_telegram_url(found['url'])})",
}
