"""Queues by key: items of one key one after the other, different keys in parallel. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Lanes(Generic[Item]):
    """A lane is a key with items; its first item is either ready or taken, the others wait behind it."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, deque[Item]] = {}
        self._ready: deque[Hashable] = deque()
        self._taken: set[Hashable] = set()
        self._returned: set[Hashable] = set()

    def __len__(self) -> int:
        """Items, the taken ones included."""
        return sum(len(lane) for lane in self._lanes.values())

    @property
    def ready(self) -> bool:
        """Whether ``take`` has something."""
        return bool(self._ready)

    @property
    def fresh(self) -> bool:
        """Whether something is ready that was not given back."""
        return len(self._ready) > len(self._returned)

    def offer(self, key: Hashable, item: Item) -> None:
        """Add an item behind those of its key."""
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = deque((item,))
            self._ready.append(key)
        else:
            lane.append(item)

    def take(self) -> tuple[Hashable, Item] | None:
        """The first item of the lane that is ready longest. Its lane waits for ``finish`` or ``give_back``."""
        if not self._ready:
            return None
        key = self._ready.popleft()
        self._returned.discard(key)
        self._taken.add(key)
        return key, self._lanes[key][0]

    def finish(self, key: Hashable) -> None:
        """The taken item is over; the next of its key becomes ready, behind all others."""
        self._taken.remove(key)
        lane = self._lanes[key]
        lane.popleft()
        if lane:
            self._ready.append(key)
        else:
            del self._lanes[key]

    def give_back(self, key: Hashable) -> None:
        """The taken item has to be taken again, behind all others: what made it fail may be its own fault."""
        self._taken.remove(key)
        self._returned.add(key)
        self._ready.append(key)

    def drop_waiting(self) -> None:
        """Forget every item that is not taken."""
        self._ready.clear()
        self._returned.clear()
        self._lanes = {key: deque((self._lanes[key][0],)) for key in self._taken}
