"""Each page, light and dark, wide and narrow: no serious fault of accessibility, nothing cut off.

`make screenshots` writes a picture of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.acceptance.dashboard.conftest import serve, sign_in
from tests.acceptance.dashboard.furnished import SECRET, Furnished, furnish
from tests.real_agents import AXE
from tests.silent_engine import silent_engine

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(480)]

WIDE, NARROW = (1280, 800), (390, 844)
TABS = (
    "timeline", "transcript", "changes", "output", "steps", "drawing", "tree", "log",
)  # fmt: skip
#: What axe calls serious or critical has to be mended.
SERIOUS = """
async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`)
"""


@pytest.fixture
def furnished(store_url: str, tmp_path: Path) -> Furnished:
    return furnish(store_url, tmp_path)


@pytest.fixture
def url(store_url: str, tmp_path: Path, furnished: Furnished) -> Iterator[str]:
    engine = silent_engine(store_url, secret=SECRET, flows=(tmp_path,))
    with serve(engine, secret=SECRET) as found:
        yield found


def pages_of(some: Furnished) -> dict[str, str]:
    """The addresses of all pages, by the names of their pictures."""
    session = f"sessions/{some.failed}"
    return {
        **{name: name for name in ("inbox", "sessions", "flows", "plans", "fleet", "economics")},
        "session": session,
        **{f"session-{tab}": f"{session}?tab={tab}" for tab in TABS},
        "session-output": f"sessions/{some.running}?tab=output",
        "session-tree": f"sessions/{some.plan}?tab=tree",
        "session-running": f"sessions/{some.running}",
        "again": f"{session}/again",
        "bulk": "sessions/bulk?status=failed&status=stopped&verb=resume",
        "compare": f"compare?left={some.failed}&right={some.done}",
        "plan": f"plans/{some.plan}",
        "plan-draft": f"plans/{some.draft}",
        "flow": "flows/review",
        "error": "nothing-here",
    }


def open_details(page: Page, name: str) -> None:
    """Show what a person opens on a page."""
    match name:
        case "session":
            page.locator("tbody .cell .pill").first.click()
            page.locator(".detail").first.wait_for()
        case "session-changes":
            page.locator("details.file summary").first.click()
            page.locator("section").last.locator("tr.add").first.wait_for()
        case "session-transcript":
            page.locator("details[id^=tools] summary").first.click()
        case _:
            pass


@pytest.mark.parametrize("width", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_serious_fault(chromium: Browser, url, furnished, theme, width, request):
    if not AXE.exists():
        pytest.skip("axe-core is not installed; `make agents` does that")
    folder = request.config.getoption("--screenshots")
    how: dict[str, Any] = {"viewport": {"width": width[0], "height": width[1]}}
    page = sign_in(chromium, url, color_scheme=theme, reduced_motion="reduce", **how)
    faults: list[str] = []
    for name, path in pages_of(furnished).items():
        page.goto(f"{url}/ui/{path}")
        open_details(page, name)
        if folder:
            shape = "wide" if width == WIDE else "narrow"
            page.screenshot(path=Path(folder) / f"{name}-{theme}-{shape}.png", full_page=True)
        page.evaluate(AXE.read_text())
        faults += [f"{name}: {one}" for one in page.evaluate(SERIOUS)]
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            faults.append(f"{name}: it is wider than the screen")
        faults += [f"{name}: the policy refused {one}" for one in page.evaluate("window.refused")]
    assert faults == []
