"""What an operator can do about a dependency that is away: where it was looked for, and which setting to look at.

Pure. Nothing here repeats a secret: of an address only host, port and database name are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from room_common.errors import DependencyUnavailable

_DSN: Final = "ROOM_DATABASE__DSN"
_KINDS: Final[Mapping[tuple[str, str], str]] = {
    ("postgresql", "refused"): f"nothing listens there: is PostgreSQL up, and is {_DSN} right?",
    ("postgresql", "unknown_host"): f"the host's name is not known; look at {_DSN}",
    ("postgresql", "authentication"): f"user or password are refused; look at {_DSN}",
    ("postgresql", "no_such_database"): f"there is no such database: create it, or look at {_DSN}",
    ("postgresql", "privilege"): f"the user of {_DSN} lacks a right",
    ("postgresql", "tls"): f"no encrypted connection; look at sslmode and certificates in {_DSN}",
    ("postgresql", "read_only"): f"the server takes no writes: {_DSN} should name the primary",
    ("postgresql", "pool_timeout"): "no connection is free, or none can be made; see ROOM_DATABASE__POOL_MAX",
    ("kafka", "connect"): "no broker answers; look at ROOM_KAFKA__BOOTSTRAP_SERVERS",
    ("kafka", "timeout"): "no broker answers in time; look at ROOM_KAFKA__BOOTSTRAP_SERVERS",
    ("kafka", "authorization"): "the broker refuses us; look at ROOM_KAFKA__SASL_* and the ACLs",
    ("kafka", "unknown_topic"): "a topic is missing: `room topics` makes them",
    ("kafka", "replicas"): "too few replicas are in sync; look at the brokers",
    ("key", "unknown_key"): "a stored secret was encrypted with a key that is not in ROOM_ENCRYPTION__KEYS:"
    " put the old key back, behind the new one",
    ("llm", "connect"): "the model provider can't be reached; look at ROOM_LLM__BASE_URL",
    ("llm", "timeout"): "the model provider does not answer in time; see ROOM_LLM__FAST_TIMEOUT_SECONDS",
    ("llm", "unauthorized"): "the model provider refuses the key; look at ROOM_LLM__API_KEY",
    ("llm", "forbidden"): "the model provider refuses the key or the model; look at ROOM_LLM__API_KEY",
    ("llm", "not_found"): "the model provider has no such path: ROOM_LLM__BASE_URL ends in /v1 in most cases",
    ("llm", "model_missing"): "no such model; look at ROOM_LLM__FAST_MODEL and ROOM_LLM__STANDARD_MODEL",
    ("llm", "quota"): "the account of ROOM_LLM__API_KEY has no credit left",
    ("llm", "rate_limit"): "the model provider asks for a slower pace; see ROOM_LLM__CONCURRENCY",
    ("llm", "malformed"): "what answers is no chat completions API; look at ROOM_LLM__BASE_URL",
}
_DEPENDENCIES: Final[Mapping[str, str]] = {
    "postgresql": f"look at {_DSN}",
    "kafka": "look at ROOM_KAFKA__BOOTSTRAP_SERVERS",
    "redis": "look at ROOM_REDIS__URL",
    "llm": "look at ROOM_LLM__BASE_URL and ROOM_LLM__API_KEY",
}


def explain(error: DependencyUnavailable) -> str:
    """``postgresql: refused at db:5432, database room (nothing listens there: ...)``."""
    place, advice = place_of(error), remedy(error)
    return f"{place} ({advice})" if advice else place


def place_of(error: DependencyUnavailable) -> str:
    """What failed, and where it was looked for."""
    return f"{error} at {error.at}" if error.at else str(error)


def remedy(error: DependencyUnavailable) -> str | None:
    """What to do about it, where there is more to say than to wait."""
    return _KINDS.get((error.dependency, error.kind)) or _DEPENDENCIES.get(error.dependency)


def told(reason: str, why: str | None) -> str:
    """A reason's bounded name, with what is known of it."""
    return f"{reason} ({why})" if why else reason
