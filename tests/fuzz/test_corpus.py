"""The committed inputs of every fuzz target hold, and so do some thousand changes of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from room_matcher.domain.signatures import verify
from room_testing.fuzz import main, mutate
from room_testing.fuzz_targets import SECRET, TARGETS, signed_request

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(CORPUS.glob("*/*"))


def test_every_target_has_inputs() -> None:
    assert {file.parent.name for file in INPUTS} == set(TARGETS)
    assert sum(file.stat().st_size for file in INPUTS) < 100_000


@pytest.mark.parametrize("file", INPUTS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_inputs_of_the_corpus_hold(file: Path) -> None:
    TARGETS[file.parent.name](file.read_bytes())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_changed_inputs_hold(name: str) -> None:
    chance = random.Random(name)
    inputs = [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]
    for _ in range(400):
        TARGETS[name](mutate(chance, chance.choice(inputs), chance.choice(inputs)))


def test_the_signed_inputs_are_signed() -> None:
    """Otherwise the fuzzer would never come past the first comparison."""
    problems = set()
    for file in sorted((CORPUS / "signatures").iterdir()):
        name, check, signed = signed_request(file.read_bytes())
        if verify(name, [SECRET], signed, check=check).problem is not None:
            problems.add(file.name)
    assert problems == {"none", "stripe-stale", "unknown"}


def test_a_target_that_breaks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("room_testing.fuzz_targets.TARGETS", {"odd": lambda data: 1 // (len(data) % 5)})
    (tmp_path / "corpus" / "odd").mkdir(parents=True)
    (tmp_path / "corpus" / "odd" / "seed").write_bytes(b"abc")
    assert main([str(tmp_path / "corpus"), "--seconds", "30"]) == 1
    (broken,) = (tmp_path / ".cache" / "fuzz" / "broken").iterdir()
    assert len(broken.read_bytes()) % 5 == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("broken: odd")
