"""Markdown for Slack and Telegram."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_outbound.domain.markup import to_markdown_v2, to_mrkdwn

pieces = st.lists(
    st.sampled_from(
        ["**", "*", "`", "```", "[", "](", ")", "https://e.x/a", "<", ">", "&", "|", "a", " ", "\n", "# ", "\\", "!"]
    ),
    max_size=40,
).map("".join)


@given(st.text() | pieces)
def test_no_slack_markup_but_ours(text: str) -> None:
    written = to_mrkdwn(text)
    assert "<" not in re.sub(r"<https?://[^<>|]+\|[^<>|]*>", "", written)
    assert not re.search(r"&(?!amp;|lt;|gt;)", written)


@given(st.text() | pieces)
def test_telegram_takes_what_we_write(text: str) -> None:
    from room_testing.fake_providers import _MARKDOWN_V2

    assert _MARKDOWN_V2.sub("", to_markdown_v2(text)) == ""


@given(st.text(alphabet=st.characters(exclude_characters="*`[]#&<>")))
def test_plain_text_stays(text: str) -> None:
    assert to_mrkdwn(text) == text


@pytest.mark.parametrize(
    ("text", "slack", "telegram"),
    [
        ("**a b** c", "*a b* c", "*a b* c"),
        ("# Title\ntext", "*Title*\ntext", "\\# Title\ntext"),
        ("`a<b`", "`a&lt;b`", "`a<b`"),
        ("```py\nx = 1\n```", "```x = 1\n```", "```\nx = 1\n```"),
        ("[a|b](https://e.x/?q=1)", "<https://e.x/?q=1|a/b>", "[a\\|b](https://e.x/?q=1)"),
        ("[a](javascript:x)", "[a](javascript:x)", "\\[a\\]\\(javascript:x\\)"),
        ("<!here> <@U1>", "&lt;!here&gt; &lt;@U1&gt;", "<\\!here\\> <@U1\\>"),
        ("2 * 3 ** 4", "2 * 3 ** 4", "2 \\* 3 \\*\\* 4"),
    ],
)
def test_conversions(text: str, slack: str, telegram: str) -> None:
    assert to_mrkdwn(text) == slack
    assert to_markdown_v2(text) == telegram
