"""The settings a stack gives to its services, and to a person's shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from room_local.files import StackFiles
from room_local.options import StackOptions
from room_local.parts.addresses import HOST

_NOT_FOR_SHELLS = frozenset({"ROOM_LOG__FORMAT", "PYTHONUNBUFFERED"})
_REHEARSAL_KEY = "rehearsal"
_LLM_NAMES = ("ROOM_LLM__API_KEY", "ROOM_LLM__API_KEY_FILE", "ROOM_LLM__BASE_URL", "ROOM_LLM__BASE_URL_FILE")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything listens. ``overflow`` is the database as ingest may use it. ``ports`` has a service's own port
    by name, ``operations`` its second one."""

    kafka: str
    database: str
    overflow: str
    redis: str
    ports: Mapping[str, int]
    operations: Mapping[str, int]

    def url(self, service: str) -> str:
        """The address of a service with a port of its own."""
        return f"http://{HOST}:{self.ports[service]}"


def without_rehearsal(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what a stack's own ``.room/env`` said of its rehearsal: that was no choice."""
    given = dict(environment)
    if given.get("ROOM_LLM__BASE_URL") == f"{given.get('ROOM_REHEARSAL_URL')}/v1":
        del given["ROOM_LLM__BASE_URL"]
    if given.get("ROOM_LLM__API_KEY") == _REHEARSAL_KEY:
        del given["ROOM_LLM__API_KEY"]
    return given


def uses_real_model(environment: Mapping[str, str]) -> bool:
    """Whether the person gave a model provider, so that no rehearsal is wanted."""
    given = without_rehearsal(environment)
    return any(given.get(name) for name in _LLM_NAMES)


def shared_settings(addresses: Addresses, files: StackFiles, options: StackOptions) -> dict[str, str]:
    """What every service gets. Secrets are named by their files."""
    settings = {
        "ROOM_KAFKA__BOOTSTRAP_SERVERS": addresses.kafka,
        "ROOM_KAFKA__REPLICATION_FACTOR": "1",
        "ROOM_KAFKA__MIN_INSYNC_REPLICAS": "1",
        "ROOM_DATABASE__DSN": addresses.database,
        "ROOM_REDIS__URL": addresses.redis,
        "ROOM_TOKEN_KEYS_FILE": str(files.token_keys),
        "ROOM_ENCRYPTION__KEYS_FILE": str(files.encryption_keys),
        "ROOM_PUBLIC_URL": options.public_url or addresses.url("ingest"),
    }
    if options.kafka == "embedded":
        settings["ROOM_KAFKA__IDEMPOTENCE"] = "false"
    return settings


def service_settings(addresses: Addresses, files: StackFiles, options: StackOptions) -> dict[str, str]:
    """What is set besides; each service reads its own section and ignores the others'."""
    settings = {
        "ROOM_LOG__FORMAT": "json",
        "ROOM_ADMIN__BOOTSTRAP_TOKEN_FILE": str(files.token),
        "ROOM_OPERATIONS__HOST": HOST,
        "ROOM_OVERFLOW__DSN": addresses.overflow,
        "PYTHONUNBUFFERED": "1",
    }
    if "inbox" in addresses.ports:
        settings["ROOM_OUTBOUND__LOCAL_INBOX_URL"] = addresses.url("inbox")
    if "rehearsal" in addresses.ports:
        settings["ROOM_LLM__BASE_URL"] = f"{addresses.url('rehearsal')}/v1"
        settings["ROOM_LLM__API_KEY"] = _REHEARSAL_KEY
    if options.tick_seconds is not None:
        settings["ROOM_SCHEDULER__TICK_SECONDS"] = f"{options.tick_seconds:g}"
    return settings


def override(inherited: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """``inherited`` with ``settings`` on top. A variable and its _FILE form exclude each other: the other one goes."""
    replaced = {name + "_FILE" for name in settings} | {name.removesuffix("_FILE") for name in settings}
    return {name: value for name, value in inherited.items() if name not in replaced} | dict(settings)


def shell_file(addresses: Addresses, files: StackFiles, options: StackOptions) -> str:
    """The content of ``.room/env``, to be sourced: a service that is started by hand then works with the same things.

    What only concerns the stack's own processes is left out. A later start in that shell knows the rehearsal as its own
    (:func:`without_rehearsal`).
    """
    own = service_settings(addresses, files, options)
    settings = {
        **shared_settings(addresses, files, options),
        **{name: value for name, value in own.items() if name not in _NOT_FOR_SHELLS},
        "ROOM_API_URL": addresses.url("admin"),
        "ROOM_API_TOKEN_FILE": str(files.token),
        **{f"ROOM_{name.upper().replace('-', '_')}_URL": addresses.url(name) for name in addresses.ports},
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
    return "# The stack that `room up` started here. Source this file: . .room/env\n" + "".join(lines)
