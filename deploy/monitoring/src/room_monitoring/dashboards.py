"""The dashboards: an overview, one per service, Kafka, and what models cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from room_monitoring.panels import Board, Panel, Query, render

_I: Final = "$__rate_interval"


def _panel(title: str, unit: str, description: str, *queries: tuple[str, str]) -> Panel:
    return Panel(title, unit, description, tuple(Query(expr, legend) for expr, legend in queries))


def _rate(metric: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{$ns{more}}}[{_I}]))"


def _quantiles(histogram: str, more: str = "") -> tuple[tuple[str, str], ...]:
    inner = f"sum by (le) (rate({histogram}_bucket{{$ns{more}}}[{_I}]))"
    return tuple((f"histogram_quantile({quantile}, {inner})", f"p{quantile * 100:g}") for quantile in (0.5, 0.95, 0.99))


def _process(service: str) -> tuple[str, tuple[Panel, ...]]:
    here = f'* on (namespace, instance) group_left () room_build_info{{$ns,service="{service}"}}'
    return "Process", (
        _panel(
            "Processes", "short", "Processes that are scraped, by version: two while a release rolls out.",
            (f'count by (version) (room_build_info{{$ns,service="{service}"}})', "{{version}}"),
        ),
        _panel(
            "Event loop lag", "s", "How late the last timer ran. Above 1 s the process is too busy.",
            (f"room_event_loop_lag_seconds{{$ns}} {here}", "{{instance}}"),
        ),
        _panel(
            "Dependencies", "bool_on_off", "Whether each dependency answered last time.",
            (f"room_dependency_up{{$ns}} {here}", "{{dependency}} {{instance}}"),
        ),
    )  # fmt: skip


OVERVIEW: Final = Board(
    "overview", "Room / Overview", "Is every webhook decided, soon, and does every room get its cycle?",
    (
        ("Objectives", (
            _panel(
                "Error ratio, 1 h", "percentunit", "Share that was bad in the last hour, by objective.",
                ("room:slo_errors:ratio_rate1h{$ns}", "{{slo}}"),
            ),
            _panel(
                "Error budget left, 3 d", "percentunit",
                "What is left if the last three days were the whole period; below 0 the objective is missed.",
                (
                    "1 - room:slo_errors:ratio_rate3d{$ns}"
                    " / on (slo) group_left () (1 - room:slo_objective:ratio)", "{{slo}}",
                ),
            ),
            _panel(
                "Deliveries without an outcome", "short", "The conservation law: anything but 0 is a loss.",
                ("max(room_conservation_gap{$ns})", "missing"),
            ),
        )),
        ("Flow", (
            _panel(
                "Requests", "reqps", "Answers of ingest by what they meant.",
                (_rate("room_ingest_answers_total", "answer"), "{{answer}}"),
            ),
            _panel(
                "Outcomes", "ops", "Items of deliveries by how they ended.",
                (_rate("room_outcomes_total", "outcome"), "{{outcome}}"),
            ),
            _panel(
                "Event age, p95", "s", "Seconds since receipt when a stage was done with an event.",
                (
                    f"histogram_quantile(0.95, sum by (le, stage) (rate(room_event_age_seconds_bucket{{$ns}}[{_I}])))",
                    "{{stage}}",
                ),
            ),
            _panel(
                "Oldest undecided record", "s", "By topic, seen from outside: it grows also while nobody reads.",
                ("max by (topic) (room_undecided_oldest_seconds{$ns})", "{{topic}}"),
            ),
            _panel(
                "Cycles", "ops", "Cycles that ended, by how.", (_rate("room_cycles_total", "status"), "{{status}}"),
            ),
            _panel(
                "Messages", "ops", "Delivery attempts of messages to people, by what became of them.",
                (_rate("room_outbound_messages_total", "status"), "{{status}}"),
            ),
        )),
        ("What waits", (
            _panel(
                "Held consumption", "short", "Groups that wait, and for what.",
                ("max by (group, reason) (room_held{$ns})", "{{group}} {{reason}}"),
            ),
            _panel(
                "Dead letters", "short", "Records put on dead-letter topics in the last hour.",
                ("sum by (topic, reason) (increase(room_dead_letters_total{$ns}[1h]))", "{{topic}} {{reason}}"),
            ),
            _panel(
                "For people", "short", "Parked rooms, events given up, messages of unknown fate.",
                ("max(room_parked_rooms{$ns})", "parked rooms"),
                ("max(room_failed_events{$ns})", "failed events"),
                ("max(room_unknown_messages{$ns})", "unknown messages"),
            ),
            _panel(
                "Dependencies", "bool_on_off", "0 where any process of a service gets no answer.",
                ("min by (job, dependency) (room_dependency_up{$ns})", "{{dependency}} {{job}}"),
            ),
            _panel(
                "Processes", "short", "Processes that are scraped, by service.",
                ("count by (service) (room_build_info{$ns})", "{{service}}"),
            ),
            _panel(
                "Rooms that wait for a slot", "short", "Due rooms that no worker has claimed yet.",
                ("max(room_due_rooms{$ns})", "rooms"),
            ),
        )),
    ),
)  # fmt: skip

INGEST: Final = Board(
    "ingest", "Room / ingest", "HTTP in, Kafka out.",
    (
        ("Requests", (
            _panel(
                "Answers", "reqps", "By what they meant.",
                (_rate("room_ingest_answers_total", "answer"), "{{answer}}"),
            ),
            _panel("Status codes", "reqps", "By status.", (_rate("room_ingest_requests_total", "code"), "{{code}}")),
            _panel(
                "Duration", "s", "From a request's last byte to its answer: Kafka's acknowledgement is in it.",
                *_quantiles("room_ingest_request_duration_seconds"),
            ),
            _panel(
                "In flight", "short", "Requests that wait for Kafka, and open connections.",
                ("sum(room_ingest_requests_in_flight{$ns})", "requests"),
                ("sum(room_ingest_connections{$ns})", "connections"),
            ),
            _panel("Body size", "bytes", "Bytes of bodies.", *_quantiles("room_ingest_request_body_bytes")),
        )),
        ("Kafka and the overflow table", (
            _panel(
                "Produce requests", "ops", "By result.",
                (_rate("room_ingest_produce_requests_total", "result"), "{{result}}"),
            ),
            _panel(
                "Expired records", "ops", "Records that Kafka did not acknowledge in time; they go to the table.",
                (_rate("room_ingest_records_expired_total", "instance"), "{{instance}}"),
            ),
            _panel(
                "Overflow records", "ops", "Stored, drained or refused.",
                (_rate("room_ingest_overflow_records_total", "result"), "{{result}}"),
            ),
            _panel("Overflow rows", "short", "Records in the table.", ("max(room_ingest_overflow_rows{$ns})", "rows")),
            _panel("Overflow size", "bytes", "Bytes in the table.", ("max(room_ingest_overflow_bytes{$ns})", "bytes")),
            _panel(
                "Overflow age", "s", "Age of the oldest record in the table.",
                ("max(room_ingest_overflow_oldest_seconds{$ns})", "oldest"),
            ),
        )),
        _process("ingest"),
    ),
)  # fmt: skip

MATCHER: Final = Board(
    "matcher", "Room / matcher", "Decides what each webhook is.",
    (
        ("Decisions", (
            _panel("Outcomes", "ops", "Items by outcome.", (_rate("room_outcomes_total", "outcome"), "{{outcome}}")),
            _panel(
                "Age when decided", "s", "Seconds since receipt.",
                *_quantiles("room_event_age_seconds", ',stage=~"decided|pending"'),
            ),
            _panel(
                "Verdicts", "ops", "Answers of the fast model, by how they were understood.",
                (_rate("room_verdicts_total", "verdict, remembered"), "{{verdict}} remembered: {{remembered}}"),
            ),
            _panel("Unclear verdicts", "ops", "By kind.", (_rate("room_verdict_warnings_total", "kind"), "{{kind}}")),
            _panel(
                "Verdict memory", "ops", "Look-ups in Redis.",
                (_rate("room_verdict_memory_lookups_total", "result"), "{{result}}"),
            ),
            _panel(
                "Wasted calls", "ops", "Model calls for events that could not be admitted.",
                (_rate("room_wasted_llm_calls_total", "outcome"), "{{outcome}}"),
            ),
        )),
        ("What waits", (
            _panel(
                "Held", "short", "Why consumption waits.",
                ("max by (group, reason) (room_held{$ns})", "{{group}} {{reason}}"),
            ),
            _panel(
                "Slow lane", "ops", "Records moved there.",
                (_rate("room_diverted_records_total", "why"), "{{why}}"),
            ),
            _panel(
                "Calls asked again", "short", "Model calls that fail while others are answered.",
                ("sum by (kind) (room_retried_model_calls{$ns})", "{{kind}}"),
            ),
            _panel(
                "Dead letters", "ops", "By reason.",
                (_rate("room_dead_letters_total", "reason", ',topic="room.webhooks.dead"'), "{{reason}}"),
            ),
            _panel(
                "Limit of dead letters", "bool_on_off", "On while too many events die.",
                ("max(room_dead_letter_limit_reached{$ns})", "reached"),
            ),
            _panel(
                "Met again", "ops", "Items that had been decided before: redeliveries after restarts.",
                (_rate("room_already_decided_total", "instance"), "{{instance}}"),
            ),
        )),
        _process("matcher"),
    ),
)  # fmt: skip

SCHEDULER: Final = Board(
    "scheduler", "Room / scheduler", "Wakes rooms, takes replies.",
    (
        ("Ticks", (
            _panel("Tick commands", "ops", "By reason.", (_rate("room_scheduler_ticks_total", "reason"), "{{reason}}")),
            _panel(
                "Fire delay", "s", "How late after its boundary a tick's emission began.",
                *_quantiles("room_scheduler_fire_delay_seconds"),
            ),
            _panel(
                "Since the last tick", "s", "Grows to one interval, then starts again.",
                ("time() - max(room_scheduler_tick_timestamp_seconds{$ns})", "seconds"),
            ),
            _panel("Rooms woken", "short", "By the last tick.", ("max(room_scheduler_due_rooms{$ns})", "rooms")),
        )),
        ("Replies", (
            _panel(
                "Replies", "ops", "By fate.",
                (_rate("room_replies_total", "channel, fate"), "{{channel}} {{fate}}"),
            ),
            _panel("Put aside", "short", "Replies that wait for a key.", ("max(room_replies_waiting{$ns})", "replies")),
        )),
        _process("scheduler"),
    ),
)  # fmt: skip

RUNNER: Final = Board(
    "room-runner", "Room / room-runner", "Runs the cycles of rooms.",
    (
        ("Cycles", (
            _panel("Cycles", "ops", "By how they ended.", (_rate("room_cycles_total", "status"), "{{status}}")),
            _panel("Duration", "s", "From claim to end.", *_quantiles("room_cycle_duration_seconds")),
            _panel("Slots", "short", "Busy and free.", ("sum by (state) (room_cycle_slots{$ns})", "{{state}}")),
            _panel(
                "Rooms that wait", "short", "Due rooms that no worker has claimed yet.",
                ("max(room_due_rooms{$ns})", "rooms"),
            ),
            _panel(
                "Resumed and given back", "ops", "Cycles gone on with after their worker, and cycles given back.",
                (_rate("room_cycle_resumes_total", "namespace"), "resumed"),
                (_rate("room_cycles_suspended_total", "reason"), "given back: {{reason}}"),
            ),
            _panel(
                "Leases", "ops", "Lost by their worker, and swept after its death.",
                (_rate("room_leases_lost_total", "reason"), "lost: {{reason}}"),
                (_rate("room_leases_swept_total", "namespace"), "swept"),
            ),
        )),
        ("Work", (
            _panel(
                "Tool calls", "ops", "By tool.",
                (_rate("room_tool_calls_total", "tool, outcome"), "{{tool}} {{outcome}}"),
            ),
            _panel("Ticks taken", "ops", "By reason.", (_rate("room_ticks_taken_total", "reason"), "{{reason}}")),
            _panel(
                "Outbox", "ops", "Records of the outbox that Kafka took.",
                (_rate("room_outbox_published_total", "namespace"), "published"),
            ),
            _panel(
                "Claims held", "bool_on_off", "On while the model provider is in trouble.",
                ("max by (instance) (room_claims_held{$ns})", "{{instance}}"),
            ),
        )),
        _process("room-runner"),
    ),
)  # fmt: skip

OUTBOUND: Final = Board(
    "outbound", "Room / outbound", "Brings messages to people.",
    (
        ("Messages", (
            _panel(
                "Attempts", "ops", "By channel and what became of them.",
                (_rate("room_outbound_messages_total", "channel, status"), "{{channel}} {{status}}"),
            ),
            _panel(
                "Age when sent", "s", "From commit to the provider's acceptance.",
                *_quantiles("room_outbound_message_age_seconds"),
            ),
            _panel("In flight", "short", "Deliveries under way.", ("sum(room_outbound_in_flight{$ns})", "deliveries")),
            _panel(
                "Of unknown fate", "short", "Messages of the last day that may or may not have been sent.",
                ("max(room_unknown_messages{$ns})", "messages"),
            ),
        )),
        _process("outbound"),
    ),
)  # fmt: skip

COMPACTOR: Final = Board(
    "compactor", "Room / compactor", "Upkeep once a day, audit every minute.",
    (
        ("Audit", (
            _panel("Gap", "short", "Deliveries without an outcome.", ("max(room_conservation_gap{$ns})", "missing")),
            _panel(
                "Compared", "ops", "Records compared with the ledger.",
                (_rate("room_conservation_checked_total", "topic"), "{{topic}}"),
            ),
            _panel(
                "Since the last comparison", "s", "Of Kafka with the ledger.",
                ("time() - max(room_conservation_checked_timestamp_seconds{$ns})", "seconds"),
            ),
            _panel(
                "Backlog", "short", "Events of all rooms, pending and failed.",
                ("max(room_pending_events{$ns})", "pending"), ("max(room_failed_events{$ns})", "failed"),
            ),
            _panel(
                "Parked rooms", "short", "Rooms that wait for `room resume`.",
                ("max(room_parked_rooms{$ns})", "parked"),
            ),
        )),
        ("Daily work", (
            _panel(
                "Since it was done", "s", "Since the daily work was last complete.",
                ("time() - max(room_compactor_success_timestamp_seconds{$ns})", "seconds"),
            ),
            _panel(
                "Rows", "short", "Summed up or deleted in the last day.",
                ("sum by (kind) (increase(room_compactor_rows_total{$ns}[1d]))", "{{kind}}"),
            ),
            _panel(
                "Runs", "short", "In the last day, by outcome.",
                ("sum by (outcome) (increase(room_compactor_runs_total{$ns}[1d]))", "{{outcome}}"),
            ),
        )),
        _process("compactor"),
    ),
)  # fmt: skip

ADMIN: Final = Board(
    "admin", "Room / admin", "The API and the panel.", (_process("admin"),),
)  # fmt: skip

KAFKA: Final = Board(
    "kafka", "Room / Kafka", "How far consumers are, and how producers fare, as Room's own processes see it.",
    (
        ("Consumers", (
            _panel(
                "Lag", "short", "Records behind the committed offset.",
                ('sum by (topic, group) (room_consumer_lag_messages{$ns,topic=~"$topic"})', "{{topic}} {{group}}"),
            ),
            _panel(
                "Oldest undecided record", "s", "Also while a group has no members.",
                ('max by (topic) (room_undecided_oldest_seconds{$ns,topic=~"$topic"})', "{{topic}}"),
            ),
            _panel(
                "Since progress", "s", "By partition, the worst first; only what has lag matters.",
                (
                    'topk(10, (time() - room_consumer_progress_timestamp_seconds{$ns,topic=~"$topic"})'
                    ' and room_consumer_lag_messages{$ns,topic=~"$topic"} > 0)', "{{topic}}/{{partition}}",
                ),
            ),
            _panel(
                "Received", "ops", "Records.",
                (_rate("room_consumer_records_total", "topic, group"), "{{topic}} {{group}}"),
            ),
            _panel(
                "Buffered and running", "short", "Records received and not completed, and those whose handler runs.",
                ("sum by (group) (room_consumer_buffered_records{$ns})", "{{group}} buffered"),
                ("sum by (group) (room_consumer_in_flight_records{$ns})", "{{group}} running"),
            ),
            _panel(
                "Rebalances and client restarts", "short", "In 10 minutes.",
                ("sum by (group) (increase(room_consumer_rebalances_total{$ns}[10m]))", "{{group}} rebalances"),
                ("sum by (group) (increase(room_consumer_recreations_total{$ns}[10m]))", "{{group}} restarts"),
            ),
            _panel(
                "Failed attempts", "ops", "Handlers that raised, by class of the error.",
                (_rate("room_consumer_handler_errors_total", "group, error"), "{{group}} {{error}}"),
            ),
            _panel(
                "Offsets lost", "short", "Records that Kafka deleted before they were read, in a day.",
                ("sum by (topic, group) (increase(room_consumer_offsets_lost_total{$ns}[1d]))", "{{topic}} {{group}}"),
            ),
        )),
        ("Producers", (
            _panel(
                "Sent", "ops", "By topic and what became of them.",
                (_rate("room_producer_records_total", "topic, outcome"), "{{topic}} {{outcome}}"),
            ),
            _panel("Acknowledgement", "s", "Seconds.", *_quantiles("room_producer_send_seconds", ',topic=~"$topic"')),
            _panel(
                "Dead letters", "ops", "By topic and reason.",
                (_rate("room_dead_letters_total", "topic, reason"), "{{topic}} {{reason}}"),
            ),
        )),
    ),
    (("topic", "Topic", "label_values(room_consumer_lag_messages, topic)"),),
)  # fmt: skip

MODELS: Final = Board(
    "models", "Room / Models and their cost", "What is asked, how long it takes, and how many tokens it costs.",
    (
        ("Calls", (
            _panel(
                "Calls", "ops", "By tier and outcome.",
                (_rate("room_llm_requests_total", "tier, outcome"), "{{tier}} {{outcome}}"),
            ),
            _panel(
                "Duration, fast", "s", "With retries.",
                *_quantiles("room_llm_request_duration_seconds", ',tier="fast"'),
            ),
            _panel(
                "Duration, standard", "s", "With retries.",
                *_quantiles("room_llm_request_duration_seconds", ',tier="standard"'),
            ),
            _panel(
                "Further tries", "ops", "By reason.",
                (_rate("room_llm_retries_total", "tier, reason"), "{{tier}} {{reason}}"),
            ),
        )),
        ("Tokens", (
            _panel(
                "Tokens", "short", "Per second; cached ones are part of the input.",
                (_rate("room_llm_tokens_total", "tier, direction"), "{{tier}} {{direction}}"),
            ),
            _panel(
                "Tokens in a day", "short", "By tier and direction.",
                ("sum by (tier, direction) (increase(room_llm_tokens_total{$ns}[1d]))", "{{tier}} {{direction}}"),
            ),
            _panel(
                "Share found in the provider's cache", "percentunit", "Of input tokens: those cost less.",
                (
                    _rate("room_llm_tokens_total", "tier", ',direction="cached"')
                    + " / " + _rate("room_llm_tokens_total", "tier", ',direction="input"'), "{{tier}}",
                ),
            ),
            _panel(
                "Calls for each decision", "short", "Model calls of tier fast for each item that was decided.",
                (
                    f'sum(rate(room_llm_requests_total{{$ns,tier="fast"}}[{_I}]))'
                    f" / sum(rate(room_outcomes_total{{$ns}}[{_I}]))", "calls",
                ),
            ),
            _panel(
                "Verdicts from memory", "percentunit", "Share of verdicts that cost nothing.",
                (
                    f'sum(rate(room_verdicts_total{{$ns,remembered="yes"}}[{_I}]))'
                    f" / sum(rate(room_verdicts_total{{$ns}}[{_I}]))", "remembered",
                ),
            ),
            _panel(
                "Wasted", "ops", "Calls for events that the backlog then refused.",
                (_rate("room_wasted_llm_calls_total", "outcome"), "{{outcome}}"),
            ),
        )),
    ),
)  # fmt: skip

BOARDS: Final = (OVERVIEW, INGEST, MATCHER, SCHEDULER, RUNNER, OUTBOUND, COMPACTOR, ADMIN, KAFKA, MODELS)


def dashboards() -> Mapping[str, str]:
    """The JSON of each, by name."""
    return {board.name: render(board) for board in BOARDS}
