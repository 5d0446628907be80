"""Each button of the dashboard, clicked in a real browser: its effect is in the engine's state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from app.plans import plans
from app.sessions.inbox import list_messages
from tests.acceptance.dashboard.conftest import serve, sign_in
from tests.acceptance.dashboard.furnished import Furnished, furnish
from tests.session_driving import end, run_iteration
from tests.silent_engine import loop
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

#: Records notifications instead of showing them, and lets the page say that it is hidden.
RECORD = """
window.notes = [];
window.Notification = class {
  static permission = "default";
  static async requestPermission() { return (this.permission = "granted"); }
  constructor(text) { window.notes.push(text); }
};
let hidden = false;
Object.defineProperty(Document.prototype, "hidden", { get: () => hidden, configurable: true });
window.hide = (value) => { hidden = value; document.dispatchEvent(new Event("visibilitychange")); };
"""


@pytest.fixture
def home(store_url: str, tmp_path) -> Iterator[tuple[Furnished, str]]:
    """A store with sessions of each kind, and the address of an API on it."""
    furnished = furnish(store_url, tmp_path)
    with serve(furnished.world.engine, secret=furnished.settings.secret) as url:
        yield furnished, url


@pytest.fixture
def at_home(chromium, home) -> Page:
    return sign_in(chromium, home[1])


def _has_notes(page: Page, number: int) -> bool:
    return bool(page.evaluate("window.notes.length") == number)


def press(page: Page, name: str, *, entry: str = "", confirm: bool = False) -> None:
    """Click a button of the page, and enter or confirm what it asks."""
    page.get_by_role("button", name=name, exact=True).first.click()
    if entry:
        page.locator("#confirm textarea").fill(entry)
    if entry or confirm:
        page.get_by_role("button", name="Confirm").click()


def test_buttons_of_a_session_do_what_they_say(page, url, engine):
    session = str(engine.submit.document(loop()).session)
    pill = page.locator("#head .pill").first
    page.goto(f"{url}/ui/sessions/{session}")
    page.get_by_text("Hint…").click()
    page.get_by_label("A text for the next turn").fill("Use the old parser")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("The next turn is given the hint")).to_be_visible()
    assert [one.text for one in list_messages(engine, session).items] == ["Use the old parser"]
    press(page, "Stop")
    expect(pill).to_have_text("stopped")
    assert engine.queries.session(session).status == "stopped"
    press(page, "Rename…", entry="nightly")
    expect(page.get_by_role("heading", name="nightly")).to_be_visible()
    press(page, "Archive")
    expect(page.get_by_role("button", name="Restore")).to_be_visible()
    assert engine.queries.session(session).archived
    press(page, "Restore")
    expect(page.get_by_role("button", name="Archive")).to_be_visible()
    page.get_by_text("Resume with…").click()
    page.get_by_label("Iterations of a loop").fill("9")
    page.locator("#raise").get_by_role("button", name="Resume").click()
    expect(pill).to_have_text("active")
    press(page, "Abort", confirm=True)
    expect(pill).to_have_text("aborted")
    assert engine.queries.session(session).status == "aborted"
    assert page.evaluate("window.refused") == []


def test_bulk_action_counts_first_and_resumes_all_that_match(page, url, engine):
    failed = [str(engine.submit.document(loop()).session) for _ in range(3)]
    for session in failed:
        end(engine, session, "failed")
    other = str(engine.submit.document(loop()).session)
    end(engine, other, "stopped")
    page.goto(f"{url}/ui/sessions")
    page.locator(".chips").get_by_text("failed").click()
    page.wait_for_url("**status=failed*")
    page.get_by_role("link", name="Resume…").click()
    expect(page.get_by_role("heading", name="Resume 3 sessions?")).to_be_visible()
    assert engine.queries.session(failed[0]).status == "failed"
    page.get_by_role("button", name="Resume 3 sessions").click()
    expect(page.get_by_role("heading", name="3 of 3 done")).to_be_visible()
    assert {engine.queries.session(one).status for one in failed} == {"active"}
    assert engine.queries.session(other).status == "stopped"


def test_row_is_renamed_and_archived_and_the_view_is_saved(page, url, engine):
    session = str(engine.submit.document(loop()).session)
    end(engine, session, "completed")
    page.goto(f"{url}/ui/sessions")
    row = page.locator(f"#s-{session}")
    expect(row.get_by_role("button", name="Archive")).to_be_hidden()
    row.hover()
    row.get_by_role("button", name="Rename…").click()
    page.locator("#confirm textarea").fill("the nightly run")
    page.get_by_role("button", name="Confirm").click()
    expect(row.get_by_text("the nightly run")).to_be_visible()
    row.hover()
    row.get_by_role("button", name="Archive").click()
    expect(row).to_have_count(0)
    assert engine.queries.session(session).archived
    page.get_by_label("Archived").select_option("only")
    page.wait_for_url("**archived=only*")
    expect(row).to_have_count(1)
    page.get_by_text("Save this view…").click()
    page.get_by_label("Name of the view").fill("put away")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("link", name="put away")).to_have_attribute("aria-current", "page")
    page.goto(f"{url}/ui/sessions")
    page.get_by_role("link", name="put away").click()
    expect(row).to_have_count(1)
    row.hover()
    row.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Confirm").click()
    expect(row).to_have_count(0)
    assert engine.store.ref(session) is None
    page.get_by_role("button", name="Delete this view").click()
    page.get_by_role("button", name="Confirm").click()
    page.wait_for_url("**/ui/sessions")
    expect(page.get_by_role("link", name="put away")).to_have_count(0)
    assert page.evaluate("window.refused") == []


def test_iteration_is_compared_with_the_one_before_down_to_the_lines(at_home, home):
    furnished, url = home
    page = at_home
    page.goto(f"{url}/ui/sessions/{furnished.done}")
    page.locator("#i-1 button.cell").first.click()
    page.get_by_role("link", name="Compare with the one before").click()
    expect(page.get_by_role("heading", name="Compare two iterations")).to_be_visible()
    differs = page.locator("tr.differs th")
    expect(differs.filter(has_text="Verdict")).to_have_count(1)
    page.locator(".pair details").first.locator("summary").click()
    expect(page.locator(".pair details").first).to_contain_text("def slug(title: str) -> str:")
    page.goto(f"{url}/ui/compare?left={furnished.done}&right={furnished.failed}")
    page.get_by_role("link", name="Iteration 1").click()
    expect(page.get_by_role("heading", name="Compare two iterations")).to_be_visible()
    press(page, f"Rename {furnished.failed}…", entry="the worse one")
    expect(page.get_by_text("is renamed")).to_be_visible()
    engine = furnished.world.engine
    assert engine.queries.session(furnished.failed).title == "the worse one"
    assert page.evaluate("window.refused") == []


def test_draft_is_edited_by_keyboard_and_approved(at_home, home):
    furnished, url = home
    page, engine = at_home, furnished.world.engine
    page.goto(f"{url}/ui/plans/{furnished.draft}")
    page.locator("#add-task summary").focus()
    page.keyboard.press("Enter")
    for text in ("cache", "Keep slugs in memory", "At most 10,000", "slugs routes"):
        page.keyboard.press("Tab")
        page.keyboard.type(text)
    page.keyboard.press("Enter")
    expect(page.locator("#task-cache")).to_contain_text("Keep slugs in memory")
    [added] = [one for one in plans.show(engine, furnished.draft).tasks if one.id == "cache"]
    assert added.dependencies == ["slugs", "routes"]
    docs = page.locator("#task-docs")
    docs.get_by_text("Edit…").click()
    docs.get_by_label("After the tasks").fill("cache")
    docs.get_by_role("button", name="Save").click()
    expect(docs.locator(".facts", has_text="after")).to_contain_text("cache")
    bench = page.locator("#task-bench")
    bench.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Confirm").click()
    expect(bench).to_have_count(0)
    page.get_by_role("button", name="Approve the plan").click()
    expect(page.get_by_text("The plan is approved")).to_be_visible()
    view = plans.show(engine, furnished.draft)
    assert [one.id for one in view.tasks] == ["slugs", "routes", "docs", "cache"]
    assert view.state != "refining"
    assert page.evaluate("window.refused") == []


def test_question_shows_what_led_to_it_when_that_is_opened(at_home, home):
    furnished, _ = home
    page = at_home
    asking = page.locator(f"#need-{furnished.asking}")
    asking.get_by_text("What led to it").click()
    expect(asking.get_by_role("link", name="The whole transcript")).to_be_visible()
    assert page.evaluate("window.refused") == []


def test_hidden_page_notifies_once_for_each_session_that_comes_to_need_a_person(page, url, engine):
    page.add_init_script(RECORD)
    page.goto(f"{url}/ui/sessions")
    expect(page.locator("#live")).to_have_text("Live")
    page.get_by_role("button", name="Notify").click()
    expect(page.get_by_role("button", name="Notify")).to_have_attribute("aria-pressed", "true")
    for number in (1, 2):
        page.evaluate("window.hide(true)")
        end(engine, str(engine.submit.document(loop()).session), "failed")
        # A page with this policy refuses `wait_for_function`, which evaluates a text.
        wait_until(partial(_has_notes, page, number))
        page.evaluate("window.hide(false)")
        expect(page.locator("#badge")).to_have_text(str(number))
    assert page.evaluate("window.notes") == ["1 session needs you", "2 sessions need you"]
    assert page.evaluate("window.refused") == []


def test_steps_are_skipped_and_sessions_forked_and_run_again(page, url, engine):
    session = str(engine.submit.document(loop(max_iterations=3)).session)
    run_iteration(engine, session, "retry")
    engine.control.apply(session, "stop")
    page.goto(f"{url}/ui/sessions/{session}?tab=steps")
    page.get_by_role("link", name="Fork after…").first.click()
    page.get_by_role("button", name=re.compile("^Fork")).click()
    page.wait_for_url(lambda found: "/again" not in found)
    fork = page.url.partition("?")[0].rpartition("/")[2]
    made = engine.queries.session(fork).made_from
    assert made is not None
    assert (made.session, made.verb) == (session, "fork")
