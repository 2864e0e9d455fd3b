from __future__ import annotations

from typing import TypedDict, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.crypto import Keyring, UnknownKey, Unreadable, key_id_of
from room_common.errors import ConfigurationError


class Place(TypedDict):
    table: str
    column: str
    row_id: str


OLD = f"old:{'11' * 32}"
NEW = f"new:{'22' * 32}"
PLACE: Place = {"table": "event_sources", "column": "config", "row_id": "0190"}
RING = Keyring.parse(f"{NEW},{OLD}")


def moved(change: dict[str, str]) -> Place:
    return cast(Place, PLACE | change)


@given(st.binary(max_size=300), st.binary(min_size=12, max_size=12))
def test_what_was_encrypted_decrypts_at_its_place(plaintext: bytes, nonce: bytes) -> None:
    sealed = RING.encrypt(plaintext, **PLACE, nonce=nonce)
    assert RING.decrypt(sealed, **PLACE) == plaintext
    assert key_id_of(sealed) == "new"


@given(st.binary(max_size=40), st.data())
def test_any_changed_byte_is_an_error(plaintext: bytes, data: st.DataObject) -> None:
    sealed = bytearray(RING.encrypt(plaintext, **PLACE))
    index = data.draw(st.integers(0, len(sealed) - 1))
    sealed[index] ^= data.draw(st.integers(1, 255))
    with pytest.raises((Unreadable, UnknownKey)):
        RING.decrypt(bytes(sealed), **PLACE)


@given(st.binary(max_size=40), st.data())
def test_any_truncation_or_extension_is_an_error(plaintext: bytes, data: st.DataObject) -> None:
    sealed = RING.encrypt(plaintext, **PLACE)
    cut = data.draw(st.integers(0, len(sealed) - 1))
    for changed in (sealed[:cut], sealed + data.draw(st.binary(min_size=1, max_size=20))):
        with pytest.raises((Unreadable, UnknownKey)):
            RING.decrypt(changed, **PLACE)


@given(st.binary(max_size=200))
def test_rubbish_is_an_error_and_nothing_else(rubbish: bytes) -> None:
    with pytest.raises((Unreadable, UnknownKey)):
        RING.decrypt(rubbish, **PLACE)


@pytest.mark.parametrize("change", [{"table": "source_tokens"}, {"column": "other"}, {"row_id": "0191"}])
def test_a_value_moved_to_another_place_does_not_decrypt(change: dict[str, str]) -> None:
    with pytest.raises(Unreadable):
        RING.decrypt(RING.encrypt(b"x", **PLACE), **moved(change))


def test_a_swapped_key_id_does_not_decrypt() -> None:
    sealed = RING.encrypt(b"x", **PLACE)
    with pytest.raises(Unreadable):
        RING.decrypt(sealed.replace(b"new", b"old", 1), **PLACE)


def test_rotation_reads_the_old_and_writes_the_new() -> None:
    sealed = Keyring.parse(OLD).encrypt(b"x", **PLACE)
    assert RING.decrypt(sealed, **PLACE) == b"x"
    assert RING.stale(sealed)
    assert not RING.stale(RING.encrypt(b"x", **PLACE))


def test_a_missing_key_waits_for_the_operator() -> None:
    sealed = RING.encrypt(b"x", **PLACE)
    with pytest.raises(UnknownKey) as caught:
        Keyring.parse(OLD).decrypt(sealed, **PLACE)
    assert caught.value.dependency == "key"


def test_the_same_key_id_with_another_key_is_unreadable() -> None:
    with pytest.raises(Unreadable):
        Keyring.parse(f"new:{'33' * 32}").decrypt(RING.encrypt(b"x", **PLACE), **PLACE)


def test_nonces_are_fresh_by_default_and_have_twelve_bytes() -> None:
    assert RING.encrypt(b"x", **PLACE) != RING.encrypt(b"x", **PLACE)
    with pytest.raises(ValueError, match="12"):
        RING.encrypt(b"x", **PLACE, nonce=b"short")


@pytest.mark.parametrize("text", ["", "a", "a:12", f"{OLD},{OLD}", f"a b:{'1' * 64}", f":{'1' * 64}", f"{OLD},"])
def test_bad_keys_are_refused_without_showing_them(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Keyring.parse(text)
    assert "1" * 8 not in str(caught.value)


def test_a_keyring_does_not_show_its_keys() -> None:
    assert repr(RING) == "Keyring(new, old)"


@pytest.mark.parametrize("place", [{"table": "a|b"}, {"column": ""}, {"row_id": ""}])
def test_a_place_is_unambiguous(place: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="place"):
        RING.encrypt(b"x", **moved(place))
