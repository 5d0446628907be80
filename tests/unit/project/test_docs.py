"""The docs keep up with the code: no setting is left out, examples can be read, links lead on."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from leadhand.flows.documents import FlowDefinition
from leadhand.flows.faults import all_faults
from workers.checkers.answers import parse_only_decision

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *ROOT.glob("docs/**/*.md"),
    ]
)
READERS: dict[str, Callable[[str], Any]] = {
    "python": ast.parse,
    "json": json.loads,
    "toml": tomllib.loads,
}
_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    """Every block of a language that can be read here."""
    for page in PAGES:
        whole = page.read_text(encoding="utf-8")
        for found in _FENCE.finditer(whole):
            _, language, text = found.groups()
            if language in READERS:
                line = whole.count("\n", 0, found.start()) + 1
                yield Block(page.name, line, language, text)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as readers of Markdown make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("block", list(blocks()), ids=lambda b: f"{b.page}:{b.line}")
def test_what_the_docs_show_can_be_read(block: Block) -> None:
    READERS[block.language](block.text)


@pytest.mark.parametrize(
    "block", [b for b in blocks() if b.language == "json" and '"steps": [' in b.text
              and "type" in json.loads(b.text)["steps"][0]],
    ids=lambda b: f"{b.page}:{b.line}",
)  # fmt: skip
def test_a_flow_of_the_docs_has_no_fault(block: Block) -> None:
    assert all_faults(FlowDefinition, json.loads(block.text)).faults == []


@pytest.mark.parametrize(("iteration", "answer"), [("2", "no"), ("3", "yes"), ("4", "yes")])
def test_the_script_of_the_docs_decides(tmp_path: Path, iteration: str, answer: str) -> None:
    page = (ROOT / "docs/flows.md").read_text(encoding="utf-8")
    (script,) = [text for _, kind, text in _FENCE.findall(page) if "LEADHAND_ITERATION" in text]
    (tmp_path / "enough.sh").write_text(script)
    env = {**os.environ, "LEADHAND_ITERATION": iteration}
    done = subprocess.run(
        ["sh", "enough.sh", "3"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert parse_only_decision(done.stdout).text == f'{{"answer":"{answer}"}}'


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in headings(target), f"{link} names no heading"


def measured(*workloads: str) -> Iterator[list[float]]:
    """Steps a second, commands, round trips and bytes of these, as docs/benchmarks.md has them."""
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    for workload in workloads:
        (row,) = re.findall(rf"^\| {workload} \| (\d.*\| .*) \|$", text, re.MULTILINE)
        cells = row.split(" | ")
        yield [float(cells[n]) for n in (0, 7, 8, 9)]


def told_of_size() -> str:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    return text.partition("\n## Size\n")[2]


@pytest.mark.parametrize("workloads", [("W1", "W2"), ("A", "W2m")])
def test_what_a_step_costs_is_told_as_it_was_measured(workloads: tuple[str, str]) -> None:
    (row,) = re.findall(rf"\({', '.join(workloads)}\) \| (.*) \|", told_of_size())
    found = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", row)]
    commands, round_trips, size = zip(*[one[1:] for one in measured(*workloads)], strict=True)
    limits = [round(f(commands)) for f in (min, max)]
    assert found[:2] == limits
    assert found[2:-2] == [round(f(round_trips), 1) for f in (min, max)]
    assert found[-2:] == pytest.approx([f(size) / 1000 for f in (min, max)], abs=0.1)


def test_how_fast_loops_turn_is_told_as_it_was_measured() -> None:
    (quick, *_), (slow, *_) = measured("W2", "W2m")
    assert f"{quick:.0f} steps a second where all are quick, {slow:.0f} with a" in told_of_size()


def test_what_a_process_takes_is_told_as_it_was_measured() -> None:
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    (figures,) = re.findall(r"its process \| ([\d, ]+) MB \(fair shares (.*?) MB\)", text)
    worker, process, arbiter, api = figures[0].split(", ")
    size = told_of_size()
    assert f"{worker} MB resident, and {process} MB for each process of its pool" in size
    assert f"{arbiter} MB resident for gunicorn's arbiter and {api} MB for each process" in size
    assert size.count(f"{figures[1]} MB") == 3
