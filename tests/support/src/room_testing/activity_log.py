"""The activity log in tests of the compactor: rows in, rows out, as the pure rule of aging has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from room_testing.aging_model import Entry, Row


class ActivityLog:
    """Writes and reads ``room_activity_log`` of one database."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def query(self, statement: str, *parameters: object) -> list[dict[str, object]]:
        """Run one statement in its own transaction."""
        with psycopg.connect(self._dsn, row_factory=dict_row) as conn:
            cursor = conn.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def instances(self, ids: Iterable[UUID], *, enabled: bool = True) -> None:
        """Make instances with rooms."""
        for id_ in ids:
            self.query("insert into instances (id, slug, name) values (%s, %s, 'Desk')", id_, f"desk-{id_.hex}")
            self.query("insert into instance_room (instance_id, enabled) values (%s, %s)", id_, enabled)

    def put(self, rows: Sequence[Row]) -> None:
        """Insert rows as they are."""
        with psycopg.connect(self._dsn) as conn, conn.cursor() as cursor:
            cursor.executemany(
                """
                insert into room_activity_log
                    (id, instance_id, log_date, log_type, kind, severity, content, counts, digest, event_count,
                     occurred_at)
                values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
                """,
                [
                    (
                        row.id,
                        row.instance_id,
                        row.log_date,
                        row.log_type,
                        row.kind,
                        row.severity,
                        row.content,
                        Jsonb(dict(row.counts)),
                        Jsonb([list(astuple(entry)) for entry in row.digest]),
                        row.event_count,
                        row.occurred_at,
                    )
                    for row in rows
                ],
            )

    def clear(self) -> None:
        """Empty it."""
        self.query("delete from room_activity_log")

    def rows(self) -> list[Row]:
        """Everything that is in it, in an order of its own."""
        found = self.query(
            "select id, instance_id, log_date, log_type, kind, severity, content, counts, digest, event_count,"
            " occurred_at from room_activity_log"
        )
        return in_order(
            Row(**{**row, "digest": tuple(Entry(*entry) for entry in row["digest"])})  # type: ignore[arg-type, attr-defined]
            for row in found
        )


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order that does not depend on who made them."""
    return sorted(rows, key=lambda row: (row.instance_id, row.log_type, row.log_date, row.id))
