"""The example of docs/how-to/write-a-tool.md is a package that works as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from room_common.contracts.room_document import RoomDocument
from room_runner import python_tools
from room_runner.outside import OutsideTool
from room_testing.staging import Stage, call, mark, text

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "write-a-tool.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


async def test_the_example_is_installed_found_and_called(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,), (project,) = blocks("python"), blocks("toml")
    package = tmp_path / "business-days" / "business_days"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    (package.parent / "pyproject.toml").write_text(project)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*pip, str(tmp_path / "site"), str(package.parent)], check=True, timeout=100)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (name,) = tomllib.loads(project)["project"]["entry-points"]["room.tools"]
    loaded = python_tools.load(seconds=5, threads=2)
    assert list(loaded) == [name]

    class Only:
        async def tools(self, instance_id: object) -> dict[str, OutsideTool]:
            return dict(loaded)

    stage.outside = Only()
    room = await stage.world.room()
    event = await stage.world.event(room)
    asked = call((name, '{"start": "2026-11-27", "days": 3}'), (name, '{"start": "soon", "days": 3}'), mark(event))
    _, llm = await stage.run(room, asked, text("NO_MESSAGE"))
    results = {message["tool_call_id"]: str(message["content"]) for message in llm.requests[1].messages[3:]}
    assert "2026-12-02" in results["call_0"] and "start: " in results["call_1"]
    assert "working days after" in str(llm.requests[0].tools)


def test_every_yaml_block_is_the_tools_of_a_room_file() -> None:
    for block in blocks("yaml"):
        document = {"version": 1, "name": "Desk", "slug": "desk", **YAML(typ="safe").load(block)}
        assert RoomDocument.model_validate(document).tools


def test_the_lines_of_code_are_about_ten() -> None:
    (code,) = blocks("python")
    tool = code.partition("class ")[2].splitlines()
    assert len([line for line in tool if line.strip()]) <= 10
