"""Calls/s of the bare ``openai`` client on its fastest transport. ``bare.py URL CONCURRENCY SECONDS PROMPT_BYTES``."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import openai
import uvloop


async def main(url: str, concurrency: int, seconds: float, size: int) -> None:
    """Print ``calls/s CPU-milliseconds-per-call``."""
    async with openai.AsyncOpenAI(
        api_key="none", base_url=url, max_retries=0, http_client=openai.DefaultAioHttpClient()
    ) as client:
        calls = 0
        prompt = "x" * size

        async def worker(end: float) -> None:
            nonlocal calls
            while time.monotonic() < end:
                answer = await client.chat.completions.create(
                    model="bench",
                    messages=[{"role": "system", "content": "Answer yes or no."}, {"role": "user", "content": prompt}],
                    temperature=0.0,
                    max_completion_tokens=64,
                )
                assert answer.choices[0].message.content == "no"
                calls += 1

        await asyncio.gather(*(worker(time.monotonic() + 1) for _ in range(concurrency)))
        calls, cpu, began = 0, _cpu(), time.monotonic()
        await asyncio.gather(*(worker(began + seconds) for _ in range(concurrency)))
        print(calls / (time.monotonic() - began), (_cpu() - cpu) / calls * 1000)


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
