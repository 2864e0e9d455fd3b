"""Making an instance match its room document, in one transaction."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from room_admin import preconditions
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
from room_admin.domain.export import document_of
from room_admin.domain.stored_secrets import Secrets, complete
from room_admin.problems import Problem
from room_admin.tool_rows import read_tools, tool_configs_of, write_tools
from room_common.contracts import channel_config as channel_configs
from room_common.contracts import source_config
from room_common.contracts.channel_config import (
    REPLYING,
    ChannelConfig,
    encode_channel_config,
    make_channel_config,
    read_channel_config,
)
from room_common.contracts.room_document import DefinitionDocument, RoomDocument, SourceDocument
from room_common.contracts.source_config import SourceConfig, Verify, read_config
from room_common.crypto import Keyring, UnknownKey
from room_common.domain.tokens import RANDOM_BYTES, TokenKeys, make_token, token_digest
from room_common.errors import Refused
from room_common.identity import new_id
from room_common.postgres import access, configuration
from room_common.postgres.access import Caller
from room_common.postgres.database import Connection, Database


@dataclass(frozen=True, slots=True)
class NewUrl:
    """A URL that was made just now. It is shown this once; later it takes a reveal, which is audited."""

    kind: str
    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What ``apply`` did, or would do."""

    instance_id: UUID | None
    changes: tuple[Change, ...]
    urls: tuple[NewUrl, ...]


class Urls:
    """Makes and reveals the URLs of sources and channels."""

    def __init__(self, keyring: Keyring, token_keys: TokenKeys, public_url: str) -> None:
        self._keyring = keyring
        self._token_keys = token_keys
        self._public_url = public_url

    @property
    def public_url(self) -> str:
        """What senders post to."""
        return self._public_url

    async def make(
        self, conn: Connection, path: str, *, source_id: UUID | None = None, channel_id: UUID | None = None
    ) -> str:
        """A new token for a source or channel, as a URL below ``path``."""
        token = make_token(self._token_keys, os.urandom(RANDOM_BYTES))
        digest = token_digest(token)
        encrypted = self._keyring.encrypt(
            token.encode(),
            table=source_config.TOKEN_TABLE,
            column=source_config.TOKEN_COLUMN,
            row_id=digest.hex(),
        )
        await configuration.insert_token(conn, digest, encrypted, source_id=source_id, channel_id=channel_id)
        return f"{self._public_url}/{path}/{token}"

    def reveal(self, path: str, row: Mapping[str, Any]) -> str:
        """The URL of a stored token. Raises ``Refused`` when it can't be decrypted."""
        token = self._keyring.decrypt(
            bytes(row["token_encrypted"]),
            table=source_config.TOKEN_TABLE,
            column=source_config.TOKEN_COLUMN,
            row_id=bytes(row["token_sha256"]).hex(),
        )
        return f"{self._public_url}/{path}/{token.decode()}"


def channel_config_of(document: RoomDocument, secrets: Mapping[str, str]) -> ChannelConfig | None:
    """The config of a document's channel. Raises pydantic's ``ValidationError`` for a secret of the wrong form."""
    channel = document.channel
    if channel is None:
        return None
    return make_channel_config(channel.type, secrets, sender=channel.sender, allow=channel.allow)


