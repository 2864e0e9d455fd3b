"""The document of what is stored: applying it changes nothing, and it holds no secret."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings

from room_admin.apply import channel_config_of
from room_admin.domain.difference import (
    CurrentChannel,
    CurrentDefinition,
    CurrentRoom,
    CurrentSource,
    CurrentTool,
    changed,
    difference,
)
from room_admin.domain.export import document_of
from room_admin.domain.stored_secrets import NotStored, Secrets, complete
from room_admin.tool_rows import tool_configs_of
from room_common.contracts.room_document import RoomDocument
from room_common.errors import Refused
from room_testing.room_documents import room_documents

ID = UUID(int=1)
CHANNEL_VALUES = {
    "account_sid": "AC" + "0" * 32,
    "auth_token": "hunter2",
    "bot_token": "1:" + "hunter2-hunter2",
    "secret": "whsec_aHVudGVyMg==",
    "secret_token": "hunter2",
    "signing_secret": "hunter2",
}


def _given(document: RoomDocument) -> Secrets:
    """Values for all references that are not to stored ones."""
    channel = document.channel.secrets if document.channel is not None else {}
    return Secrets(
        {
            source.name: tuple(f"hunter2-{number}" for number, one in enumerate(source.secrets) if one.stored is None)
            for source in document.sources
        },
        {name: CHANNEL_VALUES[name] for name, one in channel.items() if one.stored is None},
        {tool.name: "hunter2" for tool in document.tools if tool.secret is not None and tool.secret.stored is None},
    )


def _stored(document: RoomDocument, secrets: Secrets) -> CurrentRoom:
    """What applying a document leaves behind."""
    config, tools = channel_config_of(document, secrets.channel), tool_configs_of(document, secrets.tools)
    channel = document.channel
    return CurrentRoom(
        ID,
        document.name,
        document.mandate,
        document.timezone,
        document.enabled,
        None if channel is None else CurrentChannel(channel.type, channel.target, channel.delivery, config),
        {
            source.name: CurrentSource(
                ID,
                source.type,
                source.enabled,
                tuple(secrets.sources.get(source.name, ())),
                {
                    one.name: CurrentDefinition(
                        ID, one.priority, one.match, one.interpret, one.cooldown_seconds, one.enabled
                    )
                    for one in source.definitions
                },
                source.verify,
                source.split,
                source.dedup_seconds,
            )
            for source in document.sources
        },
        {
            tool.name: CurrentTool(ID, tool.type, tool.enabled, tools.get(tool.name), tool.allowed, tool.guarded)
            for tool in document.tools
        },
    )


@settings(deadline=None)
@given(room_documents())
def test_an_export_changes_nothing_and_holds_no_secret(document: RoomDocument) -> None:
    current = _stored(document, _given(document))
    exported = document_of(document.slug, current)
    assert "hunter2" not in exported.model_dump_json()
    secrets = complete(exported, _given(exported), current)
    changes = difference(
        exported,
        secrets.sources,
        current,
        channel_config_of(exported, secrets.channel),
        tool_configs_of(exported, secrets.tools),
    )
    assert not changed(changes), [change for change in changes if change.action != "unchanged"]
    assert document_of(document.slug, _stored(exported, secrets)) == exported


def _document(**changes: object) -> RoomDocument:
    values: dict[str, object] = {
        "version": 1,
        "name": "Desk",
        "slug": "desk",
        "channel": {
            "type": "telegram",
            "target": "123",
            "secrets": {name: {"env": "A"} for name in ("bot_token", "secret_token")},
        },
        "sources": [{"name": "ci", "type": "github", "secrets": [{"env": "A"}, {"env": "B"}]}],
        "tools": [{"name": "files", "type": "mcp", "url": "https://a.example.com", "secret": {"env": "A"}}],
    }
    return RoomDocument.model_validate(values | changes)


def test_a_stored_secret_stays_beside_new_ones() -> None:
    current = _stored(_document(), _given(_document()))
    rotated = _document(sources=[{"name": "ci", "type": "github", "secrets": [{"env": "NEW"}, {"stored": 2}]}])
    given = replace(_given(rotated), sources={"ci": ["new"]})
    assert complete(rotated, given, current).sources == {"ci": ("new", "hunter2-1")}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"sources": [{"name": "ci", "type": "github", "secrets": [{"stored": 3}]}]}, ("sources", 0, "secrets", 0)),
        ({"sources": [{"name": "cd", "type": "github", "secrets": [{"stored": 1}]}]}, ("sources", 0, "secrets", 0)),
        (
            {"channel": {"type": "webhook", "target": "https://a.example.com", "secrets": {"secret": {"stored": 1}}}},
            ("channel", "secrets", "secret"),
        ),
        (
            # the credential would go to another server, where anybody can read it
            {"tools": [{"name": "files", "type": "mcp", "url": "https://b.example.com", "secret": {"stored": 1}}]},
            ("tools", 0, "secret"),
        ),
    ],
)
def test_what_is_not_stored_is_refused_with_its_place(changes: dict[str, object], place: tuple[str | int, ...]) -> None:
    document = _document(**changes)
    with pytest.raises(NotStored) as caught:
        complete(document, _given(document), _stored(_document(), _given(_document())))
    assert caught.value.place == place
    with pytest.raises(NotStored):
        complete(document, _given(document), None)


def test_what_cannot_be_decrypted_is_not_exported() -> None:
    current = _stored(_document(), _given(_document()))
    assert current.channel is not None
    for broken, name in (
        (replace(current, channel=replace(current.channel, config=None)), "channel telegram"),
        (replace(current, sources={"ci": replace(current.sources["ci"], secrets=None)}), "source ci"),
        (replace(current, tools={"files": replace(current.tools["files"], config=None)}), "tool files"),
    ):
        with pytest.raises(Refused, match=name):
            document_of("desk", broken)
    with pytest.raises(Refused, match="timezone"):
        document_of("desk", replace(current, timezone="Mars/Olympus"))
