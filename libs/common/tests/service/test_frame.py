from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest
import structlog

from room_common.errors import ConfigurationError, DependencyUnavailable
from room_common.service import Context, Part, frame
from room_common.service.frame import Frame
from room_common.settings import OperationsSettings, ServiceSettings
from room_common.telemetry.metrics import new_registry


class Probe(Part):
    """A part that does what it is told, and notes what is done to it."""

    def __init__(self, name: str, journal: list[str], errors: Sequence[BaseException] = ()) -> None:
        self.name = name
        self.journal = journal
        self.errors = list(errors)
        self.hang_start = False
        self.hang_stop = False
        self.alive_reason: str | None = None
        self.ready_reason: str | None = None
        self.stop_error: Exception | None = None

    async def start(self) -> None:
        if self.hang_start:
            await asyncio.Event().wait()
        if self.errors:
            self.journal.append(f"{self.name} failed")
            raise self.errors.pop(0)
        self.journal.append(f"{self.name} started")

    async def stop(self) -> None:
        self.journal.append(f"{self.name} stopping")
        if self.hang_stop:
            await asyncio.Event().wait()
        if self.stop_error is not None:
            raise self.stop_error
        self.journal.append(f"{self.name} stopped")

    def alive(self) -> str | None:
        if self.alive_reason == "raise":
            raise ValueError
        return self.alive_reason

    def ready(self) -> str | None:
        return self.ready_reason


@pytest.fixture(autouse=True)
def fast_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(frame, "LAST_RETRY", 0.02)


def make(*parts: Part) -> Frame[ServiceSettings]:
    context = Context(
        service="test",
        instance="test-1",
        settings=ServiceSettings(operations=OperationsSettings(host="127.0.0.1", port=0)),
        registry=new_registry("test"),
        stopping=asyncio.Event(),
    )
    return Frame(context, parts)


class Running:
    """A frame that runs, with a client of its operations port."""

    def __init__(self, made: Frame[ServiceSettings], task: asyncio.Task[int], client: httpx.AsyncClient) -> None:
        self.frame = made
        self.task = task
        self.client = client

    async def get(self, path: str) -> tuple[int, Any]:
        answer = await self.client.get(f"http://127.0.0.1:{self.frame.operations.port}{path}")
        return answer.status_code, orjson.loads(answer.content)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)

    async def stop(self) -> int:
        self.frame._context.stopping.set()
        return await self.task


@asynccontextmanager
async def running(*parts: Part) -> AsyncIterator[Running]:
    made = make(*parts)
    async with httpx.AsyncClient(trust_env=False) as client:
        run = Running(made, asyncio.create_task(made.run()), client)
        await run.until(lambda: made.operations.port != 0)
        yield run
        await run.stop()


async def test_parts_start_in_order_and_stop_in_reverse() -> None:
    journal: list[str] = []
    async with running(Probe("a", journal), Probe("b", journal)) as run:
        await run.until(lambda: "b started" in journal)
        assert await run.get("/readyz") == (200, {"ready": True, "waiting": {}})
        assert await run.get("/livez") == (200, {"live": True, "failing": {}})
        assert await run.stop() == 0
    assert journal == ["a started", "b started", "b stopping", "b stopped", "a stopping", "a stopped"]


@pytest.mark.parametrize(
    "error", [DependencyUnavailable("kafka", "connect"), ConnectionRefusedError(111, "refused"), TimeoutError()]
)
async def test_a_dependency_that_is_away_is_waited_for(error: Exception) -> None:
    journal: list[str] = []
    async with running(Probe("a", journal, [error] * 3), Probe("b", journal)) as run:
        await run.until(lambda: "b started" in journal)
        assert journal[:4] == ["a failed"] * 3 + ["a started"]
        assert await run.stop() == 0


async def test_readyz_says_what_it_waits_for_and_livez_stays_well() -> None:
    journal: list[str] = []
    away = Probe("a", journal, [DependencyUnavailable("postgresql", "connect")] * 100_000)
    async with running(away, Probe("b", journal)) as run:
        await run.until(lambda: "a failed" in journal)
        status, body = await run.get("/readyz")
        waiting = {"a": "postgresql: connect (look at ROOM_DATABASE__DSN)", "b": "not started"}
        assert (status, body) == (503, {"ready": False, "waiting": waiting})
        assert (await run.get("/livez"))[0] == 200
        assert await run.stop() == 0
    assert "b started" not in journal


