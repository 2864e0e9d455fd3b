"""The whole of Room on one machine: parts, topics, schema and services under one supervisor."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, NoReturn

from room_common.errors import ConfigurationError
from room_local.child import ServiceChild
from room_local.environment import (
    Addresses,
    override,
    service_settings,
    shared_settings,
    shell_file,
    uses_real_model,
    without_rehearsal,
)
from room_local.events import Event, Kind, Listener
from room_local.files import StackFiles, write_private
from room_local.options import StackOptions
from room_local.parts.addresses import HOST, free_port, is_free
from room_local.parts.kafka_apache import ApacheKafka
from room_local.parts.kafka_jars import fetch_jars
from room_local.parts.kafka_tansu import TansuBroker
from room_local.parts.postgres import Postgres
from room_local.parts.processes import PartFailed
from room_local.parts.redis import Redis
from room_local.parts.server import Server
from room_local.preparation import OVERFLOW_USER, create_topics, migrate_schema
from room_local.services import SERVICES, ServiceSpec
from room_local.state import Phase, ProcessRecord, StackRecord, load, reap, save, start_of
from room_local.supervisor import Supervisor, Watched

_DATABASE = "room"
_STEP_SECONDS = 0.1
_WRONG_SETTING = 2

_EMBEDDED_LIMITS = (
    "the embedded broker keeps its records in memory: a restart forgets what was not worked on",
    "`room up --kafka apache` keeps them on disk; everything else under .room survives",
)


class Stack:
    """Starts with :meth:`up`, runs until :meth:`down`, which leaves nothing running.

    One stack per folder: a second one is refused. ``services`` and ``environment`` are there for tests.
    """

    def __init__(
        self,
        directory: Path,
        options: StackOptions | None = None,
        listener: Listener = lambda event: None,
        *,
        services: Sequence[ServiceSpec] | None = None,
        environment: Mapping[str, str] = os.environ,
        prepare: Callable[[Addresses], None] | None = None,
    ) -> None:
        self.files = StackFiles(directory)
        self.options = options or StackOptions()
        self._listener = listener
        self._environment = without_rehearsal(environment)
        self._real_model = uses_real_model(self._environment)
        chosen = SERVICES if services is None else services
        self._services = [one for one in chosen if not (one.only_in_rehearsal and self._real_model)]
        self._prepare = prepare or self._prepare_for_services
        self._supervisor = Supervisor(listener, self._save)
        self._phase: Phase = "starting"
        self._reason: str | None = None
        self._lock: IO[str] | None = None
        self._addresses: Addresses | None = None

    @property
    def addresses(self) -> Addresses:
        """Where everything listens. Known once :meth:`up` has begun."""
        if self._addresses is None:
            raise ConfigurationError("the stack has not been started")
        return self._addresses

    def up(self) -> None:
        """Start everything and return when all of it is ready.

        Raises :class:`ConfigurationError` when a stack runs here already, :class:`PartFailed` when something does not
        start, with the end of its log; whatever was started then is stopped again.
        """
        self.files.prepare()
        self._take_lock()
        try:
            self._clean_up_after_crash()
            kafka = self._start_parts()
            self._prepare(self.addresses)
            self._start_services()
            self._phase = "running"
            self._save()
            self._tell_limits(kafka)
            self._supervisor.watch()
        except KeyboardInterrupt:
            self._end("stopped")
            raise
        except BaseException as error:
            self._reason = str(error) or type(error).__name__
            self._end("failed")
            raise

    def wait(self) -> NoReturn:
        """Block until a signal's handler raises, as Ctrl-C does."""
        while True:
            time.sleep(_STEP_SECONDS)

    def down(self) -> None:
        """Stop everything, in bounded time; harmless when nothing runs."""
        if self._lock is not None:
            self._end("stopped")

    def _end(self, phase: Phase) -> None:
        if self._addresses is not None:
            self._phase = "stopping"
            self._tell("stopping", "stack", "stopping")
            self._supervisor.stop()
            self._phase = phase
            self._save()
        self.files.environment.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self._tell("stopped", "stack", "nothing is left running")

    def _take_lock(self) -> None:
        lock = self.files.lock.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            folder = self.files.directory.absolute()
            raise ConfigurationError(
                f"a stack already runs in {folder}: see it with `room status`, stop it with `room down`"
            ) from None
        self._lock = lock

    def _clean_up_after_crash(self) -> None:
        before = load(self.files)
        left = reap(before) if before is not None else []
        if left:
            self._tell("note", "stack", f"stopped what an earlier stack left running: {', '.join(left)}")

    def _start_parts(self) -> str:
        note = self._note("postgres")
        postgres = Postgres(self.files.data("postgres"), self.files.log("postgres"), note=note)
        redis = Redis(self.files.data("redis"), self.files.log("redis"))
        kafka, bootstrap = self._kafka()
        ports, operations = self._choose_ports()
        overflow = postgres.dsn(_DATABASE, user=OVERFLOW_USER)
        self._addresses = Addresses(bootstrap, postgres.dsn(_DATABASE), overflow, redis.url, ports, operations)
        embedded = self.options.kafka == "embedded"
        parts = [
            Watched(postgres, "part"),
            Watched(redis, "part"),
            Watched(
                kafka,
                "part",
                after_restart=self._make_topics if embedded else None,
                memory_limit=self.options.broker_memory_limit if embedded else None,
            ),
        ]
        for part in parts:
            self._supervisor.add(part)
        self._wait_for(parts, max(part.server.start_timeout for part in parts))
        postgres.create_database(_DATABASE)
        return self.options.kafka

    def _kafka(self) -> tuple[Server, str]:
        if self.options.kafka == "embedded":
            broker = TansuBroker(self.files.data("tansu"), self.files.log("kafka"))
            return broker, broker.bootstrap
        fetch_jars(self._note("kafka"))
        cluster = ApacheKafka(self.files.data("kafka"), self.files.logs, note=self._note("kafka"))
        return cluster.members[0], cluster.bootstrap

    def _prepare_for_services(self, addresses: Addresses) -> None:
        self._tell("note", "postgres", "applying the schema")
        migrate_schema(addresses.database)
        self._make_topics()

    def _make_topics(self) -> None:
        create_topics(self.addresses.kafka)
        self._tell("note", "kafka", "topics are there")

    def _start_services(self) -> None:
        write_private(self.files.environment, shell_file(self.addresses, self.files, self.options))
        watched = []
        for spec in self._services:
            one = Watched(self._child(spec), spec.kind)
            watched.append(one)
            self._supervisor.add(one)
        self._wait_for(watched, self.options.ready_seconds)

    def _child(self, spec: ServiceSpec) -> ServiceChild:
        addresses = self.addresses
        settings = {
            **shared_settings(addresses, self.files, self.options),
            **service_settings(addresses, self.files, self.options),
        }
        if spec.section is not None:
            settings[f"ROOM_{spec.section}__HOST"] = HOST
            settings[f"ROOM_{spec.section}__PORT"] = str(addresses.ports[spec.name])
        if spec.operations:
            settings["ROOM_OPERATIONS__PORT"] = str(addresses.operations[spec.name])
        ready_port = addresses.operations[spec.name] if spec.operations else addresses.ports[spec.name]
        data = self.files.data(spec.name)
        if "{data}" in spec.arguments:
            data.mkdir(exist_ok=True, mode=0o700)
        return ServiceChild(
            spec,
            override(self._environment, settings),
            arguments=spec.command_line(addresses.ports.get(spec.name), str(data)),
            log=self.files.log(spec.name),
            cwd=self.files.directory.absolute(),
            ready_port=ready_port,
        )

    def _choose_ports(self) -> tuple[dict[str, int], dict[str, int]]:
        wishes = {"ingest": self.options.ingest_port, "admin": self.options.admin_port}
        operations_wishes = {"ingest": self.options.operations_port}
        taken: set[int] = set()
        ports = {one.name: self._port(one.name, wishes, taken) for one in self._services if one.listens}
        operations = {
            one.name: self._port(one.name, operations_wishes, taken) for one in self._services if one.operations
        }
        return ports, operations

    def _port(self, name: str, wishes: Mapping[str, int], taken: set[int]) -> int:
        wish = wishes.get(name)
        port = wish if wish and wish not in taken and is_free(wish) else free_port()
        while port in taken:
            port = free_port()
        if wish and port != wish:
            self._tell("warning", name, f"port {wish} is taken, using {port} instead: URLs differ from before")
        taken.add(port)
        return port

    def _wait_for(self, watched: Sequence[Watched], timeout: float) -> None:
        """Step the supervisor until all are ready. A part's death, a wrong setting or the time-out end it."""
        deadline = time.monotonic() + timeout
        while any(one.state != "ready" for one in watched):
            self._supervisor.step()
            for one in watched:
                fatal = one.kind == "part" or one.server.exit_code == _WRONG_SETTING
                if one.state == "restarting" and fatal:
                    raise PartFailed(f"{one.server.name} did not start; its log ends:\n{one.server.last_words()}")
            if time.monotonic() >= deadline:
                late = [one for one in watched if one.state != "ready"]
                ends = "\n".join(
                    f"--- {one.server.name} ({one.server.log})\n{one.server.last_words(8)}" for one in late
                )
                raise PartFailed(f"not ready within {timeout:.0f} s: {', '.join(o.server.name for o in late)}\n{ends}")
            time.sleep(_STEP_SECONDS)

    def _tell_limits(self, kafka: str) -> None:
        if kafka == "embedded":
            for line in _EMBEDDED_LIMITS:
                self._tell("note", "kafka", line)
        if not self._real_model:
            self._tell(
                "note",
                "rehearsal",
                "no language model is used: answers are scripted (set ROOM_LLM__API_KEY or ROOM_LLM__BASE_URL for one)",
            )

    def _save(self) -> None:
        record = StackRecord(
            phase=self._phase,
            supervisor_pid=os.getpid(),
            supervisor_started_at=start_of(os.getpid()) or 0.0,
            kafka=self.options.kafka,
            model="provider" if self._real_model else "rehearsal",
            token_file=str(self.files.token),
            broker_memory_limit=self.options.broker_memory_limit if self.options.kafka == "embedded" else None,
            reason=self._reason,
            processes=tuple(self._record(one) for one in self._supervisor.watched),
        )
        save(self.files, record)

    def _record(self, watched: Watched) -> ProcessRecord:
        server = watched.server
        record = ProcessRecord(
            name=server.name,
            kind=watched.kind,
            state=watched.state,
            pid=server.pid,
            started_at=start_of(server.pid),
            restarts=watched.restarts,
            log=str(server.log),
            stop_signal=int(server.stop_signal),
            stop_seconds=server.stop_timeout,
        )
        if isinstance(server, ServiceChild):
            port = self.addresses.ports.get(server.name)
            return replace(
                record,
                port=port,
                operations_port=self.addresses.operations.get(server.name),
                url=self.addresses.url(server.name) if port is not None else None,
                ready_port=server.ready_port,
                ready_path=server.ready_path,
            )
        urls = {
            "postgres": self.addresses.database,
            "redis": self.addresses.redis,
            "kafka": self.addresses.kafka,
        }
        port = int(self.addresses.kafka.rpartition(":")[2]) if server.name == "kafka" else None
        return replace(record, port=port, url=urls.get(server.name))

    def _note(self, subject: str) -> Callable[[str], None]:
        return lambda message: self._tell("note", subject, message)

    def _tell(self, kind: Kind, subject: str, message: str) -> None:
        self._listener(Event(kind, subject, message))
