"""Settings: one frozen model per service, read from ``ROOM_*`` variables in ``__main__`` and nowhere else.

``ROOM_KAFKA__BOOTSTRAP_SERVERS`` fills ``settings.kafka.bootstrap_servers``. Every variable may instead be given as
``<NAME>_FILE``, the path of a file that holds the value (a mounted secret). An empty variable counts as unset. Tuples
are written with commas or as JSON, mappings as JSON. A variable that names a section of the service but no field of
it is an error, since it is nearly always a typing mistake; sections of other services are ignored.

Models are plain data: constructing one never looks at the environment, which keeps tests independent of it.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from room_common.domain.tokens import parse_keys
from room_common.errors import ConfigurationError

PREFIX = "ROOM_"
NESTED = "__"
_MAX_FILE = 65_536
_DOCUMENT = "docs/configuration.md"
SECTIONS = frozenset(
    [
        *("admin", "audit", "compactor", "database", "egress", "encryption", "ingest", "kafka", "llm", "log"),
        *("matcher", "operations", "outbound", "overflow", "redis", "runner", "scheduler", "tools"),
    ]
)
"""The sections of all services: what is none of these and nearly one of ours is a typing mistake."""

_KINDS = {
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_parsing": "should be a number",
    "bool_parsing": "should be true or false",
}


class Section(BaseModel):
    """Base of every group of settings: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class OperationsSettings(Section):
    """Where the service answers /livez, /readyz and /metrics."""

    host: str = Field("0.0.0.0", description="Address that the operations port listens on.")  # noqa: S104
    port: int = Field(9464, ge=0, le=65535, description="Port of /livez, /readyz and /metrics; 0 takes a free one.")


class LogSettings(Section):
    """How the service writes its log to standard output."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe level that is written."
    )
    format: Literal["auto", "json", "console"] = Field(
        "auto", description="One JSON object a line, or coloured text; `auto` writes text on a terminal only."
    )


def _check_key_list(value: SecretStr) -> SecretStr:
    parse_keys(value.get_secret_value())
    return value


KeyList = Annotated[SecretStr, AfterValidator(_check_key_list)]
"""``id:64hex,...``: 32-byte keys; the first one makes, all of them verify or open."""

TokenKeys = Annotated[
    KeyList,
    Field(description="Keys of the tag in webhook URLs, `id:64hex,...`. The first makes new URLs, all are accepted."),
]
"""Type of the field ``token_keys`` (``ROOM_TOKEN_KEYS``)."""


class EncryptionSettings(Section):
    """Keys of what is stored encrypted."""

    keys: KeyList = Field(
        description="Keys of stored secrets, `id:64hex,...`. The first encrypts, all decrypt: put a new key in front."
    )


def check_public_url(value: str) -> str:
    """The URL without a slash at its end. Raises ``ValueError`` for what is none, or has more than a path."""
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", value):
        raise ValueError("write http(s)://host[:port][/path], without user, query or fragment")
    return value.rstrip("/")


PublicUrl = Annotated[
    str,
    AfterValidator(check_public_url),
    Field(
        description="What senders post to, without a slash at the end. Signatures over a URI are checked against it."
    ),
]
"""Type of the field ``public_url`` (``ROOM_PUBLIC_URL``)."""


class ServiceSettings(Section):
    """Base of every service's settings. Add sections as fields: ``kafka: KafkaSettings``."""

    operations: OperationsSettings = Field(default_factory=OperationsSettings)
    log: LogSettings = Field(default_factory=LogSettings)


ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Variable:
    """One setting as an operator sees it."""

    name: str
    path: tuple[str, ...]
    field: FieldInfo

    @property
    def secret(self) -> bool:
        return any(item is SecretStr for item in _leaves(self.field.annotation))


