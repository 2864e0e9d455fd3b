"""Aging of the activity log: daily rows become weekly ones, those monthly ones, and those go (behaviour, activity log).

Each step is one statement: rows are deleted and, in the same instant, added to the row of their period. The merge is
associative and commutative, so it does not matter how rows are cut into batches, when they come, or who takes them.
The steps run from the shortest period to the longest, so that one late run ends where many punctual ones would have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from room_common.domain.aging import DIGEST_ENTRIES, ENTRY_CHARACTERS, SHOWN_ENTRIES, AgingLimits
from room_common.postgres.database import Connection

AgedKind = str
"""``daily`` and ``weekly``: rows summed up; ``monthly``: rows deleted."""

SECONDS: Final = 120
"""Limit of one statement here. A batch takes about a second; a database in trouble may need many more."""
_LOW_48_BITS: Final = 2**48 - 1

# A due row of each kind. LIMIT keeps the planner from reading all due rows of all instances to look at one instance.
_DUE: Final = """
    coalesce(
        (select true from room_activity_log l
         where l.instance_id = i.id and l.log_type = 'daily' and l.log_date < %(daily_before)s limit 1),
        (select true from room_activity_log l
         where l.instance_id = i.id and l.log_type = 'weekly' and l.log_date < %(weekly_before)s limit 1),
        (select true from room_activity_log l
         where l.instance_id = i.id and l.log_type = 'monthly' and l.log_date < %(monthly_before)s limit 1),
        false)
"""

# Daily rows are entries themselves. They come to their digest in the order that numbered them, so that nothing is
# sorted twice, and as an array of arrays: half the price of building each entry as jsonb, or of parsing text.
_DUE_DAILY: Final = "instance_id = any(%(instances)s) and log_type = 'daily' and log_date < %(daily_before)s"
_SOME_DAILY: Final = f"ctid = any(array(select ctid from room_activity_log where {_DUE_DAILY} limit %(rows)s))"


def _daily(condition: str) -> str:
    """What takes the daily rows for which ``condition`` holds, and makes their digests."""
    return f"""
        gone as (
            delete from room_activity_log where {condition}
            returning instance_id, log_date - (extract(isodow from log_date)::integer - 1) as period, id, kind,
                severity, content, counts, event_count, occurred_at
        ),
        numbered as (
            select instance_id, period, id, kind, severity, content, event_count, occurred_at,
                   room_severity_rank(severity) as rank,
                   row_number() over (
                       partition by instance_id, period order by room_severity_rank(severity), occurred_at, id
                   ) as position
            from gone
        ),
        digests as (
            select instance_id, period, min(rank) as rank, sum(event_count)::bigint as event_count,
                   to_jsonb(array_agg(array[
                       severity, (occurred_at at time zone 'UTC')::text, id::text, kind,
                       case when octet_length(content) <= {ENTRY_CHARACTERS}
                           then content else left(content, {ENTRY_CHARACTERS}) end
                   ]) filter (where position <= {DIGEST_ENTRIES})) as digest,
                   string_agg(concat(
                       severity, ' ', to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI"Z "'),
                       left(content, {ENTRY_CHARACTERS})
                   ), E'\\n') filter (where position <= {SHOWN_ENTRIES}) as lines
            from (select * from numbered order by instance_id, period, rank, occurred_at, id) n
            group by instance_id, period
        ),
    """


_WEEKLY: Final = f"""
        gone as (
            delete from room_activity_log
            where instance_id = any(%(instances)s) and log_type = 'weekly' and log_date < %(weekly_before)s
            returning instance_id, log_date - (extract(day from log_date)::integer - 1) as period, severity, counts,
                event_count, digest
        ),
        numbered as (
            select instance_id, period, entry, row_number() over (
                partition by instance_id, period
                order by room_severity_rank(entry ->> 0), (entry ->> 1) collate "C", (entry ->> 2) collate "C"
            ) as position
            from gone, jsonb_array_elements(digest) e (entry)
        ),
        firsts as (
            select instance_id, period, jsonb_agg(entry order by position) as digest,
                   string_agg(room_digest_line(entry), E'\\n' order by position)
                       filter (where position <= {SHOWN_ENTRIES}) as lines
            from numbered where position <= {DIGEST_ENTRIES} group by instance_id, period
        ),
        digests as (
            select g.*, coalesce(f.digest, '[]') as digest, f.lines
            from (select instance_id, period, min(room_severity_rank(severity)) as rank,
                         sum(event_count)::bigint as event_count
                  from gone group by instance_id, period) g
            left join firsts f using (instance_id, period)
        ),
