"""docs/architecture.md names modules, functions and files that exist; its drawings are complete."""

from __future__ import annotations

import pkgutil
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from scripts import architecture
from scripts.import_drawing import drawing, transitive_reduction

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/architecture.md").read_text()
QUOTED = set(re.findall(r"`([^`\n]+)`", PAGE))
NAMES = sorted(
    name for name in QUOTED if re.fullmatch(r"(app|api|leadhand|tasks|workers)(\.\w+)+", name)
)
FILES = sorted(name for name in QUOTED if re.fullmatch(r"[\w.]+(/[\w.]+)*/([\w]+\.\w+)?", name))
SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_names_modules_and_files():
    assert len(NAMES) > 80
    assert len(FILES) > 12


@pytest.mark.parametrize("name", NAMES)
def test_name_of_the_page_exists(name):
    """`__main__` of a package is found without an import, which would start it."""
    if name.endswith(".__main__"):
        assert (ROOT / name.replace(".", "/")).with_suffix(".py").exists()
    else:
        assert pkgutil.resolve_name(name) is not None


@pytest.mark.parametrize("name", FILES)
def test_file_of_the_page_exists(name):
    assert (ROOT / name).exists()


def test_tree_has_a_line_for_each_package():
    packages = [
        folder.parent
        for top in ("api", "app", "leadhand", "tasks", "workers")
        for folder in (ROOT / top).rglob("__init__.py")
    ]
    assert len(architecture.tree().splitlines()) == len(packages) + 2


def test_drawing_has_a_box_for_each_layered_module_and_arrows_that_lead_down():
    for name in architecture.LAYERED:
        image = ET.fromstring((ROOT / f"docs/architecture/{name}.svg").read_text())
        boxes = {text.text for text in image.iter(f"{SVG}text")}
        [rows] = architecture.layers_of(name)
        assert boxes == {one for row in rows for one in row}


def test_long_arrow_passes_between_the_boxes_of_the_rows_that_it_crosses():
    image = drawing([["a"], ["b"], ["c"]], {("a", "b"), ("b", "c"), ("a", "c")}, "three rows")
    boxes = re.findall(r'class="box" x="(\d+)" y="(\d+)" width="(\d+)"', image)
    left, top, width = map(int, boxes[1])
    lanes = [int(x) for x, y in re.findall(r"C\d+ \d+ \d+ \d+ (\d+) (\d+)L", image)]
    assert top > 0
    assert lanes
    assert all(not left <= lane <= left + width for lane in lanes)


def test_an_edge_that_a_longer_path_implies_is_left_out():
    edges = {("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("a", "e")}
    assert transitive_reduction(edges) == edges - {("a", "d")}


def test_the_generated_parts_are_the_same_in_each_run():
    assert architecture.pages() == architecture.pages()
