"""Reading a room file: every error names the file and the line, and says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from room_cli.demo.scenario import SECRETS, example_folder
from room_cli.room_file import read_room_file, template_problem
from room_common.errors import ConfigurationError

GOOD = """\
version: 1
name: Desk
slug: desk
mandate: Watch.
timezone: Europe/Rome
channel:
  type: local
  target: you
sources:
  - name: crm
    type: hubspot
    secrets:
      - env: CRM_SECRET
    definitions:
      - name: won
        match: a deal was won
      - name: lost
        match: a deal was lost
  - name: ci
    type: generic
"""
ENVIRON = {"CRM_SECRET": "word"}


def problems(folder: Path, text: str | bytes, environ: dict[str, str] | None = None) -> list[str]:
    """What is said about a file, without its path; empty for a good one."""
    file = folder / "room.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    try:
        read_room_file(file, ENVIRON if environ is None else environ)
    except ConfigurationError as error:
        lines = str(error).splitlines()
        assert all(line.startswith(f"{file}:") for line in lines), lines
        return [line.removeprefix(f"{file}:") for line in lines]
    return []


def changed(line: int, *texts: str) -> str:
    """The good file with one line, counted from 1, replaced."""
    lines = GOOD.splitlines()
    lines[line - 1 : line] = texts
    return "\n".join(lines) + "\n"


def test_a_good_file(tmp_path: Path) -> None:
    file = tmp_path / "room.yaml"
    file.write_text("\ufeff" + GOOD)
    found = read_room_file(file, ENVIRON)
    assert [source.name for source in found.document.sources] == ["crm", "ci"]
    assert found.secrets == {"crm": ["word"]}
    assert "word" not in repr(found.document)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a key with a typo, at each level
        (changed(4, "mandat: Watch."), "4: unknown key 'mandat'; did you mean 'mandate'?"),
        (changed(8, "  taget: you", "  target: you"), "8: unknown key 'taget'; did you mean 'target'?"),
        (changed(11, "    type: hubspot", "    tpye: x"), "12: unknown key 'tpye'; did you mean 'type'?"),
        (changed(13, "      - envv: CRM_SECRET"), "13: unknown key 'envv'; did you mean 'env'?"),
        (changed(16, "        match: x", "        macth: y"), "17: unknown key 'macth'; did you mean 'match'?"),
        (changed(4, "zzz: 1"), "4: unknown key 'zzz'; known here: version, name, slug"),
        # two of one name: the second one is shown
        (
            changed(19, "  - enabled: true", "    name: crm"),
            "20: there is another source named 'crm'",
        ),
        (changed(17, "      - name: won"), "17: there is another definition named 'won'"),
        (changed(17, "      - name: ' won '"), "17: there is another definition named 'won'"),
        # something is missing
        (changed(1, "# nothing"), "1: 'version' is missing"),
        (changed(16, "        priority: 1"), "15: 'match' is missing in 'won'"),
        (changed(11, "    enabled: true"), "10: 'type' is missing in 'crm'"),
        (changed(13, "      - {}"), "13: write either env: NAME or file: PATH"),
        (changed(13, "      - {env: A, file: b}"), "13: write either env: NAME or file: PATH"),
        # wrong types and values
        (changed(2, "name: 2024"), "2: 'name' should be text; put it in quotes"),
        (changed(2, "name: 2024-01-01"), "2: 'name' should be text; put it in quotes"),
        (changed(2, "name: [a]"), "2: 'name' should be text"),
        (changed(2, "name: ''"), "2: 'name': "),
        (changed(2, 'name: "a\\nb"'), "2: a name is one line, without control characters"),
        (changed(2, 'name: "a\\0b"'), "2: a name is one line, without control characters"),
        (changed(4, 'mandate: "a\\0b"'), "4: text may not contain the character NUL"),
        (changed(1, "version: 2"), "1: 'version': input should be 1"),
        (changed(3, "slug: Desk Number 1"), "3: 'slug': "),
        (changed(5, "timezone: Europe/Roma"), "5: write a name of the IANA time zone database"),
        (changed(5, "timezone: ../../etc/passwd"), "5: write a name of the IANA time zone database"),
        (changed(5, "timezone: 5"), "5: 'timezone' should be text"),
        (changed(6, "channel: you", "ignored:"), "6: 'channel' should be a mapping"),
        (changed(7, "  type: pigeon"), "7: 'type': input should be 'local', 'slack'"),
        (changed(7, "  type: locall"), "7: 'type': did you mean 'local'?"),
        (changed(7, "  type: slack"), "6: a Slack target is the id of a channel (C...) or a person (U...), not a name"),
        (changed(9, "sources:", "  a: b", "other:"), "9: 'sources' should be a list"),
        (changed(9, "sources:", "other:"), "9: 'sources' should be a list"),
        (changed(11, "    type: gitub"), "11: 'type': did you mean 'github'? input should be 'github', "),
        (changed(13, "      - hunter2"), "13: a secret is never written here: name where it is, as `- env: VARIABLE`"),
        (changed(14, "   definitions:"), "14: is indented differently"),
        (changed(16, "        match: x", "        priority: high"), "17: 'priority' should be a whole number"),
        (
            changed(16, "        match: x", "        interpret: 'See {{paylod.id}}'"),
            "17: '{{paylod.id}}' stays as it is",
        ),
        (changed(16, "        match: x", "        interpret: 'See {{payload.id}'"), "17: a reference is not closed"),
        (changed(16, "        match: x", "        interpret: 'See {{payload id}}'"), "17: '{{payload id}}' is no"),
        (changed(20, "    type: generic", "    secrets: [{env: A}]"), "19: say how a generic source is verified"),
        (changed(16, "        match: x", "        priority: soon"), "17: 'priority' should be a whole"),
        (changed(16, "        match: x", "        priority: 1.5"), "17: 'priority' should be a whole"),
        (changed(16, "        match: x", "        cooldown_seconds: -1"), "17: 'cooldown_seconds': "),
        (changed(16, "        match: x", "        enabled: perhaps"), "17: 'enabled' should be true or"),
        (changed(16, "        match: ' '"), "16: 'match': "),
        (changed(16, "        match: [x]"), "16: 'match' should be text"),
        (changed(15, "      - just text", "      - name: won"), "15: item 1 of definitions should be a mapping"),
        # not YAML, or not a mapping
        (changed(4, "name: Again"), '4: the key "name" is there twice; keep one'),
        (changed(8, "\ttarget: you"), "8: a tab where YAML takes only spaces"),
        (changed(4, "mandate: 'Watch"), "21: is not valid YAML: "),
        (changed(4, "mandate: *nobody"), "4: is not valid YAML: "),
        (changed(4, "mandate: }"), "4: is not valid YAML: "),
        (changed(4, "mandate: \x07"), "4: has a control character"),
        (GOOD + "---\nversion: 1\n", "21: is not valid YAML: "),
        ("", "1: a room file is a mapping"),
        ("# only a comment\n", "1: a room file is a mapping"),
        ("- a\n- b\n", "1: a room file is a mapping"),
        ("just text\n", "1: a room file is a mapping"),
        ("{" * 5000, ""),
        (b"version: 1\nname: \xff\n", "2: is not UTF-8 text"),
        (GOOD.encode("utf-16"), "1: is not UTF-8 text"),
        ("# " + "x" * (1 << 20) + "\n" + GOOD, "1: is larger than"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str | bytes, expected: str) -> None:
    found = problems(tmp_path, text)
    assert any(line.startswith(expected) for line in found), found


def test_the_other_of_two_names_is_told(tmp_path: Path) -> None:
    [said] = problems(tmp_path, changed(19, "  - name: crm"))
    assert said.endswith("(the other one is on line 10)")


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path, GOOD.replace("version: 1", "version: 9").replace("slug: desk", "slug: D").replace("match", "x")
    )
    assert [int(re.match(r"\d+", line)[0]) for line in found if re.match(r"\d+", line)]  # type: ignore[index]
    assert len(found) >= 5


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("env: CRM_SECRET", "13: secret of source 'crm': the environment variable CRM_SECRET is not set; export it"),
        ("file: nowhere", "13: secret of source 'crm': the file {0}/nowhere can't be read (No such file or directory)"),
        ("file: .", "13: secret of source 'crm': the file {0} can't be read (Is a directory)"),
        ("file: /dev/zero", "13: secret of source 'crm': is longer than 4096 characters"),
        ("file: empty", "13: secret of source 'crm': the file {0}/empty is empty"),
        ("file: binary", "13: secret of source 'crm': the file {0}/binary is not UTF-8 text"),
        ("file: long", "13: secret of source 'crm': is longer than 4096 characters"),
        ('file: "a\\0b"', "13: secret of source 'crm': the file {0}/a"),
    ],
)
def test_a_secret_that_is_not_there(tmp_path: Path, reference: str, expected: str) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "long").write_text("x" * 4097)
    [said] = problems(tmp_path, changed(13, f"      - {reference}"), {})
    assert said.startswith(expected.format(tmp_path))


def test_a_secret_is_read_from_a_file_beside(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(" word\n")
    file = tmp_path / "room.yaml"
    file.write_text(changed(13, "      - file: secret"))
    assert read_room_file(file, {}).secrets == {"crm": ["word"]}


@pytest.mark.parametrize("what", ["missing", "a folder"])
def test_a_file_that_cannot_be_read(tmp_path: Path, what: str) -> None:
    file = tmp_path / "nowhere.yaml" if what == "missing" else tmp_path
    with pytest.raises(ConfigurationError, match=r"can't be read \((No such file|Is a directory)"):
        read_room_file(file)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(b"a: &a [*a]")
@example(b"version: 1\nname: &n x\n<<: *n\n")
@example(b"? [a]\n: b\n")
@example(b"!!python/object:os.system {}\n")
@example(b"1: 2\n")
def test_any_bytes_are_read_or_refused(tmp_path: Path, raw: bytes) -> None:
    assert problems(tmp_path, raw)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.integers(1, 20),
    st.sampled_from(["", "x", "- x", "  x: y", "{", "null", "name:", "sources: [[]]", "\t", "&a *a"]),
)
def test_any_damage_to_a_line_is_read_or_refused(tmp_path: Path, line: int, text: str) -> None:
    problems(tmp_path, changed(line, text))


def test_the_example_is_good() -> None:
    found = read_room_file(example_folder() / "room.yaml", dict.fromkeys(SECRETS.values(), "word"))
    assert set(found.secrets) == set(SECRETS)


CHANNEL = """\
version: 1
name: Desk
slug: desk
channel:
  type: slack
  target: U0ADA
  secrets:
    bot_token: {env: SLACK_BOT_TOKEN}
    signing_secret: {file: signing}
