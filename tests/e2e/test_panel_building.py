"""Building a room with the panel: forms, connecting, the workshop, putting definitions in order, settings."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect
from psycopg.types.json import Jsonb

from room_common.identity import new_id
from room_testing.browsing import Panel, Visitor

pytestmark = pytest.mark.integration


def _names(page: Page) -> Locator:
    return page.get_by_role("article", name="ci").locator("summary strong")


def test_what_is_wrong_with_a_form_is_said_at_its_field(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/panel/")
    page.get_by_role("link", name="New room").click()
    page.get_by_label("Name", exact=True).fill("Nobody's desk")
    page.get_by_label("Timezone").fill("Rome")
    page.get_by_role("button", name="Make the room").click()
    field = page.get_by_label("Timezone")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("alert")).to_contain_text("IANA")
    expect(page.get_by_label("Name", exact=True)).to_have_value("Nobody's desk")
    visitor.errors.clear()  # the browser's console names the 422
    field.fill("Europe/Rome")
    page.get_by_role("button", name="Make the room").click()
    expect(page).to_have_url(re.compile("/panel/rooms/nobody-s-desk$"))
    expect(page.get_by_role("heading", name="Nothing feeds this room")).to_be_visible()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Write nobody-s-desk").fill("nobody-s-desk")
    page.get_by_role("button", name="Delete the room").click()
    expect(page).to_have_url(re.compile("/panel/$"))
    expect(page.locator("#room-nobody-s-desk")).to_have_count(0)


def test_what_somebody_else_changed_is_not_overwritten(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(f"/panel/rooms/{panel.room.slug}/edit")
    page.get_by_label("Mandate").fill("Mine.")
    panel.query("update instances set updated_at = now() where id = %s", panel.room.instance_id)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Somebody else has changed")
    expect(page.get_by_label("Mandate")).to_have_value("Mine.")
    visitor.errors.clear()  # the 422


def test_connecting_a_source(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(f"/panel/rooms/{panel.room.slug}/sources/new")
    page.get_by_role("link", name="GitHub").click()
    page.get_by_label("Name", exact=True).fill("repository")
    page.get_by_role("button", name="Make one").click()
    secret = page.get_by_label("Secret", exact=True)
    expect(secret).to_have_value(re.compile("^[0-9a-f]{48}$"))
    chosen = secret.input_value()
    page.get_by_role("button", name="Make the source").click()
    expect(page.get_by_label("URL", exact=True)).to_have_value(re.compile("/webhooks/[0-9a-f]{64}$"))
    expect(page.locator("main")).to_contain_text("Nothing has arrived yet")
    assert chosen not in page.content()
    [made] = panel.query("select id, instance_id from event_sources where name = 'repository'")
    for number, reason in enumerate(("mismatch", "mismatch", "missing")):
        panel.query(
            "insert into webhook_deliveries (received_at, id, source_id, instance_id, outcome, reason, size, topic,"
            " \"partition\", \"offset\") values (now(), %s, %s, %s, 'bad_signature', %s, 1, 't', 0, %s)",
            *(new_id(), made["id"], made["instance_id"], reason, number),
        )
    causes = page.get_by_role("table", name="Why deliveries did not verify")
    expect(causes.get_by_role("row", name="mismatch")).to_contain_text("2")
    expect(causes.get_by_role("row", name="missing")).to_contain_text("had no signature")
    page.locator("main").get_by_role("link", name="Settings").click()
    page.get_by_label("Write repository").fill("repository")
    page.get_by_role("button", name="Delete the source").click()
    expect(page).to_have_url(re.compile(f"/panel/rooms/{panel.room.slug}$"))


def test_trying_a_rule_before_it_is_saved(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(f"/panel/rooms/{panel.room.slug}")
    page.get_by_role("article", name="crm").locator("summary").first.click()
    page.get_by_role("article", name="crm").get_by_role("link", name="Edit and try").click()
    match = page.get_by_label("It matches when")
    match.fill('The payload says "private".')
    page.get_by_label("How many").select_option("20")
    page.get_by_role("button", name="Try it").click()
    expect(page.locator("#tried")).to_contain_text("20 verdicts change of 20")
    expect(page.locator("#tried dl")).to_contain_text("Tokens")
    expect(page.locator(".trials .changed")).to_have_count(20)
    visitor.shoot("tried")
    page.get_by_label("On", exact=True).select_option("sample")
    page.get_by_label("Payload").fill('{"a": "public"}')
    page.get_by_role("button", name="Try it").click()
    expect(page.locator("#tried")).to_contain_text("No verdict changes of 1")
    page.get_by_role("button", name="Save").click()
    expect(page).to_have_url(re.compile(f"/panel/rooms/{panel.room.slug}#source-"))
    [stored] = panel.query(
        "select matching_prompt, version from event_definitions where id = %s", panel.room.definition_id
    )
    assert stored == {"matching_prompt": 'The payload says "private".', "version": 2}


def test_putting_definitions_in_order_by_dragging_and_by_keys(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(f"/panel/rooms/{panel.room.slug}")
    first, second = _names(page).all_text_contents()
    grips = page.get_by_role("article", name="ci").locator(".grip")
    above, below = grips.nth(0).bounding_box(), grips.nth(1).bounding_box()
    assert above is not None
    assert below is not None
    page.mouse.move(below["x"] + 5, below["y"] + 5)
    page.mouse.down()
    page.mouse.move(above["x"] + 5, above["y"] + 8, steps=4)
    page.mouse.move(above["x"] + 5, above["y"] - 2, steps=4)
    page.mouse.up()
    expect(page.locator("#say")).to_contain_text("The new order is saved")
    visitor.go(f"/panel/rooms/{panel.room.slug}")
    expect(_names(page).first).to_have_text(second)
    page.get_by_role("button", name=f"Move {second}").focus()
    page.keyboard.press("Alt+ArrowDown")
    expect(page.locator("#say")).to_contain_text("The new order is saved")
    visitor.go(f"/panel/rooms/{panel.room.slug}")
    expect(_names(page).first).to_have_text(first)


def test_a_cycle_streams_in(panel: Panel, visitor: Visitor) -> None:
    cycle = new_id()
    panel.query(
        "insert into room_cycles (id, instance_id, conversation_id, epoch, reason, worker)"
        " values (%s, %s, %s, 1, 'pending', 'w')",
        *(cycle, panel.room.instance_id, str(cycle)),
    )
    page = visitor.page
    with page.expect_request(f"**/panel/cycles/{cycle}/feed"):
        page.goto(f"{panel.url}/panel/cycles/{cycle}")
    call = {"id": "7", "function": {"name": "look_up", "arguments": '{"what": "<b>deal</b>"}'}}
    for seq, role, content in (
        (1, "assistant", {"content": "I look it up.", "tool_calls": [call]}),
        (2, "tool", {"tool_call_id": "7", "content": '{"found": "<script>alert(1)</script>"}'}),
    ):
        panel.query(
            "insert into cycle_messages (cycle_id, seq, role, content) values (%s, %s, %s, %s)",
            *(cycle, seq, role, Jsonb(content)),
        )
        expect(page.locator(f"#turn-{seq}")).to_be_visible()
    expect(page.locator(".turn.tool")).to_contain_text("<script>alert(1)</script>")
    panel.query("update room_cycles set status = 'succeeded', finished_at = now() where id = %s", cycle)
    expect(page.locator("main .head").first).to_contain_text("succeeded")
    expect(page.locator("[data-feed]")).to_have_count(0)


def test_charts_and_chronicle(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/panel/charts")
    expect(page.get_by_role("img", name="Volume")).to_be_visible()
    page.get_by_role("combobox", name="Time").select_option("7d")
    expect(page.locator("#drawn")).to_contain_text("by 6 hours")
    page.get_by_role("combobox", name="Room").select_option(panel.room.slug)
    matched = page.locator(".shares").get_by_role("link", name="matched")
    expect(matched).to_have_attribute("href", re.compile(f"room={panel.room.slug}"))
    matched.click()
    expect(page).to_have_url(re.compile("outcome=matched&period=7d&room="))
    visitor.go(f"/panel/rooms/{panel.room.slug}/chronicle")
    page.get_by_role("link", name="By week").click()
    expect(page.get_by_role("heading", name="Week of")).to_be_visible()


def test_letting_somebody_in_and_out(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/panel/settings")
    page.get_by_label("Let in").fill("<b>a guest</b>")
    page.get_by_role("button", name="Make a token").click()
    token = page.get_by_label(re.compile("^Token of")).input_value()
    visitor.go("/panel/settings")
    assert token not in page.content()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("row", name="<b>a guest</b>").get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("row", name="<b>a guest</b>")).to_contain_text("revoked")
    visitor.go("/panel/audit?action=revoke_token")
    expect(page.get_by_role("row", name="revoke token")).to_contain_text("<b>a guest</b>")


def test_choosing_light_or_dark(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/panel/settings")
    page.get_by_role("button", name="Dark").click()
    visitor.go("/panel/")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
