from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from room_common.errors import ConfigurationError
from room_common.postgres.database import connection_string
from room_common.postgres.settings import DatabaseSettings
from room_common.settings import Section, parse_settings


class Settings(Section):
    database: DatabaseSettings


def parsed(dsn: str, **changes: object) -> dict[str, object]:
    settings = DatabaseSettings.model_validate({"dsn": dsn, **changes})
    return dict(conninfo_to_dict(connection_string(settings, "room-test")))


def test_time_limits_are_part_of_the_session() -> None:
    found = parsed("postgresql://u:p@h/d", statement_timeout=2, lock_timeout=0.5)
    assert "-c statement_timeout=2000" in str(found["options"])
    assert "-c lock_timeout=500" in str(found["options"])
    assert "-c idle_in_transaction_session_timeout=30000" in str(found["options"])
    assert found["application_name"] == "room-test"
    assert found["keepalives"] == "1"


def test_what_the_operator_says_comes_last() -> None:
    found = parsed("postgresql://u:p@h/d?application_name=mine&options=-c%20statement_timeout%3D1")
    assert found["application_name"] == "mine"
    assert str(found["options"]).endswith("-c statement_timeout=1")


def test_a_pooler_gets_no_session_options() -> None:
    assert "options" not in parsed("postgresql://u:p@h/d", pooler=True)


def test_a_wrong_dsn_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_settings(Settings, {"ROOM_DATABASE__DSN": "postgresql://u:p4ss@h/d?nonsense=1"})
    assert "p4ss" not in str(caught.value)
    assert "ROOM_DATABASE__DSN" in str(caught.value)
