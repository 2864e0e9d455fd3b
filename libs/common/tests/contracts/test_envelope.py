"""What admin adds to a record that it sends again."""

from __future__ import annotations

from uuid import UUID

import pytest

from room_common.contracts.envelope import FORCED, ITEM, REPLAY_OF, Envelope, decode, encode
from room_common.errors import DeadLetter
from room_common.kafka.records import Headers, Record

FIRST = Envelope(id=UUID(int=1), token_sha256=bytes(32), received_at_us=5)


def read(headers: Headers) -> Envelope:
    return decode(Record("t", 0, 0, 0, None, b"", headers))


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("item", [None, 0, 99])
def test_a_replay_travels(forced: bool, item: int | None) -> None:
    replay = Envelope(
        id=UUID(int=2), token_sha256=bytes(32), received_at_us=6, replay_of=UUID(int=1), forced=forced, item=item
    )
    assert read(encode(replay)) == replay


def test_an_ordinary_record_has_none_of_it() -> None:
    assert not {REPLAY_OF, FORCED, ITEM} & {name for name, _ in encode(FIRST)}


def test_only_a_replay_is_forced() -> None:
    assert not read((*encode(FIRST), (FORCED, b"1"))).forced


@pytest.mark.parametrize("header", [(ITEM, b"x"), (ITEM, b"\xff"), (ITEM, b"9" * 5000), (REPLAY_OF, b"x")])
def test_a_header_that_cannot_be_read_is_a_bad_envelope(header: tuple[str, bytes]) -> None:
    with pytest.raises(DeadLetter, match="bad_envelope"):
        read((*encode(FIRST), header))
