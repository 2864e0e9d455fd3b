-- The tables of Room. Keys are UUIDv7 made by the application; every timestamp is the database's clock.
-- Nothing cascades: instances, sources and definitions are soft-deleted (deleted_at) and purged later.

create table instances (
    id                 uuid primary key,
    slug               text not null check (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    name               text not null check (name <> ''),
    status             text not null default 'active' check (status in ('active', 'paused')),
    -- ordered named sections of the system prompt: [{"name": ..., "text": ...}]
    prompts            jsonb not null default '[]',
    -- model override per tier: {"fast": ..., "standard": ...}
    models             jsonb not null default '{}',
    timezone           text not null default 'UTC',
    locale             text not null default 'en',
    -- tokens per day in the instance's timezone, both tiers together; null: no budget
    token_budget_daily bigint default 5000000 check (token_budget_daily >= 0),
    created_at         timestamptz not null default now(),
    updated_at         timestamptz not null default now(),
    deleted_at         timestamptz
);
create unique index instances_slug on instances (slug) where deleted_at is null;

create table instance_room (
    instance_id      uuid primary key references instances (id),
    enabled          boolean not null default true,
    -- the mandate
    prompt           text not null default '',
    outbound_channel text,
    outbound_target  text,
    -- null: asleep; a time: claimable from then on
    wake_at          timestamptz,
    -- W3C trace context of the tick that woke it, as other rows keep that of what they came from
    woken_by         text,
    lease_epoch      bigint not null default 0,
    lease_owner      text,
    lease_until      timestamptz,
    leased_at        timestamptz,
    -- failed cycles in a row
    fails            integer not null default 0,
    next_try_at      timestamptz,
    parked_reason    text,
    last_cycle_id    uuid,
    updated_at       timestamptz not null default now(),
    check ((lease_owner is null) = (lease_until is null)),
    check ((outbound_channel is null) = (outbound_target is null))
);
create index instance_room_awake on instance_room (wake_at) where wake_at is not null;
create index instance_room_leased on instance_room (lease_until) where lease_until is not null;

create table event_sources (
    id          uuid primary key,
    instance_id uuid not null references instances (id),
    name        text not null check (name <> ''),
    source_type text not null,
    -- encrypted JSON: secrets and per-source switches; null: none
    config      bytea,
    enabled     boolean not null default true,
    created_at  timestamptz not null default now(),
    updated_at  timestamptz not null default now(),
    deleted_at  timestamptz
);
create unique index event_sources_name on event_sources (instance_id, name) where deleted_at is null;
-- also finds the deleted ones, when what they belong to is purged
create index event_sources_instance on event_sources (instance_id);

create table instance_channels (
    id           uuid primary key,
    instance_id  uuid not null references instances (id),
    channel_type text not null,
    enabled      boolean not null default true,
    -- encrypted JSON: credentials and who may answer; null: none
    config       bytea,
    -- what happens to a message whose delivery was cut off: sent again, or never again
    delivery     text not null default 'at_least_once' check (delivery in ('at_least_once', 'at_most_once')),
    created_at   timestamptz not null default now(),
    updated_at   timestamptz not null default now(),
    unique (instance_id, channel_type)
);

-- People who wrote STOP: nothing is sent to them on this channel until they write START. contact: canonical.
create table channel_opt_outs (
    channel_id uuid not null references instance_channels (id),
    contact    text not null,
    since      timestamptz not null default now(),
    primary key (channel_id, contact)
);

-- Tools of an instance beside the built-in ones: servers that speak MCP, and functions of installed Python packages.
create table instance_tools (
    id            uuid primary key,
    instance_id   uuid not null references instances (id),
    name          text not null check (name <> ''),
    kind          text not null check (kind in ('mcp', 'python')),
    enabled       boolean not null default true,
    -- encrypted JSON of a server: URL, header and credential
    config        bytea,
    -- names of a server's tools that may be called at all, and of those that need verified events
    allowed       text[] not null default '{}',
    verified_only text[] not null default '{}',
    -- SHA-256 of each tool as it was confirmed, and as it was last seen with what it says of itself
    pins          jsonb not null default '{}',
    seen          jsonb not null default '{}',
    checked_at    timestamptz,
    error         text,
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    unique (instance_id, name)
);

create table source_tokens (
    token_sha256    bytea primary key check (octet_length(token_sha256) = 32),
    source_id       uuid references event_sources (id),
    channel_id      uuid references instance_channels (id),
    token_encrypted bytea not null,
    created_at      timestamptz not null default now(),
    -- null: valid; several tokens live side by side during rotation
    valid_until     timestamptz,
    check (num_nonnulls(source_id, channel_id) = 1)
);
create index source_tokens_source on source_tokens (source_id) where source_id is not null;
create index source_tokens_channel on source_tokens (channel_id) where channel_id is not null;

create table event_definitions (
    id                    uuid primary key,
    event_source_id       uuid not null references event_sources (id),
    name                  text not null check (name <> ''),
    priority              integer not null default 100,
    version               integer not null default 1,
    matching_prompt       text not null check (matching_prompt <> ''),
    interpretation_prompt text not null default '',
    cooldown_seconds      integer not null default 0 check (cooldown_seconds >= 0),
    cooling_until         timestamptz,
    enabled               boolean not null default true,
    created_at            timestamptz not null default now(),
    updated_at            timestamptz not null default now(),
    deleted_at            timestamptz
);
create unique index event_definitions_name on event_definitions (event_source_id, name) where deleted_at is null;
create index event_definitions_order on event_definitions (event_source_id, priority, id) where deleted_at is null;
create index event_definitions_source on event_definitions (event_source_id);

-- The ledger: one row per item of every delivery with a right-tagged token.
create table webhook_deliveries (
    received_at   timestamptz not null,
    id            uuid not null,
    item          integer not null default 0,
    -- items of the delivery: so many rows it has when all are decided
    items         integer not null default 1,
    source_id     uuid,
    instance_id   uuid,
    outcome       text not null check (outcome in (
        'unknown_token', 'source_disabled', 'config_unreadable', 'bad_signature', 'too_large', 'undecodable', 'handshake',
        'duplicate', 'room_disabled', 'budget_exhausted', 'backlog_full', 'no_definitions', 'no_match', 'matched', 'dead')),
    definition_id uuid,
    reason        text,
    -- [{definition_id, name, verdict, warning, answer, input_tokens, output_tokens, remembered, ms}] in the order asked
    verdicts      jsonb not null default '[]',
    -- what decoding changed, and whether the delivery id was seen with another content
    changes       jsonb not null default '[]',
    id_conflict   boolean not null default false,
    llm_calls     integer not null default 0,
    tokens        integer not null default 0,
    size          integer not null,
    trace_id      text,
    topic         text not null,
    "partition"   integer not null,
    "offset"      bigint not null,
    replay_of     uuid,
    decided_at    timestamptz not null default now(),
    primary key (received_at, id, item)
) partition by range (received_at);
create index webhook_deliveries_id on webhook_deliveries (id);
create index webhook_deliveries_instance on webhook_deliveries (instance_id, received_at desc, id desc, item desc);
create index webhook_deliveries_source on webhook_deliveries (source_id, received_at desc, id desc, item desc);
create index webhook_deliveries_outcome on webhook_deliveries (outcome, received_at desc, id desc, item desc);
create index webhook_deliveries_replay_of on webhook_deliveries (replay_of) where replay_of is not null;
create table webhook_deliveries_default partition of webhook_deliveries default;

-- Makes the day partitions from 8 days back to 2 days ahead; safe to call at any time. A day whose rows already went to
-- the default partition keeps them there.
create function room_ensure_delivery_partitions() returns integer language plpgsql as $$
declare
    day  date;
    made integer := 0;
    part text;
begin
    -- one at a time: two that make the same day would end in an error
    perform pg_advisory_xact_lock(hashtextextended('room:partitions', 0));
    for day in select d::date from generate_series((now() at time zone 'UTC')::date - 8, (now() at time zone 'UTC')::date + 2, interval '1 day') d loop
        part := 'webhook_deliveries_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass(part) is not null;
        continue when exists (
            select from webhook_deliveries_default
            where received_at >= day::timestamp at time zone 'UTC' and received_at < (day + 1)::timestamp at time zone 'UTC');
        execute format('create table %I partition of webhook_deliveries for values from (%L) to (%L)',
            part, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
        made := made + 1;
    end loop;
    return made;
end $$;
select room_ensure_delivery_partitions();

create table webhook_dedup (
    source_id      uuid not null,
    dedup_key      text not null,
    content_sha256 bytea not null,
    delivery_id    uuid not null,
    item           integer not null,
    expires_at     timestamptz not null,
    primary key (source_id, dedup_key, content_sha256)
);
create index webhook_dedup_expiry on webhook_dedup (expires_at);

create table event_backlog (
    id                  uuid primary key,
    instance_id         uuid not null references instances (id),
    source_id           uuid not null references event_sources (id),
    event_definition_id uuid not null references event_definitions (id),
    delivery_id         uuid not null,
    item                integer not null default 0,
    raw_body            bytea not null,
    content_type        text,
    headers             jsonb not null default '{}',
    verified            boolean not null,
    status              text not null default 'pending' check (status in ('pending', 'processing', 'completed', 'failed')),
    attempts            integer not null default 0,
    deferrals           integer not null default 0,
    next_attempt_at     timestamptz not null default now(),
    cycle_id            uuid,
    traceparent         text,
    received_at         timestamptz not null,
    matched_at          timestamptz not null default now(),
    completed_at        timestamptz,
    notes               text,
    unique (delivery_id, item),
    check (status <> 'processing' or cycle_id is not null)
);
-- what a cycle is offered, and, stepping from room to room, which rooms are due: no index on the time alone, that step
-- must not be planned as a scan of all that is due
create index event_backlog_pending on event_backlog (instance_id, next_attempt_at) where status = 'pending';
create index event_backlog_processing on event_backlog (cycle_id) where status = 'processing';
create index event_backlog_list on event_backlog (instance_id, matched_at desc, id desc);
create index event_backlog_all on event_backlog (matched_at desc, id desc);
create index event_backlog_failed on event_backlog (instance_id) where status = 'failed';
create index event_backlog_completed on event_backlog (completed_at) where status = 'completed';
create index event_backlog_source on event_backlog (source_id);
create index event_backlog_definition on event_backlog (event_definition_id);

create table room_inbox (
    id          uuid primary key,
    instance_id uuid not null references instances (id),
    channel     text not null,
    sender      text not null,
    text        text not null,
    dedup_key   text not null unique,
    status      text not null default 'unread' check (status in ('unread', 'taken', 'read', 'failed', 'ignored')),
    reason      text,
    attempts    integer not null default 0,
    cycle_id    uuid,
    traceparent text,
    received_at timestamptz not null,
    read_at     timestamptz,
    check ((status = 'ignored') = (reason is not null) or status = 'failed')
);
create index room_inbox_unread on room_inbox (instance_id, received_at) where status = 'unread';
create index room_inbox_taken on room_inbox (cycle_id) where status = 'taken';
create index room_inbox_list on room_inbox (instance_id, received_at desc, id desc);
create index room_inbox_all on room_inbox (received_at desc, id desc);

-- Replies that can't be read until something comes back, a key above all. Whoever reads the topic goes on meanwhile.
create table replies_waiting (
    id          uuid primary key,
    key         bytea,
    value       bytea,
    -- the record headers: [[name, hex of the value], ...]
    headers     jsonb not null,
    reason      text not null,
    put_at      timestamptz not null default now(),
    next_try_at timestamptz not null default now()
);
create index replies_waiting_due on replies_waiting (next_try_at);

create table room_cycles (
    id              uuid primary key,
    instance_id     uuid not null references instances (id),
    conversation_id text not null unique,
    epoch           bigint not null,
    reason          text not null,
    status          text not null default 'running' check (status in ('running', 'succeeded', 'failed', 'abandoned')),
    worker          text not null,
    -- times that a worker went on with it, and workers lost in a row without a new step
    resumes         integer not null default 0,
    losses          integer not null default 0,
    steps           integer not null default 0,
    -- time under leases that have ended: what the deadline counts
    used_seconds    double precision not null default 0,
    -- ids of the last answer's calls of outside tools that were begun
    calls_begun     text[] not null default '{}',
    input_tokens    bigint not null default 0,
    output_tokens   bigint not null default 0,
    events          integer not null default 0,
    replies         integer not null default 0,
    error_kind      text,
    traceparent     text,
    started_at      timestamptz not null default now(),
    finished_at     timestamptz,
    check ((status = 'running') = (finished_at is null))
);
create index room_cycles_list on room_cycles (instance_id, started_at desc, id desc);
create index room_cycles_all on room_cycles (started_at desc, id desc);
create index room_cycles_status on room_cycles (status, started_at desc, id desc);
create unique index room_cycles_running on room_cycles (instance_id) where status = 'running';

-- The transcript: append-only. content is the message in the shape of the chat completions API.
create table cycle_messages (
    cycle_id   uuid not null references room_cycles (id),
    seq        integer not null,
    role       text not null check (role in ('system', 'user', 'assistant', 'tool')),
    content    jsonb not null,
    created_at timestamptz not null default now(),
    primary key (cycle_id, seq)
);

create table outbound_messages (
    id                  uuid primary key,
    instance_id         uuid not null references instances (id),
    cycle_id            uuid references room_cycles (id),
    channel             text not null,
    target              text not null,
    -- order of the messages of one instance and target
    seq                 bigint not null,
    text                text not null,
    status              text not null default 'queued'
        check (status in ('queued', 'published', 'sending', 'sent', 'failed', 'unknown')),
    attempts            integer not null default 0,
    -- parts of a text too long for one message that the provider has accepted; a further try goes on behind them
    parts_sent          integer not null default 0,
    next_attempt_at     timestamptz not null default now(),
    lease_owner         text,
    lease_until         timestamptz,
    provider_message_id text,
    error               text,
    traceparent         text,
    created_at          timestamptz not null default now(),
    published_at        timestamptz,
    sent_at             timestamptz,
    -- when a failed message was written to the dead-letter topic
    dead_lettered_at    timestamptz,
    unique (instance_id, channel, target, seq),
    check ((status = 'sending') = (lease_until is not null))
);
create index outbound_messages_queued on outbound_messages (created_at) where status = 'queued';
create index outbound_messages_open on outbound_messages (instance_id, channel, target, seq)
    where status in ('queued', 'published', 'sending');
create index outbound_messages_due on outbound_messages (next_attempt_at) where status in ('published', 'sending');
create index outbound_messages_unburied on outbound_messages (created_at)
    where status = 'failed' and dead_lettered_at is null;
create index outbound_messages_list on outbound_messages (instance_id, created_at desc, id desc);
create index outbound_messages_all on outbound_messages (created_at desc, id desc);
create index outbound_messages_status on outbound_messages (status, created_at desc, id desc);
create index outbound_messages_cycle on outbound_messages (cycle_id);

create table room_activity_log (
    id          uuid primary key,
    instance_id uuid not null references instances (id),
    log_date    date not null,
    log_type    text not null default 'daily' check (log_type in ('daily', 'weekly', 'monthly')),
    kind        text not null,
    severity    text not null default 'info' check (severity in ('info', 'warning', 'error')),
    content     text not null,
    counts      jsonb not null default '{}',
    digest      jsonb not null default '[]',
    event_count bigint not null default 1,
    cycle_id    uuid,
    occurred_at timestamptz not null default now()
);
-- Digests are written once a week and hardly read: to compress them costs as much as all the rest of making them.
alter table room_activity_log alter column digest set storage external;
create unique index room_activity_log_aged on room_activity_log (instance_id, log_type, log_date)
    where log_type in ('weekly', 'monthly');
create index room_activity_log_daily on room_activity_log (instance_id, log_date) where log_type = 'daily';
create index room_activity_log_list on room_activity_log (instance_id, occurred_at desc, id desc);
create index room_activity_log_all on room_activity_log (occurred_at desc, id desc);

-- The rule of aging (room_compactor.domain.aging says it in Python): two rows of one period become one, and it does not
-- matter in which order, nor how many meet at once.
create function room_severity_rank(severity text) returns integer language sql immutable parallel safe as $$
    select case severity when 'error' then 0 when 'warning' then 1 else 2 end
$$;

create function room_merge_counts(a jsonb, b jsonb) returns jsonb language sql immutable parallel safe as $$
    select coalesce(jsonb_object_agg(key, total), '{}')
    from (
        select key, sum(value::bigint) as total
        from (select * from jsonb_each(a) union all select * from jsonb_each(b)) c
        where jsonb_typeof(value) = 'number'
        group by key) t
$$;

-- The first 50 entries of both by (severity, time, id). An entry is [severity, time in UTC, id, kind, text].
create function room_merge_digest(a jsonb, b jsonb) returns jsonb language sql immutable parallel safe as $$
    select coalesce(jsonb_agg(entry order by position), '[]')
    from (
        select entry, row_number() over (
            order by room_severity_rank(entry ->> 0), (entry ->> 1) collate "C", (entry ->> 2) collate "C") as position
        from jsonb_array_elements(a || b) e (entry)) t
    where position <= 50
$$;

create function room_digest_line(entry jsonb) returns text language sql immutable parallel safe as $$
    select (entry ->> 0) || ' ' || left(entry ->> 1, 16) || 'Z ' || (entry ->> 4)
$$;

-- For people: the counts, and the five entries that matter most.
create function room_aged_content(counts jsonb, digest jsonb) returns text language sql immutable parallel safe as $$
    select concat_ws(E'\n',
        (select string_agg(key || ' ' || value, ', ' order by key collate "C") from jsonb_each_text(counts)),
        room_digest_line(digest -> 0), room_digest_line(digest -> 1), room_digest_line(digest -> 2),
        room_digest_line(digest -> 3), room_digest_line(digest -> 4))
$$;

create table token_usage (
    instance_id uuid not null references instances (id),
    -- the day in the instance's timezone
    day         date not null,
    tier        text not null check (tier in ('fast', 'standard')),
    tokens      bigint not null default 0,
    primary key (instance_id, day, tier)
);
create index token_usage_day on token_usage (day);

create table api_tokens (
    sha256     bytea primary key check (octet_length(sha256) = 32),
    name       text not null,
    role       text not null check (role in ('viewer', 'operator')),
    created_at timestamptz not null default now(),
    revoked_at timestamptz
);

-- Browsers that are signed in to the panel. They hold a random id, the table its SHA-256.
create table panel_sessions (
    id_sha256    bytea primary key check (octet_length(id_sha256) = 32),
    -- the API token that was shown at sign-in; a session ends with it
    token_sha256 bytea not null,
    created_at   timestamptz not null default now(),
    expires_at   timestamptz not null
);
create index panel_sessions_expiry on panel_sessions (expires_at);

-- Answers to requests that carried an idempotency key. Keys and requests are kept as digests, answers encrypted.
create table api_answers (
    key_sha256     bytea primary key check (octet_length(key_sha256) = 32),
    request_sha256 bytea not null check (octet_length(request_sha256) = 32),
    -- null: the request is worked on
    answer         bytea,
    expires_at     timestamptz not null
);
create index api_answers_expiry on api_answers (expires_at);

create table audit_log (
    id          uuid primary key,
    occurred_at timestamptz not null default now(),
    actor       text not null,
    action      text not null,
    instance_id uuid,
    subject     text,
    detail      jsonb not null default '{}'
);
create index audit_log_list on audit_log (occurred_at desc, id desc);
create index audit_log_instance on audit_log (instance_id, occurred_at desc, id desc);
create index audit_log_subject on audit_log (subject, occurred_at desc);

create table scheduler_clock (
    id         smallint primary key check (id = 1),
    seq        bigint not null,
    emitted_at timestamptz not null,
    -- rooms that the last finished tick woke: the next one is paced by it, whichever process wins it
    rooms      integer not null default 0
);
insert into scheduler_clock values (1, 0, now());

-- Which daily jobs of the compactors are done; a day without finished_at is worked on, or waits for a compactor.
create table job_runs (
    job         text not null,
    -- the day in UTC that the run is for
    day         date not null,
    started_at  timestamptz not null default now(),
    finished_at timestamptz,
    -- the process that found nothing left to do
    worker      text,
    primary key (job, day)
);

create table service_state (
    service     text not null,
    process     text not null,
    version     text not null,
    held_reason text,
    lag         bigint,
    detail      jsonb not null default '{}',
    seen_at     timestamptz not null default now(),
    primary key (service, process)
);

-- Records that Kafka did not acknowledge in time, until an ingest process has brought them there.
create table ingest_overflow (
    id        uuid primary key,
    topic     text not null,
    key       bytea not null,
    value     bytea not null,
    -- Kafka's own bytes of the record's headers
    headers   bytea not null,
    size      integer not null,
    stored_at timestamptz not null default now()
);

-- How much is in ingest_overflow, kept by triggers: counting it would cost more the more there is.
create table ingest_overflow_total (
    id    smallint primary key check (id = 1),
    rows  bigint not null,
    bytes bigint not null
) with (fillfactor = 20);
insert into ingest_overflow_total values (1, 0, 0);

create function room_overflow_added() returns trigger language plpgsql security definer as $$
begin
    update ingest_overflow_total total set rows = total.rows + changed.rows, bytes = total.bytes + changed.bytes
    from (select count(*) as rows, coalesce(sum(size), 0) as bytes from changed_rows) changed;
    return null;
end $$;
create function room_overflow_removed() returns trigger language plpgsql security definer as $$
begin
    update ingest_overflow_total total set rows = total.rows - changed.rows, bytes = total.bytes - changed.bytes
    from (select count(*) as rows, coalesce(sum(size), 0) as bytes from changed_rows) changed;
    return null;
end $$;
create trigger ingest_overflow_added after insert on ingest_overflow
    referencing new table as changed_rows for each statement execute function room_overflow_added();
create trigger ingest_overflow_removed after delete on ingest_overflow
    referencing old table as changed_rows for each statement execute function room_overflow_removed();

create function room_overflow_total() returns table (rows bigint, bytes bigint) language sql stable security definer
    as $$ select total.rows, total.bytes from ingest_overflow_total total $$;

-- The role of ingest (its login is made a member) may do nothing but this. Row locks need the right to update a column.
do $$
begin
    if not exists (select from pg_roles where rolname = 'room_ingest_overflow') then
        create role room_ingest_overflow nologin;
    end if;
exception
    when duplicate_object or unique_violation then null;
    when insufficient_privilege then
        raise exception 'the role room_ingest_overflow is missing and may not be made by %', current_user
            using hint = 'as a superuser: create role room_ingest_overflow nologin';
end $$;
do $$
begin
    execute format('grant usage on schema %I to room_ingest_overflow', current_schema());
    -- Whoever creates the functions may have a search path that another role's objects come first in: pin it.
    execute format('alter function room_overflow_added() set search_path = %I, pg_temp', current_schema());
    execute format('alter function room_overflow_removed() set search_path = %I, pg_temp', current_schema());
    execute format('alter function room_overflow_total() set search_path = %I, pg_temp', current_schema());
end $$;
grant select, insert, delete, update (id) on ingest_overflow to room_ingest_overflow;
