from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from room_common.kafka.lanes import Lanes


class LanesMachine(RuleBasedStateMachine):
    """Items of a key leave in the order they came, and never two of one key at once."""

    def __init__(self) -> None:
        super().__init__()
        self.lanes: Lanes[int] = Lanes()
        self.waiting: dict[str, list[int]] = {}
        self.taken: dict[str, int] = {}
        self.returned: set[str] = set()
        self.count = 0

    @rule(key=st.sampled_from("abc"))
    def offer(self, key: str) -> None:
        self.count += 1
        self.lanes.offer(key, self.count)
        self.waiting.setdefault(key, []).append(self.count)

    @rule()
    def take(self) -> None:
        possible = {key for key, items in self.waiting.items() if items and key not in self.taken}
        taken = self.lanes.take()
        if not possible:
            assert taken is None
            return
        assert taken is not None
        key, item = taken
        assert isinstance(key, str)
        assert key in possible
        assert item == self.waiting[key].pop(0)
        self.taken[key] = item
        self.returned.discard(key)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.taken)))
        del self.taken[key]
        self.lanes.finish(key)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.taken)))
        item = self.taken.pop(key)
        self.waiting.setdefault(key, []).insert(0, item)
        self.lanes.give_back(key)
        self.returned.add(key)

    @rule()
    def drop_waiting(self) -> None:
        self.lanes.drop_waiting()
        self.waiting = {}
        self.returned = set()

    @invariant()
    def size(self) -> None:
        assert len(self.lanes) == len(self.taken) + sum(len(items) for items in self.waiting.values())
        ready = {key for key, items in self.waiting.items() if items and key not in self.taken}
        assert self.lanes.ready == bool(ready)
        assert self.lanes.fresh == bool(ready - self.returned)


def test_what_was_given_back_is_behind_all_others() -> None:
    lanes: Lanes[int] = Lanes()
    for number, key in enumerate("aab"):
        lanes.offer(key, number)
    lanes.take()
    lanes.give_back("a")
    assert [lanes.take(), lanes.take(), lanes.take()] == [("b", 2), ("a", 0), None]


TestLanes = LanesMachine.TestCase
