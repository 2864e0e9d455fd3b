"""Unit tests of the alerts as ``promtool test rules`` runs them: for each, series on which it fires, and it alone, and
series just short of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from room_monitoring import alerts, objectives
from room_monitoring.rules import HEAD, dump

RULES: Final = "../../helm/room/files/alerts.yaml"
Series = Mapping[str, str]
_NOW_OLD: Final = "0x200"
"""A timestamp that stands still while the time of the test, which begins at 0, goes on."""


@dataclass(frozen=True, slots=True)
class Case:
    """``at``: when to look. ``count``: how many instances of the alert fire then."""

    alert: str
    fires: Series
    quiet: Series
    at: str = "20m"
    count: int = 1


def _lag(progress: str, lag: str, **more: str) -> dict[str, str]:
    place = '{topic="room.webhooks.raw",partition="3",group="room-matcher"}'
    return {
        f"room_consumer_progress_timestamp_seconds{place}": progress,
        f"room_consumer_lag_messages{place}": lag,
        **{name.replace("held", 'room_held{group="room-matcher",reason="llm"}'): value for name, value in more.items()},
    }


def _share(metric: str, label: str, bad: str, good: str, rates: tuple[int, int], more: str = "") -> dict[str, str]:
    return {
        f'{metric}{{{label}="{bad}"{more}}}': f"0+{rates[0]}x400",
        f'{metric}{{{label}="{good}"{more}}}': f"0+{rates[1]}x400",
    }


def _late(histogram: str, labels: str, bound: str, all_: int, within: int) -> dict[str, str]:
    comma = "," if labels else ""
    return {
        f"{histogram}_count{{{labels}}}": f"0+{all_}x400",
        f'{histogram}_bucket{{{labels}{comma}le="{bound}"}}': f"0+{within}x400",
    }


_INGEST: Final = ',route="webhooks"'

CASES: Final = (
    Case("RoomDeliveriesMissing", {"room_conservation_gap": "0 1x30"}, {"room_conservation_gap": "0x30"}),
    # A loss that is over before five minutes, as a commit overtook its row's visibility, wakes nobody.
    Case("RoomDeliveriesMissing", {"room_conservation_gap": "2x30"}, {"room_conservation_gap": "0x15 1 1 1 0x20"}),
    Case(
        "RoomAuditStale",
        {"room_conservation_checked_timestamp_seconds": _NOW_OLD},
        {"room_conservation_checked_timestamp_seconds": "0+60x60"},
        at="25m",
    ),
    Case(
        "RoomOffsetsLost",
        {'room_consumer_offsets_lost_total{topic="room.ticks",group="room-runner"}': "0x5 7x30"},
        {'room_consumer_offsets_lost_total{topic="room.ticks",group="room-runner"}': "7x40"},
    ),
    Case(
        "RoomUndecidedOld",
        {'room_undecided_oldest_seconds{topic="room.webhooks.raw"}': "601x40"},
        {'room_undecided_oldest_seconds{topic="room.webhooks.raw"}': "599x40"},
    ),
    Case("RoomConsumerStalled", _lag(_NOW_OLD, "5x40"), _lag(_NOW_OLD, "0x40")),
    Case("RoomConsumerStalled", _lag(_NOW_OLD, "5x40"), _lag("0+60x40", "5x40")),
    Case(
        "RoomConsumptionHeld",
        {'room_held{group="room-matcher",reason="llm"}': "1x40"},
        {'room_held{group="room-matcher",reason="llm"}': "0x40"},
    ),
    # Held consumption stands still, too: that is one alert, not two.
    Case("RoomConsumptionHeld", _lag(_NOW_OLD, "5x40", held="1x40"), _lag("0+60x40", "5x40", held="0x40")),
    Case(
        "RoomDeadLetterLimit",
        {"room_dead_letter_limit_reached": "1x40"},
        {"room_dead_letter_limit_reached": "0x12 1 0x30"},
    ),
    Case(
        "RoomDeadLetters",
        {'room_dead_letters_total{topic="room.webhooks.dead",reason="refused"}': "0 0 1x40"},
        {'room_dead_letters_total{topic="room.webhooks.dead",reason="refused"}': "4x40"},
        at="14m",
    ),
    Case(
        "RoomOverflowOld",
        {"room_ingest_overflow_oldest_seconds": "301x40"},
        {"room_ingest_overflow_oldest_seconds": "299x40"},
    ),
    Case(
        "RoomNoTicks",
        {'room_scheduler_tick_timestamp_seconds{instance="a"}': _NOW_OLD},
        {
            'room_scheduler_tick_timestamp_seconds{instance="a"}': _NOW_OLD,
            'room_scheduler_tick_timestamp_seconds{instance="b"}': "0+60x40",
        },
    ),
    Case("RoomRoomsWaiting", {"room_due_oldest_seconds": "301x40"}, {"room_due_oldest_seconds": "299x40"}),
    Case("RoomRoomsParked", {"room_parked_rooms": "1x40"}, {"room_parked_rooms": "0x40"}),
    Case("RoomEventsFailed", {"room_failed_events": "3x40"}, {"room_failed_events": "0x40"}),
    Case(
        "RoomModelTrouble",
        _share("room_llm_requests_total", "outcome", "provider", "ok", (21, 79), ',tier="fast"'),
        _share("room_llm_requests_total", "outcome", "provider", "ok", (19, 81), ',tier="fast"'),
    ),
    Case(
        "RoomModelOverrideRefused",
        {'room_llm_requests_total{tier="fast",outcome="fallback"}': "0+1x40"},
        {'room_llm_requests_total{tier="fast",outcome="fallback"}': "9x40"},
    ),
    Case(
        "RoomVerdictsUnclear",
        {'room_verdict_warnings_total{kind="unclear"}': "0+6x60", 'room_verdicts_total{verdict="no"}': "0+100x60"},
        {'room_verdict_warnings_total{kind="unclear"}': "0+4x60", 'room_verdicts_total{verdict="no"}': "0+100x60"},
    ),
    Case(
        "RoomMessagesFailing",
        _share("room_outbound_messages_total", "status", "failed", "sent", (11, 89), ',channel="slack"'),
        _share("room_outbound_messages_total", "status", "failed", "sent", (9, 91), ',channel="slack"'),
    ),
    Case("RoomMessagesUnknown", {"room_unknown_messages": "1x40"}, {"room_unknown_messages": "0x40"}),
    Case("RoomRepliesWaiting", {"room_replies_waiting": "1x40"}, {"room_replies_waiting": "0x40"}),
    Case(
        "RoomCompactorOverdue",
        {"room_compactor_success_timestamp_seconds": "-180000x40"},
        # Never, in a young installation, and a day ago.
        {
            'room_compactor_success_timestamp_seconds{namespace="new"}': "0x40",
            'room_compactor_success_timestamp_seconds{namespace="old"}': "-86400x40",
        },
    ),
    Case(
        "RoomDependencyDown",
        {'room_dependency_up{job="matcher",dependency="postgresql"}': "0x40"},
        {
            'room_dependency_up{job="matcher",dependency="postgresql"}': "1x40",
            'room_dependency_up{job="matcher",dependency="llm"}': "0x40",
        },
    ),
    Case(
        "RoomRedisDown",
        {'room_dependency_up{job="matcher",dependency="redis"}': "0x40"},
        {'room_dependency_up{job="matcher",dependency="redis"}': "1x40"},
    ),
    Case(
        "RoomEventLoopBlocked",
        {'room_event_loop_lag_seconds{job="matcher",instance="a"}': "1.5x40"},
        {'room_event_loop_lag_seconds{job="matcher",instance="a"}': "0.5x40"},
    ),
    Case(
        "RoomServiceAbsent",
        {f'room_build_info{{service="{service}"}}': "1x40" for service in alerts.SERVICES if service != "matcher"},
        {f'room_build_info{{service="{service}"}}': "1x40" for service in alerts.SERVICES},
    ),
    Case(
        "RoomIngestAvailability",
        _share("room_ingest_answers_total", "answer", "unavailable", "ok", (2, 98), _INGEST),
        # Too many posts for one token are its sender's doing.
        _share("room_ingest_answers_total", "answer", "rate_limited", "ok", (50, 50), _INGEST),
        at="70m",
        count=2,
    ),
    Case(
        "RoomIngestLatency",
        _late("room_ingest_request_duration_seconds", 'route="webhooks"', "0.25", 100, 80),
        _late("room_ingest_request_duration_seconds", 'route="webhooks"', "0.25", 1000, 999),
        at="70m",
        count=2,
    ),
    Case(
        "RoomFreshness",
        _late("room_event_age_seconds", 'stage="decided"', "5.0", 100, 80),
        # Cycles take minutes: no matter of this objective.
        _late("room_event_age_seconds", 'stage="cycle_ended"', "5.0", 100, 0),
        at="70m",
        count=2,
    ),
    Case(
        "RoomCycleFailures",
        _share("room_cycles_total", "status", "failed", "succeeded", (80, 20)),
        _share("room_cycles_total", "status", "failed", "succeeded", (4, 96)),
        at="70m",
        count=2,
    ),
    Case(
        "RoomTickPunctuality",
        _late("room_scheduler_fire_delay_seconds", "", "5.0", 100, 80),
        _late("room_scheduler_fire_delay_seconds", "", "5.0", 1000, 999),
        at="70m",
        count=2,
    ),
)
_RETENTION: Final = 'room_undecided_oldest_seconds{topic="room.webhooks.raw"}'


def document() -> str:
    """The file for ``promtool test rules``."""
    tests = []
    for case in CASES:
        tests += [_test(case, "fires", case.fires, {case.alert: case.count}), _test(case, "does not", case.quiet, {})]
    # Half the retention is older than old: both fire.
    near = Case("RoomRetentionNear", {_RETENTION: "302401x40"}, {_RETENTION: "302399x40"})
    tests.append(_test(near, "fires", near.fires, {"RoomRetentionNear": 1, "RoomUndecidedOld": 1}))
    tests.append(_test(near, "does not", near.quiet, {"RoomUndecidedOld": 1}))
    return HEAD + dump({"rule_files": [RULES], "evaluation_interval": "1m", "tests": tests})


def covered() -> Iterator[str]:
    """Names of alerts with a case."""
    yield from (case.alert for case in CASES)
    yield "RoomRetentionNear"


def _test(case: Case, what: str, series: Series, expected: Mapping[str, int]) -> dict[str, Any]:
    # A service that is absent is so in every other case, too.
    others = "" if case.alert == "RoomServiceAbsent" else ',alertname!="RoomServiceAbsent"'
    return {
        "name": f"{case.alert} {what}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertstate="firing"{others}}})',
                "eval_time": case.at,
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": number} for name, number in expected.items()
                ],
            }
        ],
    }


def names() -> set[str]:
    """Every alert there is."""
    return {alert.name for alert in (*alerts.alerts(), *objectives.alerts())}
