"""Measures the dashboard in Chromium: ``python -P -m benchmarks.dashboard [SESSIONS [STEPS]]``.

Real services run in a temporary state folder, and a headless Chromium opens the list of SESSIONS
(10,000) sessions and the page of a session of STEPS (2,000) steps. Prints the first contentful
paint of each, five times, with the size of the page. Then it watches sessions of as many steps
while they run: how many events go by, what the page's script keeps of memory (after a garbage
collection), and the longest task that kept the page from responding.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadhand.client.client import Client
from leadhand.local.connect import ensure

if TYPE_CHECKING:
    from playwright.sync_api import Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ["--no-sandbox", "--js-flags=--expose-gc", "--enable-precise-memory-info"]
ROUNDS = 5
#: How many events go by at least while a page is watched.
EVENTS = 20_000
_PAINT = """
new Promise((done) => new PerformanceObserver((list) => {
  const found = list.getEntriesByName('first-contentful-paint');
  if (found.length) done(found[0].startTime);
}).observe({type: 'paint', buffered: true}))
"""
_LISTEN = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration);
}).observe({type: 'longtask', buffered: true});
"""


def graph(steps: int) -> dict[str, Any]:
    """A document with this many steps, in ten rows that wait for each other."""
    rows = max(1, steps // 10)
    return {
        "kind": "graph",
        "name": f"{steps} steps",
        "steps": [
            {
                "name": f"s{row}-{one}",
                "tool": "noop",
                "depends_on": [f"s{row - 1}-{one}"][: row > 0],
            }
            for row in range(10)
            for one in range(rows)
        ],
    }


def main(sessions: int, steps: int) -> None:
    """Measure all, and print it."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if chromium is None:
        sys.exit("there is no Chromium: apt install chromium")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "state")
        env = {**os.environ, "LEADHAND_HOME": str(home)}
        with ensure(home, env=env) as services, Client(services.url, services.token) as client:
            began = time.monotonic()
            client.submit_many([{**graph(1), "label": f"n{n}"} for n in range(sessions)])
            client.wait(client.submit(graph(1)).id)
            print(f"{sessions} sessions: {time.monotonic() - began:.0f} s")
            large = client.submit(graph(steps)).id
            client.wait(large)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=chromium,
                    args=["--no-sandbox", "--js-flags=--expose-gc", "--enable-precise-memory-info"],
                )
                page = browser.new_page()
                page.add_init_script(_LISTEN)
                page.goto(_link(env))
                _paint(page, services.url, f"list of {sessions:,} sessions", "/ui/sessions")
                _paint(page, services.url, f"session of {steps:,} steps", f"/ui/sessions/{large}")
                _watch(page, client, services.url, steps)
                browser.close()


def _link(env: dict[str, str]) -> str:
    command = [sys.executable, "-P", "-m", "leadhand", "ui", "--print"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[-1]


def _paint(page: Page, url: str, what: str, path: str) -> None:
    found = []
    for _ in range(ROUNDS):
        page.goto(f"{url}{path}", wait_until="load")
        found.append(page.evaluate(_PAINT))
    size = len(page.content()) // 1024
    print(f"{what}: first paint {statistics.median(found):.0f} ms ({min(found):.0f} to"
          f" {max(found):.0f}), {size} kB")  # fmt: skip


def _watch(page: Page, client: Client, url: str, steps: int) -> None:
    """Watch sessions while they run, one after the other, until enough events went by."""
    events = 0
    kept, longest = list[float](), 0.0
    began = time.monotonic()
    while events < EVENTS:
        session = client.submit(graph(steps)).id
        page.goto(f"{url}/ui/sessions/{session}")
        client.wait(session)
        events += sum(1 for _ in client.events(session))
        page.wait_for_timeout(1_000)
        page.evaluate("gc()")
        kept.append(page.evaluate("performance.memory.usedJSHeapSize") / 1024**2)
        longest = max(longest, page.evaluate("window.longest"))
    print(
        f"{events:,} events in {time.monotonic() - began:.0f} s: the page keeps {kept[0]:.1f} MB"
        f" after the first session and {kept[-1]:.1f} MB after the last; its longest task took"
        f" {longest:.0f} ms"
    )


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(given + [10_000, 2_000][len(given) :]))
