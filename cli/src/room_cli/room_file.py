"""Reading room.yaml: every error names the file and the line, and says what to do."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from room_common.contracts.channel_config import make_channel_config
from room_common.contracts.room_document import (
    ChannelDocument,
    DefinitionDocument,
    RoomDocument,
    SecretReference,
    SourceDocument,
    ToolDocument,
)
from room_common.contracts.source_config import AuthKeyCheck, HmacCheck, Verify, secret_problem
from room_common.domain.template import is_reference
from room_common.errors import ConfigurationError

_MAX_BYTES: Final = 1 << 20
_MAX_SECRET: Final = 4096
_DOUBLE_KEY: Final = re.compile('found duplicate key ("[^"]*")')
_WANTED: Final = {
    "string_type": "text; put it in quotes",
    "tuple_type": "a list, whose items begin with `- `",
    "model_type": "a mapping, with lines like `key: value`",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
}
_CHOICE: Final = re.compile("'([^']*)'")
_BRACES: Final = re.compile(r"\{\{|\}\}")
_REFERENCE: Final = re.compile(r"\{\{\s*+([^{}]*+)\}\}")
_ROOT: Final = "payload"
_NEAR: Final = 80
"""Characters around a lone brace in which the word makes it look like a reference gone wrong."""


@dataclass(frozen=True, slots=True)
class RoomFile:
    """A document, and the secrets it refers to: by the name of their source or tool, the channel's by their own.

    Those that are ``stored`` already are the API's business.
    """

    document: RoomDocument
    secrets: Mapping[str, Sequence[str]]
    channel_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    tool_secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_room_file(path: Path, environ: Mapping[str, str] | None = None) -> RoomFile:
    """Read, check and resolve a room file. Raises ``ConfigurationError`` with a line for every error."""
    tree = _load(path)
    try:
        document = RoomDocument.model_validate(tree)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        misspelt = {(item["loc"][:-1], _near_key(item["loc"])) for item in found if item["type"] == "extra_forbidden"}
        problems = [
            f"{path}:{_line(tree, _place(item))}: {_message(item, tree)}"
            for item in found
            if item["type"] != "missing" or (item["loc"][:-1], item["loc"][-1]) not in misspelt
        ]
        raise ConfigurationError("\n".join(dict.fromkeys(problems))) from None
    _check_templates(path, tree, document)
    given = os.environ if environ is None else environ
    return RoomFile(
        document,
        _secrets(path, tree, document, given),
        _channel_secrets(path, tree, document, given),
        _tool_secrets(path, tree, document, given),
    )


def _load(path: Path) -> CommentedMap:
    text = _text(path)
    try:
        tree = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ConfigurationError(f"{path}:{line}: {_yaml_problem(error)}") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigurationError(f"{path}:{line}: has a control character; remove it") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}:1: is not valid YAML ({type(error).__name__})") from None
    if not isinstance(tree, CommentedMap):
        raise ConfigurationError(f"{path}:1: a room file is a mapping that begins with `version: 1`")
    return tree


def _text(path: Path) -> str:
    try:
        raw = _read(path, _MAX_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: can't be read ({_reason(error)})") from None
    if len(raw) > _MAX_BYTES:
        raise ConfigurationError(f"{path}:1: is larger than {_MAX_BYTES} bytes; a room file is a page or two")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path}:{line}: is not UTF-8 text; save the file as UTF-8") from None


def _check_templates(path: Path, tree: CommentedMap, document: RoomDocument) -> None:
    """A reference that is not quite one would stand in the agent's instructions as it was typed."""
    problems = [
        f"{path}:{_line(tree, ('sources', s, 'definitions', d, 'interpret'))}: {problem}"
        for s, source in enumerate(document.sources)
        for d, definition in enumerate(source.definitions)
        if (problem := template_problem(definition.interpret)) is not None
    ]
    if problems:
        raise ConfigurationError("\n".join(problems))


