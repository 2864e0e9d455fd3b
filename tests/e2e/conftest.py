"""A browser in front of the panel: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from psycopg.types.json import Jsonb

from room_common.domain.classification_prompt import CRITERION_HEADING
from room_testing.administering import ListedRoom, opened, served
from room_testing.answering_llm import AnsweringLlm
from room_testing.browsing import Panel, Visitor
from room_testing.kept_records import KeptRecords

expect.set_options(timeout=20_000)
CHROMIUM = os.environ.get("ROOM_TEST_CHROMIUM", "/usr/bin/chromium")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium. As root it runs without its sandbox."""
    if not Path(CHROMIUM).exists():
        pytest.fail(f"{CHROMIUM} is missing: apt install chromium, or name another one in ROOM_TEST_CHROMIUM")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def panel(postgres_dsn: str, browser: Browser) -> Iterator[Panel]:
    """The panel behind a real server, with a room that has a past."""

    async def make() -> ListedRoom:
        async with opened(postgres_dsn) as world:
            return await world.listed("desk", 60)

    with ThreadPoolExecutor(1) as pool:  # Playwright has a loop of its own in this thread
        room = pool.submit(asyncio.run, make()).result()
    records = KeptRecords()
    llm = AnsweringLlm(lambda said: "yes" if "private" in said.partition(CRITERION_HEADING)[0] else "no")
    with served(postgres_dsn, "https://hooks.example.com", records=records, llm=llm) as url:
        made = Panel(url, postgres_dsn, room, browser)
        call = {"id": "1", "function": {"name": "send_message_to_human", "arguments": '{"message": "A deal was won."}'}}
        for seq, role, content in (
            (2, "assistant", {"content": "I tell the person.", "tool_calls": [call]}),
            (3, "tool", {"tool_call_id": "1", "content": '{"queued": true}'}),
        ):
            made.query(
                "insert into cycle_messages (cycle_id, seq, role, content) values (%s, %s, %s, %s)",
                *(room.cycle_id, seq, role, Jsonb(content)),
            )
        verdicts = [
            {"name": "lost", "verdict": "no", "input_tokens": 210, "output_tokens": 2, "ms": 340},
            {
                "name": "won",
                "verdict": "no",
                "warning": "unclear_answer",
                "answer": "Not sure",
                "input_tokens": 215,
                "output_tokens": 4,
                "ms": 410,
            },
        ]
        made.query("update webhook_deliveries set verdicts = %s, llm_calls = 2, tokens = 431", Jsonb(verdicts))
        made.query(
            "insert into service_state (service, process, version, held_reason, lag) values"
            " ('matcher', 'matcher-a-1', '1', 'model provider in trouble', 12),"
            " ('scheduler', 'scheduler-a-2', '1', null, 0)"
        )
        for number, row in enumerate(made.query("select id from webhook_deliveries order by id")):
            made.query('update webhook_deliveries set "offset" = %s where id = %s', number, row["id"])
            records.keep(row["id"], offset=number)
        yield made


@pytest.fixture
def visitor(panel: Panel) -> Iterator[Visitor]:
    """An operator who is signed in, at a desk."""
    somebody = panel.visitor()
    somebody.sign_in()
    yield somebody
    somebody.close()
