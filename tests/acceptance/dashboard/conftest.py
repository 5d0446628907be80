"""A real browser at the dashboard; without Chromium (`apt install chromium`) tests are skipped."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from werkzeug.serving import make_server

from api import create_app
from app.engine import Engine
from app.settings import Settings
from tests.silent_engine import OPERATOR, SECRET, silent_engine

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: Collects what the content security policy refuses.
LISTEN = """
window.refused = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.refused.push(event.violatedDirective);
});
"""


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret=SECRET)


@pytest.fixture
def url(engine: Engine) -> Iterator[str]:
    with serve(engine) as found:
        yield found


@contextmanager
def serve(engine: Engine, *, port: int = 0, secret: str = SECRET) -> Iterator[str]:
    """An API in this process; its address. Its streams end with it."""
    app = create_app(Settings(api_token=OPERATOR, secret=secret), engine)
    server = make_server("127.0.0.1", port, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        app.end_streams()
        server.shutdown()
        server.server_close()
        app.fanout.close()


@pytest.fixture
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path is None:
        pytest.skip("no Chromium on PATH; on Debian: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser, url: str) -> Page:
    """A page that is signed in, at the inbox."""
    return sign_in(chromium, url)


def sign_in(chromium: Browser, url: str, **how: Any) -> Page:
    """A page of a new browser profile that is signed in; `how` is for the profile."""
    page = chromium.new_context(**how).new_page()
    page.set_default_timeout(20_000)
    page.add_init_script(LISTEN)
    page.goto(f"{url}/ui/sign-in")
    page.get_by_label("Token").fill(OPERATOR)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/ui/inbox")
    return page
