-- Writes down every accepted write of a cycle: who wrote it, and under which epoch of the room.
create table overlap_writes (
    seq         bigserial primary key,
    room        uuid not null,
    what        text not null,
    cycle       uuid,
    writer      text not null,
    epoch       bigint not null
);
create function overlap_note() returns trigger language plpgsql as $$
declare
    room  uuid;
    cycle uuid;
begin
    if current_setting('application_name') not like 'runner-%' then
        return null;
    end if;
    if tg_table_name = 'cycle_messages' then
        cycle := new.cycle_id;
        select c.instance_id into room from room_cycles c where c.id = cycle;
    elsif tg_table_name = 'room_cycles' then
        cycle := new.id;
        room := new.instance_id;
    else
        cycle := new.cycle_id;
        room := new.instance_id;
    end if;
    insert into overlap_writes (room, what, cycle, writer, epoch)
    select room, tg_table_name, cycle, current_setting('application_name'), r.lease_epoch
    from instance_room r where r.instance_id = room;
    return null;
end $$;
create trigger overlap_note after insert on cycle_messages for each row execute function overlap_note();
create trigger overlap_note after insert on outbound_messages for each row execute function overlap_note();
create trigger overlap_note after insert or update on room_cycles for each row execute function overlap_note();
create trigger overlap_note after update on event_backlog for each row execute function overlap_note();
create trigger overlap_note after update on room_inbox for each row execute function overlap_note();
