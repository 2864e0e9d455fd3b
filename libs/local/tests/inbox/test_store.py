"""The inbox's file: durable, bounded, whole after a crash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from room_common.errors import ConfigurationError
from room_local.inbox.store import FILE_NAME, Message, Store


def put(store: Store, id: str, *, room: str = "desk", text: str = "hello") -> tuple[Message, bool]:
    return store.add(id=id, room=room, target="me", text=text, created_at="2026-01-01T00:00:00Z")


def test_messages_survive_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "new" / "folder")
    first, new = put(store, "a", text="line\nline \u2028 🙂")
    assert new
    put(store, "b", room="other")
    store.close()
    again = Store(tmp_path / "new" / "folder")
    assert next(again.messages()) == first
    assert [message.id for message in again.messages(room="other")] == ["b"]
    assert again.rooms() == ("other", "desk")
    assert put(again, "c")[0].seq == 3
    again.close()


def test_an_id_is_taken_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, _ = put(store, "a")
    assert put(store, "a", text="another") == (first, False)
    store.close()
    again = Store(tmp_path)
    assert put(again, "a") == (first, False)
    assert again.latest() == 1
    again.close()


def test_it_is_private(tmp_path: Path) -> None:
    store = Store(tmp_path / "d")
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "d" / FILE_NAME).stat().st_mode & 0o777 == 0o600
    store.close()


def test_only_the_newest_are_kept_and_the_file_shrinks(tmp_path: Path) -> None:
    store = Store(tmp_path, kept=3)
    for number in range(10):
        put(store, str(number))
    assert [message.id for message in store.messages()] == ["7", "8", "9"]
    store.close()
    assert len((tmp_path / FILE_NAME).read_bytes().splitlines()) < 6
    again = Store(tmp_path, kept=3)
    assert [message.seq for message in again.messages(after=8)] == [9, 10]
    assert put(again, "x")[0].seq == 11
    again.close()


@given(st.integers(1, 400))
def test_a_torn_line_is_cut_off(tmp_path_factory: pytest.TempPathFactory, torn: int) -> None:
    folder = tmp_path_factory.mktemp("inbox")
    store = Store(folder)
    put(store, "a")
    whole = (folder / FILE_NAME).stat().st_size
    put(store, "b")
    store.close()
    size = (folder / FILE_NAME).stat().st_size
    os.truncate(folder / FILE_NAME, max(whole, size - torn))
    again = Store(folder)
    assert [message.id for message in again.messages()] == ["a"]
    put(again, "c")
    again.close()
    last = Store(folder)
    assert [message.id for message in last.messages()] == ["a", "c"]
    last.close()


def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("shopping list\nmilk\n")
    with pytest.raises(ConfigurationError, match=r"messages\.jsonl, line 1: not a message"):
        Store(tmp_path)
    assert (tmp_path / FILE_NAME).read_text() == "shopping list\nmilk\n"


def test_a_failed_write_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    put(store, "a")

    write = os.write

    def full(file: int, content: bytes) -> int:
        if len(content) < 20:
            raise OSError(28, "No space left on device")
        return write(file, content[:-10])

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr(os, "write", full)
        put(store, "b")
    assert [message.id for message in store.messages()] == ["a"]
    assert put(store, "b") == (next(store.messages(after=1)), True)
    store.close()
    again = Store(tmp_path)
    assert [message.id for message in again.messages()] == ["a", "b"]
    again.close()
