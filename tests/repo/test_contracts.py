"""The committed contracts are in step with the code, and only ever grow."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from room_admin import openapi
from room_common.contracts.documents import asyncapi, documents, message_schema, not_additive
from room_common.contracts.messages import MODELS, read
from room_common.contracts.topics import TOPICS

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = ROOT / "contracts"
EXAMPLES = sorted((CONTRACTS / "examples").glob("*/*.json"))


@pytest.mark.parametrize("name", sorted(documents()))
def test_generated_documents_are_in_step(name: str) -> None:
    assert (CONTRACTS / name).read_text() == documents()[name], "run: make documents"


def test_openapi_is_in_step() -> None:
    assert (CONTRACTS / "openapi.json").read_text() == openapi.document(), "run: make documents"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_golden_examples_are_valid_and_are_read(file: Path) -> None:
    name = file.parent.name
    jsonschema.validate(json.loads(file.read_text()), message_schema(name))
    read(MODELS[name], file.read_bytes())


def test_every_message_has_an_example() -> None:
    assert {file.parent.name for file in EXAMPLES} == set(MODELS)


def test_every_topic_names_a_message_and_a_dead_letter_topic_that_exist() -> None:
    names = {topic.name for topic in TOPICS}
    assert len(names) == len(TOPICS)
    for topic in TOPICS:
        assert topic.message == "raw" or topic.message in MODELS
        assert topic.dead_letter is None or topic.dead_letter in names
    assert set(asyncapi()["channels"]) == names


def _schema() -> dict[str, Any]:
    return copy.deepcopy(message_schema("tick-command"))


def test_a_new_optional_field_is_additive() -> None:
    after = _schema()
    after["properties"]["note"] = {"type": "string"}
    after["properties"]["seq"]["description"] = "said better"
    assert not_additive(_schema(), after) == []


@pytest.mark.parametrize("change", ["remove", "retype", "require", "release", "narrow"])
def test_a_breaking_change_is_refused(change: str) -> None:
    after = _schema()
    if change == "remove":
        del after["properties"]["seq"]
    elif change == "retype":
        after["properties"]["seq"]["type"] = "string"
    elif change == "require":
        after["properties"]["note"] = {"type": "string"}
        after["required"].append("note")
    elif change == "release":
        after["required"].remove("seq")
    else:
        after["properties"]["reason"]["enum"].remove("manual")
    assert not_additive(_schema(), after)


def _released() -> str | None:
    if shutil.which("git") is None:
        return None
    found = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"], cwd=ROOT, capture_output=True, text=True
    )
    return found.stdout.strip() if found.returncode == 0 else None


@pytest.mark.parametrize("name", sorted(MODELS))
def test_schemas_only_grow_since_the_last_release(name: str) -> None:
    tag = _released()
    if tag is None:
        return  # nothing has been released yet
    shown = subprocess.run(
        ["git", "show", f"{tag}:contracts/schemas/{name}.schema.json"], cwd=ROOT, capture_output=True, text=True
    )
    if shown.returncode == 0:
        assert not_additive(json.loads(shown.stdout), message_schema(name)) == []
