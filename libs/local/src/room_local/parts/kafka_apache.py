"""Apache Kafka itself (KRaft, no ZooKeeper) as child processes: one broker, or three."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from room_common.errors import ConfigurationError
from room_local.parts.addresses import HOST, free_port, is_free
from room_local.parts.handshake import broker_count
from room_local.parts.kafka_jars import fetch_jars, java_program
from room_local.parts.processes import PartFailed, wait_until
from room_local.parts.server import Server

_STOP_TIMEOUT = 15.0
_LISTENERS = frozenset({"listeners", "advertised.listeners"})


@dataclass(frozen=True, slots=True)
class _Address:
    node: int
    port: int
    controller: int


class ApacheNode(Server):
    """One broker that is also a controller. Data and ports stay over restarts."""

    start_timeout = 90.0
    stop_timeout = _STOP_TIMEOUT

    def __init__(
        self,
        data: Path,
        log: Path,
        *,
        address: _Address,
        cluster: Sequence[_Address],
        heap_mb: int,
        extra: Mapping[str, str],
        format_options: Sequence[str],
    ) -> None:
        super().__init__(data, log)
        self._extra = extra
        self._format_options = format_options
        self.name = "kafka" if len(cluster) == 1 else f"kafka-{address.node}"
        self.port = address.port
        self._address = address
        self._cluster = cluster
        self._heap_mb = heap_mb

    def command(self) -> Sequence[str]:
        small = ["-XX:TieredStopAtLevel=1"] if len(self._cluster) > 1 else []
        options = [f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", *small]
        return _java("kafka.Kafka", str(self._configuration), options=options)

    def answers(self) -> bool:
        return broker_count(HOST, self.port) >= 1

    def prepare(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        self._configuration.write_text(_configuration(self._address, self._cluster, self.data / "log", self._extra))
        if not (self.data / "log" / "meta.properties").exists():
            self._format()

    @property
    def _configuration(self) -> Path:
        return self.data / "server.properties"

    def _format(self) -> None:
        # All nodes of a cluster need the same id: it is derived from their shared folder.
        cluster = uuid.uuid5(uuid.NAMESPACE_URL, str(self.data.parent)).bytes
        # A leading dash would read as an option of the tool.
        identity = base64.urlsafe_b64encode(cluster).decode().rstrip("=").replace("-", "_")
        command = _java(
            "kafka.tools.StorageTool", "format", "-t", identity, "-c", str(self._configuration), *self._format_options
        )
        try:
            subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=90)
        except subprocess.CalledProcessError as error:
            raise PartFailed(f"{self.name}: format failed\n{error.stdout.decode()[-2000:]}") from None
        except subprocess.TimeoutExpired:
            raise PartFailed(f"{self.name}: format took more than 90 s") from None


class ApacheKafka:
    """A cluster of one or three nodes; with three, replication is 3 and the minimum of replicas in sync is 2.

    ``extra`` are lines of every node's configuration; listeners are added to those it has, anything else replaces its
    own. ``format_options`` go to Kafka's storage tool when a node is made: users for SCRAM, for instance.
    """

    name = "kafka"
    durable = True

    def __init__(
        self,
        data: Path,
        logs: Path,
        *,
        nodes: int = 1,
        port: int | None = None,
        heap_mb: int | None = None,
        extra: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        note: Callable[[str], None] = lambda message: None,
    ) -> None:
        if nodes not in (1, 3):
            raise ConfigurationError("Apache Kafka runs here with 1 or 3 nodes")
        data = data.absolute()
        # The same ports again where they are free, since clients elsewhere may know them.
        cluster = _remembered(data) or []
        if cluster and len(cluster) != nodes:
            raise ConfigurationError(f"{data} holds a cluster of {len(cluster)} nodes, not of {nodes}")
        if not cluster or not all(is_free(one.port) and is_free(one.controller) for one in cluster):
            cluster = [
                _Address(node, port if node == 1 and port else free_port(), free_port()) for node in range(1, nodes + 1)
            ]
        _remember(data, cluster)
        self.nodes = nodes
        self._note = note
        heap = heap_mb or (512 if nodes == 1 else 384)
        self.members = [
            ApacheNode(
                data / f"node-{address.node}",
                logs / ("kafka.log" if nodes == 1 else f"kafka-{address.node}.log"),
                address=address,
                cluster=cluster,
                heap_mb=heap,
                extra=extra or {},
                format_options=format_options,
            )
            for address in cluster
        ]

    @property
    def bootstrap(self) -> str:
        """``host:port,...`` for clients."""
        return ",".join(f"{HOST}:{member.port}" for member in self.members)

    @property
    def log(self) -> Path:
        """The first node's log."""
        return self.members[0].log

    @property
    def pid(self) -> int | None:
        """The first node's process; None as soon as one node is gone."""
        pids = [member.pid for member in self.members]
        return None if None in pids else pids[0]

    @property
    def pids(self) -> list[int]:
        """All running processes."""
        return [member.pid for member in self.members if member.pid is not None]

    @property
    def memory(self) -> int | None:
        """Resident bytes of all nodes."""
        return sum(member.memory or 0 for member in self.members) or None

    def start(self) -> None:
        """Start all nodes, then wait until each knows all others. Raises :class:`PartFailed`."""
        fetch_jars(self._note)
        try:
            for member in self.members:
                member.launch()
            for member in self.members:
                member.wait_ready()
        except PartFailed:
            self.stop()
            raise

    def answers(self) -> bool:
        """Whether every node sees the whole cluster."""
        return all(broker_count(HOST, member.port) == self.nodes for member in self.members)

    def stop(self) -> None:
        """Stop all nodes at once: one after the other, the last would wait in vain for a quorum."""
        for member in self.members:
            member.terminate()
        wait_until(lambda: not self.pids, timeout=_STOP_TIMEOUT)
        for member in self.members:
            member.kill()

    def kill(self, node: int = 0) -> None:
        """``kill -9`` one node (counted from 0)."""
        self.members[node].kill()

    def pause(self, node: int = 0) -> None:
        """Freeze one node."""
        self.members[node].pause()

    def resume(self, node: int = 0) -> None:
        """Let a frozen node go on."""
        self.members[node].resume()

    def restart(self, node: int = 0) -> None:
        """Start one node again, stopping it first if it runs: same ports, same data."""
        self.members[node].restart()


