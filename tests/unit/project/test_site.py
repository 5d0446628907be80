"""The documentation site has every page in its navigation, and loads nothing from other hosts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.recording import PICTURE, Line, comparable, picture, text_of

ROOT = Path(__file__).resolve().parents[3]
SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def pages_of(nav: Any) -> Iterator[str]:
    """Yield the pages of a part of the navigation."""
    if isinstance(nav, str):
        yield nav
        return
    for entry in nav.values() if isinstance(nav, dict) else nav:
        yield from pages_of(entry)


def test_navigation_has_every_page_and_the_list_of_decisions() -> None:
    files = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in files if page.startswith("decisions/")} - {"decisions/index.md"}
    listed = [*pages_of(SITE["nav"])]
    assert sorted(listed) == sorted(files - decisions)
    index = (ROOT / "docs/decisions/index.md").read_text()
    titles = re.findall(r"^## \[.*\]\((.*)\)$", index, re.MULTILINE)
    assert {f"decisions/{name}" for name in titles} == decisions


def test_navigation_has_tutorials_guides_reference_and_explanation() -> None:
    titles = [title for entry in SITE["nav"] for title in entry]
    assert titles == ["Home", "Tutorials", "How-to guides", "Reference", "Explanation"]


def test_fonts_are_not_loaded_and_the_generator_is_pinned() -> None:
    assert SITE["theme"]["font"] is False
    assert "repo_url" not in SITE
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert [re.fullmatch(r"zensical==[\d.]+", one) is not None for one in groups["docs"]] == [True]


def test_recording_loads_nothing_and_has_no_script() -> None:
    svg = PICTURE.read_text()
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"@font-face|@import|url\(|<script|<image|href", svg)


def test_recording_keeps_each_line_and_its_spaces() -> None:
    lines = ["$ make <demo>", "a  b & c", "", "x" * 250, "[0:01] red: accept"]
    svg = picture([Line(at_s=float(n), text=text) for n, text in enumerate(lines, start=1)])
    assert text_of(svg) == lines


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("[0:07] red: accept", "[0:12] red: accept", True),
        ("session 1a2b3c4d: accept", "session 9f8e7d6c: accept", True),
        ("red: accept", "red: retry", False),
    ],
)
def test_recordings_are_compared_without_ids_and_times(
    one: str, other: str, is_equal: bool
) -> None:
    assert (comparable([one]) == comparable([other])) is is_equal
