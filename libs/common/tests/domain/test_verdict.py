"""What a model's answer is taken for."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from room_common.domain.verdict import EXCERPT_LENGTH, Answer, verdict

YES = [
    "yes",
    "Yes.",
    "**yes**",
    '"yes"',
    "'yes'",
    "«yes»",
    "`yes`",
    "Answer: yes",
    "**Answer:** yes",
    "Response - yes",
    "verdict\n\nyes",
    "Result: **Yes**",
    "Risposta: sì",
    "risposta: si",
    "sì",
    "Si.",
    "**Sì!**",
    "y",
    "Y.",
    "- yes",
    "* yes",
    "> yes",
    "1. yes",
    "# Yes",
    "yes, the stage is customer",
    "yes no",
    "yes2",
    "  \n yes",
    "\ufeffyes",
    "<think>hm</think> yes",
    "<think>no</think><think>no</think>\n yes",
    "<THINK>no</THINK>yes",
    "<think></think>\n**Answer:** yes.",
    "answer yes",
    "“Yes”",
    "‘yes’",
    "_Yes_.",
    "~~ yes ~~",
    "| yes |",
    "```\nyes\n```",
    "[yes]",
    "(Yes)",
    "### Verdict: yes",
    '"Answer": "yes"',
    '{"answer": "yes"}',
    "→ Sì",
    "<think>\nno, or yes?\n</think>\n\n**Risposta:** Sì.",
    "yes: no",
    "Yes\nNo",
]
NO = [
    "no",
    "No.",
    "NO!",
    "n",
    "**no**",
    '"no"',
    "Answer: no",
    "Risposta: no",
    "no, this is not a yes",
    "none of them",
    "None",
    "nope",
    "Negative.",
    "false",
    "- no",
    "<think>yes</think> no",
    "<think>yes</think>\n\nAnswer: no, because yes",
    "“No”",
    "_no_",
    "```\nno\n```",
    '{"answer": "no"}',
    "Result: none",
    "no yes",
    "N/A",
]
UNCLEAR = [
    "",
    "   ",
    "!!!",
    "42",
    "yesterday it matched",
    "Not sure",
    "I cannot determine this",
    "Si tratta di altro, non corrisponde",
    "sì, certo",
    "si 1",
    "y/n",
    "yep",
    "true",
    "The answer is yes",
    "Maybe yes",
    "Answer is yes",
    "<b>yes</b>",
    "the verdict: yes",
    "sì 1",
    "Sì, ma no",
    "s\u00ec\u00ec",
    "yеs",  # with a Cyrillic е
    "<thinking>yes</thinking> no",
    "&lt;think&gt; yes",
    "It matches: yes",
    "Answer:",
    "Answers: yes",
    "answer2 yes",
    "Answer: result: yes",
    "nothing matches",
    "nor",
    "<think>yes",
    "<think>yes</think>",
    "<think>a</think><think>yes",
    "x <think>no</think> yes",
    "ja",
    "sí",
    "ｙｅｓ",
    "oui",
    "да",
    "はい",
]


def spellings(answer: str) -> list[str]:
    composed, decomposed = unicodedata.normalize("NFC", answer), unicodedata.normalize("NFD", answer)
    return sorted({form for one in (composed, decomposed) for form in (one, one.upper(), one.lower(), f"\t{one} \r\n")})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(answer, Answer.YES) for answer in YES]
    + [(answer, Answer.NO) for answer in NO]
    + [(answer, Answer.UNCLEAR) for answer in UNCLEAR],
)
def test_answers(answer: str, expected: Answer) -> None:
    for spelled in spellings(answer):
        understood = verdict(spelled)
        assert understood.answer is expected, spelled
        assert understood.matches is (expected is Answer.YES)
        assert understood.warning is (expected is Answer.UNCLEAR)


def test_no_answer_at_all_is_an_empty_one() -> None:
    assert verdict(None) == verdict("")
    assert verdict(None).warning


def test_the_excerpt_is_short_and_storable() -> None:
    understood = verdict("a\x00\ud800" + "b" * 200)
    assert understood.excerpt == "a\ufffd\ufffd" + "b" * 77
    assert len(understood.excerpt) == EXCERPT_LENGTH
    assert "bbb" not in repr(understood)


@settings(deadline=None, max_examples=200)
@given(
    st.text()
    | st.lists(
        st.sampled_from(
            ["yes", "no", "sì", "si", "y", "<think>", "</think>", "Answer:", " ", "*", "\n", "not", "İ", "1", "\u0300"]
        )
    ).map("".join)
)
def test_every_answer_is_understood_somehow(answer: str) -> None:
    understood = verdict(answer)
    assert understood.matches + (understood.answer is Answer.NO) + understood.warning == 1
    assert "\x00" not in understood.excerpt
    if understood.matches:
        folded = unicodedata.normalize("NFC", answer).lower()
        assert any(word in folded for word in ("yes", "si", "sì", "y"))


def test_many_thoughts_take_linear_time() -> None:
    assert verdict("<think></think>" * 20_000 + "yes").matches
    assert verdict("<think>" * 50_000).warning
