"""Room documents for property tests: every part that a document can have, with the values that are easily mangled."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from room_common.contracts.channel_config import CHANNEL_SECRETS, ChannelType
from room_common.contracts.room_document import RoomDocument
from room_common.contracts.source_config import SOURCE_TYPES

# What YAML could take for something else, and what a line, a quote or a comment could break.
_TRICKY = st.sampled_from(
    ["yes", "null", "~", "1.0", "0x1f", "# no comment", "a: b", "- item", "'", '"', "{{payload.a}}", "*x", "&x", "!x"]
)
_WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
_NAMES = (_TRICKY | _WORDS).filter(lambda text: bool(text.strip()))
_PROSE = st.lists(_TRICKY | _WORDS | st.just(""), max_size=4).map("\n".join) | st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), max_size=40
)
_REFERENCES = st.sampled_from([{"env": "A_SECRET"}, {"env": "ANOTHER"}, {"file": "a file.txt"}])
_TARGETS: dict[ChannelType, str] = {
    "local": "you",
    "slack": "C0123456789",
    "telegram": "123456",
    "whatsapp": "+14155238886",
    "webhook": "https://example.com/hook",
}
_VERIFY = st.sampled_from(
    [
        {"hmac": {"header": "x-signature", "encoding": "base64", "prefix": "v1="}},
        {"auth_key": {"header": "x-api-key"}},
        {"auth_key": {}},
    ]
)


@st.composite
def _definitions(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "name": draw(_NAMES),
        "priority": draw(st.integers(0, 1000)),
        "match": draw(_PROSE.filter(lambda text: bool(text.strip()))),
        "interpret": draw(_PROSE),
        "cooldown_seconds": draw(st.integers(0, 100)),
        "enabled": draw(st.booleans()),
    }


def _named(values: st.SearchStrategy[dict[str, Any]], most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(values, max_size=most, unique_by=lambda value: value["name"].strip())


@st.composite
def _sources(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(SOURCE_TYPES))
    secrets = draw(st.lists(_REFERENCES, max_size=2))
    return {
        "name": draw(_NAMES),
        "type": kind,
        "enabled": draw(st.booleans()),
        "secrets": secrets,
        "verify": draw(_VERIFY) if kind == "generic" and secrets else None,
        "split": draw(st.sampled_from([None, True, False])),
        "dedup_seconds": draw(st.sampled_from([None, 0, 600])),
        "definitions": draw(_named(_definitions(), 2)),
    }


@st.composite
def _channels(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(_TARGETS)))
    return {
        "type": kind,
        "target": _TARGETS[kind],
        "delivery": draw(st.sampled_from(["at_least_once", "at_most_once"])),
        "sender": "+14155238887" if kind == "whatsapp" else None,
        "allow": draw(st.sampled_from([(), ("someone",)])) if kind != "webhook" else (),
        "secrets": {name: {"env": name.upper()} for name in CHANNEL_SECRETS[kind]},
    }


@st.composite
def _tools(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(["files", "search", "weather", "x2-y"]))
    if draw(st.booleans()):
        return {"name": name, "type": "python", "verified_only": draw(st.booleans())}
    allow = draw(st.lists(st.sampled_from(["read", "Write", "list_all"]), unique=True))
    return {
        "name": name,
        "type": "mcp",
        "enabled": draw(st.booleans()),
        "url": "https://tools.example.com/mcp",
        "allow": allow,
        "verified_only": draw(st.sampled_from([False, True, allow[:1]])),
        "secret": draw(st.none() | _REFERENCES),
        "header": draw(st.sampled_from(["authorization", "x-key"])),
        "prefix": draw(st.sampled_from(["Bearer ", "", "Token "])),
    }


@st.composite
def room_documents(draw: st.DrawFn) -> RoomDocument:
    """Any room document."""
    return RoomDocument.model_validate(
        {
            "version": 1,
            "name": draw(_NAMES),
            "slug": draw(st.sampled_from(["desk", "a", "0", "on-call"])),
            "mandate": draw(_PROSE),
            "timezone": draw(st.sampled_from(["UTC", "Europe/Rome"])),
            "enabled": draw(st.booleans()),
            "channel": draw(st.none() | _channels()),
            "sources": draw(_named(_sources(), 3)),
            "tools": draw(_named(_tools(), 3)),
        }
    )
