"""Commands that talk to the API: what they print, and how they end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from typer.testing import CliRunner

from room_cli.__main__ import app
from room_matcher.domain.signatures import Signed, verify
from room_testing.administering import TOKENS, opened

from .conftest import ROOM_FILE, Command

pytestmark = pytest.mark.integration

LISTS = ("sources", "deliveries", "backlog", "cycles", "messages", "inbox")


def test_apply_shows_the_difference_and_urls_once(room: Command) -> None:
    text = ROOM_FILE.replace("slug: desk", "slug: shown").replace("a build broke", "a build of the main branch broke")
    file = room.file("shown.yaml", text)
    planned = room("apply", "-f", file, "--dry-run").stdout.splitlines()
    assert planned == [
        "+ room       shown",
        "+ channel    local",
        "+ source     ci",
        "+ definition ci / broken",
        "+ source     billing",
        "5 to change (nothing was changed: --dry-run)",
    ]
    done = room("apply", "-f", file).stdout.splitlines()
    assert done[:5] == planned[:5]
    assert done[5] == "5 changed"
    assert [line.split(":")[0] for line in done[6:9]] == ["channel local", "source ci", "source billing"]
    again = room("apply", "-f", file).stdout.splitlines()
    assert again[-1] == "nothing to change"
    assert all(line.startswith("= ") for line in again[:-1])
    file = room.file(
        "shown.yaml", text.replace("main branch", "main line").replace("  - name: billing", "  - name: pay")
    )
    changed = room("apply", "-f", file).stdout.splitlines()
    assert "~ definition ci / broken" in changed
    assert "      match: a build of the main branch bro... -> a build of the main line broke" in changed
    assert "+ source     pay" in changed and "- source     billing" in changed


def test_apply_as_json(room: Command) -> None:
    answer = json.loads(room("apply", "-f", room.file("room.yaml", ROOM_FILE), "--json").stdout)
    assert answer["changed"] is False
    assert {change["action"] for change in answer["changes"]} == {"unchanged"}


def test_the_file_may_be_named_without_an_option(room: Command) -> None:
    file = room.file("room.yaml", ROOM_FILE)
    assert json.loads(room("apply", file, "--json").stdout)["changed"] is False
    assert "name one room file" in room("apply", code=2).stderr
    assert "name one room file" in room("apply", file, "-f", file, code=2).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ROOM_FILE.replace("match:", "macth:"), ":10: unknown key 'macth'; did you mean 'match'?"),
        (ROOM_FILE.replace("name: billing", "name: ci"), ":11: there is another source named 'ci'"),
        (ROOM_FILE.replace("env: CI_SECRET", "env: CI_SECRT"), ":8: secret of source 'ci': the environment variable"),
        ("", ":1: a room file is a mapping"),
    ],
)
def test_a_wrong_file_is_exit_2_with_its_line(room: Command, text: str, said: str) -> None:
    file = room.file("wrong.yaml", text)
    result = room("apply", "-f", file, code=2)
    assert file + said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_a_file_that_is_not_there_is_exit_2(room: Command) -> None:
    assert "can't be read" in room("apply", "-f", "/nowhere/room.yaml", code=2).stderr


@pytest.mark.parametrize("name", LISTS)
def test_lists_without_rows_say_what_comes_next(room: Command, name: str) -> None:
    assert room(name).stdout.strip()
    assert isinstance(json.loads(room(name, "--json").stdout), list)


@pytest.mark.parametrize("name", LISTS)
def test_a_wrong_token_is_exit_1(room: Command, name: str) -> None:
    result = room(name, token="x" * 40, code=1)
    assert "this token is not valid" in result.stderr
    assert "x" * 40 not in result.output


def test_a_viewer_is_told_what_takes_an_operator(room: Command) -> None:
    room("sources", token=TOKENS["viewer"])
    assert "this takes the role operator" in room("sources", "--reveal", token=TOKENS["viewer"], code=1).stderr


@pytest.mark.parametrize("token", ["é" * 20, "a\nb", "a\x1b[31m"])
def test_a_token_that_cannot_be_one_is_exit_2(room: Command, token: str) -> None:
    assert "copied whole" in room("sources", token=token, code=2).stderr


def test_sources_reveal(room: Command) -> None:
    rows = json.loads(room("sources", "--room", "desk", "--reveal", "--json").stdout)
    assert [row["name"] for row in rows] == ["billing", "ci"]
    lines = room("sources", "-r", "desk", "--reveal").stdout.splitlines()
    assert all(any(row["url"] in line for line in lines) for row in rows)


def test_unknown_names_are_told(room: Command) -> None:
    assert "there is no room 'nowhere'" in room("sources", "--room", "nowhere", code=1).stderr
    assert "there is no room 'nowhere'" in room("deliveries", "--room", "nowhere", code=1).stderr
    assert "?outcome" in room("deliveries", "--outcome", "mached", code=1).stderr
    assert "?status" in room("backlog", "--status", "done", code=1).stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:1/"])
def test_nothing_answers_is_exit_3(url: str) -> None:
    result = CliRunner().invoke(app, ["sources"], env={"ROOM_API_URL": url, "ROOM_API_TOKEN": "x"})
    assert result.exit_code == 3
    assert "does not answer" in result.stderr


@pytest.mark.parametrize("url", ["localhost:8090", "http://", "ftp://x", "http://a:b"])
def test_an_address_that_is_none_is_exit_2(url: str) -> None:
    result = CliRunner().invoke(app, ["sources"], env={"ROOM_API_URL": url, "ROOM_API_TOKEN": "x"})
    assert result.exit_code == 2
    assert "ROOM_API_URL" in result.stderr


def test_nothing_runs_is_exit_3_with_a_remedy(tmp_path: Path) -> None:
    for words in (
        ["sources"],
        ["deliveries"],
        ["reply", "desk", "hello"],
        ["chat", "desk"],
        ["cycles", "show", "last"],
    ):
        result = CliRunner().invoke(app, [*words, "-C", str(tmp_path)], env={"ROOM_API_URL": ""})
        assert result.exit_code == 3, result.output
        assert "room up" in result.stderr


def test_no_token_is_exit_2(tmp_path: Path) -> None:
    environ = {"ROOM_API_URL": "http://127.0.0.1:1", "ROOM_API_TOKEN": "", "ROOM_API_TOKEN_FILE": ""}
    assert CliRunner().invoke(app, ["sources"], env=environ).exit_code == 2
    environ["ROOM_API_TOKEN_FILE"] = str(tmp_path / "nowhere")
    result = CliRunner().invoke(app, ["sources"], env=environ)
    assert result.exit_code == 2
    assert "ROOM_API_TOKEN_FILE can't be read" in result.stderr


def test_send_is_signed_and_has_fresh_ids(room: Command) -> None:
    file = room.file("payload.json", '{"id": "evt_1", "type": "invoice.paid"}')
    for _ in range(2):
        assert "200" in room("send", "billing", "-f", file, "-r", "desk", "--secret-env", "BILLING_SECRET").stdout
    assert len({json.loads(one.body)["id"] for one in room.taken}) == 2
    for one in room.taken:
        signed = Signed("POST", "http://x" + one.path, one.headers, one.body, _time_of(one.headers["stripe-signature"]))
        assert verify("stripe", [b"billing-word"], signed).verified


def _time_of(signature: str) -> float:
    return float(dict(part.split("=", 1) for part in signature.split(","))["t"])


def test_exact_is_the_same_delivery_again(room: Command) -> None:
    payload = '{"id":  "evt_1"}'
    file = room.file("payload.json", payload)
    for _ in range(2):
        room("send", "billing", "-f", file, "--exact", "-r", "desk")
        room("send", "ci", "-f", file, "--exact", "-r", "desk")
    assert {one.body for one in room.taken} == {payload.encode()}
    assert len({one.headers["x-github-delivery"] for one in room.taken if "x-github-delivery" in one.headers}) == 1
    room("send", "ci", "-f", file, "-r", "desk")
    assert len({one.headers["x-github-delivery"] for one in room.taken if "x-github-delivery" in one.headers}) == 2


def test_a_form_is_signed_as_it_is_sent(room: Command) -> None:
    file = room.file("payload.json", '{"a": "é&="}')
    room("send", "ci", "-f", file, "-r", "desk", "--form", "--event", "workflow_run", "--secret-env", "CI_SECRET")
    [one] = room.taken
    assert one.headers["content-type"] == "application/x-www-form-urlencoded"
    assert one.headers["x-github-event"] == "workflow_run"
    assert json.loads(parse_qs(one.body.decode())["payload"][0]) == {"a": "é&="}
    assert verify("github", [b"ci-word"], Signed("POST", "http://x", one.headers, one.body, 0.0)).verified


def test_send_to_a_url_needs_a_type(room: Command) -> None:
    file = room.file("payload.json", "{}")
    assert "--type" in room("send", "http://127.0.0.1:1/webhooks/x", "-f", file, code=2).stderr
    failed = room("send", "http://127.0.0.1:1/webhooks/s3cr3t", "-f", file, "--type", "github", code=3)
    assert "does not answer" in failed.stderr
    assert "s3cr3t" not in failed.output
    assert "not a URL" in room("send", "http://a:s3cr3t", "-f", file, "--type", "github", code=2).stderr


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["ci", "--secret-env", "NO_SUCH_VARIABLE"],
        ["ci", "-H", "no colon"],
        ["ci", "-H", "bad name: x"],
        ["ci", "-H", "x: é"],
        ["ci", "-H", "x: a\nb"],
        ["ci", "--type", "nobody"],
        ["ci", "-f", "/nowhere"],
    ],
)
def test_what_cannot_be_sent_is_exit_2(room: Command, words: list[str]) -> None:
    file = room.file("payload.json", "{}")
    room("send", *words, *([] if "-f" in words else ["-f", file]), code=2)
    assert room.taken == []


def test_reply_posts_to_the_local_channel(room: Command) -> None:
    assert "room inbox" in room("reply", "desk", "Thanks.").stdout
    [one] = room.taken
    assert one.path.startswith("/channels/local/")
    body = json.loads(one.body)
    assert (body["sender"], body["text"]) == ("you", "Thanks.")
    room("reply", "desk", " ", code=2)
    room("reply", "nowhere", "Hello", code=1)
    room.file("silent.yaml", "version: 1\nname: Silent\nslug: silent\n")
    room("apply", "-f", str(room.folder / "silent.yaml"))
    assert "does not talk on the local channel" in room("reply", "silent", "Hello", code=2).stderr


def test_chat_shows_messages_and_sends_lines(room: Command, postgres_dsn: str) -> None:
    asyncio.run(
        _query(
            postgres_dsn,
            "insert into outbound_messages (id, instance_id, channel, target, seq, text, status, sent_at)"
            " select gen_random_uuid(), id, 'local', 'you', 1, %s, 'sent', now() from instances where slug = 'desk'",
            "The deploy \x1b[31mfailed\x1b]0;x\x07.\nSee [bold]this[/] :smile:",
        )
    )
    shown = room("chat", "desk", typed="Roll back.\n\n  Then tell me.  \n").stdout
    assert [json.loads(one.body)["text"] for one in room.taken] == ["Roll back.", "Then tell me."]
    assert "See [bold]this[/] :smile:" in shown
    assert "".join(shown.splitlines()).isprintable()


def test_a_failed_message_is_sent_again(room: Command, postgres_dsn: str) -> None:
    asyncio.run(
        _query(
            postgres_dsn,
            "insert into outbound_messages (id, instance_id, channel, target, seq, text, status)"
            " select gen_random_uuid(), id, 'local', 'nobody', 1, 'x', 'failed' from instances where slug = 'desk'",
        )
    )
    (message,) = json.loads(room("messages", "--room", "desk", "--status", "failed", "--json").stdout)
    assert "queued again" in room("messages", "resend", message["id"]).stdout
    assert json.loads(room("messages", "--room", "desk", "--status", "failed", "--json").stdout) == []
    assert "only a failed or unknown message" in room("messages", "resend", message["id"], code=1).stderr
    assert room("messages", "resend", "not-an-id", code=2).exit_code == 2


async def _query(dsn: str, statement: str, *parameters: object) -> list[dict[str, Any]]:
    async with opened(dsn) as world:
        return await world.query(statement, *parameters)


def test_rooms_are_listed_and_named_where_one_is_unknown(room: Command) -> None:
    assert "desk" in room("rooms").stdout
    assert "desk" in [row["slug"] for row in json.loads(room("rooms", "--json").stdout)]
    assert "`room rooms`" in room("chat", "nope", code=1).stderr


def test_a_message_is_read_whole_however_narrow_the_terminal(room: Command, postgres_dsn: str) -> None:
    text = "A long line of what an agent wrote, which no list of 80 columns shows as a whole. " * 4
    asyncio.run(
        _query(
            postgres_dsn,
            "insert into outbound_messages (id, instance_id, channel, target, seq, text, status)"
            " select gen_random_uuid(), id, 'local', 'you', 7, %s, 'sent' from instances where slug = 'desk'",
            text,
        )
    )
    assert text.strip() in room("messages", "show", "last", width=40).stdout
    (message,) = json.loads(room("messages", "--last", "1", "--json").stdout)
    assert text.strip() in room("messages", "show", message["id"][-12:]).stdout
    assert json.loads(room("messages", "show", message["id"], "--json").stdout)["text"] == text


def test_a_delivery_without_a_signature_is_doubted(room: Command) -> None:
    payload = room.file("push.json", b"{}")
    bare = room("send", "ci", "--room", "desk", "-f", payload).stdout
    assert "bad_signature" in bare and "room deliveries" in bare
    assert "warning" not in room("send", "ci", "--room", "desk", "-f", payload, "--secret-env", "CI_SECRET").stdout
    text = room.file("push.txt", b"hello")
    assert "undecodable" in room("send", "ci", "--room", "desk", "-f", text, "--secret-env", "CI_SECRET").stdout


def test_a_transcript_is_found_by_the_end_of_its_id(room: Command, postgres_dsn: str) -> None:
    async def seed() -> str:
        async with opened(postgres_dsn) as world:
            cycle = (await world.listed("transcript")).cycle_id
            await world.query(
                "insert into cycle_messages (cycle_id, seq, role, content) values (%s, 2, 'assistant', %s)",
                cycle,
                json.dumps(
                    {"tool_calls": [{"id": "1", "function": {"name": "tell", "arguments": '{"a": "\x1b[2J"}'}}]}
                ),
            )
            return str(cycle)

    cycle = asyncio.run(seed())
    for word in (cycle, cycle[-12:], "last"):
        shown = room("cycles", "show", word).stdout
        assert f"cycle {cycle} of transcript: succeeded" in shown
        assert '-> tell({"a": "' in shown
        assert "".join(shown.splitlines()).isprintable()
    assert json.loads(room("cycles", "show", "last", "--json").stdout)["messages"][0]["role"] == "user"
    assert cycle[-12:] in room("cycles", "-r", "transcript").stdout
    for word in ("nothing", "", cycle[-2:]):
        room("cycles", "show", word, code=2)
    room("cycles", "show", "00000000-0000-0000-0000-000000000000", code=1)
