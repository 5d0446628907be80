"""Generates the parts of docs/architecture.md that follow from the code.

The tree comes from the docstrings of the packages, the layers from the import contracts of
pyproject.toml, and the drawings from the imports themselves.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grimp

from scripts.import_drawing import drawing, transitive_reduction

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/architecture.md"
#: Those that have layers of their own, and a drawing of them.
LAYERED = ("app", "workers", "leadhand")
#: The packages in rows; no contract has all five.
PACKAGES = (("api", "workers"), ("tasks",), ("app",), ("leadhand",))


def pages() -> dict[str, str]:
    """Return each generated file with its text."""
    page = (ROOT / PAGE).read_text()
    for name, text in {"tree": tree(), "layers": layers()}.items():
        page = replace_part(page, name, text)
    graph = grimp.build_graph(*_contracts()["root_packages"], cache_dir=None)
    drawn = {f"docs/architecture/{name}.svg": _inside(graph, name) for name in LAYERED}
    return {PAGE: page, "docs/architecture/packages.svg": _between(graph), **drawn}


def tree() -> str:
    """Return every package with the first sentence of its docstring."""
    found = [ROOT / name for name in _contracts()["root_packages"]]
    folders = [one.parent for top in sorted(found) for one in sorted(top.rglob("__init__.py"))]
    lines = [(_indent(folder), _sentence(folder / "__init__.py")) for folder in sorted(folders)]
    width = max(len(name) for name, _ in lines) + 2
    return "\n".join(["```text", *(f"{name:{width}}{text}" for name, text in lines), "```"])


def layers() -> str:
    """Return the contracts: those of layers with a line for each, the others by their names."""
    blocks = []
    others = []
    for contract in _contracts()["contracts"]:
        if contract["type"] != "layers":
            others.append(f"- {contract['name']}")
            continue
        rows = [
            ", ".join(f"`{one.strip()}`" for one in row.split("|")) for row in contract["layers"]
        ]
        lines = [f"{number}. {row}" for number, row in enumerate(rows, 1)]
        blocks.append("\n".join([f"**{contract['name']}**", "", *lines]))
    return "\n\n".join([*blocks, "In addition to the layers:", "\n".join(others)])


def _contracts() -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: dict[str, Any] = settings["tool"]["importlinter"]
    return found


def _indent(folder: Path) -> str:
    depth = len(folder.relative_to(ROOT).parts) - 1
    return f"{'  ' * depth}{folder.name}/"


def _sentence(module: Path) -> str:
    text = ast.get_docstring(ast.parse(module.read_text()))
    if not text:
        raise SystemExit(f"{module.relative_to(ROOT)}: the package needs a docstring")
    return text.splitlines()[0]


def replace_part(page: str, name: str, text: str) -> str:
    """Return the page with a new text between the two marks of this name."""
    begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"(?<={re.escape(begin)}\n).*(?={re.escape(end)})", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"the marks {begin} and {end} are missing")
    return pattern.sub(lambda _: f"\n{text}\n\n", page)


def _between(graph: grimp.ImportGraph) -> str:
    edges = {(one, other) for one, other in _edges(graph, 1) if one != other}
    return drawing(PACKAGES, edges, "Which package imports which")


def _inside(graph: grimp.ImportGraph, package: str) -> str:
    """Return the drawing of one package; arrows within a row, or implied ones, are left out."""
    rows = next(layers_of(package))
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    within = f"{package}."
    edges = {
        (one.removeprefix(within), other.removeprefix(within))
        for one, other in _edges(graph, 2)
        if one.startswith(within) and other.startswith(within) and one != other
    }
    missing = {name for edge in edges for name in edge} - row_of.keys()
    if missing:
        raise SystemExit(f"pyproject.toml: no layer of {package} has {', '.join(sorted(missing))}")
    down = {(one, other) for one, other in edges if row_of[one] != row_of[other]}
    return drawing(rows, transitive_reduction(down), f"Which part of {package} imports which")


def layers_of(package: str) -> Iterator[list[list[str]]]:
    """Yield the rows of the contracts that are about the modules of one package, by short names."""
    for contract in _contracts()["contracts"]:
        rows = [re.split(r"\s*[|:]\s*", row) for row in contract.get("layers", [""])]
        if all(name.startswith(f"{package}.") for row in rows for name in row):
            yield [[name.removeprefix(f"{package}.") for name in row] for row in rows]


def _edges(graph: grimp.ImportGraph, depth: int) -> Iterator[tuple[str, str]]:
    """Yield each import, of modules cut to so many parts of their names."""
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            yield _module_prefix(module, depth), _module_prefix(imported, depth)


def _module_prefix(module: str, depth: int) -> str:
    return ".".join(module.split(".")[:depth])
