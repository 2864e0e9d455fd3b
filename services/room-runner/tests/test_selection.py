"""Which events a cycle takes."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from room_runner.domain.selection import choose, fitting


@dataclass(frozen=True)
class Head:
    id: UUID
    attempts: int
    verified: bool


def heads(*attempts: int) -> list[Head]:
    return [Head(UUID(int=number), tried, True) for number, tried in enumerate(attempts)]


def test_an_event_that_failed_twice_is_taken_alone() -> None:
    waiting = heads(2, 0, 0)
    assert choose(waiting, replies=False, limit=20) == waiting[:1]


def test_it_waits_for_older_ones_which_do_not_take_it_along() -> None:
    waiting = heads(0, 3, 1)
    assert choose(waiting, replies=False, limit=20) == [waiting[0], waiting[2]]


def test_people_do_not_wait_for_it() -> None:
    waiting = heads(4, 0)
    assert choose(waiting, replies=True, limit=20) == [waiting[1]]


def test_by_trust_the_oldest_decides_the_label() -> None:
    labels = [False, True, False]
    waiting = [Head(UUID(int=number), 0, label) for number, label in enumerate(labels)]
    assert choose(waiting, replies=False, limit=20, by_trust=True) == [waiting[0], waiting[2]]
    assert choose(waiting, replies=False, limit=20) == waiting


@given(st.lists(st.integers(0, 5), max_size=60), st.booleans(), st.integers(1, 30))
def test_what_is_chosen_is_in_order_within_the_limit_and_never_mixed(
    attempts: list[int], replies: bool, limit: int
) -> None:
    waiting = heads(*attempts)
    chosen = choose(waiting, replies=replies, limit=limit)
    assert len(chosen) <= limit
    assert [head.id for head in chosen] == sorted(head.id for head in chosen)
    if any(head.attempts >= 2 for head in chosen):
        assert len(chosen) == 1 and not replies
    if waiting and not replies:
        assert chosen and chosen[0] == waiting[0]


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 5000))
def test_the_first_always_fits_and_no_more_than_the_budget(sizes: list[int], budget: int) -> None:
    count = fitting(sizes, budget)
    assert min(1, len(sizes)) <= count <= len(sizes)
    if count > 1:
        assert sum(sizes[:count]) <= budget
    if count < len(sizes):
        assert sum(sizes[: count + 1]) > budget
