from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from room_common.telemetry.masking import MASK, MAX_TEXT, mask_text, mask_value

TOKEN = "0123456789abcdef" * 4
S = "hunter2SecretValue"


@pytest.mark.parametrize(
    "text",
    [
        f"POST /webhooks/{S} HTTP/1.1",
        f"https://room.example/webhooks/{S}?x=1",
        f"POST /channels/slack/{S} 200",
        f"token {TOKEN.replace('0123', S[:0] + '0123')}",
        f"GET /x/y?key={S}&b=1 200",
        f"https://api.example/v1/thing?access={S}",
        f"postgresql://room:{S}@db:5432/room",
        f"postgresql://room:a@b/{S}@db:5432/room",
        f"redis://:{S}@cache/0",
        f"host=db password={S} dbname=room",
        f"host=db password='{S} x' dbname=room",
        f"Authorization: Bearer {S}",
        f"authorization: {S} more",
        f"{{'Authorization': 'Basic {S}'}}",
        f'{{"authorization": "{S} {S}", "b": 1}}',
        f"(b'authorization', b'Bearer {S}')",
        f"X-Gitlab-Token: {S}",
        f"x-api-key={S}",
        f"Cookie: session={S}",
        f"api_key={S}",
        f"'api_key': '{S}'",
        f'{{"token":"{S}"}}',
        f"auth failed for bearer {S}",
        f"Incorrect API key provided: sk-{S}",
        f"sk_live_{S}",
        f"whsec_{S}",
        f"xoxb-123-{S}",
        f"ghp_{S}{S}",
        f"https://api.telegram.org/bot123456789:{S}{S}/sendMessage",
        f"eyJhbGciOi.{S}.{S}",
    ],
)
def test_secrets_disappear(text: str) -> None:
    masked = mask_text(text)
    assert S not in masked
    assert TOKEN not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "text",
    [
        "consumed 12 records from room.webhooks.raw",
        "what is this? nothing",
        "trace 0af7651916cd43dd8448eb211c80319c",
        "019031c1-3f6e-7cc0-9c3c-1b5a4f3e2d1c took 3 steps",
        "https://room.example/api/v1/instances",
        "postgresql: connect",
        "input tokens 12, output tokens 3",
        'File "/srv/room/app.py", line 3, in run\n    raise ValueError(x)',
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert mask_text(text) == text


def test_the_route_stays_readable() -> None:
    assert mask_text(f"POST /webhooks/{TOKEN}?a=b 200") == f"POST /webhooks/{MASK}?{MASK} 200"


def test_values_are_masked_by_name_and_inside_containers() -> None:
    value = {
        "password": S,
        "nested": [{"api_key": S}, (f"/webhooks/{S}",)],
        "raw_body": S.encode(),
        "blob": S.encode(),
        "error": ValueError(f"password={S}"),
        "secretstr": SecretStr(S),
        "tokens": 12,
        f"token {TOKEN}": 1,
    }
    masked = mask_value(value)
    assert S not in str(masked)
    assert TOKEN not in str(masked)
    assert masked["tokens"] == 12
    assert masked["blob"] == f"[{len(S)} bytes]"


def test_a_value_that_can_not_be_shown_does_no_harm() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError

    assert mask_value(Hostile()) == "[Hostile]"


def test_a_cycle_and_a_long_list_are_cut() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert "[...]" in str(mask_value(cycle))
    assert len(mask_value(list(range(1000)))) == 100


def test_text_is_cut_after_it_was_masked() -> None:
    text = "x" * (MAX_TEXT - 30) + " " + TOKEN + "y" * 10 * MAX_TEXT
    masked = mask_text(text)
    assert len(masked) <= MAX_TEXT + 3
    assert "0123456789abcdef" not in masked


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.floats()
        | st.integers()
        | st.text()
        | st.binary()
        | st.characters(categories=["Cs"]),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_comes_becomes_json(value: Any) -> None:
    orjson.dumps(mask_value(value))


@given(st.text(), st.text(), st.text(alphabet="0123456789abcdef", min_size=64, max_size=64))
def test_a_token_never_survives(before: str, after: str, token: str) -> None:
    assert token not in mask_text(f"{before} {token} {after}")
    assert token not in mask_text(f"{before}/webhooks/{token}{after}")