def variables(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[Variable]:
    """Every variable that ``model`` reads, in the order of its fields."""
    for name, field in model.model_fields.items():
        here = (*path, name)
        section = section_of(field.annotation)
        if section is not None:
            yield from variables(section, here)
        else:
            yield Variable(PREFIX + NESTED.join(here).upper(), here, field)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The model behind ``Model`` or ``Model | None``, else None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        return next((found for item in get_args(annotation) if (found := section_of(item)) is not None), None)
    return None


def _leaves(annotation: Any) -> Iterator[Any]:
    yield annotation
    for item in get_args(annotation):
        yield from _leaves(item)


def read_environment(model: type[BaseModel], environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Collect the values for ``model``. Returns them with the problems found so far, by variable name."""
    known = {variable.name: variable for variable in variables(model)}
    values: dict[str, Any] = {}
    problems = dict(_unknown_names(model, known, environ))
    _require_sections(model, values)
    for variable in known.values():
        try:
            text = _lookup(variable.name, known, environ)
            if text is not None:
                _put(values, variable.path, _parse(variable.field.annotation, text))
        except ValueError as error:
            problems[variable.name] = str(error)
    return values, problems


def load_settings(model: type[ModelT], environ: Mapping[str, str] | None = None) -> ModelT:
    """Build the settings of this process, or print every wrong variable to standard error and exit with 2.

    ``--help`` on the command line prints what there is to set instead, and exits with 0.
    """
    if environ is None and {"-h", "--help"} & set(sys.argv[1:]):
        sys.stdout.write(describe(model))
        raise SystemExit(0)
    try:
        return parse_settings(model, os.environ if environ is None else environ)
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None


def describe(model: type[BaseModel]) -> str:
    """Every variable of ``model`` and what it means, for a person."""
    lines = [f"Configured by environment variables; {_DOCUMENT} has their defaults.", ""]
    for variable in variables(model):
        needed = " (required)" if variable.field.is_required() else ""
        lines += [f"{variable.name}{needed}", f"    {' '.join((variable.field.description or '').split())}"]
    return "\n".join(lines) + "\n"


def parse_settings(model: type[ModelT], environ: Mapping[str, str]) -> ModelT:
    """Build ``model`` from ``environ``. Raises ConfigurationError that lists every wrong variable, and no value."""
    values, problems = read_environment(model, environ)
    settings: ModelT | None = None
    try:
        settings = model.model_validate(values)
    except ValidationError as error:
        known = {variable.path: variable for variable in variables(model)}
        for item in error.errors(include_url=False, include_context=False, include_input=False):
            name, message = _explain(item["type"], item["loc"], item["msg"], known)
            problems.setdefault(name, message)
    _point_to_what_was_meant(problems, {variable.name for variable in variables(model)}, environ)
    if problems or settings is None:
        lines = [f"  {name}: {message}" for name, message in sorted(problems.items())]
        raise ConfigurationError("\n".join([f"{len(lines)} wrong or missing setting(s), see {_DOCUMENT}:", *lines]))
    return settings


def _point_to_what_was_meant(problems: dict[str, str], known: set[str], environ: Mapping[str, str]) -> None:
    """Where a variable is missing and another one nearly has its name, say so: one underscore is easily lost."""
    strangers = [name for name, value in environ.items() if value and name not in known and name not in problems]
    for name, message in problems.items():
        if not message.startswith("is missing"):
            continue
        for near in difflib.get_close_matches(name, strangers, n=1, cutoff=0.85):
            problems[name] = f"{message.rstrip('.')}. {near} is set: is that meant?"


def _unknown_names(
    model: type[BaseModel], known: Mapping[str, Variable], environ: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    sections = {
        PREFIX + name.upper() + NESTED for name, field in model.model_fields.items() if section_of(field.annotation)
    }
    for name, value in environ.items():
        own = any(name.startswith(section) for section in sections) or _mistyped_section(name, sections)
        if not own or not value or name in known or (name.endswith("_FILE") and name.removesuffix("_FILE") in known):
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        yield name, "there is no such setting" + (f"; did you mean {near[0]}?" if near else "; remove it")


def _mistyped_section(name: str, sections: set[str]) -> bool:
    section = name.removeprefix(PREFIX).partition(NESTED)[0].lower()
    if not name.startswith(PREFIX) or NESTED not in name or section in SECTIONS:
        return False
    return bool(difflib.get_close_matches(PREFIX + section.upper() + NESTED, sections, n=1, cutoff=0.88))


def _require_sections(model: type[BaseModel], values: dict[str, Any]) -> None:
    """Make required sections appear, so that what is missing in them is reported field by field."""
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is not None and field.is_required():
            _require_sections(section, values.setdefault(name, {}))


def from_environment(name: str, environ: Mapping[str, str]) -> str | None:
    """The value of a variable that is no setting of ours, given as ``NAME`` or by ``NAME_FILE``.

    Raises ``ValueError``, which names no value.
    """
    return _lookup(name, {}, environ)


def _lookup(name: str, known: Mapping[str, Variable], environ: Mapping[str, str]) -> str | None:
    value = environ.get(name) or None
    file_name = f"{name}_FILE"
    path = None if file_name in known else environ.get(file_name) or None
    if path is None:
        return value
    if value is not None:
        raise ValueError(f"is given twice, here and by {file_name}; keep one")
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE + 1)
        if len(content) > _MAX_FILE:
            raise ValueError(f"{file_name} names a file of more than {_MAX_FILE} bytes")
        return content.decode().strip() or None
    except OSError as error:
        raise ValueError(
            f"{file_name} names a file that can't be read ({error.strerror}): check path and rights"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f"{file_name} names a file that is not UTF-8 text") from None


def _parse(annotation: Any, text: str) -> Any:
    origins = {get_origin(item) or item for item in _leaves(annotation)}
    if origins & {tuple, list, set, frozenset}:
        if not text.startswith("["):
            return [item.strip() for item in text.split(",") if item.strip()]
    elif dict not in origins and Mapping not in origins:
        return text
    try:
        return orjson.loads(text)
    except ValueError:
        raise ValueError("is not valid JSON") from None


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _explain(
    kind: str, location: tuple[int | str, ...], message: str, known: Mapping[tuple[str, ...], Variable]
) -> tuple[str, str]:
    names = tuple(item for item in location if isinstance(item, str))
    variable = next((known[names[:end]] for end in range(len(names), 0, -1) if names[:end] in known), None)
    name = variable.name if variable is not None else PREFIX + NESTED.join(names).upper()
    if kind == "missing":
        hint = variable.field.description if variable is not None else None
        return name, f"is missing. {hint}" if hint else "is missing"
    if kind in ("value_error", "assertion_error"):
        return name, message.partition(", ")[2]
    if variable is not None and variable.secret:
        return name, "is not valid"
    if kind in _KINDS:
        return name, _KINDS[kind]
    return name, message[:1].lower() + message[1:]