"""


def test_the_secrets_of_a_channel(tmp_path: Path) -> None:
    (tmp_path / "signing").write_text("from-a-file\n")
    file = tmp_path / "room.yaml"
    file.write_text(CHANNEL)
    given = read_room_file(file, {"SLACK_BOT_TOKEN": "xoxb-1"})
    assert given.channel_secrets == {"bot_token": "xoxb-1", "signing_secret": "from-a-file"}
    assert "xoxb-1" not in repr(given)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{file: signing}", "{env: NOT_SET}", "9: secret 'signing_secret' of the channel: the environment variable"),
        ("{file: signing}", "{file: wrong}", "9: secret 'signing_secret' of the channel: is not what slack gives"),
        ("    signing_secret: {file: signing}\n", "", "4: a channel of type slack needs these secrets and no others"),
        ("U0ADA", "'#ops'", "4: a Slack target is the id of a channel"),
        ("  target:", "  sender: '+39061234567'\n  target:", "4: sender, the number that messages come from"),
    ],
)
def test_what_is_wrong_with_a_channel(tmp_path: Path, old: str, new: str, expected: str) -> None:
    (tmp_path / "signing").write_text("from-a-file")
    (tmp_path / "wrong").write_text("two words")
    file = tmp_path / "room.yaml"
    file.write_text(CHANNEL.replace(old, new))
    with pytest.raises(ConfigurationError) as failed:
        read_room_file(file, {"SLACK_BOT_TOKEN": "xoxb-1"})
    assert str(failed.value).startswith(f"{file}:{expected}"), failed.value


TOOLS = """\
tools:
  - name: crm
    type: mcp
    url: https://tools.example.com/mcp
    allow: [find]
    secret:
      env: CRM_TOKEN
  - name: business_days
    type: python
