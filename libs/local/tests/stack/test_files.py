from __future__ import annotations

import re
import stat
from pathlib import Path

from room_local.files import StackFiles
from room_local.parts.addresses import socket_folder
from room_local.services import SERVICES
from room_local.state import ProcessRecord, StackRecord, load, save


def test_keys_are_made_once_and_only_ours(tmp_path: Path) -> None:
    files = StackFiles(tmp_path)
    files.prepare()
    before = [file.read_text() for file in (files.token_keys, files.encryption_keys, files.token)]
    files.prepare()
    assert [file.read_text() for file in (files.token_keys, files.encryption_keys, files.token)] == before
    assert re.fullmatch(r"local:[0-9a-f]{64}\n", before[0])
    assert before[0] != before[1]
    for file in (files.token_keys, files.encryption_keys, files.token):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_keys_of_a_careless_copy_are_closed_again(tmp_path: Path) -> None:
    files = StackFiles(tmp_path)
    files.prepare()
    files.token.chmod(0o644)
    files.prepare()
    assert stat.S_IMODE(files.token.stat().st_mode) == 0o600


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    files = StackFiles(tmp_path)
    files.prepare()
    process = ProcessRecord("kafka", "part", "ready", 1, 2.5, 0, "/log", port=9092)
    record = StackRecord("running", 1, 2.0, "embedded", "rehearsal", "/token", processes=(process,))
    save(files, record)
    assert load(files) == record


def test_a_torn_or_foreign_record_is_none(tmp_path: Path) -> None:
    files = StackFiles(tmp_path)
    assert load(files) is None
    files.prepare()
    for content in ("", "{", "[]", '{"version": 99}', '{"version": 1}'):
        files.state.write_text(content)
        assert load(files) is None


def test_a_socket_never_gets_a_name_too_long_for_the_system(tmp_path: Path) -> None:
    assert socket_folder(Path("/short")) == Path("/short")
    long = tmp_path / ("x" * 90)
    assert len(str(socket_folder(long))) < 84
    assert socket_folder(long) != socket_folder(tmp_path / ("y" * 90))


def test_every_service_has_a_port_to_be_ready_on() -> None:
    assert len({one.name for one in SERVICES}) == len(SERVICES)
    assert all(one.operations or one.listens for one in SERVICES)
    inbox = next(one for one in SERVICES if one.name == "inbox")
    assert inbox.command_line(7, "/data") == ["--port", "7", "--directory", "/data"]
