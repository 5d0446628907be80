"""`leadhand graph draw`: the layers of a graph file as text."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from click.testing import CliRunner
from pydantic import JsonValue

from leadhand.cli import cli
from leadhand.cli.render.graph_text import graph_drawing, layers_of
from leadhand.graphs.documents import GraphDocument

STEPS: list[JsonValue] = [
    {"name": "report", "tool": "echo", "arguments": {"all": ["${fetch}", "${terms}"]}},
    {"name": "search", "tool": "papers:search"},
    {"name": "terms", "tool": "echo", "critical": False},
    {"name": "fetch", "tool": "papers:fetch", "for_each": "${search}", "at_once": 4,
     "arguments": {"url": "${item.url}"}},
]  # fmt: skip
DRAWN = """papers
  1 ┌ search [papers:search]
    └ terms [echo], not critical
  2 ─ fetch [papers:fetch], for each of ${search}, 4 at once  <- search
  3 ─ report [echo]  <- fetch, terms
"""


def document(*steps: JsonValue) -> GraphDocument:
    return GraphDocument.model_validate({"kind": "graph", "name": "papers", "steps": list(steps)})


def test_steps_are_drawn_after_those_that_they_wait_for() -> None:
    assert "\n".join(graph_drawing(document(*STEPS))) + "\n" == DRAWN


def test_step_is_one_layer_below_the_longest_chain() -> None:
    chain: list[JsonValue] = [
        {"name": f"s{n}", "tool": "noop", "depends_on": [f"s{n - 1}"] if n else []}
        for n in range(4)
    ]
    chain.append({"name": "last", "tool": "noop", "depends_on": ["s0", "s3"]})
    assert [[one.name for one in layer] for layer in layers_of(document(*chain))] == [
        ["s0"], ["s1"], ["s2"], ["s3"], ["last"],
    ]  # fmt: skip


def test_command_draws_a_file_and_names_its_faults(
    tmp_path: Path,
) -> None:
    file = tmp_path / "papers.json"
    file.write_text(json.dumps({"steps": STEPS}))
    done = CliRunner().invoke(cli, ["graph", "draw", str(file)])
    assert (done.exit_code, done.output) == (0, DRAWN)
    file.write_text(json.dumps({"steps": [{"name": "a", "tool": "noop", "depends_on": ["b"]}]}))
    bad = CliRunner().invoke(cli, ["graph", "draw", str(file)])
    assert bad.exit_code == 1
    assert "'b'" in bad.output


def test_command_writes_a_file_as_svg_with_its_steps_and_edges(tmp_path: Path) -> None:
    file, out = tmp_path / "papers.json", tmp_path / "papers.svg"
    file.write_text(json.dumps({"steps": [*STEPS, {"name": "a <b>", "tool": "noop"}]}))
    done = CliRunner().invoke(cli, ["graph", "draw", str(file), "--svg", str(out)])
    assert done.exit_code == 0, done.output
    root = ElementTree.fromstring(out.read_text())
    titles = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}title")]
    names = {title.partition(":")[0] for title in titles}
    assert {"report", "search", "terms", "fetch", "a <b>"} <= names
    edges = [one for one in root.iter() if "edge" in one.get("class", "").split()]
    assert len(edges) == 3
    bad = CliRunner().invoke(cli, ["graph", "draw", str(file), "--svg", str(tmp_path / "no" / "x")])
    assert bad.exit_code == 1
    assert "no/x" in bad.output
