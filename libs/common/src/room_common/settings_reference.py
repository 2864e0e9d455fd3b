"""Writes docs/configuration.md from the settings models: ``python -m room_common.settings_reference [FILE | --check
FILE]``.

Without a file the text goes to standard output; ``--check`` exits with 1 where the file differs.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from room_common.generated import write_or_check
from room_common.settings import ServiceSettings, Variable, section_of, variables

SERVICES = ("ingest", "matcher", "scheduler", "runner", "outbound", "compactor", "admin")
"""Services by the name of their package, ``room_<name>``."""

_HEAD = """\
# Configuration

<!-- Written by `python -m room_common.settings_reference`; change the settings models, not this file. -->

Every service is configured by environment variables and nothing else. A service that finds a wrong or missing one
lists all of them and exits with code 2.

- Every variable `NAME` may instead be given as `NAME_FILE`, the path of a file with the value: use it for secrets.
- An empty variable counts as unset. Lists are written with commas, or as JSON.
- A variable that names a section of the service but none of its settings is an error that names the closest one.
- Durations are in seconds unless the name says otherwise.
- Traces are configured by the standard `OTEL_*` variables, and are off without `OTEL_EXPORTER_OTLP_ENDPOINT`.
"""


@dataclass(slots=True)
class _Row:
    variable: Variable
    services: list[str] = field(default_factory=list)


def find_models(services: Iterable[str] = SERVICES) -> dict[str, type[ServiceSettings]]:
    """The settings model of each service whose package is installed."""
    found: dict[str, type[ServiceSettings]] = {}
    for service in services:
        package = f"room_{service}"
        if importlib.util.find_spec(package) is None or importlib.util.find_spec(f"{package}.settings") is None:
            continue
        module = importlib.import_module(f"{package}.settings")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, ServiceSettings) and value.__module__ == module.__name__:
                found[service] = value
    return found


def render(models: Mapping[str, type[BaseModel]]) -> str:
    """The document: what several services share first, then what is one service's own."""
    rows: dict[str, _Row] = {}
    for service, model in models.items():
        for variable in variables(model):
            rows.setdefault(variable.name, _Row(variable)).services.append(service)
    own = {
        service: [rows[item.name] for item in variables(model) if _is_own(service, model, item)]
        for service, model in models.items()
    }
    private = {row.variable.name for group in own.values() for row in group}
    shared = [row for row in rows.values() if row.variable.name not in private]
    blocks = [_HEAD]
    if shared:
        blocks.append("## Shared\n\n" + _table(shared, len(models), with_services=True))
    for service, group in own.items():
        if group:
            blocks.append(f"## {service}\n\n" + _table(group, len(models), with_services=False))
    return "\n".join(blocks)


def _is_own(service: str, model: type[BaseModel], variable: Variable) -> bool:
    """Whether the section of ``variable`` is declared by the service itself and not in what all share."""
    section = section_of(model.model_fields[variable.path[0]].annotation)
    return section is not None and section.__module__.startswith(f"room_{service}.")


def _table(rows: Sequence[_Row], services: int, *, with_services: bool) -> str:
    lines = ["| Variable | Default | Meaning |" + (" Read by |" if with_services else "")]
    lines.append("| --- | --- | --- |" + (" --- |" if with_services else ""))
    for row in rows:
        cells = [f"`{row.variable.name}`", _default(row.variable), _meaning(row.variable)]
        if with_services:
            cells.append("all" if len(row.services) == services else ", ".join(row.services))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(variable: Variable) -> str:
    info = variable.field
    if info.is_required():
        return "required"
    value: Any = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined or value in ("", (), [], {}):
        return "none"
    if isinstance(value, SecretStr):
        return "set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | list | frozenset | set):
        return f"`{','.join(str(item) for item in value)}`"
    return f"`{getattr(value, 'value', value)}`"


def _meaning(variable: Variable) -> str:
    text = " ".join((variable.field.description or "").split())
    choices = [
        choice for item in _parts(variable.field.annotation) if get_origin(item) is Literal for choice in get_args(item)
    ]
    if choices:
        text += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
    return text + (" Secret." if variable.secret else "")


def _parts(annotation: Any) -> Iterable[Any]:
    yield annotation
    if get_origin(annotation) is not Literal:
        for item in get_args(annotation):
            yield from _parts(item)


def main(arguments: Sequence[str]) -> int:
    """Write or check the document; the exit code."""
    return write_or_check(render(find_models()), arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
