"""The difference between a document and what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from room_admin.domain.difference import (
    Change,
    CurrentChannel,
    CurrentDefinition,
    CurrentRoom,
    CurrentSource,
    changed,
    definition_name,
    difference,
    prompts_differ,
)
from room_common.contracts.room_document import RoomDocument

Secrets = Mapping[str, Sequence[str]]

NAMES = st.sampled_from(["a", "b", "c", "d / e", "f"])
# Long and unlike anything else in a document, so that finding one in an output means that it leaked.
SECRET = st.integers(0, 9).map(lambda number: f"s3cr3t-{number}-" + "x" * 12)


@st.composite
def definitions(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "match": draw(st.sampled_from(["one", "two"])),
            "interpret": draw(st.sampled_from(["", "do"])),
            "priority": draw(st.integers(0, 3)),
            "cooldown_seconds": draw(st.integers(0, 3)),
            "enabled": draw(st.booleans()),
        }
        for name in draw(st.lists(NAMES, unique=True, max_size=3))
    ]


@st.composite
def documents(draw: st.DrawFn) -> tuple[RoomDocument, Secrets]:
    secrets = {}
    sources = []
    for name in draw(st.lists(NAMES, unique=True, max_size=3)):
        values = draw(st.lists(SECRET, unique=True, max_size=3))
        if values:
            secrets[name] = values
        sources.append(
            {
                "name": name,
                "type": draw(st.sampled_from(["github", "stripe"])),
                "enabled": draw(st.booleans()),
                "split": draw(st.none() | st.booleans()),
                "dedup_seconds": draw(st.none() | st.integers(0, 2)),
                "secrets": [{"env": f"SECRET_{number}"} for number in range(len(values))],
                "definitions": draw(definitions()),
            }
        )
    channel = draw(st.none() | st.sampled_from(["you", "me"]).map(lambda target: {"type": "local", "target": target}))
    document = {
        "version": 1,
        "name": draw(st.sampled_from(["Desk", "Room"])),
        "slug": "desk",
        "mandate": draw(st.sampled_from(["", "watch"])),
        "timezone": draw(st.sampled_from(["UTC", "Europe/Rome"])),
        "enabled": draw(st.booleans()),
        "channel": channel,
        "sources": sources,
    }
    return RoomDocument.model_validate(document), secrets


def stored(document: RoomDocument, secrets: Secrets) -> CurrentRoom:
    """The state that carrying out the document makes."""
    return CurrentRoom(
        instance_id=uuid4(),
        name=document.name,
        mandate=document.mandate,
        timezone=document.timezone,
        enabled=document.enabled,
        channel=None
        if document.channel is None
        else CurrentChannel(document.channel.type, document.channel.target, document.channel.delivery),
        sources={
            source.name: CurrentSource(
                id=uuid4(),
                type=source.type,
                enabled=source.enabled,
                secrets=tuple(secrets.get(source.name, ())),
                verify=source.verify,
                split=source.split,
                dedup_seconds=source.dedup_seconds,
                definitions={
                    one.name: CurrentDefinition(
                        uuid4(), one.priority, one.match, one.interpret, one.cooldown_seconds, one.enabled
                    )
                    for one in source.definitions
                },
            )
            for source in document.sources
        },
    )


def things(document: RoomDocument) -> set[tuple[str, str]]:
    names = {("room", document.slug)}
    if document.channel is not None:
        names.add(("channel", document.channel.type))
    for source in document.sources:
        names.add(("source", source.name))
        names |= {("definition", definition_name(source.name, one.name)) for one in source.definitions}
    return names


@given(documents())
def test_what_was_carried_out_leaves_nothing_to_do(case: tuple[RoomDocument, Secrets]) -> None:
    document, secrets = case
    changes = difference(document, secrets, stored(document, secrets))
    assert not changed(changes)
    assert {(change.kind, change.name) for change in changes} == things(document)
    assert all(change.action == "unchanged" and not change.fields for change in changes)


@given(documents())
def test_everything_of_a_new_room_is_created(case: tuple[RoomDocument, Secrets]) -> None:
    document, secrets = case
    changes = difference(document, secrets, None)
    assert {change.action for change in changes} == {"create"}
    assert {(change.kind, change.name) for change in changes} == things(document)
    assert all(field.before is None for change in changes for field in change.fields)


@given(documents(), documents())
def test_every_thing_is_named_once_with_what_happens_to_it(
    before: tuple[RoomDocument, Secrets], after: tuple[RoomDocument, Secrets]
) -> None:
    changes = difference(*after, stored(*before))
    assert not [key for key, count in Counter((change.kind, change.name) for change in changes).items() if count > 1]
    had, wants = things(before[0]), things(after[0])
    by_action: dict[str, set[tuple[str, str]]] = {"create": set(), "update": set(), "delete": set(), "unchanged": set()}
    for change in changes:
        by_action[change.action].add((change.kind, change.name))
    assert by_action["create"] == wants - had
    assert by_action["delete"] == had - wants
    assert by_action["update"] | by_action["unchanged"] == had & wants
    for change in changes:
        assert (change.action == "update") <= bool(change.fields)
        assert all(field.before != field.after for field in change.fields)


@given(documents(), documents())
def test_no_secret_is_ever_in_an_output(
    before: tuple[RoomDocument, Secrets], after: tuple[RoomDocument, Secrets]
) -> None:
    current = stored(*before)
    changes = difference(*after, current)
    assert "s3cr3t" not in repr(changes)
    assert "s3cr3t" not in repr([asdict(change) for change in changes])
    assert "s3cr3t" not in repr(current)


def _one(secrets: Sequence[str], before: tuple[str, ...] | None) -> Change:
    source = {"name": "s", "type": "github", "secrets": [{"env": "X"}] * len(secrets)}
    document = RoomDocument.model_validate({"version": 1, "name": "n", "slug": "n", "sources": [source]})
    room = stored(document, {"s": secrets})
    room = replace(room, sources={"s": replace(room.sources["s"], secrets=before)})
    return next(change for change in difference(document, {"s": secrets}, room) if change.kind == "source")


def test_a_changed_secret_is_counted() -> None:
    [field] = _one(["new", "old"], ("old",)).fields
    assert (field.field, field.before, field.after) == ("secrets", "1 secret", "2 secrets (changed)")


def test_a_replaced_secret_of_the_same_number_is_a_change() -> None:
    assert _one(["new"], ("old",)).action == "update"


def test_secrets_that_cannot_be_read_are_a_change_even_to_none() -> None:
    for wanted in (["new"], []):
        change = _one(wanted, None)
        assert change.action == "update"
        assert change.fields[0].before == "unreadable"


def test_only_another_prompt_makes_a_new_version() -> None:
    document = RoomDocument.model_validate(
        {
            "version": 1,
            "name": "n",
            "slug": "n",
            "sources": [{"name": "s", "type": "github", "definitions": [{"name": "d", "match": "m"}]}],
        }
    )
    after = document.sources[0].definitions[0]
    same = CurrentDefinition(UUID(int=1), 5, "m", "", 9, False)
    assert not prompts_differ(same, after)
    assert prompts_differ(replace(same, match="other"), after)
    assert prompts_differ(replace(same, interpret="other"), after)
