"""``python -m room_testing.fuzz tests/fuzz/corpus --seconds 60``: fuzz every target, for a part of the time each.

Guided by coverage with atheris where it is installed, else by mutating the corpus at random. What it finds new goes to
``.cache/fuzz``, an input that breaks a target to ``.cache/fuzz/broken``: put it into the corpus, where the tests replay
it, and repair. The last line says what was done.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 70_000
INPUT_SECONDS: Final = 5
"""A target that needs longer for one input has failed."""
MEMORY_MB: Final = 1024
STARTING_SECONDS: Final = 2
"""So long a guided target takes to start and to end."""
WORK: Final = Path(".cache/fuzz")

_FRAGMENTS: Final = (
    b"\x00",
    b"\xff",
    b"\\u0000",
    b"\\ud800",
    b"[",
    b"]",
    b"{",
    b'"',
    b",",
    b"\n",
    b": ",
    b"=",
    b"1e999",
    b"%00",
)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one target; ``broken`` is the file with the input that broke it."""

    target: str
    runs: int
    seconds: float
    broken: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. 1 when an input broke a target, 2 when a target could not be run."""
    parser = argparse.ArgumentParser(prog="python -m room_testing.fuzz", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("corpus", type=Path, help="directory with one directory of inputs for each target")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        return _guided_child(chosen.child, chosen.corpus, chosen.seconds)
    from room_testing.fuzz_targets import TARGETS

    names = chosen.target or list(TARGETS)
    guided = importlib.util.find_spec("atheris") is not None
    seconds = max(1, chosen.seconds // len(names) - (STARTING_SECONDS if guided else 0))
    results = []
    for name in names:
        found = (
            _guided(name, chosen.corpus, seconds) if guided else _mutated(TARGETS[name], name, chosen.corpus, seconds)
        )
        if found is None:
            return 2
        results.append(found)
        print(
            f"{name}: {found.runs} inputs in {found.seconds:.0f} s"
            + (f", BROKEN by {found.broken}" if found.broken else "")
        )
    broken = [result.target for result in results if result.broken is not None]
    how = "guided by coverage" if guided else "mutated at random (atheris is not installed)"
    print(
        f"fuzz: {sum(result.runs for result in results)} inputs in {sum(result.seconds for result in results):.0f} s, "
        f"{len(results)} targets, {how}: " + (f"broken: {', '.join(broken)}" if broken else "nothing broke")
    )
    return 1 if broken else 0


def _guided(name: str, corpus: Path, seconds: int) -> Result | None:
    """One target in a process of its own: libFuzzer ends the process it runs in."""
    command = [sys.executable, "-m", "room_testing.fuzz", str(corpus), "--child", name, "--seconds", str(seconds)]
    started = time.monotonic()
    before = set(_broken().glob("*"))
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds * 3 + 120)
    runs = re.findall(r"stat::number_of_executed_units:\s*(\d+)|Done (\d+) runs", done.stderr)
    broken = sorted(set(_broken().glob("*")) - before)
    if done.returncode and not broken:
        print(done.stderr[-4000:], file=sys.stderr)
        return None
    if broken:
        print(done.stderr[-4000:], file=sys.stderr)
    return Result(
        name, max((int(a or b) for a, b in runs), default=0), time.monotonic() - started, broken[0] if broken else None
    )


def _guided_child(name: str, corpus: Path, seconds: int) -> int:
    import atheris

    with atheris.instrument_imports(include=["room_common", "room_ingest", "room_matcher"]):
        from room_testing.fuzz_targets import TARGETS
    found = WORK / "found" / name
    found.mkdir(parents=True, exist_ok=True)
    atheris.Setup(
        [
            sys.argv[0],
            str(found),
            str(corpus / name),
            f"-max_total_time={seconds}",
            f"-max_len={MAX_BYTES}",
            f"-timeout={INPUT_SECONDS}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-artifact_prefix={_broken()}/{name}-",
            "-print_final_stats=1",
        ],
        TARGETS[name],
    )
    atheris.Fuzz()
    return 0


def _mutated(target: Callable[[bytes], None], name: str, corpus: Path, seconds: int) -> Result:
    """Inputs of the corpus with random changes. The seed is fixed, so that a run can be repeated."""
    chance = random.Random(0)
    inputs = [file.read_bytes() for file in sorted((corpus / name).glob("*"))] or [b""]
    started, runs = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        data = mutate(chance, chance.choice(inputs), chance.choice(inputs))
        runs += 1
        try:
            target(data)
        except Exception as error:
            file = _broken() / f"{name}-{runs}"
            file.write_bytes(data)
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            return Result(name, runs, time.monotonic() - started, file)
    return Result(name, runs, time.monotonic() - started, None)


def mutate(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """The input with one to eight changes: bytes, fragments, repetitions, cuts, and pieces of another input."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at = chance.randint(0, len(changed))
        end = min(len(changed), at + chance.randint(0, 16))
        change = chance.randrange(5)
        if change == 0:
            changed[at:end] = bytes(chance.randrange(256) for _ in range(chance.randint(0, 4)))
        elif change == 1:
            changed[at:at] = chance.choice(_FRAGMENTS)
        elif change == 2:
            changed[at:at] = changed[at:end] * chance.choice((1, 2, 100, 1000))
        elif change == 3:
            del changed[at:end]
        else:
            start = chance.randint(0, len(other))
            changed[at:end] = other[start : start + chance.randint(0, 64)]
    return bytes(changed[:MAX_BYTES])


def _broken() -> Path:
    place = WORK / "broken"
    place.mkdir(parents=True, exist_ok=True)
    return place


if __name__ == "__main__":
    sys.exit(main())
