from __future__ import annotations

import pytest

from room_common.errors import ConfigurationError, Defect
from room_common.postgres.migrate import Migration, latest, migrations, parse_migration, pending

ONE = parse_migration("0001_one.sql", b"select 1;\n")
TWO = parse_migration("0002_two.sql", b"select 2;\n")
THREE = parse_migration("0003_three.sql", b"select 3;\n")
STEPS = (ONE, TWO, THREE)


def done(*steps: Migration) -> list[tuple[int, str]]:
    return [(step.version, step.checksum) for step in steps]


def test_what_is_missing_is_applied_in_order() -> None:
    assert pending(STEPS, [], None) == STEPS
    assert pending(STEPS, done(ONE), None) == (TWO, THREE)
    assert pending(STEPS, done(ONE), 2) == (TWO,)
    assert pending(STEPS, done(*STEPS), None) == ()


def test_a_newer_schema_is_fine() -> None:
    assert pending((ONE,), [*done(ONE), (2, "unknown")], None) == ()


def test_an_edited_migration_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="0001_one"):
        pending(STEPS, [(1, "other")], None)


def test_an_unknown_older_migration_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="0002"):
        pending((ONE, THREE), [(2, "x")], None)


def test_line_ends_do_not_change_the_checksum() -> None:
    assert parse_migration("0001_one.sql", b"select 1;\r\n").checksum == ONE.checksum


def test_other_names_are_refused() -> None:
    with pytest.raises(Defect):
        parse_migration("one.sql", b"")


def test_the_files_of_this_release_are_numbered_without_a_gap() -> None:
    assert migrations()[0].label == "0001_baseline"
    assert latest() is migrations()[-1]
