"""What room-runner is made of."""

from __future__ import annotations

from collections.abc import Sequence

from room_common.contracts import topics
from room_common.crypto import Keyring
from room_common.kafka.batches import Batches
from room_common.kafka.producer import Producer
from room_common.llm.openai_adapter import OpenAiLlm
from room_common.postgres.database import Database
from room_common.postgres.migrate import SchemaGate
from room_common.service.parts import Context, Part
from room_common.service.state import StateReporter
from room_runner.desk import Desk
from room_runner.instance_tools import InstanceTools
from room_runner.intake import GROUP, TickIntake
from room_runner.keeper import LeaseKeeper
from room_runner.metrics import CycleMetrics, SlotMetrics
from room_runner.provider import Provider
from room_runner.python_tools import load
from room_runner.relay import Relay
from room_runner.settings import RunnerSettings
from room_runner.slots import Slots
from room_runner.sweeper import Sweeper


def compose(context: Context[RunnerSettings]) -> Sequence[Part]:
    """The parts of room-runner, in the order in which they start."""
    settings, registry = context.settings, context.registry
    runner = settings.runner
    database = Database(settings.database, application_name="room-runner", registry=registry)
    producer = Producer(settings.kafka, registry)
    relay = Relay(database, producer, registry, runner)
    keeper = LeaseKeeper(
        settings.database,
        context.instance,
        lease_seconds=runner.lease_seconds,
        renew_seconds=runner.renew_seconds,
        fence_seconds=runner.fence_seconds,
    )
    llm = OpenAiLlm(settings.llm, registry, concurrency=max(settings.llm.concurrency, runner.slots + 1))
    provider = Provider(llm, probe_seconds=runner.probe_seconds, changed=lambda closed: slots.circuit_changed(closed))
    desk = Desk(
        database,
        provider,
        runner,
        CycleMetrics.build(registry),
        relay.nudge,
        outside=InstanceTools(
            database,
            Keyring.parse(settings.encryption.keys.get_secret_value()),
            settings.egress,
            load(seconds=settings.tools.call_seconds, threads=settings.tools.threads),
            call_seconds=settings.tools.call_seconds,
        ),
        draining=context.stopping,
    )
    slots = Slots(desk, keeper, SlotMetrics.build(registry), owner=context.instance)
    sweeper = Sweeper(
        database,
        registry,
        seconds=runner.sweep_seconds,
        backoff=runner.event_backoff,
        max_resumes=runner.max_resumes,
        awake=slots.poke,
    )
    batches = Batches(settings.kafka, registry)
    batches.subscribe(topics.TICKS, GROUP, TickIntake(database, registry, awake=slots.poke).handle)
    return [
        database,
        SchemaGate(database),
        producer,
        relay,
        keeper,
        llm,
        provider,
        slots,
        sweeper,
        batches,
        StateReporter(
            database,
            context,
            held=lambda: next(iter(batches.held), None) if provider.closed else "model provider in trouble",
            lag=lambda: batches.lag,
            detail=lambda: {"busy": slots.busy, "slots": runner.slots},
        ),
    ]