def _java(main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    java = java_program()
    if java is None:
        raise ConfigurationError("Apache Kafka needs Java 17 or later: install a JRE or set JAVA_HOME")
    logging = [
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    ]
    return [java, *options, *logging, "-cp", f"{fetch_jars()}/*", main, *arguments]


def _configuration(address: _Address, cluster: Sequence[_Address], log: Path, extra: Mapping[str, str]) -> str:
    replicas = len(cluster)
    in_sync = 2 if replicas == 3 else 1
    voters = ",".join(f"{one.node}@{HOST}:{one.controller}" for one in cluster)
    lines: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": address.node,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{HOST}:{address.port},CONTROLLER://{HOST}:{address.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{address.port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": log,
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        # A killed broker may register again only when its old session is over.
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 500,
    }
    for name, value in extra.items():
        lines[name] = f"{lines[name]},{value}" if name in _LISTENERS else value
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _remember(data: Path, cluster: Sequence[_Address]) -> None:
    data.mkdir(parents=True, exist_ok=True)
    lines = (f"{one.node} {one.port} {one.controller}\n" for one in cluster)
    (data / "ports").write_text("".join(lines))


def _remembered(data: Path) -> list[_Address] | None:
    try:
        lines = (data / "ports").read_text().splitlines()
        return [_Address(*(int(word) for word in line.split())) for line in lines]
    except (OSError, ValueError, TypeError):
        return None
