"""What a delivery costs in model calls and prompt tokens, by the number of definitions, as the rehearsal model counts.

Nothing is started: the prompts are those the matcher sends, the counts those the rehearsal model reports (bytes / 4).
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from room_common.domain.classification_prompt import Delivery
from room_local.rehearsal.answers import answer

PAYLOADS = Path(__file__).parents[2] / "examples" / "revenue-desk" / "payloads"
CRITERION = 'The payload tells of something that nobody has ever sent: "term number {} of none"'


def main() -> None:
    """Print one line for each number of definitions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--definitions", default="1,5,20")
    options = parser.parse_args()
    payloads = [json.loads(path.read_bytes()) for path in sorted(PAYLOADS.glob("*.json"))]
    print(f"{len(payloads)} payloads of the example, none of which matches: every definition is asked")
    print("| definitions | calls a delivery | prompt tokens a delivery | of them a prefix that was sent before |")
    print("| --- | --- | --- | --- |")
    for count in map(int, options.definitions.split(",")):
        tokens = shared = 0
        for payload in payloads:
            delivery = Delivery(
                source_name="bench", source_type="github", headers={}, view=payload, nonce=os.urandom(8).hex()
            )
            prompts = [delivery.ask(CRITERION.format(number)) for number in range(count)]
            for prompt in prompts:
                messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
                usage = answer({"model": "rehearsal-fast", "messages": messages}, created=0).body["usage"]
                assert isinstance(usage, dict)
                tokens += usage["prompt_tokens"]
            same = _common([prompt.user for prompt in prompts]) if count > 1 else 0
            shared += (count - 1) * (same + len(prompts[0].system.encode())) // 4
        print(f"| {count} | {count} | {tokens // len(payloads):,} | {shared / tokens:.0%} |")


def _common(texts: list[str]) -> int:
    """Bytes that all begin with."""
    first, last = min(texts), max(texts)
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return len(first[:length].encode())


if __name__ == "__main__":
    main()
