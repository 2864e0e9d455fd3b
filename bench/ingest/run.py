"""ingest beside other servers that acknowledge a webhook once Kafka has it, each a process, on one broker.

Every 200 is checked against the topic: the sum of its end offsets grows by exactly as many. Prints a table and ratios;
exits 1 when a record is missing, an answer is not 200, or ingest is not as fast as asked for. ``--soak`` and
``--fairness`` measure ingest alone: its memory over minutes, and what noisy senders cost quiet ones.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import fairness
import soak
from servers import FASTAPI, GO_PROGRAMS, INGEST, TWO, Servers, go_missing
from window import Load, Window, measure

from room_common.contracts.topics import REPLIES_RAW, WEBHOOKS_RAW, topic
from room_common.domain.tokens import TokenKeys, make_token
from room_common.kafka.admin import create_topics
from room_common.kafka.settings import KafkaSettings
from room_local.parts.kafka_jars import available
from room_testing.parts import Parts, choose
from room_testing.secure_kafka import SecureKafka

Windows = Mapping[tuple[str, int], list[Window]]


def main() -> int:
    """Measure, print, judge."""
    options = _options()
    key = secrets.token_hex(32)
    keys = TokenKeys((bytes.fromhex(key),))
    tokens = [make_token(keys, secrets.token_bytes(24)) for _ in range(options.tokens)]
    with tempfile.TemporaryDirectory(prefix="room-bench-") as name, _broker(options, Path(name)) as (bootstrap, kafka):
        folder = Path(name)
        replicas = 3 if options.brokers == 3 else 1
        settings = KafkaSettings(
            bootstrap_servers=bootstrap, replication_factor=replicas, min_insync_replicas=min(2, replicas)
        )
        asyncio.run(create_topics(settings, [topic(WEBHOOKS_RAW), topic(REPLIES_RAW)]))
        servers = Servers(bootstrap, kafka, key, folder)
        load = Load.build(folder, tokens, options.bytes)
        if options.soak:
            return soak.run(servers, load, bootstrap, seconds=options.soak, connections=options.soak_connections)
        if options.fairness:
            return fairness.run(servers, tokens, rounds=options.rounds, seconds=options.seconds)
        return _compare(options, servers, load)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="length of a measured window")
    parser.add_argument("--warm", type=float, default=2, help="seconds of load before it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", default="32,256")
    parser.add_argument("--bytes", type=int, default=2048, help="size of a body")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="3: replication 3, min ISR 2")
    parser.add_argument("--secure", action="store_true", help="ingest logs in over TLS with SCRAM; its peers do not")
    parser.add_argument("--two", action="store_true", help="also two processes of ingest on one port")
    parser.add_argument("--go", action="store_true", help="also the two Go programs (fetches their modules)")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="only ingest's memory under load for so long")
    parser.add_argument("--soak-connections", type=int, default=256)
    parser.add_argument("--fairness", action="store_true", help="only what noisy senders cost quiet ones")
    parser.add_argument("--at-least", type=float, default=5, help="times as fast as FastAPI + aiokafka")
    options = parser.parse_args()
    if options.go and (reason := go_missing()):
        parser.error(reason)
    return options


@contextmanager
def _broker(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The plain address of a broker, and ingest's settings for it."""
    if options.secure:
        secure = SecureKafka(folder / "secure")
        secure.kafka.start()
        print("broker: Apache Kafka, ingest over SASL_SSL", flush=True)
        try:
            yield secure.kafka.bootstrap, secure.settings
        finally:
            secure.kafka.stop()
        return
    parts = Parts(choose(os.environ, available))
    print(f"broker: {parts.choice.describe()}, brokers: {options.brokers}", flush=True)
    try:
        bootstrap = parts.cluster().bootstrap if options.brokers == 3 else parts.kafka_bootstrap()
        idempotence = str(parts.choice.kafka != "wheels").lower()
        yield bootstrap, {"ROOM_KAFKA__BOOTSTRAP_SERVERS": bootstrap, "ROOM_KAFKA__IDEMPOTENCE": idempotence}
    finally:
        parts.close()


def _compare(options: argparse.Namespace, servers: Servers, load: Load) -> int:
    names = [INGEST, FASTAPI]
    if options.two:
        names.append(TWO)
    if options.go:
        names += list(GO_PROGRAMS)
        servers.build_go(list(GO_PROGRAMS))
    windows: dict[tuple[str, int], list[Window]] = {}
    faults: list[str] = []
    concurrencies = [int(count) for count in options.connections.split(",")]
    for turn in range(options.rounds + 1):  # the first one warms the broker up and is not counted
        for name in random.sample(names, len(names)):
            with servers.serving(name) as server:
                for count in concurrencies:
                    window, wrong = measure(load, server, servers.bootstrap, count, options.warm, options.seconds)
                    if turn:
                        windows.setdefault((name, count), []).append(window)
                    if wrong:
                        faults.append(f"{name}, {wrong}")
    _print_table(windows)
    for fault in faults:
        print(f"WRONG {fault}")
    if not faults:
        print("\nevery answer was 200, and the topic grew by exactly as many records")
    enough = _print_ratios(windows, names, concurrencies, options.at_least)
    return 0 if enough and not faults else 1


def _print_table(windows: Windows) -> None:
    print("\n| server | connections | requests/s (range) | p50 ms | p99 ms | CPU ms/request | RSS MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for (name, count), runs in sorted(windows.items(), key=lambda item: (item[0][1], item[0][0])):
        speeds = sorted(run.per_second for run in runs)
        figures = [(run.per_second, run.p50, run.p99, run.cpu, run.memory) for run in runs]
        median = [statistics.median(values) for values in zip(*figures, strict=True)]
        print(
            f"| {name} | {count} | {median[0]:,.0f} ({speeds[0]:,.0f}-{speeds[-1]:,.0f}) | {median[1]:.1f} "
            f"| {median[2]:.1f} | {median[3]:.3f} | {median[4]:.0f} |"
        )


def _print_ratios(windows: Windows, names: list[str], concurrencies: list[int], at_least: float) -> bool:
    """Medians of ratios within a round. Whether the least of those to FastAPI + aiokafka is enough, p99 included."""
    print("\n| room-ingest / ... | connections | requests/s | p99 | CPU per request |\n| --- | --- | --- | --- | --- |")
    enough = True
    for other in names:
        if other == INGEST:
            continue
        for count in concurrencies:
            pairs = list(zip(windows[INGEST, count], windows[other, count], strict=True))
            speed = statistics.median(ours.per_second / theirs.per_second for ours, theirs in pairs)
            late = statistics.median(ours.p99 / theirs.p99 for ours, theirs in pairs)
            cpu = statistics.median(ours.cpu / theirs.cpu for ours, theirs in pairs)
            print(f"| {other} | {count} | {speed:.2f} | {late:.2f} | {cpu:.2f} |")
            if other == FASTAPI:
                enough = enough and speed >= at_least and late <= 0.2
    return enough


if __name__ == "__main__":
    sys.exit(main())
