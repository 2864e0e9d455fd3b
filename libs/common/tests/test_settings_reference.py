from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field, SecretStr

from room_common import settings_reference
from room_common.settings import Section, ServiceSettings
from room_common.settings_reference import find_models, main, render


class Own(Section):
    mode: str | None = Field(None, description="A | B.")
    key: SecretStr = Field(description="A key.")


Own.__module__ = "room_one.settings"


class One(ServiceSettings):
    one: Own


def test_shared_settings_come_once_and_own_ones_under_their_service() -> None:
    text = render({"one": One, "two": ServiceSettings})
    shared, _, own = text.partition("## one")
    assert shared.count("`ROOM_LOG__LEVEL`") == 1
    assert "| `ROOM_LOG__LEVEL` | `info` | Least severe level" in shared
    assert "| `ROOM_ONE__MODE` | none | A \\| B. |" in own
    assert "| `ROOM_ONE__KEY` | required | A key. Secret. |" in own
    assert "ROOM_ONE__" not in shared
    assert "## two" not in text


def test_services_that_are_not_installed_are_left_out() -> None:
    assert find_models(["no_such_service"]) == {}


def test_check_tells_whether_the_file_is_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settings_reference, "find_models", lambda: {"one": One})
    path = tmp_path / "configuration.md"
    assert main(["--check", str(path)]) == 1
    assert main([str(path)]) == 0
    assert main(["--check", str(path)]) == 0
    path.write_text("other")
    assert main(["--check", str(path)]) == 1
    assert "not up to date" in capsys.readouterr().err
