"""Batches as bytes: what aiokafka reads of them, and what it would have written itself."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from room_ingest.batches import NO_IDENTITY, Partition, build
from room_ingest.domain.record_format import headers, varint
from room_testing.webhook_port import plain_parcel, read_records

small = st.binary(max_size=200)
pairs = st.lists(st.tuples(st.text(max_size=80), small), max_size=9)
records = st.lists(st.tuples(small, small | st.integers(8000, 66_000).map(bytes), pairs), min_size=1, max_size=8)


@given(records, st.sampled_from([NO_IDENTITY, (7, 0), (1 << 40, 32_000)]), st.integers(0, 1 << 42))
def test_a_batch_is_byte_for_byte_that_of_another_builder(
    content: list[tuple[bytes, bytes, list[tuple[str, bytes]]]], identity: tuple[int, int], now_ms: int
) -> None:
    partition = Partition(b"t", 0)
    partition.sequence = 5
    partition.pending = [plain_parcel(headers(more), key, value) for key, value, more in content]
    build(partition, identity, now_ms)
    assert partition.batch is not None
    oracle = DefaultRecordBatchBuilder(2, 0, 0, *identity, -1 if identity == NO_IDENTITY else 5, 1 << 30)
    for offset, (key, value, more) in enumerate(content):
        oracle.append(offset, now_ms, key, value, more)
    assert partition.batch.raw == bytes(oracle.build())
    assert DefaultRecordBatch(partition.batch.raw).validate_crc()
    assert partition.sequence == (5 if identity == NO_IDENTITY else 5 + len(content))


@given(st.integers(-(1 << 40), 1 << 40))
def test_numbers_are_written_as_kafka_reads_them(number: int) -> None:
    value, shift = 0, 0
    for byte in varint(number):
        value |= (byte & 0x7F) << shift
        shift += 7
    assert (value >> 1) ^ -(value & 1) == number


@pytest.mark.parametrize("limit", [500, 1000, 5000])
def test_what_does_not_fit_waits_and_the_first_record_always_fits(limit: int) -> None:
    partition = Partition(b"t", 0)
    partition.limit = limit
    partition.pending = [plain_parcel(value=b"x" * 400) for _ in range(10)] + [plain_parcel(value=b"y" * 9000)]
    sizes = []
    while partition.pending:
        build(partition, NO_IDENTITY, 0)
        assert partition.batch is not None
        assert len(partition.batch.raw) <= limit or len(partition.batch.items) == 1
        sizes.append(len(partition.batch.items))
    assert sum(sizes) == 11
    assert max(sizes) == min(10, max(1, (limit - 61) // 426))


def test_many_records_keep_their_order() -> None:
    made = read_records([plain_parcel(value=b"%d" % number) for number in range(10_000)])
    assert [record.value for record in made] == [b"%d" % number for number in range(10_000)]
    assert [record.offset for record in made] == list(range(10_000))