async def test_a_repeated_reason_is_logged_once_and_a_new_one_at_once() -> None:
    journal: list[str] = []
    errors = [DependencyUnavailable("kafka", "connect")] * 10 + [DependencyUnavailable("kafka", "authentication")] * 10
    with structlog.testing.capture_logs() as logs:
        async with running(Probe("a", journal, errors)) as run:
            await run.until(lambda: "a started" in journal)
    reasons = [line["reason"] for line in logs if line["event"] == "waiting"]
    assert [reason.partition(" (")[0] for reason in reasons] == ["kafka: connect", "kafka: authentication"]


async def test_a_reason_never_holds_the_message_of_an_error() -> None:
    assert frame._retry_reason(OSError("postgresql://u:pw@h")) == "OSError"
    assert frame._retry_reason(ValueError("x")) is None


async def test_a_crash_at_start_stops_what_began_and_exits_with_1() -> None:
    journal: list[str] = []
    async with running(Probe("a", journal), Probe("b", journal, [ValueError("x")]), Probe("c", journal)) as run:
        assert await run.task == 1
    assert journal == ["a started", "b failed", "b stopping", "b stopped", "a stopping", "a stopped"]


async def test_a_wrong_setting_found_at_start_exits_with_2() -> None:
    async with running(Probe("a", [], [ConfigurationError("x")])) as run:
        assert await run.task == 2


async def test_a_failure_later_drains_and_exits_with_1() -> None:
    journal: list[str] = []
    part = Probe("a", journal)
    async with running(part) as run:
        await run.until(lambda: "a started" in journal)
        part.fail(ValueError("x"))
        part.fail(ConfigurationError("a later one does not change the code"))
        assert await run.task == 1
    assert journal[-1] == "a stopped"


async def test_a_start_that_hangs_does_not_stop_a_drain() -> None:
    journal: list[str] = []
    part = Probe("a", journal)
    part.hang_start = True
    async with running(part) as run:
        assert (await run.get("/readyz"))[1]["waiting"] == {"a": "starting"}
        assert await run.stop() == 0
    assert journal == ["a stopping", "a stopped"]


async def test_a_stop_that_hangs_or_fails_does_not_keep_the_others() -> None:
    journal: list[str] = []
    first, second, third = (Probe(name, journal) for name in "abc")
    second.hang_stop, second.stop_timeout = True, 0.02
    third.stop_error = ValueError("x")
    async with running(first, second, third) as run:
        await run.until(lambda: "c started" in journal)
        assert await run.stop() == 0
    assert journal[-1] == "a stopped"


async def test_health_is_asked_of_started_parts_only() -> None:
    journal: list[str] = []
    part = Probe("a", journal)
    async with running(part) as run:
        await run.until(lambda: "a started" in journal)
        part.ready_reason = "no partitions"
        part.alive_reason = "stuck"
        assert await run.get("/readyz") == (503, {"ready": False, "waiting": {"a": "no partitions"}})
        assert await run.get("/livez") == (503, {"live": False, "failing": {"a": "stuck"}})
        part.alive_reason = "raise"
        assert (await run.get("/livez"))[1]["failing"] == {"a": "the check itself failed: ValueError"}


async def test_a_draining_service_is_alive_and_not_ready() -> None:
    journal: list[str] = []
    part = Probe("a", journal)
    part.hang_stop, part.stop_timeout, part.alive_reason = True, 0.5, "stuck"
    async with running(part) as run:
        await run.until(lambda: "a started" in journal)
        run.frame._context.stopping.set()
        await run.until(lambda: "a stopping" in journal)
        assert (await run.get("/livez"))[0] == 200
        assert await run.get("/readyz") == (503, {"ready": False, "waiting": {"service": "stopping"}})


async def test_a_port_in_use_is_a_wrong_setting() -> None:
    async with running() as run:
        other = make()
        other.operations._settings = OperationsSettings(host="127.0.0.1", port=run.frame.operations.port)
        assert await other.run() == 2


def test_two_parts_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        make(Probe("a", []), Probe("a", []))


async def test_a_part_that_does_not_work_any_more_is_told_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "_LOG_EVERY", 0.01)
    probe = Probe("a", [])
    with structlog.testing.capture_logs() as logged:
        async with running(probe) as run:
            await run.until(lambda: any(line["event"] == "started" for line in logged))
            probe.ready_reason = "postgresql: refused"
            await run.until(lambda: sum(line["event"] == "waiting" for line in logged) >= 3)
    told = [line for line in logged if line["event"] == "waiting"]
    assert {(line["part"], line["reason"]) for line in told} == {("a", "postgresql: refused")}
