"""What the compactor is made of."""

from __future__ import annotations

from collections.abc import Sequence

from room_common.postgres.database import Database
from room_common.postgres.migrate import SchemaGate
from room_common.service.parts import Context, Part
from room_common.service.state import StateReporter
from room_compactor.audit import Audit
from room_compactor.daily import DailyRun
from room_compactor.settings import CompactorSettings


def compose(context: Context[CompactorSettings]) -> Sequence[Part]:
    """The parts of the compactor, in the order in which they start."""
    settings = context.settings
    database = Database(settings.database, application_name="room-compactor", registry=context.registry)
    return [
        database,
        SchemaGate(database),
        DailyRun(database, settings.compactor, context.registry, context.instance),
        Audit(database, settings.kafka, settings.audit, context.registry),
        StateReporter(database, context),
    ]
