"""How a source verifies, splits and deduplicates: applied, shown, encrypted, and told to who may post."""

from __future__ import annotations

from typing import Any

import pytest

from room_common.contracts.source_config import CONFIG_COLUMN, CONFIG_TABLE, SourceConfig, Verify, read_config
from room_testing.administering import KEYRING, Administering, apply_body, room_document

pytestmark = pytest.mark.integration

HMAC = {"header": "x-acme-signature", "algorithm": "sha512", "encoding": "base64", "prefix": "v1="}


def document(slug: str, **source: Any) -> dict[str, Any]:
    return room_document(slug, sources=[{"name": "billing", "type": "generic", **source}])


async def stored(admin: Administering, slug: str) -> tuple[str, SourceConfig | None]:
    [row] = await admin.query(
        "select s.id, s.config from event_sources s join instances i on i.id = s.instance_id where i.slug = %s", slug
    )
    if row["config"] is None:
        return str(row["id"]), None
    plain = KEYRING.decrypt(row["config"], table=CONFIG_TABLE, column=CONFIG_COLUMN, row_id=str(row["id"]))
    return str(row["id"]), read_config(plain)


def fields(answer: Any) -> dict[str, tuple[Any, Any]]:
    [change] = [one for one in answer["changes"] if one["kind"] == "source"]
    return {one["field"]: (one["before"], one["after"]) for one in change["fields"]}


async def test_settings_are_applied_changed_and_taken_back(admin: Administering) -> None:
    wanted = document("s-all", secrets=[{"env": "A"}], verify={"hmac": HMAC}, split=True, dedup_seconds=0)
    made = fields(await admin.apply(wanted))
    assert made["verify"] == (None, {"hmac": HMAC})
    assert (made["split"], made["dedup_seconds"]) == ((None, True), (None, 0))
    source_id, config = await stored(admin, "s-all")
    assert config == SourceConfig(
        secrets=("secret-1",), verify=Verify.model_validate({"hmac": HMAC}), split=True, dedup_seconds=0
    )
    assert not (await admin.apply(wanted))["changed"]
    revealed = await admin.call("POST", f"/sources/{source_id}/reveal")
    assert revealed.json()["verify"]["hmac"] == HMAC
    assert "secret-1" not in revealed.text

    other = document("s-all", secrets=[{"env": "A"}], verify={"auth_key": {}})
    changed = fields(await admin.apply(other))
    assert changed["verify"] == ({"hmac": HMAC}, {"auth_key": {"header": "authorization"}})
    assert (changed["split"], changed["dedup_seconds"]) == ((True, None), (0, None))
    assert "secrets" not in changed
    assert set(fields(await admin.apply(document("s-all")))) == {"verify", "secrets"}
    assert (await stored(admin, "s-all"))[1] is None


async def test_a_source_without_secrets_keeps_its_switches(admin: Administering) -> None:
    await admin.apply(document("s-switches", split=False, dedup_seconds=60))
    source_id, config = await stored(admin, "s-switches")
    assert config == SourceConfig(split=False, dedup_seconds=60)
    assert (await admin.call("POST", f"/sources/{source_id}/reveal")).json()["verify"] is None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"secrets": [{"env": "A"}]}, "verify: {hmac"),
        ({"verify": {"hmac": {"header": "x-acme"}}, "secrets": [{"env": "A"}]}, "'signature' or 'hmac'"),
        ({"type": "standard", "secrets": [{"env": "A"}]}, "whsec_"),
    ],
)
async def test_what_cannot_work_is_refused(admin: Administering, source: dict[str, Any], words: str) -> None:
    body = apply_body(document("s-refused", **source), "no key!")
    answer = await admin.call("POST", "/apply", json=body)
    assert answer.status_code == 422
    assert words in answer.text
    assert "no key!" not in answer.text
