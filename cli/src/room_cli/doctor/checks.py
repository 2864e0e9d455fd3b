"""Looking at everything that Room needs: each check is bounded in time and never raises for what it looks at."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, TypeVar

import httpx
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, Field
from redis.asyncio import Redis
from redis.exceptions import RedisError

from room_cli.doctor import findings
from room_cli.doctor.findings import Finding
from room_common.advice import place_of, remedy
from room_common.cache.settings import RedisSettings
from room_common.contracts.topics import TOPICS
from room_common.crypto import Keyring
from room_common.domain.tokens import parse_token_keys
from room_common.errors import ConfigurationError, DependencyUnavailable
from room_common.kafka import admin
from room_common.kafka.settings import KafkaSettings
from room_common.llm.openai_adapter import OpenAiLlm
from room_common.llm.port import TIERS, ChatRequest, EventRejected, Tier
from room_common.llm.settings import LlmSettings
from room_common.postgres import deliveries, migrate, overflow, sealed, service_state
from room_common.postgres.database import Connection, Database
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import EncryptionSettings, PublicUrl, Section, TokenKeys, parse_settings
from room_common.telemetry.metrics import room_version

_REDIS_SECONDS: Final = 5.0
_LLM_SECONDS: Final = 30.0
_MICROSECONDS: Final = 1_000_000
_TINY: Final = 16
_CREDIBLE: Final = 64
"""Bytes of a token made up for asking ingest."""

SettingsT = TypeVar("SettingsT", bound=BaseModel)


class _Kafka(Section):
    kafka: KafkaSettings


class _Database(Section):
    database: DatabaseSettings


class _Redis(Section):
    redis: RedisSettings = Field(default_factory=RedisSettings)


class _Llm(Section):
    llm: LlmSettings = Field(default_factory=LlmSettings)


class _Encryption(Section):
    encryption: EncryptionSettings


class _Tokens(Section):
    token_keys: TokenKeys


class _Public(Section):
    public_url: PublicUrl


class Unset(Exception):
    """Nothing of a section is in the environment: it is not looked at from here."""


def read(model: type[SettingsT], environ: Mapping[str, str], prefix: str) -> SettingsT:
    """Settings. Raises :class:`Unset`, and ``ConfigurationError`` for what is there and wrong."""
    if not any(name.startswith(prefix) and value for name, value in environ.items()):
        raise Unset(prefix)
    return parse_settings(model, environ)


class Doctor:
    """``environ`` has the settings that the services have; ``wall`` is this machine's clock, in Unix seconds."""

    def __init__(
        self, environ: Mapping[str, str], *, ask_model: bool = True, wall: Callable[[], float] = time.time
    ) -> None:
        self._environ = environ
        self._ask_model = ask_model
        self._wall = wall

    async def examine(self) -> list[Finding]:
        """Everything, in the order of the path of a webhook."""
        parts = await asyncio.gather(
            *(
                self._part(name, check)
                for name, check in (
                    ("ingest", self._ingest),
                    ("kafka", self._kafka),
                    ("postgresql", self._postgresql),
                    ("redis", self._redis),
                    ("model", self._model),
                )
            )
        )
        return [finding for part in parts for finding in part]

    async def _part(self, name: str, check: Callable[[], AsyncIterator[Finding]]) -> list[Finding]:
        found: list[Finding] = []
        try:
            async for finding in check():
                found.append(finding)  # noqa: PERF401 - what was found before an error counts
        except Unset as error:
            said = f"not looked at: no {error}* is set here"
            found.append(Finding(name, "skipped", said, "run this where the services' settings are"))
        except ConfigurationError as error:
            found.append(Finding(name, "problem", str(error), "docs/configuration.md lists every setting"))
        except DependencyUnavailable as error:
            found.append(findings.unavailable(name, error))
        return found

    async def _ingest(self) -> AsyncIterator[Finding]:
        url = read(_Public, self._environ, "ROOM_PUBLIC_URL").public_url
        token = os.urandom(_CREDIBLE // 2).hex()
        try:
            async with httpx.AsyncClient(timeout=_REDIS_SECONDS, trust_env=False) as client:
                answer = await client.get(f"{url}/webhooks/{token}")
        except httpx.HTTPError as error:
            said = f"nothing answers at ROOM_PUBLIC_URL ({type(error).__name__})"
            yield Finding("ingest", "problem", said, "start ingest; look at what routes that address to it")
            return
        if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            said = f"ROOM_PUBLIC_URL answers {answer.status_code}"
            yield Finding("ingest", "problem", said, "look at ingest's log and /readyz, and at the proxy before it")
        else:
            yield Finding("ingest", "ok", "ROOM_PUBLIC_URL answers")

    async def _kafka(self) -> AsyncIterator[Finding]:
        settings = read(_Kafka, self._environ, "ROOM_KAFKA__").kafka
        states = await admin.describe_topics(settings)
        yield Finding("kafka", "ok", f"answers at {settings.bootstrap_servers}")
        present = [topic.name for topic in TOPICS if topic.name in states]
        configs = await admin.describe_configs(settings, present) if present else {}
        for finding in findings.topics(
            states,
            configs,
            replication_factor=settings.replication_factor,
            min_insync_replicas=settings.min_insync_replicas,
        ):
            yield finding

    async def _postgresql(self) -> AsyncIterator[Finding]:
        settings = read(_Database, self._environ, "ROOM_DATABASE__").database
        database = Database(settings, application_name="room-doctor")
        try:
            await database.start()
            async with database.transaction() as conn:
                yield Finding("postgresql", "ok", f"answers, version {conn.info.server_version // 10_000}")
                before = self._wall()
                now = await deliveries.receipt_time(conn) / _MICROSECONDS
                yield findings.clock((before + self._wall()) / 2 - now)
                version = await migrate.current(conn)
                missing = [step.label for step in migrate.migrations() if step.version > version]
                if missing:
                    said = f"the schema lacks {', '.join(missing)}"
                    yield Finding("schema", "problem", said, "`room migrate` brings it up to date")
                    return
                yield Finding("schema", "ok", f"is at {migrate.latest().label}")
                async for finding in self._stored(conn):
                    yield finding
        finally:
            await database.stop()

    async def _stored(self, conn: Connection) -> AsyncIterator[Finding]:
        for finding in await self._part("encryption keys", lambda: self._keys(conn)):
            yield finding
        for finding in findings.services(await service_state.list_states(conn), room_version()):
            yield finding
        total = await overflow.total_of(conn)
        yield findings.overflow(total.rows, total.oldest_seconds)

    async def _keys(self, conn: Connection) -> AsyncIterator[Finding]:
        keys = read(_Encryption, self._environ, "ROOM_ENCRYPTION__").encryption.keys
        token_keys = None
        try:
            text = read(_Tokens, self._environ, "ROOM_TOKEN_KEYS").token_keys.get_secret_value()
            token_keys = parse_token_keys(text)
        except Unset:
            yield Finding("token keys", "skipped", "not looked at: no ROOM_TOKEN_KEYS is set here")
        for finding in findings.sealed(await sealed.samples(conn), Keyring.parse(keys.get_secret_value()), token_keys):
            yield finding

    async def _redis(self) -> AsyncIterator[Finding]:
        url = read(_Redis, self._environ, "ROOM_REDIS__").redis.url
        if url is None:
            raise Unset("ROOM_REDIS__")
        client = Redis.from_url(
            url.get_secret_value(), socket_connect_timeout=_REDIS_SECONDS, socket_timeout=_REDIS_SECONDS
        )
        try:
            async with asyncio.timeout(2 * _REDIS_SECONDS):
                await client.ping()
            yield Finding("redis", "ok", "answers")
        except (RedisError, OSError, TimeoutError) as error:
            said = f"does not answer ({type(error).__name__}): the same question is paid for again"
            yield Finding("redis", "warning", said, "look at ROOM_REDIS__URL; Room works without it")
        finally:
            await client.aclose()

    async def _model(self) -> AsyncIterator[Finding]:
        settings = read(_Llm, self._environ, "ROOM_LLM__").llm
        if not settings.named:
            raise Unset("ROOM_LLM__BASE_URL or ROOM_LLM__API_KEY")
        if not self._ask_model:
            yield Finding("model", "skipped", "not asked: --no-model")
            return
        llm = OpenAiLlm(settings.model_copy(update={"max_retries": 0}), CollectorRegistry())
        try:
            for finding in await asyncio.gather(*(self._tier(llm, settings, tier) for tier in TIERS)):
                yield finding
        finally:
            await llm.stop()

    async def _tier(self, llm: OpenAiLlm, settings: LlmSettings, tier: Tier) -> Finding:
        check = f"model {tier}"
        request = ChatRequest(
            tier,
            [{"role": "user", "content": "Answer with the one word: yes"}],
            max_output_tokens=_TINY,
            timeout=min(_LLM_SECONDS, settings.timeout(tier)),
        )
        try:
            await llm.complete(request)
        except DependencyUnavailable as error:
            return Finding(check, "problem", place_of(error), remedy(error))
        except EventRejected as error:
            if error.kind not in ("truncated", "refused", "content_filter"):  # those come from a model that works
                variable = f"ROOM_LLM__{tier.upper()}_MODEL"
                return Finding(check, "problem", f"{settings.model(tier)}: {error}", f"look at {variable}")
        return Finding(check, "ok", f"{settings.model(tier)} answers")
