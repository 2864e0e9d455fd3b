"""``make fuzz-api``: Schemathesis against the API of a running admin, for minutes.

Each round has a room of its own with rows in every list, since what is found is changed and deleted on the way. In
every other round the ids in paths are that room's, else whatever is generated. Nothing may answer 5xx, a status or
content type that the OpenAPI document does not name for its route, or a body of another shape.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import uvicorn

from room_admin.allowance import Allowance
from room_testing.administering import TOKENS, Administering, ListedRoom, opened
from room_testing.parts import Parts, choose

CHECKS: Final = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
ROUNDS: Final = (("coverage", 400), ("fuzzing,stateful", 200), ("fuzzing,stateful", 200))
"""What a round is about, and its seconds: coverage goes once through the values at the edges of every schema."""
_SUMMARY: Final = re.compile(r"^ *((?:Selected|Tested|Errored|Skipped): .*|\d+ generated.*)$", re.MULTILINE)
_CASES: Final = re.compile(r"(\d+) generated")
_UNLIMITED: Final = Allowance(1_000_000_000, 1e-9)


def parameters(room: ListedRoom) -> str:
    """A configuration of Schemathesis that puts the ids of a room into paths."""
    return "[parameters]\n" + "".join(f'"path.{name}" = "{value}"\n' for name, value in room.in_paths().items())


def lift_limits(world: Administering) -> None:
    """Let calls that are counted be made as often as they come, and live streams end once their states are told."""
    world.app.state.allowances = dict.fromkeys(world.app.state.allowances, _UNLIMITED)
    world.feed.stopping.set()


async def run(minutes: float, first_seed: int) -> int:
    """Fuzz the API on a database from wheels; returns how many rounds found something, and prints what."""
    parts = Parts(choose(os.environ | {"ROOM_TEST_PARTS": "wheels"}, lambda: "not wanted"))
    try:
        async with opened(parts.create_database()) as world:
            return await fuzz(world, minutes, first_seed)
    finally:
        parts.close()


async def fuzz(world: Administering, minutes: float, first_seed: int) -> int:
    """Serve the API of ``world`` and fuzz it; returns how many rounds found something, and prints what."""
    lift_limits(world)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(world.app, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        return await _rounds(world, f"http://127.0.0.1:{listener.getsockname()[1]}", minutes, first_seed)
    finally:
        server.should_exit = True
        await serving


async def _rounds(world: Administering, url: str, minutes: float, first_seed: int) -> int:
    deadline, seed, failed, cases = time.monotonic() + minutes * 60, first_seed, 0, 0
    while (left := deadline - time.monotonic()) > 1:
        room = await world.listed(f"fuzz-{seed}", rows=3)
        world.records.keep(room.delivery_id)
        phases, longest = ROUNDS[(seed - first_seed) % len(ROUNDS)]
        seconds = max(1, round(min(left, longest)))
        code, output = await _schemathesis(url, seed, phases, seconds, parameters(room) if seed % 2 else "")
        found = _CASES.search(output)
        cases += int(found[1]) if found else 0
        failed += code != 0
        print(f"round {seed} ({phases}): {seconds} s, exit {code}", *_SUMMARY.findall(output), sep="; ", flush=True)
        if code:
            print(output, flush=True)
        seed += 1
    print(f"{cases} requests in {minutes:g} minutes, {failed} rounds with findings")
    return failed


async def _schemathesis(url: str, seed: int, phases: str, seconds: int, configuration: str) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "schemathesis.toml").write_text(configuration)
        arguments = [
            *("run", f"{url}/api/v1/openapi.json", "--url", url, "--checks", ",".join(CHECKS), "--no-color"),
            *("--header", f"Authorization: Bearer {TOKENS['operator']}", "--seed", str(seed)),
            *("--max-time", str(seconds), "--request-timeout", "30", "--suppress-health-check", "all"),
            *("--generation-database", "none", "--warnings", "off", "--continue-on-failure", "--no-shrink"),
            *("--phases", phases, "--max-examples", "20"),
        ]
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("schemathesis")),
            *arguments,
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode(errors="replace")


def main() -> None:
    """Read the command line and fuzz."""
    parser = argparse.ArgumentParser(description="Fuzz the API of admin with Schemathesis.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(1 if asyncio.run(run(arguments.minutes, arguments.seed)) else 0)


if __name__ == "__main__":
    main()
