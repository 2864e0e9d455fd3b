"""What ingest keeps while Kafka does not take it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from room_admin.access import DatabaseOf, Viewer
from room_common.postgres import overflow

router = APIRouter(tags=["overflow"])


@router.get("/overflow")
async def show_overflow(database: DatabaseOf, _: Viewer) -> dict[str, Any]:
    """The overflow table: rows, bytes, and the age of its oldest record in seconds, null when it is empty."""
    async with database.transaction() as conn:
        return asdict(await overflow.total_of(conn))