def template_problem(template: str) -> str | None:
    """What is wrong with the references in an interpretation, or None. Other text in braces is the operator's own."""
    for found in _REFERENCE.finditer(template):
        written = found[1].strip()
        root = re.split(r"[.\s|]", written, maxsplit=1)[0]
        if root == _ROOT and not is_reference(found[0]):
            return f"{found[0]!r} is no reference; write it as {{{{payload.name.0.name}}}}, with dots and no spaces"
        if root != _ROOT and difflib.get_close_matches(root.lower(), [_ROOT], n=1, cutoff=0.75):
            return f"{found[0]!r} stays as it is, nothing is filled in; did you mean {{{{payload...}}}}?"
    rest = _REFERENCE.sub("", template)
    if any(_ROOT in rest[max(0, brace.start() - _NEAR) : brace.end() + _NEAR] for brace in _BRACES.finditer(rest)):
        return "a reference is not closed or not opened: write {{payload.name}}, with two braces on either side"
    return None


def _secrets(
    path: Path, tree: CommentedMap, document: RoomDocument, environ: Mapping[str, str]
) -> dict[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {}
    problems = []
    for position, source in enumerate(document.sources):
        values = []
        for number, reference in enumerate(source.secrets):
            if reference.stored is not None:
                continue
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


def _channel_secrets(
    path: Path, tree: CommentedMap, document: RoomDocument, environ: Mapping[str, str]
) -> dict[str, str]:
    """The values of the channel's secrets, each of the form that its provider gives them."""
    channel, found, problems = document.channel, {}, []
    for name, reference in (channel.secrets if channel is not None else {}).items():
        try:
            if reference.stored is None:
                found[name] = _resolve(reference, path, environ)
        except ValueError as error:
            problems.append((name, str(error)))
    if channel is not None and not problems and len(found) == len(channel.secrets):
        try:
            make_channel_config(channel.type, found, sender=channel.sender, allow=channel.allow)
        except ValidationError as error:
            problems = [
                (
                    str(item["loc"][-1]),
                    f"is not what {channel.type} gives ({str(item['msg']).removeprefix('Value error, ')})",
                )
                for item in error.errors(include_url=False, include_input=False, include_context=False)
            ]
    if problems:
        lines = [
            f"{path}:{_line(tree, ('channel', 'secrets', name))}: secret {name!r} of the channel: {problem}"
            for name, problem in problems
        ]
        raise ConfigurationError("\n".join(lines))
    return found


def _tool_secrets(path: Path, tree: CommentedMap, document: RoomDocument, environ: Mapping[str, str]) -> dict[str, str]:
    """The values of the tools' secrets."""
    found, problems = {}, []
    for position, tool in enumerate(document.tools):
        if tool.secret is None or tool.secret.stored is not None:
            continue
        try:
            value = _resolve(tool.secret, path, environ)
            if not (value.isascii() and value.isprintable()):
                raise ValueError("has characters that no header can carry")
            found[tool.name] = value
        except ValueError as error:
            line = _line(tree, ("tools", position, "secret"))
            problems.append(f"{path}:{line}: secret of tool {tool.name!r}: {error}")
    if problems:
        raise ConfigurationError("\n".join(problems))
    return found


def _resolve(reference: SecretReference, path: Path, environ: Mapping[str, str]) -> str:
    if reference.env is not None:
        value = environ.get(reference.env, "")
        if not value:
            raise ValueError(f"the environment variable {reference.env} is not set; export it and apply again")
    else:
        file = path.parent / (reference.file or "")
        try:
            value = _read(file, 4 * _MAX_SECRET).decode("utf-8").strip()
        except UnicodeDecodeError:
            raise ValueError(f"the file {file} is not UTF-8 text") from None
        except (OSError, ValueError) as error:
            raise ValueError(f"the file {file} can't be read ({_reason(error)})") from None
        if not value:
            raise ValueError(f"the file {file} is empty")
    if len(value) > _MAX_SECRET:
        raise ValueError(f"is longer than {_MAX_SECRET} characters")
    return value


def _read(path: Path, limit: int) -> bytes:
    """Up to ``limit`` bytes and one more, which tells that there are more. It may be a device that never ends."""
    with path.open("rb") as file:
        return file.read(limit + 1)


def _reason(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)


def _yaml_problem(error: MarkedYAMLError) -> str:
    if isinstance(error, DuplicateKeyError):
        found = _DOUBLE_KEY.search(error.problem or "")
        return f"the key {found[1] if found else ''} is there twice; keep one"
    problem = (error.problem or "is not valid YAML").splitlines()[0]
    if "expected <block end>" in problem or "mapping values are not allowed" in problem:
        return "is indented differently from the lines it belongs to, or a quote or colon above it is amiss"
    if "'\\t'" in problem:
        return "a tab where YAML takes only spaces; indent with spaces"
    return f"is not valid YAML: {problem}"


def _place(item: Any) -> Sequence[str | int]:
    """Where an error is: of two equal names it is the second."""
    location: tuple[str | int, ...] = item["loc"]
    if item["type"] != "double_name":
        return location
    return (*location, f"{item['ctx']['kind']}s", item["ctx"]["index"], "name")


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
    name = _said_of(location)
    if item["type"] == "extra_forbidden":
        near = _near_key(location)
        known = ", ".join(_model_at(location[:-1]).model_fields)
        hint = f"did you mean {near!r}?" if near else f"known here: {known}"
        return f"unknown key {name}; {hint}"
    if item["type"] == "missing":
        return f"{name} is missing{_where(location[:-1], tree)}"
    if item["type"] == "double_name":
        first = (*location, f"{item['ctx']['kind']}s", item["ctx"]["first"], "name")
        return f"{item['msg']} (the other one is on line {_line(tree, first)})"
    if item["type"] == "model_type" and "secrets" in location:
        return "a secret is never written here: name where it is, as `- env: VARIABLE` or `- file: PATH`"
    if item["type"] in _WANTED:
        return f"{name} should be {_WANTED[item['type']]}"
    if item["type"] == "literal_error":
        return _wrong_choice(name, item, _value_at(tree, location))
    if item["type"] == "value_error":
        return str(item["msg"]).removeprefix("Value error, ")
    message = str(item["msg"])
    return f"{name}: {message[:1].lower()}{message[1:]}"


def _near_key(location: Sequence[str | int]) -> str | None:
    """The key that a misspelt one was meant to be."""
    near = difflib.get_close_matches(str(location[-1]), list(_model_at(location[:-1]).model_fields), n=1)
    return near[0] if near else None


def _said_of(location: Sequence[str | int]) -> str:
    """A key's name; an item of a list has none."""
    if not location:
        return "the file"
    if isinstance(location[-1], str):
        return repr(location[-1])
    key = next((part for part in reversed(location) if isinstance(part, str)), "the list")
    return f"item {location[-1] + 1} of {key}"


def _value_at(tree: Any, location: Sequence[str | int]) -> object:
    try:
        for part in location:
            tree = tree[part]
    except (KeyError, IndexError, TypeError):
        return None
    return tree


def _wrong_choice(name: str, item: Any, value: object) -> str:
    choices = _CHOICE.findall(str(item["ctx"]["expected"]))
    near = difflib.get_close_matches(str(value), choices, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{name}: {hint}input should be {item['ctx']['expected']}"


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
        ("channel", "secrets"): SecretReference,
        ("sources",): SourceDocument,
        ("sources", "secrets"): SecretReference,
        ("sources", "verify"): Verify,
        ("sources", "verify", "hmac"): HmacCheck,
        ("sources", "verify", "auth_key"): AuthKeyCheck,
        ("sources", "definitions"): DefinitionDocument,
        ("tools",): ToolDocument,
        ("tools", "secret"): SecretReference,
    }
    return models.get(tuple(names), RoomDocument)
