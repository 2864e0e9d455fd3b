"""Commands that change what is configured, look into deliveries, send them again and try definitions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from room_common.contracts.envelope import decode
from room_testing.administering import TOKENS, ListedRoom, opened, served
from room_testing.answering_llm import AnsweringLlm
from room_testing.kept_records import KeptRecords

from .conftest import ROOM_FILE, Command

pytestmark = pytest.mark.integration


@dataclass(frozen=True, slots=True)
class Installation:
    """An API with what stands in for Kafka and a model, and the command that talks to it."""

    dsn: str
    url: str
    records: KeptRecords
    llm: AnsweringLlm


@pytest.fixture(scope="module")
def installation(postgres_dsn: str) -> Iterator[Installation]:
    records, llm = KeptRecords(), AnsweringLlm()
    with served(postgres_dsn, "https://hooks.example.com", records=records, llm=llm) as url:
        yield Installation(postgres_dsn, url, records, llm)


@pytest.fixture
def command(installation: Installation, tmp_path: Path) -> Command:
    """The command, with the room of ``ROOM_FILE`` as ``ops`` applied."""
    run = Command(installation.url, tmp_path, [])
    run("apply", "-f", run.file("room.yaml", ROOM_FILE.replace("slug: desk", "slug: ops")))
    installation.records.sent.clear()
    return run


@pytest.fixture
def listed(installation: Installation, request: pytest.FixtureRequest) -> ListedRoom:
    """A room with a delivery that matched, and its record."""

    async def seed() -> ListedRoom:
        async with opened(installation.dsn) as world:
            room = await world.listed(f"seen-{abs(hash(request.node.name)) % 10**8}")
            verdict = {
                "definition_id": str(room.definition_id),
                "name": "won",
                "verdict": "unclear",
                "answer": "Not \x1b[31msure",
                "warning": "unclear_answer",
                "input_tokens": 200,
                "output_tokens": 3,
                "remembered": False,
                "ms": 12,
            }
            await world.query(
                "update webhook_deliveries set verdicts = %s, llm_calls = 1, tokens = 203 where id = %s",
                json.dumps([verdict]),
                room.delivery_id,
            )
            await world.query("update room_cycles set started_at = now() where id = %s", room.cycle_id)
            call = {"id": "1", "function": {"name": "tell", "arguments": '{"a": "' + "long " * 40 + '"}'}}
            await world.query(
                "insert into cycle_messages (cycle_id, seq, role, content) values (%s, 2, 'assistant', %s)",
                room.cycle_id,
                json.dumps({"tool_calls": [call]}),
            )
            return room

    room = asyncio.run(seed())
    installation.records.keep(room.delivery_id, b'{"stage": "closedwon"}')
    return room


def sources_of(command: Command, room: str = "ops") -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(command("sources", "-r", room, "--json").stdout)}


def test_rotate_prints_the_new_url_once(command: Command) -> None:
    before = json.loads(command("sources", "-r", "ops", "--reveal", "--json").stdout)
    old = next(row["url"] for row in before if row["name"] == "ci")
    shown = command("sources", "rotate", "ci", "-r", "ops", "--grace", "60").stdout
    assert "https://hooks.example.com/webhooks/" in shown and old not in shown
    assert "the URL of before works until" in shown
    answer = json.loads(command("sources", "rotate", "ci", "-r", "ops", "--json").stdout)
    assert set(answer) == {"url", "old_valid_until"}
    assert "lists them" in command("sources", "rotate", "nothing", "-r", "ops", code=2).stderr
    command("sources", "rotate", "ci", "-r", "ops", "--grace", "-1", code=2)
    assert "role operator" in command("sources", "rotate", "ci", "-r", "ops", token=TOKENS["viewer"], code=1).stderr


def test_on_and_off(command: Command) -> None:
    assert command("disable", "source", "ci", "-r", "ops").stdout == "source ci is off\n"
    assert command("disable", "source", "ci", "-r", "ops").stdout == "source ci is off already\n"
    assert sources_of(command)["ci"]["enabled"] is False
    assert json.loads(command("enable", "source", "ci", "-r", "ops", "--json").stdout)["enabled"] is True
    assert command("disable", "definition", "ci / broken", "-r", "ops").stdout == "definition ci / broken is off\n"
    [row] = json.loads(command("definitions", "-r", "ops", "--json").stdout)
    assert row["enabled"] is False
    assert command("enable", "definition", "broken", "-r", "ops").stdout == "definition broken is on\n"
    assert command("disable", "room", "ops").stdout == "room ops is off\n"
    assert command("enable", "room", "ops").stdout == "room ops is on\n"
    assert "no room" in command("enable", "room", "nowhere", code=1).stderr
    command("enable", "room", "../sources", code=1)
    command("enable", "thing", "ops", code=2)


def test_delete_asks_first(command: Command) -> None:
    asked = command("delete", "source", "billing", "-r", "ops", typed="n\n", code=1)
    assert "Delete the source billing?" in asked.stderr and "nothing was deleted" in asked.stderr
    assert "billing" in sources_of(command)
    assert "is deleted" in command("delete", "source", "billing", "-r", "ops", typed="y\n").stdout
    assert "billing" not in sources_of(command)
    assert json.loads(command("delete", "definition", "broken", "-r", "ops", "--yes", "--json").stdout) == {
        "name": "broken"
    }
    text = ROOM_FILE.replace("slug: desk", "slug: short-lived")
    command("apply", "-f", command.file("short.yaml", text))
    lines = command("delete", "room", "short-lived", "-y").stdout.splitlines()
    assert lines == ["room short-lived is deleted", "2 sources and 3 URLs ended, 0 messages are not sent"]
    assert "no room" in command("delete", "room", "short-lived", "-y", code=1).stderr


def test_definitions_are_listed_and_ordered(command: Command) -> None:
    text = ROOM_FILE.replace("slug: desk", "slug: ordered").replace(
        "      - {name: broken, match: a build broke}\n",
        "      - {name: broken, match: a build broke}\n      - {name: slow, match: a build was slow, priority: 200}\n",
    )
    command("apply", "-f", command.file("ordered.yaml", text))
    assert [row["name"] for row in json.loads(command("definitions", "-r", "ordered", "--json").stdout)] == [
        "broken",
        "slow",
    ]
    assert command("definitions", "order", "ci", "slow", "broken", "-r", "ordered").stdout == "ci asks: slow, broken\n"
    shown = command("definitions", "-r", "ordered").stdout
    assert shown.index("slow") < shown.index("broken")
    assert "name each" in command("definitions", "order", "ci", "slow", "-r", "ordered", code=2).stderr


def test_a_life_fits_80_columns_and_moves_no_terminal(command: Command, listed: ListedRoom) -> None:
    shown = command("deliveries", "show", str(listed.delivery_id)).stdout
    lines = shown.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "".join(lines).isprintable()
    for said in (
        "received",
        "passed",
        "asked",
        "matched",
        "event",
        "cycle",
        "tool",
        "message",
        "tell(",
        "won: unclear",
    ):
        assert said in shown, said
    life = json.loads(command("deliveries", "show", str(listed.delivery_id)[-12:], "--json").stdout)
    assert life["id"] == str(listed.delivery_id)
    assert str(listed.delivery_id)[-12:] in command("deliveries", "-r", listed.slug).stdout
    assert "deliver" in command("deliveries", "show", "nothing", code=2).stderr
    command("deliveries", "show", "00000000-0000-0000-0000-000000000000", code=1)
    command("deliveries", "show", str(listed.delivery_id), token=TOKENS["viewer"], code=1)


def test_a_payload_is_shown_as_json_or_as_bytes(
    command: Command, installation: Installation, listed: ListedRoom
) -> None:
    delivery = str(listed.delivery_id)
    assert json.loads(command("deliveries", "payload", delivery).stdout) == {"stage": "closedwon"}
    assert json.loads(command("deliveries", "payload", delivery, "--json").stdout)["items"] == 1
    assert command("deliveries", "payload", delivery, "--raw").stdout == '{"stage": "closedwon"}'
    installation.records.keep(listed.delivery_id, b"NaN")
    assert "--raw" in command("deliveries", "payload", delivery, code=1).stderr
    installation.records.kept.clear()
    assert "not in Kafka any more" in command("deliveries", "payload", delivery, code=1).stderr


def test_replay_several_and_go_on_after_one_that_is_gone(
    command: Command, installation: Installation, listed: ListedRoom
) -> None:
    delivery, unknown = str(listed.delivery_id), "00000000-0000-0000-0000-000000000000"
    result = command("deliveries", "replay", unknown, delivery, "--force", code=1)
    assert f"{delivery} is sent again as " in result.stdout
    [sent] = installation.records.sent
    assert decode(sent).forced and str(decode(sent).replay_of) == delivery
    [done] = json.loads(command("deliveries", "replay", delivery, "--json").stdout)
    assert done["replay_of"] == delivery
    assert not decode(installation.records.sent[1]).forced


DEFINITION = "- name: won\n  match: >-\n    a deal was won\n  interpret: tell\n"


def test_a_definition_is_tried(command: Command, installation: Installation, listed: ListedRoom) -> None:
    installation.llm.answer = lambda _: "Yes, closedwon."
    words = ("definitions", "test", "-f", command.file("def.yaml", DEFINITION), "-s", "crm", "-r", listed.slug)
    shown = command(*words, "--last", "20").stdout
    assert "unclear" in shown and "Yes, closedwon." in shown
    assert "1 of 1 verdicts change; 1 calls, 100 + 2 tokens (60 of them cached)" in shown
    installation.llm.answer = lambda _: "no"
    assert "0 of 1 verdicts change" in command(*words).stdout
    assert str(listed.delivery_id)[-12:] not in command(*words).stdout
    assert str(listed.delivery_id)[-12:] in command(*words, "--all").stdout
    assert json.loads(command(*words, "--json").stdout)["tested"] == 1
    sample = command.file("sample.json", '{"stage": "open"}')
    assert "sample" in command(*words, "--payload", sample).stdout
    assert "either --last or" in command(*words, "--payload", sample, "--last", "3", code=2).stderr
    assert "try again" in command(*words, code=1).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\n", "match"),
        ("- {name: a, match: b}\n- {name: c, match: d}\n", "one definition"),
        ("name: x\nmatch: y\nmacth: z\n", "macth"),
        ("a: [", "def.yaml:"),
        ("", "one definition"),
        (b"\xff", "UTF-8"),
        ("name: x\n\tmatch: y\n", "def.yaml:2"),
    ],
)
def test_a_wrong_definition_is_exit_2(command: Command, text: str | bytes, said: str) -> None:
    result = command("definitions", "test", "-f", command.file("def.yaml", text), "-s", "ci", code=2)
    assert said in result.stderr and result.stdout == ""
