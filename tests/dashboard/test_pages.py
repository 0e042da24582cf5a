"""Each page, with a live broker and a worker."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

import msgspec
import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import PATIENCE_MS, Open
from tests.dashboard.harness import House, encoded

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"), "--durability", "memory")
    try:
        house.start_worker("birch")
        yield house
    finally:
        house.close()


def go(page: Page, house: House, where: str) -> None:
    page.goto(f"{house.url}/#/{where}")


def button(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def said(page: Page, text: str) -> None:
    """See that the page has said how something went."""
    expect(page.locator(".notice").filter(has_text=text).first).to_be_visible()


@pytest.mark.feature("D32")
def test_overview_moves_without_reload(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/")
    queued = page.locator(".tile").filter(has_text="Queued").locator(".tile-value")
    expect(queued).to_have_text(re.compile(r"\d"))
    before = int(queued.inner_text().replace(",", ""))
    page.evaluate("window.isTheSame = true")
    house.submit_many(25, "archive", "cold", priority=220)
    expect(queued).to_have_text(str(before + 25))
    tier = page.locator(".bar-row").filter(has_text="high")
    expect(tier.locator(".number")).to_have_text("25")
    house.submit("charge", 1, queue="payments", retries=0)
    expect(page.locator(".failure").first).to_contain_text("ValueError: customer 1 has no card")
    expect(page.locator(".worker-line")).to_contain_text(["birch"])
    for title in ("Throughput", "Latency", "Depth"):
        card = page.get_by_role("region", name=title)
        expect(card.locator("canvas")).to_be_visible()
    assert page.evaluate("window.isTheSame") is True


def test_tasks_are_filtered_and_sorted_by_the_server(house: House, open_page: Open) -> None:
    for priority in range(100, 160):
        house.submit("sift", queue="sieve", priority=priority, held=True)
    house.submit("other", queue="sieve", priority=99, tags=["rare"])
    page = open_page(f"{house.url}/#/tasks?queue=sieve")
    rows = page.locator("tbody tr")
    status = page.locator(".pager [role=status]")
    expect(status).to_have_text("1 to 50 of 61")
    page.get_by_role("button", name="Priority").click()
    expect(rows.first).to_contain_text("159")
    page.get_by_role("button", name="Priority").click()
    expect(rows.first).to_contain_text("other")  # An id can have a 99 in it.
    button(page, "Next")
    expect(status).to_have_text("51 to 61 of 61")
    expect(rows).to_have_count(11)
    button(page, "Previous")
    expect(rows).to_have_count(50)
    page.get_by_label("State").select_option("held")
    expect(status).to_have_text("1 to 50 of 60")
    button(page, "Clear")
    page.get_by_label("Tag", exact=True).fill("ra")
    page.wait_for_timeout(2_500)  # What moves meanwhile takes nothing away from who is typing.
    page.get_by_label("Tag", exact=True).press("End")
    page.get_by_label("Tag", exact=True).press_sequentially("re")
    page.get_by_label("Tag", exact=True).press("Enter")
    expect(rows).to_have_count(1)
    button(page, "Clear")
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("sif")
    expect(status).to_have_text("1 to 50 of 60")
    # The address holds the question: it can be kept and sent around.
    assert "text=sif" in page.url
    page.reload()
    expect(status).to_have_text("1 to 50 of 60")


def test_table_moves_without_reload(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/#/tasks?queue=moving")
    expect(page.get_by_text("No task matches.")).to_be_visible()
    task = house.submit("move", queue="moving")
    expect(page.locator("tbody tr .badge")).to_have_text(["ready"])
    house.post(f"tasks/{task}/kill")
    expect(page.locator("tbody tr .badge")).to_have_text(["killed"])


@pytest.mark.feature("J32")
def test_bulk_action_counts_and_asks_first(house: House, open_page: Open) -> None:
    house.submit_many(120, "heap", "bulk")
    page = open_page(f"{house.url}/#/tasks?queue=bulk")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_label("Choose all on this page").check()
    expect(page.get_by_role("toolbar")).to_contain_text("50 tasks chosen")
    page.get_by_role("button", name="Choose all 120 that match").click()
    button(page, "Kill")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This concerns 120 tasks.")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert house.get("tasks", queue="bulk", state="killed")["total"] == 0, "nothing without leave"
    button(page, "Kill")
    button(page, "Kill 120 tasks")
    said(page, "Kill: 120 tasks changed")
    expect(page.locator("tbody tr .badge").first).to_have_text("killed")
    assert house.get("tasks", queue="bulk", state="killed")["total"] == 120
    page.locator("tbody tr input").nth(3).check()
    button(page, "Retry")
    button(page, "Retry 1 task")
    said(page, "Retry: 1 task changed")
    assert house.get("tasks", queue="bulk", state="ready")["total"] == 1


def test_running_task_is_followed_to_its_end(house: House, open_page: Open) -> None:
    gate = house.gate.with_name("first")
    task = house.submit("report", str(gate), queue="reports", tags=["slow"])
    child = house.submit("resize", "kid.png", 8, queue="images", parent=task)
    house.wait_for(child, "succeeded")
    late = house.submit("resize", "late.png", 8, queue="images", depends_on=[task])
    page = open_page(f"{house.url}/#/task/{task}")
    expect(page.locator("h1 .badge")).to_have_text("running")
    expect(page.get_by_role("region", name="Why")).to_contain_text("runs on worker 'birch'")
    expect(page.locator(".progress")).to_contain_text("40 % reading the figures")
    relatives = page.get_by_role("region", name="Relatives")
    expect(relatives.get_by_label("child: resize, succeeded")).to_be_visible()
    page.evaluate("window.isTheSame = true")
    gate.touch()
    expect(page.locator("h1 .badge")).to_have_text("succeeded")
    expect(page.get_by_role("region", name="History")).to_contain_text("finish by birch")
    expect(page.get_by_role("region", name="Attempts")).to_contain_text("1 attempt")
    expect(page.get_by_role("region", name="Result").locator("pre")).to_have_text('"done"')
    assert page.evaluate("window.isTheSame") is True
    house.wait_for(late, "succeeded")


def test_fan_out_says_how_far_it_is(house: House, open_page: Open) -> None:
    gate = house.gate.with_name("survey")
    task = house.submit("survey", str(gate), queue="reports")
    page = open_page(f"{house.url}/#/task/{task}")
    expect(page.locator(".progress")).to_contain_text(re.compile(r"\d of 10 items, \d+/s, \d help"))
    expect(page.get_by_role("region", name="Why")).to_contain_text("helpers for its fan-out")
    gate.touch()
    expect(page.get_by_role("region", name="Result").locator("pre")).to_have_text("45")


def test_answer_says_who_made_and_who_used_it(house: House, open_page: Open) -> None:
    asked = {"name": "resize", "queue": "images", **encoded([["asked.png", 8], {}])}
    task = house.post("requests", {**asked, "version": "7"})["task"]
    house.wait_for(task, "succeeded")
    page = open_page(f"{house.url}/#/task/{task}")
    card = page.get_by_role("region", name="Request")
    expect(card).to_contain_text("miss nobody had asked for the same")
    expect(card).to_contain_text("by birch")
    expect(card).to_contain_text("0 times")
    assert house.post("requests", {**asked, "version": "7"})["how"] == "hit"
    expect(card).to_contain_text("1 time, last")
    expect(page.get_by_role("region", name="History")).to_contain_text("hit")


def test_steps_of_a_task_are_followed(house: House, open_page: Open) -> None:
    task = house.submit("order", 17, queue="payments")
    house.wait_for(task, "scheduled")
    page = open_page(f"{house.url}/#/task/{task}")
    card = page.get_by_role("region", name="Steps")
    rows = card.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("charge")
    expect(rows.nth(0)).to_contain_text(re.compile(r"\d+ ms"))
    expect(rows.nth(0)).to_contain_text("11 B")
    expect(rows.nth(1)).to_contain_text("sleep")
    expect(rows.nth(2)).to_contain_text(re.compile(r"waits for approved until \S*\s*\d\d:\d\d"))
    house.send_event(task, "rated", {"stars": 5})
    sent = card.get_by_role("listitem")
    expect(sent).to_have_count(1)
    expect(sent).to_contain_text("rated")
    house.send_event(task, "approved", {"by": "Ann"})
    expect(page.locator(".page-head .badge")).to_have_text("succeeded")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_contain_text("wait for approved")
    expect(page.get_by_role("region", name="Attempts").locator("tbody tr")).to_have_count(3)


def test_waiting_task_says_for_what(house: House, open_page: Open) -> None:
    first = house.submit("never", queue="cold", held=True)
    task = house.submit("after", queue="cold", depends_on=[first])
    page = open_page(f"{house.url}/#/task/{task}")
    expect(page.get_by_role("region", name="Why")).to_contain_text("waits for 1 unfinished task")
    page.get_by_label("waits for: never, held").click()
    expect(page.locator("h1")).to_contain_text("never")
    button(page, "Play")
    expect(page.locator("h1 .badge")).to_have_text("ready")


def test_task_shows_its_pace_and_its_callbacks(house: House, open_page: Open) -> None:
    pace = {"how": "debounce", "key": "ada", "span_seconds": 3600, "at_most_seconds": 7200}
    hook = {"url": "https://example.org/hooks/orders", "on": ["dead", "killed"]}
    task = house.submit("digest", queue="cold", pace=pace, callbacks=[hook])
    page = open_page(f"{house.url}/#/task/{task}")
    facts = page.get_by_role("region", name="Facts")
    expect(facts).to_contain_text("debounce, until 1 h without another, at most 2 h key ada")
    expect(facts).to_contain_text("https://example.org/hooks/orders on dead, killed")
    expect(facts.get_by_role("link", name="Show its delivery")).to_have_count(0)
    button(page, "Kill")
    facts.get_by_role("link", name="Show its delivery").click()
    expect(page.locator("h1")).to_contain_text("jackalope.task.killed")


def test_task_that_died_of_another_names_it_and_leads_there(house: House, open_page: Open) -> None:
    first = house.submit("charge", 11, queue="payments", retries=0)
    house.wait_for(first, "dead")
    task = house.submit("after", queue="cold", depends_on=[first])
    house.wait_for(task, "dead")
    page = open_page(f"{house.url}/#/task/{task}")
    expect(page.get_by_role("region", name="Error")).to_contain_text("charge")
    expect(page.get_by_role("region", name="Error")).to_contain_text(first)
    page.get_by_label("waits for: charge, dead").click()
    expect(page.locator(".trace")).to_contain_text("customer 11 has no card")


@pytest.mark.feature("J32")
def test_dead_task_shows_its_error_and_lives_again(house: House, open_page: Open) -> None:
    task = house.submit("charge", 7, queue="payments", retries=0)
    house.wait_for(task, "dead")
    page = open_page(f"{house.url}/#/task/{task}")
    expect(page.locator(".trace")).to_contain_text("Traceback (most recent call last)")
    button(page, "Retry")
    expect(page.get_by_role("region", name="Attempts")).to_contain_text("2 attempts")
    expect(page.locator("h1 .badge")).to_have_text("dead")
    button(page, "Delete")
    expect(page.locator("h1")).to_have_text("Tasks")
    go(page, house, f"task/{task}")
    expect(page.get_by_text(f"There is no task {task}")).to_be_visible()


def test_bodies_are_shown_as_what_they_are(house: House, open_page: Open) -> None:
    body = {"name": "paint", "queue": "images", "payload": "MTY=", "headers": {}}
    picture = house.post("tasks", body | {"headers": {"content": "bytes"}})["id"]
    house.wait_for(picture, "succeeded")
    page = open_page(f"{house.url}/#/task/{picture}")
    result = page.get_by_role("region", name="Result")
    expect(result.get_by_role("img", name="Result")).to_be_visible()
    assert result.locator("img").evaluate("image => image.naturalWidth") == 16
    result.get_by_role("button", name="Hex").click()
    expect(result.locator("pre")).to_contain_text("00000000  89 50 4e 47")
    with page.expect_download() as download:
        result.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    # The arguments of a Python client: MessagePack, which nobody reads from bytes.
    call = base64.b64encode(msgspec.msgpack.encode([["cat.png"], {"width": 3}])).decode()
    packed = house.post("tasks", body | {"queue": "cold", "payload": call})["id"]
    go(page, house, f"task/{packed}")
    payload = page.get_by_role("region", name="Payload")
    expect(payload).to_contain_text("MessagePack")
    expect(payload.locator("pre")).to_contain_text('"width": 3')


def test_queue_is_paused_and_its_policy_edited(house: House, open_page: Open) -> None:
    house.submit("x", queue="tuned")
    page = open_page(f"{house.url}/#/queues")
    row = page.get_by_role("row").filter(has_text="tuned")
    row.get_by_role("button", name="Pause").click()
    expect(row.locator(".badge").first).to_have_text("paused")
    row.get_by_role("link", name="tuned").click()
    button(page, "Resume")
    expect(page.locator("h1 .badge")).to_have_count(0)
    button(page, "Edit")
    page.get_by_label("Retries").fill("9")
    page.get_by_label("Kept for").fill("2d")
    page.get_by_label("Worker lost").select_option("pause")
    button(page, "Save 3 changes")
    said(page, "The policy of tuned has changed.")
    policy = house.get("queues/tuned")["policy"]
    assert (policy["retries"], policy["retention"], policy["on_lost"]) == (9, "2d", "pause")
    expect(page.get_by_role("region", name="Policy")).to_contain_text("2d")
    button(page, "Edit")
    page.get_by_label("Kept for").fill("soon")
    button(page, "Save 1 change")
    expect(page.locator(".notice.bad")).to_contain_text("retention")


def test_batches_show_how_far_they_are(house: House, open_page: Open) -> None:
    house.post("queues/parts", {"policy": {"batch_size": 4}}, "PUT")
    tasks = [house.submit("part", queue="parts") for _ in range(6)]
    house.post(f"tasks/{tasks[-1]}/kill")
    page = open_page(f"{house.url}/#/batches/parts")
    expect(page.get_by_role("row").nth(1)).to_contain_text("1 of 2")
    expect(page.get_by_role("row").nth(2)).to_contain_text("0 of 4")
    page.get_by_role("row").nth(1).get_by_role("link").click()
    expect(page.locator("tbody tr")).to_have_count(2)


def test_limits_show_what_holds_them(house: House, open_page: Open) -> None:
    gate = house.gate.with_name("second")
    page = open_page(f"{house.url}/#/limits")
    page.get_by_label("Tag", exact=True).fill("licence")
    page.get_by_label("At most").fill("1")
    button(page, "Set")
    card = page.get_by_role("region", name="Tag licence")
    expect(card).to_contain_text("0 of 1")
    holder = house.submit("report", str(gate), queue="reports", tags=["licence"])
    house.submit("report", str(gate), queue="reports", tags=["licence"])
    expect(card).to_contain_text("1 of 1")
    card.get_by_role("button", name="What holds it").click()
    expect(card.locator("li")).to_contain_text([holder[-8:]])
    gate.touch()
    expect(card).to_contain_text("0 of 1")
    card.get_by_role("button", name="Remove").click()
    expect(card).to_be_hidden()
    assert house.get("limits")["limits"] == []


def test_workers_show_what_they_run_and_are_drained(house: House, open_page: Open) -> None:
    gate = house.gate.with_name("third")
    house.start_worker("willow")
    tasks = [house.submit("report", str(gate), queue="reports") for _ in range(8)]
    for task in tasks:
        house.wait_for(task, "running")
    page = open_page(f"{house.url}/#/workers")
    willow = page.get_by_role("region", name="Worker willow")
    expect(willow).to_contain_text("4 of 4 slots")
    expect(willow.locator(".task-link")).to_have_count(4)
    expect(willow).to_contain_text("pid ")
    willow.get_by_role("button", name="Drain").click()
    expect(willow).to_contain_text("draining")
    gate.touch()
    expect(willow).to_contain_text("Left ")
    expect(willow).to_contain_text("4 succeeded, 0 failed")
    assert house.workers["willow"].wait(30) == 0


def test_pools_show_their_groups_and_pin_them(house: House, open_page: Open) -> None:
    house.post("pools/keyed", {"groups_max": 7}, "PUT")
    house.submit("model", 1, queue="keyed", key="paris/1")
    page = open_page(f"{house.url}/#/pools")
    card = page.get_by_role("region", name="keyed")
    expect(card).to_contain_text("1 of 7 groups up")
    row = card.get_by_role("row").filter(has_text="paris/1")
    expect(row).to_contain_text("active")
    row.get_by_role("button", name="Pin").click()
    said(page, "stays up")
    expect(row).to_contain_text("pinned")
    row.get_by_role("button", name="Unpin").click()
    expect(row).not_to_contain_text("pinned")
    card.get_by_label("Key").fill("berlin")
    card.get_by_role("button", name="Start").click()
    expect(card.get_by_role("row").filter(has_text="berlin")).to_be_visible()


def test_schedules_are_triggered_and_paused(house: House, open_page: Open) -> None:
    wanted = {"queue": "reports", "task": "report", "cron": "0 3 * * *", "zone": "Europe/Berlin"}
    house.post("schedules/nightly", {**wanted, **encoded([[str(house.gate)], {}])}, "PUT")
    page = open_page(f"{house.url}/#/schedules")
    card = page.get_by_role("region", name="nightly")
    expect(card).to_contain_text("0 3 * * * Europe/Berlin")
    card.get_by_role("button", name="Trigger").click()
    said(page, "is triggered")
    expect(card).to_contain_text("1 fired")
    card.get_by_role("button", name="Slots and tasks").click()
    expect(card).to_contain_text("trigger,")
    expect(card.get_by_role("listitem")).to_have_count(11)
    card.get_by_role("button", name="Pause").click()
    expect(card).to_contain_text("paused")
    card.get_by_role("button", name="Resume").click()
    expect(card).to_contain_text("active")


@pytest.mark.feature("D32")
def test_dead_letters_are_grouped_and_deleted(house: House, open_page: Open) -> None:
    charges = [
        house.submit("charge", customer, queue="payments", retries=0, tags=["heap"])
        for customer in range(3)
    ]
    for charge in charges:
        house.wait_for(charge, "dead")
    page = open_page(f"{house.url}/#/dead")
    card = page.get_by_role("region", name="charge in payments")
    expect(card).to_contain_text(re.compile(r"\d+ tasks"))
    expect(card).to_have_count(1)
    card.get_by_role("button", name="Show the tasks").click()
    card.get_by_role("link", name="submit a copy…").first.click()
    expect(page.get_by_label("Name")).to_have_value("charge")
    expect(page.get_by_label("Retries")).to_have_value("0")
    go(page, house, "dead")
    card.get_by_role("button", name="Retry").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("With other limits").click()
    dialog.get_by_label("Retries").fill("1")
    dialog.get_by_label("Priority").fill("222")
    dialog.get_by_role("button", name=re.compile("^Retry")).click()
    expect(card).to_be_hidden()
    changed = house.get(f"tasks/{charges[0]}")
    assert (changed["retries"], changed["priority"]) == (1, 222)
    # Each waits for as long as chance wants and dies again, those of other tests too.
    for charge in house.get("tasks", queue="payments", name="charge")["tasks"]:
        house.wait_for(charge["id"], "dead")
    number = house.get("tasks", state="dead", queue="payments")["total"]
    expect(card).to_contain_text(f"{number} tasks")
    card.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Delete")).click()
    expect(card).to_be_hidden()
    assert house.get("tasks", state="dead", queue="payments")["total"] == 0


@pytest.mark.feature("D32")
def test_cluster_is_one_node_and_says_so(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/#/cluster")
    node = page.get_by_role("region", name="This node")
    expect(node).to_contain_text("leader, alone")
    expect(node).to_contain_text("memory: a restart loses everything")


def test_task_is_submitted_by_hand(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/#/submit")
    page.get_by_label("Queue", exact=True).fill("images")
    page.get_by_label("Name", exact=True).fill("resize")
    button(page, "Write the payload by hand")
    page.get_by_label("Payload").fill('[["hand.png", 640], {}]')
    button(page, "Submit")
    expect(page.locator("h1 .badge")).to_have_text("succeeded")
    expect(page.get_by_role("region", name="Result")).to_contain_text('"hand.png"')
    go(page, house, "submit")
    page.get_by_label("Queue", exact=True).fill("cold")
    page.get_by_label("Name", exact=True).fill("filed")
    page.get_by_label("Or a file").set_input_files(
        {"name": "a.bin", "mimeType": "application/octet-stream", "buffer": b"\0\1\2" * 50_000}
    )
    button(page, "Submit")
    expect(page.locator("h1")).to_contain_text("filed")
    expect(page.get_by_role("region", name="Payload")).to_contain_text("146 KiB")


def test_keyboard_theme_and_phone(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/", color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Use the light theme").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    expect(page.locator("h1")).to_have_text("Overview")
    # From then on it listens to the keyboard, too.
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.locator("h1")).to_have_text("Workers")
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()
    button(page, "Menu")
    page.get_by_role("link", name="Queues").click()
    expect(page.locator("h1")).to_have_text("Queues")
    task = house.submit("charge", 3, queue="payments", retries=0)
    house.wait_for(task, "dead")
    pages = (
        *("overview", "tasks", "queues", "queues/payments", "batches", "limits", "workers"),
        *("schedules", "flows", "pools", "cache", "dead", "keys", "submit", f"task/{task}"),
        *("namespaces", "audit"),
    )
    for where in pages:
        go(page, house, where)
        page.locator("h1").wait_for()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{where} is {width} wide"


#: Everything that can be used must have a name, and pictures must have words.
_NAMELESS = """() => [...document.querySelectorAll('button, a[href], input, select, textarea, img')]
    .filter(e => !(e.innerText?.trim() || e.getAttribute('aria-label') || e.labels?.length
        || e.tagName === 'IMG' && e.hasAttribute('alt') || e.closest('[aria-label]') === e))
    .map(e => e.outerHTML.slice(0, 120))"""


def test_everything_has_a_name(house: House, open_page: Open) -> None:
    page = open_page(f"{house.url}/")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "en")
    for where, title in TITLES.items():
        go(page, house, where)
        expect(page.locator("h1")).to_have_text(title)
        expect(page.locator("nav [aria-current=page]")).to_have_count(1)
        assert page.evaluate(_NAMELESS) == []
        assert page.title().endswith("· Jackalope")


TITLES = {
    "overview": "Overview",
    "tasks": "Tasks",
    "queues": "Queues",
    "batches": "Batches",
    "limits": "Limits",
    "workers": "Workers",
    "dead": "Dead letters",
    "namespaces": "Namespaces",
    "keys": "Keys",
    "audit": "Audit",
    "cluster": "Cluster",
    "submit": "Submit a task",
}
