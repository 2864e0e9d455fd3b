"""What of a message and of a tool's call is told to traces and metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from room_common.identity import new_id
from room_common.postgres.outbox import OutboxRow
from room_runner.outside import OutsideTool
from room_runner.relay import outbox_record
from room_runner.toolbox import Toolbox


def test_only_built_in_tools_are_labels() -> None:
    outside = {"weather": cast(OutsideTool, object())}
    toolbox = Toolbox(new_id(), outside, verified=True, max_deferrals=1, traceparent=None)
    names = ("send_message_to_human", "weather", "made_up")
    assert [toolbox.label(name) for name in names] == ["send_message_to_human", "outside", "unknown"]


def test_a_record_carries_the_trace_of_its_row() -> None:
    remembered = f"00-{'1' * 32}-{'2' * 16}-01"
    row = OutboxRow(new_id(), new_id(), None, "local", "me", "Hello.", remembered, datetime.now(UTC))
    assert outbox_record(row).headers == (("traceparent", remembered.encode()),)
