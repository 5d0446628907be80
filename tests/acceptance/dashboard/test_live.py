"""The stream of a browser: shared by its tabs, and right again after it was cut or frozen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.dashboard.conftest import serve, sign_in
from tests.acceptance.dashboard.proxy import Proxy
from tests.session_driving import add_events, end, run_iteration
from tests.silent_engine import loop

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

EVENTS, SECONDS = 200, 5
PATIENCE_MS = 60_000
#: Counts the changes that the leading tab passes on.
HEAR = """() => {
  window.heard = 0;
  const other = new BroadcastChannel("leadhand");
  other.onmessage = (event) => { window.heard += (event.data.topics || []).length; };
}"""
#: When the page began to fetch its open tab (ms).
FETCHES = """() => performance.getEntriesByType("resource")
  .filter((one) => one.name.includes("/panels/tab")).map((one) => one.startTime)"""


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    with Proxy(int(urlsplit(url).port or 0)) as found:
        yield found


def streams(page: Page) -> list[str]:
    """The addresses of the streams that this profile opens from now on."""
    found: list[str] = []
    page.context.on("request", lambda r: found.append(r.url) if "/ui/stream" in r.url else None)
    return found


def eventually(page: Page, condition: Callable[[], object]) -> None:
    """Let the page go on until the condition is true; the test's own limit ends it otherwise."""
    while not condition():
        page.wait_for_timeout(50)


def started(engine) -> str:
    return str(engine.submit.document(loop(max_iterations=5)).session)


def test_eight_tabs_share_one_stream_and_each_is_current(page, url, engine):
    sessions = [started(engine) for _ in range(7)]
    asked = streams(page)
    tabs = []
    for session in sessions:
        tab = page.context.new_page()
        tab.goto(f"{url}/ui/sessions/{session}")
        tabs.append(tab)
    for tab in (page, *tabs):
        expect(tab.locator("#live")).to_have_text("Live", timeout=PATIENCE_MS)
    eventually(page, lambda: all(one in asked[-1] for one in sessions))
    held = len(asked)
    for tab, session in zip(tabs, sessions, strict=True):
        tab.bring_to_front()
        run_iteration(engine, session, "retry")
        expect(tab.locator("tr[id^=i-]")).to_have_count(1, timeout=PATIENCE_MS)
    assert len(asked) == held
    connected = page.evaluate(
        "async () => (await navigator.locks.query()).held.filter("
        "(one) => one.name === 'leadhand-stream').length"
    )
    assert connected == 1


def test_another_tab_takes_over_when_the_first_is_closed(page, url, engine):
    session = started(engine)
    other = page.context.new_page()
    other.goto(f"{url}/ui/sessions/{session}")
    expect(other.locator("#live")).to_have_text("Live")
    asked = streams(other)
    page.close()
    eventually(other, lambda: [one for one in asked if session in one])
    engine.control.apply(session, "stop")
    expect(other.locator("#head .pill").first).to_have_text("stopped", timeout=PATIENCE_MS)


def test_page_is_right_after_the_stream_was_cut(chromium, proxy, engine):
    session = started(engine)
    page = sign_in(chromium, f"http://127.0.0.1:{proxy.port}")
    page.goto(f"http://127.0.0.1:{proxy.port}/ui/sessions/{session}")
    expect(page.locator("#live")).to_have_text("Live")
    proxy.refuses = True
    proxy.cut()
    expect(page.locator("#live")).to_have_text("Not connected", timeout=PATIENCE_MS)
    run_iteration(engine, session, "retry")
    end(engine, session, "stopped")
    proxy.refuses = False
    expect(page.locator("#live")).to_have_text("Live", timeout=PATIENCE_MS)
    expect(page.locator("#head .pill").first).to_have_text("stopped", timeout=PATIENCE_MS)
    expect(page.locator("tr[id^=i-]")).to_have_count(1)


def test_page_is_right_after_its_connection_froze(chromium, proxy, engine):
    session = started(engine)
    page = sign_in(chromium, f"http://127.0.0.1:{proxy.port}")
    page.goto(f"http://127.0.0.1:{proxy.port}/ui/sessions/{session}")
    expect(page.locator("#live")).to_have_text("Live")
    proxy.freeze()
    run_iteration(engine, session, "retry")
    end(engine, session, "stopped")
    expect(page.locator("#head .pill").first).to_have_text("stopped", timeout=PATIENCE_MS)
    expect(page.locator("tr[id^=i-]")).to_have_count(1)
    expect(page.locator("#live")).to_have_text("Live", timeout=PATIENCE_MS)


def test_page_is_right_after_the_api_restarted(chromium, engine):
    session = started(engine)
    with serve(engine) as url:
        page = sign_in(chromium, url)
        page.goto(f"{url}/ui/sessions/{session}")
        expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#live")).to_have_text("Not connected", timeout=PATIENCE_MS)
    run_iteration(engine, session, "retry")
    with serve(engine, port=int(urlsplit(url).port or 0)):
        expect(page.locator("#live")).to_have_text("Live", timeout=PATIENCE_MS)
        expect(page.locator("tr[id^=i-]")).to_have_count(1, timeout=PATIENCE_MS)
        end(engine, session, "stopped")
        expect(page.locator("#head .pill").first).to_have_text("stopped", timeout=PATIENCE_MS)
        page.close()


def test_paused_page_changes_nothing_until_it_goes_on(page, url, engine):
    session = started(engine)
    page.goto(f"{url}/ui/sessions/{session}")
    expect(page.locator("#live")).to_have_text("Live")
    page.get_by_role("button", name="Pause").click()
    page.evaluate(HEAR)
    fetched: list[str] = []
    page.on("request", lambda one: fetched.append(one.url) if "/panels/" in one.url else None)
    engine.control.apply(session, "stop")
    eventually(page, lambda: page.evaluate("window.heard > 0"))
    assert fetched == []
    expect(page.locator("#head .pill").first).to_have_text("active")
    page.keyboard.press("z")
    expect(page.locator("#head .pill").first).to_have_text("stopped")


def test_two_hundred_events_a_second_are_at_most_four_fetches_a_second(page, url, engine):
    session = started(engine)
    page.goto(f"{url}/ui/sessions/{session}?tab=log")
    expect(page.locator("#live")).to_have_text("Live")
    for _ in range(SECONDS):
        add_events(engine, session, EVENTS)
        page.wait_for_timeout(500)
    run_iteration(engine, session, "retry")
    eventually(page, lambda: page.evaluate(FETCHES))
    began = page.evaluate(FETCHES)
    # Of five in a row: one that was late has the next one sooner after it.
    assert all(later - first >= 900 for first, later in zip(began, began[4:], strict=False))
    page.keyboard.press("1")
    expect(page.locator("tr[id^=i-]")).to_have_count(1)