class Applier:
    """Compares a document with what is stored, and changes what differs."""

    def __init__(self, database: Database, keyring: Keyring, urls: Urls) -> None:
        self._database = database
        self._keyring = keyring
        self._urls = urls

    async def apply(
        self,
        document: RoomDocument,
        given: Secrets,
        caller: Caller,
        *,
        dry_run: bool,
        if_match: str | None = None,
        new: bool = False,
    ) -> Applied:
        """Make the instance match. Applied twice, the second time changes nothing.

        Raises ``Refused('timezone')`` for a timezone that the database, which counts a budget's days, does not know,
        ``NotStored`` for a reference to a stored secret that is not there, what :func:`channel_config_of` raises, and
        ``Problem`` 412 where ``if_match`` names another version, or the room is there and should be ``new``.
        """
        async with self._database.transaction() as conn:
            if not await configuration.knows_timezone(conn, document.timezone):
                raise Refused("timezone", "PostgreSQL does not know this timezone; write one like Europe/Rome")
            await configuration.lock_slug(conn, document.slug)
            current = await self._read(conn, document.slug)
            await self._check(conn, current, if_match, new)
            secrets = complete(document, given, current)
            channel_config = channel_config_of(document, secrets.channel)
            tool_configs = tool_configs_of(document, secrets.tools)
            changes = difference(document, secrets.sources, current, channel_config, tool_configs)
            if dry_run or not changed(changes):
                return Applied(current.instance_id if current else None, changes, ())
            touched = frozenset((change.kind, change.name) for change in changes if change.action != "unchanged")
            work = _Work(conn, self._keyring, self._urls, document, secrets.sources, current, touched, channel_config)
            instance_id = await work.carry_out()
            applied = Applied(instance_id, changes, tuple(work.new_urls))
            await write_tools(
                conn,
                self._keyring,
                instance_id,
                document,
                tool_configs,
                current.tools if current is not None else {},
                frozenset(name for kind, name in touched if kind == "tool"),
            )
            await access.audit(
                conn,
                caller.name,
                "apply",
                instance_id=applied.instance_id,
                subject=document.slug,
                detail={"changes": [f"{c.action} {c.kind} {c.name}" for c in changes if c.action != "unchanged"]},
            )
            return applied

    async def _check(self, conn: Connection, current: CurrentRoom | None, if_match: str | None, new: bool) -> None:
        """Raises ``Problem`` 412 where the room is not as the caller saw it."""
        if new and current is not None:
            raise Problem(412, "there is a room of this slug already")
        if if_match is not None and current is None:
            raise Problem(412, "there is no room that could match")
        if current is not None:
            await preconditions.check(conn, current.instance_id, if_match)

    async def export(self, slug: str) -> RoomDocument | None:
        """The document that makes an instance what it is, None where there is none. Raises ``Refused``."""
        async with self._database.transaction() as conn:
            current = await self._read(conn, slug)
        return None if current is None else document_of(slug, current)

    async def _read(self, conn: Connection, slug: str) -> CurrentRoom | None:
        row = await configuration.read_instance(conn, slug)
        if row is None:
            return None
        definitions: dict[UUID, dict[str, CurrentDefinition]] = {}
        for found in await configuration.read_definitions(conn, row["id"]):
            definitions.setdefault(found["event_source_id"], {})[found["name"]] = CurrentDefinition(
                id=found["id"],
                priority=found["priority"],
                match=found["matching_prompt"],
                interpret=found["interpretation_prompt"],
                cooldown_seconds=found["cooldown_seconds"],
                enabled=found["enabled"],
            )
        sources = {
            found["name"]: self._current_source(found, definitions.get(found["id"], {}))
            for found in await configuration.read_sources(conn, row["id"])
        }
        channel = None
        if row["channel_id"] is not None:
            kind = row["outbound_channel"]
            channel = CurrentChannel(kind, row["outbound_target"], row["delivery"], self._channel_config(kind, row))
        known = await read_tools(conn, self._keyring, row["id"])
        return CurrentRoom(
            row["id"], row["name"], row["mandate"], row["timezone"], row["enabled"], channel, sources, known
        )

    def _channel_config(self, kind: str, row: Mapping[str, Any]) -> ChannelConfig | None:
        try:
            if row["channel_config"] is None:
                return read_channel_config(kind, None)
            plain = self._keyring.decrypt(
                bytes(row["channel_config"]),
                table=channel_configs.CONFIG_TABLE,
                column=channel_configs.CONFIG_COLUMN,
                row_id=str(row["channel_id"]),
            )
            return read_channel_config(kind, plain)
        except (Refused, UnknownKey):  # sealed with a key that is gone counts as unreadable: applying it heals this
            return None

    def _current_source(self, row: Mapping[str, Any], definitions: Mapping[str, CurrentDefinition]) -> CurrentSource:
        config = self._config(row)
        known = config or SourceConfig()
        return CurrentSource(
            id=row["id"],
            type=row["source_type"],
            enabled=row["enabled"],
            secrets=None if config is None else config.secrets,
            definitions=definitions,
            verify=known.verify,
            split=known.split,
            dedup_seconds=known.dedup_seconds,
        )

    def verify_of(self, row: Mapping[str, Any]) -> Verify | None:
        """How the deliveries of a generic source are verified, as far as its config can be read."""
        config = self._config(row)
        return None if config is None else config.verify

    def _config(self, row: Mapping[str, Any]) -> SourceConfig | None:
        try:
            return open_config(self._keyring, row)
        except (Refused, UnknownKey):  # the document holds all of it, so that applying it heals this
            return None


def open_config(keyring: Keyring, row: Mapping[str, Any]) -> SourceConfig:
    """The config of a source's row. Raises ``Refused`` when it can't be decrypted or read, ``UnknownKey``."""
    if row["config"] is None:
        return SourceConfig()
    plain = keyring.decrypt(
        bytes(row["config"]),
        table=source_config.CONFIG_TABLE,
        column=source_config.CONFIG_COLUMN,
        row_id=str(row["id"]),
    )
    return read_config(plain)


