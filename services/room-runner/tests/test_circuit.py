"""The circuit of the model provider."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from room_runner.domain.circuit import Circuit


def test_trouble_opens_it_and_the_first_probe_comes_soon() -> None:
    circuit = Circuit(30.0).troubled(100.0)
    assert not circuit.closed
    assert not circuit.probe_due(100.5)
    assert circuit.probe_due(101.0)


def test_after_a_probe_the_next_one_is_an_interval_away() -> None:
    circuit = Circuit(30.0).troubled(100.0).probing(101.0).troubled(103.0)
    assert not circuit.probe_due(130.9)
    assert circuit.probe_due(131.0)


def test_an_answer_closes_it() -> None:
    circuit = Circuit(30.0).troubled(100.0).answered()
    assert circuit.closed
    assert not circuit.probe_due(1e9)


@given(st.lists(st.tuples(st.sampled_from(["troubled", "answered", "probing"]), st.floats(0, 100)), max_size=50))
def test_it_is_open_exactly_when_trouble_came_last(moves: list[tuple[str, float]]) -> None:
    circuit, now, opened = Circuit(30.0), 0.0, False
    for move, step in moves:
        now += step
        if move == "troubled":
            circuit, opened = circuit.troubled(now), True
        elif move == "answered":
            circuit, opened = circuit.answered(), False
        else:
            circuit = circuit.probing(now)
        assert circuit.closed is not opened
        if opened:
            assert circuit.probe_due(now + 30.0)
