"""Reading one definition from a file: as it stands below ``definitions:`` in a room file, with or without the dash."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from room_common.contracts.room_document import DefinitionDocument
from room_common.errors import ConfigurationError

_MAX_BYTES: Final = 1 << 18


def read_definition(path: Path) -> DefinitionDocument:
    """The definition in a file. Raises ``ConfigurationError`` with a line for every error."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: is not UTF-8 text; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(f"{path}: can't be read ({reason})") from None
    if len(raw) > _MAX_BYTES:
        raise ConfigurationError(f"{path}: is larger than {_MAX_BYTES} bytes; a definition is a few lines")
    try:
        tree = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ConfigurationError(
            f"{path}:{line}: is not valid YAML ({(error.problem or '').splitlines()[0]})"
        ) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: is not valid YAML ({type(error).__name__})") from None
    if isinstance(tree, list) and len(tree) == 1:
        tree = tree[0]
    if not isinstance(tree, dict):
        raise ConfigurationError(f"{path}: holds one definition: `name:`, `match:` and, if you like, `interpret:`")
    try:
        return DefinitionDocument.model_validate(tree)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        problems = [f"{path}: {_place(item['loc'])}: {item['msg'].removeprefix('Value error, ')}" for item in found]
        raise ConfigurationError("\n".join(problems)) from None


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "the file"
