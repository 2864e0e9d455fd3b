"""How much of a prompt a real prompt cache spares, with the criterion at the end and with the criterion first.

llama.cpp's server with a small real model, one slot, so that a request finds what the one before left. Each payload is
asked about as many definitions as wanted, one after the other, as the matcher does; "first" is the same text with the
criterion before the payload. Prints the share of prompt tokens that the server reports as cached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from room_common.domain.classification_prompt import CRITERION_HEADING, Delivery, Prompt
from room_testing.llama_server import API_KEY, LlamaServer, installed

PAYLOADS = (
    {"event": "ticket.opened", "id": 4711, "title": "Checkout is down", "priority": "P1", "team": "payments"},
    {"event": "invoice.paid", "id": "in_31", "customer": "Ada Ltd", "amount": 129900, "currency": "eur"},
    {"event": "deal.changed", "id": 88, "name": "Northwind", "stage": "negotiation", "owner": "sam"},
    {"event": "build.failed", "id": 9120, "branch": "main", "job": "integration", "attempt": 2},
)
CRITERIA = (
    "A customer can't pay.",
    "An invoice above 1,000 euro was paid.",
    "A deal moved to the stage 'negotiation' or beyond.",
    "A build of the branch 'main' failed more than once.",
    "Somebody asks for a refund.",
)
TIMEOUT_SECONDS = 120


@dataclass
class Sum:
    """What one order of the parts cost. ``seconds``: of each call."""

    prompt: int = 0
    cached: int = 0
    most: int = 0
    seconds: list[float] = field(default_factory=list)

    def line(self, name: str) -> str:
        return (
            f"| {name} | {len(self.seconds)} | {self.prompt:,} | {self.cached / self.prompt:.0%} "
            f"| {self.prompt - self.cached:,} | {sum(self.seconds):.0f} |"
        )


def main() -> int:
    """Print one line for each order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definitions", type=int, default=len(CRITERIA))
    options = parser.parse_args()
    if not installed():
        parser.error("llama.cpp's wheels are not installed (requirements/llama.txt)")
    criteria = [CRITERIA[number % len(CRITERIA)] for number in range(options.definitions)]
    with tempfile.TemporaryDirectory(prefix="room-llama-") as folder:
        server = LlamaServer(Path(folder), context=2048)
        server.start()
        try:
            _ask(server.url, "Be brief.", "Say yes.")
            sums = {"last": _run(server.url, criteria, first=False), "first": _run(server.url, criteria, first=True)}
        finally:
            server.stop()
    most = max(one.most for one in sums.values())
    print(f"{len(PAYLOADS)} payloads, {len(criteria)} definitions each, {most} prompt tokens at most")
    print("| criterion | calls | prompt tokens | of them cached | computed | seconds in all |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, one in sums.items():
        print(one.line(name))
    return 0 if sums["last"].cached > sums["first"].cached else 1


def _run(url: str, criteria: list[str], *, first: bool) -> Sum:
    found = Sum()
    for payload in PAYLOADS:
        delivery = Delivery(
            source_name="bench", source_type="generic", headers={}, view=payload, nonce=os.urandom(8).hex()
        )
        for criterion in criteria:
            prompt = delivery.ask(criterion)
            began = time.monotonic()
            tokens, cached = _ask(url, prompt.system, _criterion_first(prompt) if first else prompt.user)
            found.seconds.append(time.monotonic() - began)
            found.prompt += tokens
            found.cached += cached
            found.most = max(found.most, tokens)
    return found


def _criterion_first(prompt: Prompt) -> str:
    data, heading, criterion = prompt.user.rpartition(CRITERION_HEADING)
    return f"{heading}{criterion}\n\n{data.rstrip()}"


def _ask(url: str, system: str, user: str) -> tuple[int, int]:
    """Prompt tokens of one question, and how many of them the server had in its cache."""
    body = {
        "model": "smollm2",
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        "temperature": 0,
        "max_completion_tokens": 4,
    }
    headers = {"content-type": "application/json", "authorization": f"Bearer {API_KEY}"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        usage = json.load(answer)["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


if __name__ == "__main__":
    sys.exit(main())
