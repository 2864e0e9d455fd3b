"""What noisy senders cost quiet ones: one token as hot as its limit lets it be, and a flood of tokens that are wrong.

Twenty quiet senders post ten times a second each. Their p99 beside a noisy neighbour is compared with their p99 alone,
in pairs of windows that follow each other.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time

from servers import INGEST, Servers
from window import Load

QUIET = 20
EVERY = 0.1
NOISY_CONNECTIONS = 64
BODY = b'{"quiet":true,"text":"%b"}' % (b"q" * 2000)


def run(servers: Servers, tokens: list[str], *, rounds: int, seconds: float) -> int:
    """Print p50 and p99 of the quiet senders alone and beside each neighbour, and the factors."""
    neighbours = {"a hot token": tokens[:1], "wrong tokens": [secrets.token_hex(32) for _ in range(1000)]}
    alone: list[tuple[float, float]] = []
    beside: dict[str, list[tuple[float, float]]] = {name: [] for name in neighbours}
    rates: dict[str, list[float]] = {name: [] for name in neighbours}
    with servers.serving(INGEST) as server:
        asyncio.run(_quiet(server.port, tokens[1:], 2.0))
        for name, noisy in neighbours.items():
            folder = servers.folder / name.replace(" ", "-")
            folder.mkdir()
            load = Load.build(folder, noisy, 2048)
            for _ in range(rounds):
                alone.append(asyncio.run(_quiet(server.port, tokens[1:], seconds)))
                figures, rate = asyncio.run(_beside(load, server.port, tokens[1:], seconds))
                beside[name].append(figures)
                rates[name].append(rate)
    print(f"{QUIET} quiet senders, {1 / EVERY:.0f} requests/s each; medians of {rounds} pairs of {seconds:.0f} s\n")
    print("| beside | neighbour's requests/s | p50 ms | p99 ms | p99 beside / alone |\n| --- | --- | --- | --- | --- |")
    print(f"| nobody | - | {_median(alone, 0):.1f} | {_median(alone, 1):.1f} | - |")
    for index, (name, figures) in enumerate(beside.items()):
        pairs = zip(figures, alone[index * rounds :], strict=False)
        factor = statistics.median(with_noise[1] / without[1] for with_noise, without in pairs)
        rate = statistics.median(rates[name])
        print(f"| {name} | {rate:,.0f} | {_median(figures, 0):.1f} | {_median(figures, 1):.1f} | {factor:.1f} |")
    return 0


def _median(figures: list[tuple[float, float]], which: int) -> float:
    return statistics.median(figure[which] for figure in figures)


async def _beside(load: Load, port: int, tokens: list[str], seconds: float) -> tuple[tuple[float, float], float]:
    noise = asyncio.create_task(asyncio.to_thread(load.run, port, NOISY_CONNECTIONS, 1.0, seconds + 1.0))
    await asyncio.sleep(1.5)
    figures = await _quiet(port, tokens, seconds)
    result = await noise
    return figures, (result["ok"] + result["other"]) / (seconds + 2.0)


async def _quiet(port: int, tokens: list[str], seconds: float) -> tuple[float, float]:
    """p50 and p99 in milliseconds, of requests sent at fixed times whatever became of those before."""
    end = time.monotonic() + seconds
    latencies: list[float] = []
    await asyncio.gather(*(_sender(port, tokens[number], number, end, latencies) for number in range(QUIET)))
    latencies.sort()
    return latencies[len(latencies) // 2] * 1000, latencies[int(len(latencies) * 0.99)] * 1000


async def _sender(port: int, token: str, number: int, end: float, latencies: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    due = time.monotonic() + EVERY * number / QUIET
    head = f"POST /webhooks/{token} HTTP/1.1\r\nHost: quiet\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
    while due < end:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        writer.write(head + BODY)
        answer = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
        if b" 200 " not in answer[:16]:
            raise SystemExit(f"a quiet sender got {answer[:40]!r}")
        latencies.append(time.monotonic() - due)
        due += EVERY
    writer.close()
