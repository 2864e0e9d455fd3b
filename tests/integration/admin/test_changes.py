"""Single changes: new URLs with a grace period, on and off, order, deletion and what it cuts off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from room_common.domain.tokens import token_digest
from room_common.errors import LeaseLost
from room_common.identity import new_id
from room_common.postgres import sources
from room_common.postgres.database import Database
from room_common.postgres.leases import Lease, claim, lease_transaction, seize_stray
from room_common.postgres.settings import DatabaseSettings
from room_testing.administering import Administering, ListedRoom, room_document

pytestmark = pytest.mark.integration


async def the_source(admin: Administering, slug: str, name: str = "crm") -> str:
    rows = (await admin.get(f"/instances/{slug}/sources"))["items"]
    return next(str(row["id"]) for row in rows if row["name"] == name)


async def audits(admin: Administering, action: str, subject: str) -> list[dict[str, Any]]:
    return await admin.query(
        "select actor, detail from audit_log where action = %s and subject = %s order by id", action, subject
    )


async def test_a_new_url_beside_the_old_one(admin: Administering) -> None:
    applied = await admin.apply(room_document("rotate"))
    first = next(url["url"] for url in applied["urls"] if url["name"] == "crm")
    source = await the_source(admin, "rotate")
    answer = await admin.call("POST", f"/sources/{source}/rotate-token", json={"grace_seconds": 3600})
    assert answer.status_code == 200
    second = answer.json()["url"]
    assert second != first and second.startswith("https://hooks.example.com/webhooks/")
    until = datetime.fromisoformat(answer.json()["old_valid_until"])
    rows = {
        bytes(row["token_sha256"]): row
        for row in await admin.query(
            "select token_sha256, valid_until, now() as now from source_tokens where source_id = %s", UUID(source)
        )
    }
    old, new = rows[token_digest(first.rsplit("/", 1)[1])], rows[token_digest(second.rsplit("/", 1)[1])]
    assert new["valid_until"] is None
    assert old["valid_until"] == until and 3500 < (until - old["now"]).total_seconds() <= 3600
    assert (await admin.call("POST", f"/sources/{source}/reveal")).json()["url"] == second
    [audited] = await audits(admin, "rotate_token", source)
    assert audited["actor"] == "the operator"
    assert second not in str(audited) and audited["detail"]["grace_seconds"] == 3600


async def test_a_further_rotation_prolongs_nothing(admin: Administering) -> None:
    await admin.apply(room_document("again"))
    source = await the_source(admin, "again")
    for grace in (60, 3600, 0):
        await admin.call("POST", f"/sources/{source}/rotate-token", json={"grace_seconds": grace})
    rows = await admin.query(
        "select valid_until <= now() as ended, valid_until is null as lasting from source_tokens"
        " where source_id = %s order by created_at",
        UUID(source),
    )
    assert [(row["ended"], row["lasting"]) for row in rows] == [(True, False)] * 3 + [(None, True)]


@pytest.mark.parametrize("grace", [-1, 30 * 86400 + 1, "soon", None, 1.5])
async def test_a_grace_that_is_none(admin: Administering, grace: object) -> None:
    await admin.apply(room_document("grace"))
    source = await the_source(admin, "grace")
    answer = await admin.call("POST", f"/sources/{source}/rotate-token", json={"grace_seconds": grace})
    assert answer.status_code == 422
    assert len(await admin.query("select 1 as one from source_tokens where source_id = %s", UUID(source))) == 1


async def test_on_and_off(admin: Administering) -> None:
    await admin.apply(room_document("switch"))
    source = await the_source(admin, "switch")
    definition = (await admin.get("/instances/switch/definitions"))["items"][0]["id"]
    for path, subject in (
        (f"/sources/{source}", source),
        (f"/definitions/{definition}", definition),
        ("/instances/switch", "switch"),
    ):
        kind = {"sources": "source", "definitions": "definition", "instances": "room"}[path.split("/")[1]]
        for enabled, changed in ((False, True), (False, False), (True, True)):
            answer = await admin.call("PATCH", path, json={"enabled": enabled})
            assert answer.json() | {"name": ""} == {"name": "", "enabled": enabled, "changed": changed}
        assert len(await audits(admin, f"disable_{kind}", subject)) == 1
        assert len(await audits(admin, f"enable_{kind}", subject)) == 1
    assert all(row["enabled"] for row in (await admin.get("/instances/switch/definitions"))["items"])


async def test_switching_a_room_on_frees_a_parked_one(admin: Administering) -> None:
    await admin.apply(room_document("parked"))
    await admin.query(
        "update instance_room r set parked_reason = 'deadline', fails = 5, next_try_at = now() + interval '1 hour'"
        " from instances i where i.id = r.instance_id and i.slug = 'parked'"
    )
    assert (await admin.call("PATCH", "/instances/parked", json={"enabled": True})).json()["changed"] is True
    found = await admin.get("/instances/parked")
    assert (found["fails"], found["next_try_at"], found["parked_reason"]) == (0, None, None)


async def test_definitions_are_put_in_order(admin: Administering) -> None:
    await admin.apply(room_document("order"))
    source = await the_source(admin, "order", "ci")
    rows = [row for row in (await admin.get("/instances/order/definitions"))["items"] if row["source"] == "ci"]
    assert [row["name"] for row in rows] == ["broken", "slow"]
    wanted = [row["id"] for row in reversed(rows)]
    path = f"/sources/{source}/definitions/order"
    assert (await admin.call("PUT", path, json={"definitions": wanted})).json() == {"definitions": wanted}
    rows = [row for row in (await admin.get("/instances/order/definitions"))["items"] if row["source"] == "ci"]
    assert [(row["name"], row["priority"]) for row in rows] == [("slow", 10), ("broken", 20)]
    for wrong in (wanted[:1], [*wanted, wanted[0]], [*wanted, str(new_id())], [wanted[0], wanted[0]]):
        answer = await admin.call("PUT", path, json={"definitions": wrong})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/definitions"


async def test_a_deleted_source_takes_nothing_and_its_name_is_free(admin: Administering) -> None:
    applied = await admin.apply(room_document("gone-source"))
    url = next(url["url"] for url in applied["urls"] if url["name"] == "crm")
    source = await the_source(admin, "gone-source")
    assert (await admin.call("DELETE", f"/sources/{source}")).json() == {"name": "crm"}
    digest = token_digest(url.rsplit("/", 1)[1])
    async with opened_database(admin) as database, database.transaction() as conn:
        found = (await sources.by_tokens(conn, [digest]))[digest]
    assert found.deleted and found.valid_until is not None and found.valid_until <= datetime.now(UTC)
    names = [row["source"] for row in (await admin.get("/instances/gone-source/definitions"))["items"]]
    assert set(names) == {"ci"}
    assert (await admin.call("DELETE", f"/sources/{source}")).status_code == 404
    assert (await admin.call("POST", f"/sources/{source}/rotate-token", json={})).status_code == 404
    again = await admin.apply(room_document("gone-source"))
    assert [one["name"] for one in again["urls"]] == ["crm"]


async def test_a_deleted_definition_keeps_its_prompts_for_events_that_wait(admin: Administering) -> None:
    room = await admin.listed("gone-definition")
    answer = await admin.call("DELETE", f"/definitions/{room.definition_id}")
    assert answer.json() == {"name": "won"}
    assert (await admin.call("DELETE", f"/definitions/{room.definition_id}")).status_code == 404
    assert (await admin.get(f"/backlog/{room.event_id}"))["definition"] == "won"
    [audited] = await audits(admin, "delete_definition", str(room.definition_id))
    assert audited["detail"] == {"name": "won"}


async def test_a_deleted_room_is_fenced_and_silent(admin: Administering) -> None:
    room = await admin.listed("gone-room", 3)
    async with opened_database(admin) as database:
        lease = await leased(admin, database, room)
        await admin.query(
            "insert into room_cycles (id, instance_id, conversation_id, epoch, reason, worker)"
            " values (%s, %s, 'c', %s, 'pending', 'w')",
            new_id(),
            room.instance_id,
            lease.epoch,
        )
        answer = await admin.call("DELETE", "/instances/gone-room")
        assert answer.json() == {
            "name": "gone-room",
            "sources": 2,
            "urls": 3,
            "messages": 3,
            "cycle_fenced": True,
        }
        with pytest.raises(LeaseLost):
            async with lease_transaction(database, lease):
                pytest.fail("a cycle of a deleted room may write")
        async with database.transaction() as conn:
            stray = await seize_stray(conn)
            assert stray is not None and stray.instance_id == room.instance_id and not stray.runnable
    [state] = await admin.query(
        "select i.deleted_at is not null as deleted, r.enabled, r.lease_owner,"
        " (select count(*) from source_tokens t left join event_sources s on s.id = t.source_id"
        "  left join instance_channels c on c.id = t.channel_id"
        "  where coalesce(s.instance_id, c.instance_id) = i.id and (t.valid_until is null or t.valid_until > now()))"
        "   as tokens from instances i join instance_room r on r.instance_id = i.id where i.id = %s",
        room.instance_id,
    )
    assert state == {"deleted": True, "enabled": False, "lease_owner": None, "tokens": 0}
    statuses = await admin.query(
        "select distinct status, error from outbound_messages where instance_id = %s", room.instance_id
    )
    assert statuses == [{"status": "failed", "error": "instance_deleted"}]
    assert (await admin.call("GET", "/instances/gone-room")).status_code == 404
    assert (await admin.call("DELETE", "/instances/gone-room")).status_code == 404
    assert (await admin.call("DELETE", f"/sources/{room.source_id}")).status_code == 404
    await admin.apply(room_document("gone-room"))


async def leased(admin: Administering, database: Database, room: ListedRoom) -> Lease:
    """The room's lease, taken as a worker takes it."""
    await admin.query("update instance_room set wake_at = null")
    await admin.query("update instance_room set wake_at = now() where instance_id = %s", room.instance_id)
    async with database.transaction() as conn:
        lease = await claim(conn, "worker", 30)
    assert lease is not None and lease.instance_id == room.instance_id
    return lease


@asynccontextmanager
async def opened_database(admin: Administering) -> AsyncIterator[Database]:
    """A database of the test's own, beside the API's."""
    database = Database(DatabaseSettings.model_validate({"dsn": admin.dsn}))
    await database.start()
    try:
        yield database
    finally:
        await database.stop()
