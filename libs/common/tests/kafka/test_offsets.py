from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from room_common.kafka.offsets import Assignment, Progress


class ProgressMachine(RuleBasedStateMachine):
    """Any order of arrivals, gaps, completions and commits."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress(epoch=1)
        self.received: set[int] = set()
        self.open: set[int] = set()
        self.newest = -1

    @rule(gap=st.integers(0, 3))
    def receive(self, gap: int) -> None:
        offset = self.newest + 1 + gap
        missing = self.progress.receive(offset)
        assert missing == (gap if self.received else 0)
        self.received.add(offset)
        self.open.add(offset)
        self.newest = offset

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.open)))
        lowest = min(self.open)
        self.open.remove(offset)
        assert self.progress.finish(offset) is (offset == lowest)

    @rule()
    def commit(self) -> None:
        offset = self.progress.to_commit()
        if offset is not None:
            self.progress.committed(offset)
        assert self.progress.to_commit() is None

    @invariant()
    def watermark_is_the_lowest_unfinished(self) -> None:
        """Never beyond it, and never short of it: every finished prefix can be committed."""
        if not self.received:
            assert self.progress.watermark is None
        elif self.open:
            assert self.progress.watermark == min(self.open)
        else:
            assert self.progress.watermark == self.newest + 1

    @invariant()
    def figures_agree(self) -> None:
        assert self.progress.unfinished == len(self.open)
        lowest = min(self.open, default=self.newest + 1)
        assert self.progress.span == (self.newest + 1 - lowest if self.received else 0)


TestProgress = ProgressMachine.TestCase


def test_a_huge_gap_takes_no_memory() -> None:
    progress = Progress(epoch=1)
    progress.receive(0)
    assert progress.receive(10**12) == 10**12 - 1
    progress.finish(0)
    assert progress.watermark == 10**12


def test_a_record_finishes_once() -> None:
    progress = Progress(epoch=1)
    progress.receive(7)
    progress.receive(8)
    progress.finish(8)
    for offset in (6, 8, 9):
        with pytest.raises(ValueError, match="not being worked on"):
            progress.finish(offset)


def test_older_offsets_are_refused() -> None:
    progress = Progress(epoch=1)
    progress.receive(7)
    assert not progress.follows(7)
    with pytest.raises(ValueError, match="not newer"):
        progress.receive(7)


def test_assignment_ends_the_one_before() -> None:
    assignment: Assignment[str] = Assignment()
    assignment.begin(["a", "b"])
    first = assignment.receive("a", 5)
    assert first is not None
    assignment.begin(["a"])
    second = assignment.receive("a", 5)
    assert second is not None
    assert not first.progress.alive
    assert second.progress.alive
    assert second.progress.epoch > first.progress.epoch
    assert assignment.receive("b", 1) is None
    assert assignment.unfinished == 1


def test_commits_of_an_earlier_epoch_are_not_remembered() -> None:
    assignment: Assignment[str] = Assignment()
    assignment.begin(["a"])
    received = assignment.receive("a", 5)
    assert received is not None
    received.progress.finish(5)
    before = assignment.epoch
    assert assignment.to_commit() == {"a": 6}
    assignment.committed(before - 1, {"a": 6})
    assert assignment.to_commit() == {"a": 6}
    assignment.committed(before, {"a": 6})
    assert assignment.to_commit() == {}


def test_a_log_that_began_anew_starts_a_new_epoch() -> None:
    assignment: Assignment[str] = Assignment()
    assignment.begin(["a"])
    old = assignment.receive("a", 100)
    new = assignment.receive("a", 0)
    assert old is not None
    assert new is not None
    assert new.rewound
    assert not old.progress.alive
    assert assignment.watermark("a") == 0


@given(st.lists(st.integers(0, 50), min_size=1))
def test_only_partitions_with_room_may_bring_more(spans: list[int]) -> None:
    assignment: Assignment[int] = Assignment()
    assignment.begin(range(len(spans)))
    for partition, span in enumerate(spans):
        for offset in range(span):
            assignment.receive(partition, offset)
    assert assignment.below(10) == [partition for partition, span in enumerate(spans) if span < 10]
    assert assignment.span == max(spans)
    assert assignment.unfinished == sum(spans)