"""


def _merge(target: str, gone: str, offset: int) -> str:
    """The statement that turns what ``gone`` deletes into rows of the type ``target``.

    The id of a period's row is its instance's with the period's first millisecond (``offset`` more) as its time: the
    same whoever makes it. An entry of a digest is ``[severity, time in UTC, id, kind, text]``. The text of a new row is
    put together on the way, as ``room_aged_content`` would from the finished row at ten times the price.
    """
    return f"""
        with {gone}
        sums as (
            select instance_id, period, jsonb_object_agg(key, total) as counts,
                   string_agg(key || ' ' || total, ', ' order by key collate "C") as line
            from (
                select g.instance_id, g.period, c.key, sum(c.value::bigint) as total
                from gone g, jsonb_each(g.counts) c
                where jsonb_typeof(c.value) = 'number'
                group by g.instance_id, g.period, c.key) t
            group by instance_id, period
        ),
        merged as (
            select instance_id, period, event_count, rank, digest, coalesce(counts, '{{}}') as counts,
                   concat_ws(E'\\n', line, lines) as content
            from digests left join sums using (instance_id, period)
        ),
        put as (
            insert into room_activity_log as old
                (id, instance_id, log_date, log_type, kind, severity, content, counts, digest, event_count, occurred_at)
            select (lpad(to_hex((extract(epoch from period)::bigint * 1000 + {offset}) & {_LOW_48_BITS}), 12, '0')
                        || substr(replace(instance_id::text, '-', ''), 13))::uuid,
                   instance_id, period, '{target}', 'summary',
                   case rank when 0 then 'error' when 1 then 'warning' else 'info' end,
                   content, counts, digest, event_count, period::timestamp at time zone 'UTC'
            from merged
            on conflict (instance_id, log_type, log_date) where log_type in ('weekly', 'monthly') do update
            set severity = case when room_severity_rank(old.severity) <= room_severity_rank(excluded.severity)
                                then old.severity else excluded.severity end,
                event_count = old.event_count + excluded.event_count,
                (counts, digest, content) = (
                    select m.counts, m.digest, room_aged_content(m.counts, m.digest)
                    from (select room_merge_counts(old.counts, excluded.counts) as counts,
                                 room_merge_digest(old.digest, excluded.digest) as digest offset 0) m)
        )
        select count(*) as rows from gone
    """


_STEPS: Final[Mapping[AgedKind, str]] = {
    "daily": _merge("weekly", _daily(_DUE_DAILY), 0),
    "weekly": _merge("monthly", _WEEKLY, 1),
    "monthly": """
        with gone as (
            delete from room_activity_log
            where instance_id = any(%(instances)s) and log_type = 'monthly' and log_date < %(monthly_before)s
            returning 1)
        select count(*) as rows from gone
    """,
}
_STEPS_LIMITED: Final = {**_STEPS, "daily": _merge("weekly", _daily(_SOME_DAILY), 0)}


@dataclass(frozen=True, slots=True)
class Window:
    """Instances whose id is above ``after`` and up to ``until``."""

    after: UUID
    until: UUID


async def next_window(conn: Connection, after: UUID, size: int) -> Window | None:
    """The next ``size`` instances by id, deleted and disabled ones too; None behind the last one."""
    cursor = await conn.execute(
        """
        select id as until from (select id from instances where id > %s order by id limit %s) page
        order by id desc limit 1
        """,
        (after, size),
    )
    row = await cursor.fetchone()
    return None if row is None else Window(after, row["until"])


async def find_due(conn: Connection, window: Window, limits: AgingLimits, skip: Sequence[UUID] = ()) -> list[UUID]:
    """Instances of the window with rows that are due, whoever works on them."""
    cursor = await conn.execute(
        f"""
        select i.id from instances i
        where i.id > %(after)s and i.id <= %(until)s and i.id <> all(%(skip)s) and {_DUE} order by i.id
        """,
        _parameters(limits, after=window.after, until=window.until, skip=list(skip)),
    )
    return [row["id"] for row in await cursor.fetchall()]


async def claim(conn: Connection, instances: Sequence[UUID]) -> list[UUID]:
    """Lock instances until the transaction ends. Returns those that nobody else holds."""
    cursor = await conn.execute(
        "select id from instances where id = any(%s) order by id for no key update skip locked", (list(instances),)
    )
    return [row["id"] for row in await cursor.fetchall()]


async def age(
    conn: Connection, instances: Sequence[UUID], limits: AgingLimits, rows: int | None = None
) -> dict[AgedKind, int]:
    """Age what is due of claimed instances. Returns how many rows of each kind it took.

    ``rows`` is for an instance that may have too many daily rows for one statement: it takes so many of them at most,
    and where it took as many, some may be left. To find them first costs a third more.
    """
    # A batch is sorted in memory. A plan for any array of instances would visit the rows one by one. What it takes to
    # compile such a statement is never won back. Times are written as ISO 8601 says, but for the T.
    await conn.execute(
        """
        select set_config('work_mem', '64MB', true), set_config('plan_cache_mode', 'force_custom_plan', true),
               set_config('jit', 'off', true), set_config('datestyle', 'ISO, YMD', true),
               set_config('statement_timeout', %s, true)
        """,
        (f"{SECONDS}s",),
    )
    parameters = _parameters(limits, instances=list(instances), rows=rows)
    taken: dict[AgedKind, int] = {}
    for kind, statement in (_STEPS if rows is None else _STEPS_LIMITED).items():
        cursor = await conn.execute(statement, parameters)
        row = await cursor.fetchone()
        taken[kind] = 0 if row is None else int(row["rows"])
    return taken


async def count_due(conn: Connection, limits: AgingLimits) -> dict[AgedKind, int]:
    """Rows of each kind that are due now. What they become may be due in turn, and is not counted."""
    cursor = await conn.execute(
        """
        select count(*) filter (where log_type = 'daily' and log_date < %(daily_before)s) as daily,
               count(*) filter (where log_type = 'weekly' and log_date < %(weekly_before)s) as weekly,
               count(*) filter (where log_type = 'monthly' and log_date < %(monthly_before)s) as monthly
        from room_activity_log
        """,
        _parameters(limits),
    )
    row = await cursor.fetchone()
    return {} if row is None else {kind: int(count) for kind, count in row.items()}


def _parameters(limits: AgingLimits, **more: object) -> dict[str, object]:
    return {
        "daily_before": limits.daily_before,
        "weekly_before": limits.weekly_before,
        "monthly_before": limits.monthly_before,
        **more,
    }
