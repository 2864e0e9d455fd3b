"""Writing a room document as room.yaml: what is left out is as it would be by default."""

from __future__ import annotations

import io
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from room_common.contracts.room_document import RoomDocument

_HEAD: Final = """\
# Applying this file changes nothing until it is edited. `stored: 1` is the secret that is stored now; for a new one,
# or for another installation, write `env: NAME` or `file: PATH` instead.
"""


def room_file_text(document: RoomDocument) -> str:
    """The text of a room file; reading it gives the document again."""
    yaml = YAML(typ="rt")
    yaml.width = 100
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = io.StringIO()
    yaml.dump(_readable(document.model_dump(mode="json", exclude_defaults=True)), text)
    return _HEAD + text.getvalue()


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if not isinstance(value, str) or value.isprintable():
        return value
    return LiteralScalarString(value) if _fits_a_block(value) else DoubleQuotedScalarString(value)


def _fits_a_block(text: str) -> bool:
    """Whether a block of lines gives the text back: not with what YAML takes for a line's end or its indentation."""
    lines = text.split("\n")
    return all(line.isprintable() for line in lines) and not lines[0].startswith(" ") and bool(lines[-1].strip())