"""


def test_tools_and_their_secrets_are_read(tmp_path: Path) -> None:
    file = tmp_path / "room.yaml"
    file.write_text(GOOD + TOOLS)
    found = read_room_file(file, ENVIRON | {"CRM_TOKEN": "t0ken"})
    assert [tool.name for tool in found.document.tools] == ["crm", "business_days"]
    assert found.tool_secrets == {"crm": "t0ken"}


def test_errors_of_tools_name_their_line(tmp_path: Path) -> None:
    assert problems(tmp_path, GOOD + TOOLS) == [
        "26: secret of tool 'crm': the environment variable CRM_TOKEN is not set; export it and apply again"
    ]
    (unknown,) = problems(tmp_path, GOOD + TOOLS.replace("allow:", "alow:"))
    assert unknown.startswith("25: unknown key 'alow'; did you mean 'allow'?")
    (double,) = problems(tmp_path, GOOD + TOOLS.replace("business_days", "crm"))
    assert "there is another tool named 'crm'" in double


@pytest.mark.parametrize(
    "text", ["", "{{ payload.a.0.b }}", "{{payload}}", "Write {{name}} and {} and {{ }}.", "a }} b"]
)
def test_other_braces_are_the_operators_own(text: str) -> None:
    assert template_problem(text) is None


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from(["{{payload.a}", "{{payload.a", "payload.a}}"]))
def test_a_reference_that_is_not_closed_is_seen_wherever_it_stands(before: int, after: int, wrong: str) -> None:
    assert template_problem("x" * before + " " + wrong + " " + "x" * after) is not None


@given(st.text(alphabet="{} .payload0x", max_size=60))
def test_any_template_is_judged(text: str) -> None:
    assert template_problem(text) is None or template_problem(text)
