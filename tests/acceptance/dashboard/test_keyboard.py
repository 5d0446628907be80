"""The path of a person in the morning, by the keyboard alone, with the keys counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.dashboard.conftest import LISTEN, serve
from tests.acceptance.dashboard.furnished import SECRET, furnish
from tests.silent_engine import OPERATOR, silent_engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

MOST = 6


def test_from_the_link_to_a_resumed_session_in_six_keys(chromium, store_url, tmp_path: Path):
    """A session failed overnight: its checker's output, the diff, and its resume."""
    some = furnish(store_url, tmp_path)
    engine = silent_engine(store_url, secret=SECRET, flows=(tmp_path,))
    for other in (some.asking, some.draft):  # another person answers these
        engine.control.apply(other, "stop")
    with serve(engine, secret=SECRET) as url:
        page = chromium.new_context().new_page()
        page.set_default_timeout(60_000)
        page.add_init_script(LISTEN)
        page.goto(f"{url}/ui/sign-in#{link(page, url)}")
        page.wait_for_url("**/ui/inbox")
        assert len(walk(page, some.failed)) <= MOST
        expect(page.locator("#head .pill").first).to_have_text("active", timeout=60_000)
        assert page.evaluate("window.refused") == []
        page.close()
    assert engine.queries.session(some.failed).status == "active"


def link(page: Page, url: str) -> str:
    """The secret of a sign-in link, as `leadhand ui --print` makes it."""
    made = page.request.post(
        f"{url}/v1/sign-in-links", headers={"Authorization": f"Bearer {OPERATOR}"}, data={}
    )
    return str(made.json()["url"]).partition("#")[2]


def walk(page: Page, session: str) -> list[str]:
    """Press the keys; each is pressed once what the one before it opens is shown."""
    pressed: list[str] = []

    def press(key: str) -> None:
        page.keyboard.press(key)
        pressed.append(key)

    press("a")
    page.wait_for_url(f"**/ui/sessions/{session}")
    press("o")
    expect(page.locator(".detail pre").last).to_contain_text("AssertionError")
    press("4")
    expect(page.locator("tr.add").first).to_be_visible()
    press("r")
    return pressed
