"""What an operator does with the panel, in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Dialog, expect
from psycopg.types.json import Jsonb

from room_common.identity import new_id
from room_testing.administering import TOKENS
from room_testing.browsing import Panel, Visitor

pytestmark = pytest.mark.integration


def test_signing_in_and_out(panel: Panel) -> None:
    visitor = panel.visitor()
    page = visitor.page
    visitor.go("/panel/cycles?status=succeeded")
    expect(page).to_have_url(re.compile("/panel/login"))
    page.get_by_label("API token").fill("not a token of anybody")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not a token")
    visitor.errors.clear()  # the browser's console names the 401
    page.get_by_label("API token").fill(TOKENS["viewer"])
    page.keyboard.press("Enter")
    expect(page).to_have_url(panel.url + "/panel/cycles?status=succeeded")
    assert TOKENS["viewer"] not in page.content()
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/panel/login"))
    visitor.go("/panel/")
    expect(page).to_have_url(re.compile("/panel/login"))
    visitor.close()


def test_from_what_is_wrong_to_its_place(visitor: Visitor) -> None:
    page = visitor.page
    page.get_by_role("link", name="matcher matcher-a-1 is held").click()
    expect(page.get_by_role("row", name="matcher-a-1")).to_contain_text("model provider in trouble")


def test_filtering_and_paging_deliveries(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/panel/deliveries")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(10)
    page.get_by_role("link", name="Newest").click()
    expect(rows).to_have_count(50)
    page.get_by_label("Outcome").select_option("dead")
    expect(page.get_by_role("heading", name="Nothing like that")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/panel/deliveries\?outcome=dead$"))
    page.get_by_label("Outcome").select_option("matched")
    page.get_by_role("textbox", name="Source").fill("crm")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"source=crm"))
    expect(rows).to_have_count(50)


def test_the_life_of_a_delivery(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(f"/panel/deliveries/{panel.room.delivery_id}")
    life = page.locator("ol.life")
    expect(life).to_contain_text("Asked: won")
    expect(life).to_contain_text("Not sure")
    expect(page.get_by_label("Decoded payload")).to_contain_text('"a": "private"')
    expect(page.get_by_label("Raw payload")).to_contain_text('{"a": "private"}')
    life.get_by_role("link", name="won").click()
    expect(page).to_have_url(re.compile("/panel/backlog/"))


def test_times_are_local_and_say_what_they_are(panel: Panel, visitor: Visitor) -> None:
    visitor.go("/panel/backlog")
    shown = visitor.page.locator("tbody time").first
    expect(shown).to_have_text(re.compile("ago|just now"))
    assert re.search(r"\d{4}", shown.get_attribute("title") or "")


def test_revealing_and_rotating_a_url(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(f"/panel/rooms/{panel.room.slug}")
    source = page.get_by_role("article", name="crm")
    source.get_by_role("button", name="Reveal the URL").click()
    field = source.get_by_label("URL", exact=True)
    expect(field).to_have_value(re.compile(r"^https://hooks\.example\.com/webhooks/[0-9a-f]{64}$"))
    before = field.input_value()
    page.once("dialog", lambda dialog: dialog.accept())
    source.get_by_role("button", name="Rotate").click()
    expect(field).not_to_have_value(before)
    expect(source).to_contain_text("Those of before work until in")


def test_switching_a_room_off_and_on(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(f"/panel/rooms/{panel.room.slug}")
    head = page.locator(".head").first
    page.once("dialog", lambda dialog: dialog.dismiss())
    head.get_by_role("button", name="Switch off").click()
    expect(head).to_contain_text("ready")
    page.once("dialog", lambda dialog: dialog.accept())
    head.get_by_role("button", name="Switch off").click()
    expect(head.get_by_role("button", name="Switch on")).to_be_visible()
    head.get_by_role("button", name="Switch on").click()
    expect(head.get_by_role("button", name="Switch off")).to_be_visible()


def test_asking_a_definition_earlier(panel: Panel, visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(f"/panel/rooms/{panel.room.slug}")
    names = page.get_by_role("article", name="ci").locator("summary strong")
    assert names.all_text_contents() == ["broken", "slow"]
    names.nth(1).click()
    page.get_by_role("button", name="Ask earlier").click()
    expect(names.first).to_have_text("slow")


def test_running_a_room_now(panel: Panel, visitor: Visitor) -> None:
    visitor.go(f"/panel/rooms/{panel.room.slug}")
    visitor.page.get_by_role("button", name="Run now").click()
    expect(visitor.page.locator("#said")).to_contain_text("It looks for work now")


def test_sending_a_message_again(panel: Panel, visitor: Visitor) -> None:
    [failed] = panel.query(
        "update outbound_messages set status = 'failed', error = 'refused' where id ="
        " (select id from outbound_messages order by created_at desc, id desc limit 1) returning id"
    )
    page = visitor.page
    visitor.go("/panel/messages?status=failed")
    row = page.locator(f"#m-{failed['id']}")
    page.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Send again").click()
    expect(row).to_contain_text("queued")


def test_watching_a_cycle(panel: Panel, visitor: Visitor) -> None:
    cycle = new_id()
    panel.query(
        "insert into room_cycles (id, instance_id, conversation_id, epoch, reason, worker)"
        " values (%s, %s, %s, 1, 'pending', 'w')",
        *(cycle, panel.room.instance_id, str(cycle)),
    )
    page = visitor.page
    page.goto(f"{panel.url}/panel/cycles/{cycle}")  # its feed stays open: the network is never idle
    expect(page.locator("main")).to_contain_text("The agent has not been asked yet")
    panel.query(
        "insert into cycle_messages (cycle_id, seq, role, content) values (%s, 1, 'assistant', %s)",
        *(cycle, Jsonb({"content": "I look into it."})),
    )
    expect(page.locator(".turn.assistant")).to_contain_text("I look into it.")
    panel.query("update room_cycles set status = 'succeeded', finished_at = now() where id = %s", cycle)
    expect(page.locator("main .head").first).to_contain_text("succeeded")
    expect(page.locator("#live")).not_to_have_attribute("hx-get", re.compile(".*"))


def test_keys(visitor: Visitor) -> None:
    page = visitor.page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("g")
    page.keyboard.press("d")
    expect(page).to_have_url(re.compile("/panel/deliveries$"))
    page.wait_for_load_state("networkidle")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Room")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("jk?")
    expect(page.get_by_role("textbox", name="Source")).to_have_value("jk?")
    page.evaluate("document.activeElement.value = ''; document.activeElement.blur()")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("a.row-link").nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("a.row-link").first.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/panel/deliveries/[0-9a-f-]{36}"))


def test_text_from_outside_runs_nothing(panel: Panel, visitor: Visitor) -> None:
    attempt = "<img src=x onerror=alert(1)><svg onload=alert(2)>"
    panel.query("update room_inbox set text = %s, sender = %s", attempt, attempt)
    panel.query("update webhook_deliveries set reason = %s where id = %s", attempt, panel.room.delivery_id)
    panel.query("update outbound_messages set text = %s", attempt)
    panel.query("update event_definitions set matching_prompt = %s, interpretation_prompt = %s", attempt, attempt)
    panel.query(
        "update cycle_messages set content = %s where role = 'tool'",
        Jsonb({"tool_call_id": "1", "content": attempt}),
    )
    spoken: list[str] = []

    def hear(dialog: Dialog) -> None:
        spoken.append(dialog.message)
        dialog.dismiss()

    visitor.page.on("dialog", hear)
    room = panel.room
    workshop = f"/panel/sources/{room.source_id}/definitions/{room.definition_id}"
    for path in (
        "/panel/inbox",
        "/panel/messages",
        f"/panel/deliveries/{room.delivery_id}",
        f"/panel/rooms/{room.slug}",
        f"/panel/rooms/{room.slug}/conversation",
        f"/panel/cycles/{room.cycle_id}",
        workshop,
    ):
        visitor.go(path)
        if path == workshop:
            expect(visitor.page.get_by_label("It matches when")).to_have_value(attempt)
        else:
            expect(visitor.page.locator("main")).to_contain_text(attempt)
        assert visitor.page.locator("main img").count() == 0
    assert spoken == []


def test_a_session_that_is_over_leads_to_the_door(panel: Panel, visitor: Visitor) -> None:
    visitor.go("/panel/services")
    panel.query("update panel_sessions set expires_at = now()")
    expect(visitor.page).to_have_url(re.compile("/panel/login"))
    visitor.errors.clear()  # the browser's console names the 401
