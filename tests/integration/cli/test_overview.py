"""A room as a file and back, and the commands that show how an installation is doing."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from room_cli.__main__ import app
from room_testing.administering import TOKENS, opened

from .conftest import ROOM_FILE, Command

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def listed(postgres_dsn: str) -> str:
    """The slug of a room with a row in every list."""

    async def fill() -> None:
        async with opened(postgres_dsn) as world:
            await world.listed("full")

    asyncio.run(fill())
    return "full"


def test_an_export_applied_changes_nothing(room: Command) -> None:
    exported = room("export", "desk").stdout
    assert "ci-word" not in exported and "billing-word" not in exported
    file = room.file("exported.yaml", exported)
    assert room("apply", "-f", file).stdout.splitlines()[-1] == "nothing to change"
    assert room("diff", file).stdout == "no difference\n"
    assert json.loads(room("export", "desk", "--json").stdout)["slug"] == "desk"
    target = room.folder / "written.yaml"
    room("export", "desk", "-o", str(target))
    assert target.read_text() == exported
    assert "there is no room" in room("export", "nowhere", code=1).stderr
    assert "can't be written" in room("export", "desk", "-o", "/nowhere/x", code=2).stderr


def test_a_difference_is_shown_whole_and_is_exit_4(room: Command) -> None:
    text = ROOM_FILE.replace("a build broke", "a build of the main branch broke and nobody has looked at it yet")
    changed = text.partition("  - name: billing")[0].replace("type: github", "type: gitlab")
    file = room.file("changed.yaml", changed)
    shown = room("diff", file, code=4).stdout.splitlines()
    assert "~ source     ci" in shown and "    type: github -> gitlab" in shown
    assert "      - a build broke" in shown
    assert "      + a build of the main branch broke and nobody has looked at it yet" in shown
    assert "warning: the URL of source billing would end; if it comes back it gets another one" in shown
    assert json.loads(room("diff", file, "--json", code=4).stdout)["applied"] is False
    assert "warning: the URL of source billing would end" in room("apply", file, "--dry-run").stdout
    assert room("diff", room.file("same.yaml", ROOM_FILE)).stdout == "no difference\n"


def test_channels_and_their_urls(room: Command) -> None:
    rows = json.loads(room("channels", "-r", "desk", "--reveal", "--json").stdout)
    assert [(row["room"], row["type"]) for row in rows] == [("desk", "local")]
    assert rows[0]["url"] in room("channels", "-r", "desk", "--reveal").stdout
    assert "url" not in json.loads(room("channels", "--json").stdout)[0]


@pytest.mark.parametrize("name", ["services", "activity", "audit", "tokens", "channels"])
def test_further_lists(room: Command, listed: str, name: str) -> None:
    assert room(name).stdout.strip()
    assert isinstance(json.loads(room(name, "--json").stdout), list)


def test_counts_since_a_time(room: Command, listed: str) -> None:
    assert json.loads(room("stats", "-r", listed, "--json").stdout)["outcomes"]["matched"]["items"] == 1
    assert "matched" in room("stats", "--room", listed).stdout
    assert room("stats", "--since", "2999-01-01T00:00:00+00:00").stdout == "nothing happened\n"
    assert "offset" in room("stats", "--since", "2999-01-01", code=2).stderr
    assert json.loads(room("backlog", "--since", "2999-01-01T00:00:00+00:00", "--json").stdout) == []


def test_one_event_and_one_room(room: Command, listed: str) -> None:
    event = json.loads(room("backlog", "-r", listed, "--json").stdout)[0]
    assert json.loads(room("backlog", "show", event["id"][-12:], "--json").stdout)["id"] == event["id"]
    assert "won" in room("backlog", "show", event["id"]).stdout
    assert json.loads(room("backlog", "payload", event["id"]).stdout) == {"a": "private"}
    assert room("backlog", "payload", event["id"], "--raw").stdout == '{"a": "private"}'
    assert json.loads(room("rooms", "show", listed, "--json").stdout)["slug"] == listed
    assert "Watch." in room("rooms", "show", listed).stdout


def test_tokens_are_made_and_revoked(room: Command) -> None:
    made = json.loads(room("tokens", "make", "A reader", "--json").stdout)
    assert made["role"] == "viewer"
    room("rooms", token=made["token"])
    assert "of A reader is revoked" in room("tokens", "revoke", made["id"]).stdout
    room("rooms", token=made["token"], code=1)
    assert made["token"] not in room("tokens").stdout + room("audit").stdout
    assert "role operator" in room("tokens", token=TOKENS["viewer"], code=1).stderr


def test_any_call_of_the_api(room: Command) -> None:
    assert json.loads(room("api", "get", "/instances/desk").stdout)["slug"] == "desk"
    assert json.loads(room("api", "PATCH", "/instances/desk", "-d", '{"enabled": true}').stdout)["changed"] is False
    file = room.file("body.json", '{"enabled": true}')
    assert json.loads(room("api", "PATCH", "/instances/desk", "-d", f"@{file}").stdout)["changed"] is False
    assert "not JSON" in room("api", "PATCH", "/instances/desk", "-d", "{", code=2).stderr
    assert "room api get" in room("api", "FETCH", "/x", code=2).stderr
    room("api", "get", "/nothing", code=1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("room sources --room de", "desk"),
        ("room send bil", "billing"),
        ("room delete source c", "ci"),
        ("room delete definition bro", "broken"),
        ("room chat de", "desk"),
        ("room deliveries --outcome mat", "matched"),
    ],
)
def test_names_are_completed(room: Command, line: str, expected: str) -> None:
    environ = {
        "ROOM_API_URL": room.url,
        "ROOM_API_TOKEN": TOKENS["operator"],
        "_ROOM_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    completed = CliRunner().invoke(app, [], prog_name="room", env=environ)
    assert expected in completed.output.split(), completed.output
    away = CliRunner().invoke(app, [], prog_name="room", env=environ | {"ROOM_API_URL": "http://127.0.0.1:1"})
    assert expected in ("matched",) or away.output.strip() == ""