class _Work:
    """Carrying out one document."""

    def __init__(
        self,
        conn: Connection,
        keyring: Keyring,
        urls: Urls,
        document: RoomDocument,
        secrets: Mapping[str, Sequence[str]],
        current: CurrentRoom | None,
        touched: frozenset[tuple[str, str]],
        channel_config: ChannelConfig | None,
    ) -> None:
        self._touched = touched
        self._channel_config = channel_config
        self._conn = conn
        self._keyring = keyring
        self._urls = urls
        self._document = document
        self._secrets = secrets
        self._current = current
        self.new_urls: list[NewUrl] = []

    async def carry_out(self) -> UUID:
        document, current = self._document, self._current
        if current is None:
            instance_id = new_id()
            await configuration.insert_instance(
                self._conn, instance_id, document.slug, document.name, document.timezone
            )
        else:
            instance_id = current.instance_id
        await configuration.update_instance(
            self._conn,
            instance_id,
            name=document.name,
            timezone=document.timezone,
            mandate=document.mandate,
            enabled=document.enabled,
        )
        await self._channel(instance_id)
        known = current.sources if current is not None else {}
        for source in document.sources:
            await self._source(instance_id, source, known.get(source.name))
        wanted = {source.name for source in document.sources}
        for name, before in known.items():
            if name not in wanted:
                await configuration.delete_source(self._conn, before.id)
        return instance_id

    async def _channel(self, instance_id: UUID) -> None:
        before = self._current.channel if self._current is not None else None
        after = self._document.channel
        if before is not None and (after is None or after.type != before.type):
            await configuration.disable_channel(self._conn, instance_id, before.type)
        if after is None:
            await configuration.set_outbound(self._conn, instance_id, None, None)
            return
        channel_id = await configuration.upsert_channel(self._conn, new_id(), instance_id, after.type, after.delivery)
        config = self._channel_config
        if config is not None and ("channel", after.type) in self._touched:
            sealed = self._keyring.encrypt(
                encode_channel_config(config),
                table=channel_configs.CONFIG_TABLE,
                column=channel_configs.CONFIG_COLUMN,
                row_id=str(channel_id),
            )
            await configuration.set_channel_config(self._conn, channel_id, sealed)
        await configuration.set_outbound(self._conn, instance_id, after.type, after.target)
        if after.type in REPLYING and not await configuration.has_valid_token(self._conn, channel_id=channel_id):
            url = await self._urls.make(self._conn, f"channels/{after.type}", channel_id=channel_id)
            self.new_urls.append(NewUrl("channel", after.type, url))

    async def _source(self, instance_id: UUID, source: SourceDocument, before: CurrentSource | None) -> None:
        if before is None:
            source_id = new_id()
            await configuration.insert_source(
                self._conn,
                source_id,
                instance_id,
                name=source.name,
                kind=source.type,
                enabled=source.enabled,
                config=self._config(source_id, source),
            )
            url = await self._urls.make(self._conn, "webhooks", source_id=source_id)
            self.new_urls.append(NewUrl("source", source.name, url))
        else:
            source_id = before.id
            if ("source", source.name) in self._touched:
                await configuration.update_source(
                    self._conn,
                    source_id,
                    kind=source.type,
                    enabled=source.enabled,
                    config=self._config(source_id, source),
                )
        known = before.definitions if before is not None else {}
        for definition in source.definitions:
            if ("definition", definition_name(source.name, definition.name)) in self._touched:
                await self._definition(source_id, definition, known.get(definition.name))
        wanted = {definition.name for definition in source.definitions}
        for name, old in known.items():
            if name not in wanted:
                await configuration.delete_definition(self._conn, old.id)

    async def _definition(
        self, source_id: UUID, definition: DefinitionDocument, before: CurrentDefinition | None
    ) -> None:
        fields: dict[str, Any] = {
            "priority": definition.priority,
            "match": definition.match,
            "interpret": definition.interpret,
            "cooldown_seconds": definition.cooldown_seconds,
            "enabled": definition.enabled,
        }
        if before is None:
            await configuration.insert_definition(self._conn, new_id(), source_id, name=definition.name, **fields)
        else:
            await configuration.update_definition(
                self._conn, before.id, new_version=prompts_differ(before, definition), **fields
            )

    def _config(self, source_id: UUID, source: SourceDocument) -> bytes | None:
        config = SourceConfig(
            secrets=tuple(self._secrets.get(source.name, ())),
            verify=source.verify,
            split=source.split,
            dedup_seconds=source.dedup_seconds,
        )
        if config == SourceConfig():
            return None
        return self._keyring.encrypt(
            config.encode(),
            table=source_config.CONFIG_TABLE,
            column=source_config.CONFIG_COLUMN,
            row_id=str(source_id),
        )
