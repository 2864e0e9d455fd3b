"""Records opened once: the look-up, the lane and the handler all read the same envelope."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from datetime import datetime

from room_common.kafka.records import Record
from room_matcher.handlers.delivery import Delivery, open_record


class OpenedRecords:
    """The deliveries of records in hand, at most ``limit``. What is not there is opened again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[tuple[str, int, int], Delivery] = OrderedDict()

    def open(self, record: Record) -> Delivery:
        """See :func:`room_matcher.handlers.delivery.open_record`. Raises ``DeadLetter('bad_envelope')``."""
        place = record.topic, record.partition, record.offset
        known = self._kept.get(place)
        if known is not None and known.record is record:
            return known
        delivery = self._kept[place] = open_record(record)
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)
        return delivery

    def receive_at(self, record: Record, received_at: datetime) -> Delivery:
        """Open ``record`` under the receipt that the ledger has of a copy of it."""
        delivery = replace(self.open(record), received_at=received_at)
        self._kept[record.topic, record.partition, record.offset] = delivery
        return delivery

    def forget(self, record: Record) -> None:
        """This record is done with."""
        self._kept.pop((record.topic, record.partition, record.offset), None)
