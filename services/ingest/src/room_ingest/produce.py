"""Kafka's Produce request, version 7, from batches that are bytes already, and its answer.

aiokafka's own request classes describe every field in Python; encoding and decoding them costs more than the rest of a
round. Version 7 is spoken by every broker since 2.1 and by the embedded one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import ClassVar, Final, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion

API_KEY: Final = 0
VERSION: Final = 7
ALL_REPLICAS: Final = -1
_NO_TRANSACTION: Final = -1
_HEAD: Final = struct.Struct(">hhii")
_RESULT: Final = struct.Struct(">ihqqq")
_REQUEST_HEADER: Final = struct.Struct(">hhih")


class Result(NamedTuple):
    """What became of one partition's batch. ``error`` is Kafka's code, 0 for none."""

    topic: bytes
    partition: int
    error: int


class ProduceAnswer:
    """Reads a Produce answer of version 7."""

    @staticmethod
    def decode(buffer: BytesIO) -> list[Result]:
        """All results. Raises ``struct.error`` for what is not such an answer."""
        data = buffer.read()
        (topics,) = struct.unpack_from(">i", data)
        at = 4
        results = []
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, at)
            topic = data[at + 2 : at + 2 + length]
            at += 2 + length
            (partitions,) = struct.unpack_from(">i", data, at)
            at += 4
            for _ in range(partitions):
                partition, error, _, _, _ = _RESULT.unpack_from(data, at)
                results.append(Result(topic, partition, error))
                at += _RESULT.size
        return results


class _Encoded:
    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def encode(self) -> bytes:
        return self._data


class _Correlation:
    __slots__ = ("correlation_id",)

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id


class ProduceRequest:
    """What an aiokafka connection takes for a request: versions, header and body, and how to read the answer."""

    API_KEY: ClassVar[int] = API_KEY
    API_VERSION: ClassVar[int] = VERSION
    RESPONSE_TYPE: ClassVar[type[ProduceAnswer]] = ProduceAnswer

    __slots__ = ("_body",)

    def __init__(self, batches: Mapping[bytes, Iterable[tuple[int, bytes]]], timeout_ms: int) -> None:
        """``batches``: by topic, (partition, record batch). ``timeout_ms``: how long replicas may take."""
        out = [_HEAD.pack(_NO_TRANSACTION, ALL_REPLICAS, timeout_ms, len(batches))]
        for topic, partitions in batches.items():
            entries = [part for index, raw in partitions for part in (struct.pack(">ii", index, len(raw)), raw)]
            out.append(struct.pack(">h", len(topic)) + topic + struct.pack(">i", len(entries) // 2))
            out += entries
        self._body = b"".join(out)

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> ProduceRequest:
        """Raises ``IncompatibleBrokerVersion`` where the broker does not speak version 7."""
        low, high = versions.get(API_KEY, (0, -1))
        if not low <= VERSION <= high:
            raise IncompatibleBrokerVersion(f"the broker speaks Produce {low} to {high}, not {VERSION}")
        return self

    def build_request_header(self, correlation_id: int, client_id: str) -> _Encoded:
        name = client_id.encode()
        return _Encoded(_REQUEST_HEADER.pack(API_KEY, VERSION, correlation_id, len(name)) + name)

    def encode(self) -> bytes:
        return self._body

    def parse_response_header(self, buffer: BytesIO) -> _Correlation:
        return _Correlation(int.from_bytes(buffer.read(4), "big"))
