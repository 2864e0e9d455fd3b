"""The version of an instance's configuration: it differs whenever anything of the instance was changed by somebody."""

from __future__ import annotations

from uuid import UUID

from room_common.postgres.database import Connection


async def version_of(conn: Connection, instance_id: UUID) -> str:
    """32 hex digits. What the room itself does (cycles, cooldowns, how a tool was found) does not change them."""
    cursor = await conn.execute(
        """
        select md5(concat_ws('|',
            extract(epoch from i.updated_at), r.enabled, r.prompt, r.outbound_channel, r.outbound_target,
            (select string_agg(concat_ws(' ', s.id, extract(epoch from s.updated_at)), ',' order by s.id)
             from event_sources s where s.instance_id = i.id and s.deleted_at is null),
            (select string_agg(concat_ws(' ', d.id, extract(epoch from d.updated_at)), ',' order by d.id)
             from event_definitions d join event_sources s on s.id = d.event_source_id
             where s.instance_id = i.id and s.deleted_at is null and d.deleted_at is null),
            (select string_agg(concat_ws(' ', c.id, extract(epoch from c.updated_at)), ',' order by c.id)
             from instance_channels c where c.instance_id = i.id),
            (select string_agg(concat_ws(' ', t.id, extract(epoch from t.updated_at)), ',' order by t.id)
             from instance_tools t where t.instance_id = i.id))) as version
        from instances i join instance_room r on r.instance_id = i.id where i.id = %s
        """,
        (instance_id,),
    )
    row = await cursor.fetchone()
    assert row is not None
    return str(row["version"])
