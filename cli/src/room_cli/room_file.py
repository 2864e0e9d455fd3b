"""Reading room.yaml: every error names the file and the line, and says what to do."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from room_common.contracts.room_document import (
    ChannelDocument,
    DefinitionDocument,
    RoomDocument,
    SecretReference,
    SourceDocument,
)
from room_common.contracts.source_config import AuthKeyCheck, HmacCheck, Verify, secret_problem
from room_common.errors import ConfigurationError

_MAX_BYTES: Final = 1 << 20
_MAX_SECRET: Final = 4096


@dataclass(frozen=True, slots=True)
class RoomFile:
    """A document, and the secrets it refers to by the name of their source."""

    document: RoomDocument
    secrets: Mapping[str, Sequence[str]]


def read_room_file(path: Path, environ: Mapping[str, str] | None = None) -> RoomFile:
    """Read, check and resolve a room file. Raises ``ConfigurationError`` with a line for every error."""
    tree = _load(path)
    try:
        document = RoomDocument.model_validate(tree)
    except ValidationError as error:
        problems = [
            f"{path}:{_line(tree, item['loc'])}: {_message(item, tree)}"
            for item in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigurationError("\n".join(dict.fromkeys(problems))) from None
    return RoomFile(document, _secrets(path, tree, document, os.environ if environ is None else environ))


def _load(path: Path) -> CommentedMap:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigurationError(f"{path}: is larger than {_MAX_BYTES} bytes; a room file is a page or two")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text") from None
    yaml = YAML(typ="rt")
    try:
        tree = yaml.load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ConfigurationError(f"{path}:{line}: {(error.problem or 'is not valid YAML').splitlines()[0]}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: is not valid YAML ({type(error).__name__})") from None
    if not isinstance(tree, CommentedMap):
        raise ConfigurationError(f"{path}:1: a room file is a mapping that begins with `version: 1`")
    return tree


def _secrets(
    path: Path, tree: CommentedMap, document: RoomDocument, environ: Mapping[str, str]
) -> dict[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {}
    problems = []
    for position, source in enumerate(document.sources):
        values = []
        for number, reference in enumerate(source.secrets):
            try:
                value = _resolve(reference, path, environ)
                if problem := secret_problem(source.type, value):
                    raise ValueError(problem)
                values.append(value)
            except ValueError as error:
                line = _line(tree, ("sources", position, "secrets", number))
                problems.append(f"{path}:{line}: secret of source {source.name!r}: {error}")
        if values:
            found[source.name] = values
    if problems:
        raise ConfigurationError("\n".join(problems))
    return found


def _resolve(reference: SecretReference, path: Path, environ: Mapping[str, str]) -> str:
    if reference.env is not None:
        value = environ.get(reference.env, "")
        if not value:
            raise ValueError(f"the environment variable {reference.env} is not set")
    else:
        file = path.parent / (reference.file or "")
        try:
            value = file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ValueError(f"the file {file} can't be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise ValueError(f"the file {file} is not UTF-8 text") from None
        if not value:
            raise ValueError(f"the file {file} is empty")
    if len(value) > _MAX_SECRET:
        raise ValueError(f"is longer than {_MAX_SECRET} characters")
    return value


def _line(tree: Any, location: Sequence[str | int]) -> int:
    """The line, from 1, of the deepest part of ``location`` that is written in the file."""
    node, line = tree, 0
    for part in location:
        if isinstance(node, CommentedMap) and part in node:
            line = node.lc.key(part)[0]
        elif isinstance(node, CommentedSeq) and isinstance(part, int) and part < len(node):
            line = node.lc.item(part)[0]
        else:
            break
        node = node[part]
    return line + 1


def _message(item: Any, tree: CommentedMap) -> str:
    location: tuple[str | int, ...] = item["loc"]
    name = location[-1] if location else "the file"
    if item["type"] == "extra_forbidden":
        known = list(_model_at(location[:-1]).model_fields)
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        return f"unknown key {str(name)!r}; {hint}"
    if item["type"] == "missing":
        return f"{str(name)!r} is missing{_where(location[:-1], tree)}"
    if item["type"] == "value_error":
        return str(item["msg"]).removeprefix("Value error, ")
    message = str(item["msg"])
    return f"{str(name)!r}: {message[:1].lower()}{message[1:]}"


def _where(location: Sequence[str | int], tree: Any) -> str:
    node = tree
    for part in location:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return ""
    name = node.get("name") if isinstance(node, CommentedMap) else None
    return f" in {name!r}" if location and isinstance(name, str) else ""


def _model_at(location: Sequence[str | int]) -> type[BaseModel]:
    names = [part for part in location if isinstance(part, str)]
    models: dict[tuple[str, ...], type[BaseModel]] = {
        (): RoomDocument,
        ("channel",): ChannelDocument,
        ("sources",): SourceDocument,
        ("sources", "secrets"): SecretReference,
        ("sources", "verify"): Verify,
        ("sources", "verify", "hmac"): HmacCheck,
        ("sources", "verify", "auth_key"): AuthKeyCheck,
        ("sources", "definitions"): DefinitionDocument,
    }
    return models.get(tuple(names), RoomDocument)
