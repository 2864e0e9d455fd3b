from __future__ import annotations

from room_common.kafka.holds import LONGEST_WISH_SECONDS, Holds


def test_a_probe_is_due_after_its_time_and_again_after_a_failure() -> None:
    holds = Holds(probe_seconds=5)
    assert not holds.probe_due(0)
    holds.add("llm_timeout", 10, probe=True)
    assert not holds.probe_due(14.9)
    assert holds.probe_due(15)
    holds.probing = True
    assert not holds.probe_due(15)
    holds.probing = False
    holds.add("llm_timeout", 16, probe=True)
    assert not holds.probe_due(20.9)
    assert holds.probe_due(21)


def test_one_hold_without_probing_forbids_probes() -> None:
    holds = Holds(probe_seconds=1)
    holds.add("llm_timeout", 0, probe=True)
    holds.add("dead_letters", 0, probe=False)
    holds.add("dead_letters", 0, probe=True)
    assert not holds.probe_due(100)
    assert holds.release("dead_letters") == ("dead_letters",)
    assert holds.probe_due(100)


def test_the_wish_of_the_dependency_is_obeyed_within_bounds() -> None:
    holds = Holds(probe_seconds=5)
    holds.add("llm_rate_limit", 0, probe=True, wish=20)
    assert not holds.probe_due(19.9)
    assert holds.probe_due(20)
    holds.release()
    holds.add("llm_rate_limit", 0, probe=True, wish=86_400)
    assert holds.probe_due(LONGEST_WISH_SECONDS)


def test_release_tells_what_ended() -> None:
    holds = Holds(probe_seconds=5)
    holds.add("a", 0, probe=True)
    holds.add("b", 0, probe=True)
    assert holds.release("c") == ()
    assert holds
    assert holds.release() == ("a", "b")
    assert not holds
    assert holds.reasons == ()
