"""Which settings, secrets, topics and consumer groups the services have, as the chart's templates read them.

The templates turn values into variables only through this catalogue (``files/catalogue.json``), which is written from
the settings models: a setting that the code gains or loses is one in the chart too, or the tests fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from room_common.contracts.topics import OUTBOUND, REPLIES_RAW, WEBHOOKS_RAW, topic
from room_common.postgres.migrate import latest
from room_common.settings import Variable, variables
from room_common.settings_reference import find_models
from room_matcher.app import GROUP as MATCHER_GROUP
from room_outbound.dispatch import GROUP as OUTBOUND_GROUP

NAMES: Final = {"runner": "room-runner"}
"""Components whose process has another name than the block of their values."""

COMMANDS: Final = {"runner": "room-runner"}
"""Console scripts that are not ``room-<block>``."""

SET_BY_THE_CHART: Final = frozenset(
    {
        "ROOM_OPERATIONS__HOST",
        "ROOM_OPERATIONS__PORT",
        "ROOM_INGEST__HOST",
        "ROOM_INGEST__PORT",
        "ROOM_INGEST__REUSE_PORT",
        "ROOM_ADMIN__HOST",
        "ROOM_ADMIN__PORT",
        "ROOM_KAFKA__CA_FILE",
        "ROOM_LOG__FORMAT",
    }
)
"""Not among the values: ports and addresses are the pods', and logs are for machines."""

SECRETS: Final = {
    "ROOM_DATABASE__DSN": "databaseDsn",
    "ROOM_ENCRYPTION__KEYS": "encryptionKeys",
    "ROOM_TOKEN_KEYS": "tokenKeys",
    "ROOM_KAFKA__SASL_PASSWORD": "kafkaSaslPassword",
    "ROOM_LLM__API_KEY": "llmApiKey",
    "ROOM_REDIS__URL": "redisUrl",
    "ROOM_OVERFLOW__DSN": "overflowDsn",
    "ROOM_ADMIN__BOOTSTRAP_TOKEN": "adminBootstrapToken",
}
"""Secret variables and what they are called in ``secrets``. One that is missing here makes the chart's tests fail."""

# Further members of a group are idle: what they consume has no more partitions. A room-runner claims rooms from the
# database, whatever partition a tick came from, and the rest consumes nothing.
_BOUNDS: Final = {"matcher": WEBHOOKS_RAW, "scheduler": REPLIES_RAW, "outbound": OUTBOUND}
_GROUPS: Final = {"matcher": MATCHER_GROUP, "outbound": OUTBOUND_GROUP}


def camel(name: str) -> str:
    """``max_in_flight`` as ``maxInFlight``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def settable(service: str) -> Iterator[tuple[str, str, Variable]]:
    """The settings of a service that are values: section and field as the values call them. Secrets are apart."""
    for variable in variables(find_models()[service]):
        if variable.name in SET_BY_THE_CHART or variable.secret:
            continue
        *section, field = variable.path
        yield (camel(section[0]) if section else "", camel(field), variable)


def secrets_of(service: str) -> Iterator[tuple[str, Variable]]:
    """The secrets a service reads, by their name in the values."""
    for variable in variables(find_models()[service]):
        if variable.secret:
            yield SECRETS[variable.name], variable


def catalogue() -> dict[str, Any]:
    """The whole file."""
    components = {}
    for service in find_models():
        sections: dict[str, dict[str, str]] = {}
        for section, field, variable in settable(service):
            sections.setdefault(section or "root", {})[field] = variable.name
        component: dict[str, Any] = {
            "name": NAMES.get(service, service),
            "command": COMMANDS.get(service, f"room-{service}"),
            "settings": sections,
            "secrets": {name: variable.name for name, variable in secrets_of(service)},
            "requiredSecrets": [name for name, variable in secrets_of(service) if variable.field.is_required()],
            "requiredSettings": [
                f"{section}.{field}" if section else field
                for section, field, variable in settable(service)
                if variable.field.is_required()
            ],
        }
        if service in _BOUNDS:
            component["mostReplicas"] = topic(_BOUNDS[service]).partitions
        if service in _GROUPS:
            component["topic"] = _BOUNDS[service]
            component["group"] = _GROUPS[service]
        components[service] = component
    return {"schema": latest().label, "components": components}
