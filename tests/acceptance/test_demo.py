"""The demo, from a copy of the examples; docs/recording.svg shows what it prints."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from scripts.recording import DEMO, LIST, PICTURE, comparable, shown, text_of
from tests.acceptance.conftest import MakeProject
from tests.documentation import blocks

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(400)
def test_the_demo_is_refused_once_a_phase_and_accepted_in_the_end(
    make_project: MakeProject,
) -> None:
    project = make_project()
    shutil.copytree(ROOT / "examples", project.folder / "examples")
    with (project.folder / "output").open("w") as output:
        demo = project.start(DEMO, output=output, AGENT="")
    assert demo.wait(timeout=280) == 0, project.lines("output")
    printed = project.lines("output")
    lines = [line.partition("] ")[2] for line in printed]
    # A check that took a while says how long.
    found = (re.match(r"(.*?): retry(?: after [0-9:]+)?: ", line) for line in lines)
    refusals = [refused.group(1) for refused in found if refused]
    assert refusals == ["red 1/3 must-fail", "green 1/5 pytest", "refactor 1/3 tidy"]
    accepted = [line for line in lines if line.endswith(": accept after 2 iterations")]
    assert accepted == [
        f"{phase}: accept after 2 iterations" for phase in ("red", "green", "refactor")
    ]
    assert "demo: done: the tests pass, and the code is fit to be read" in printed
    project.folder = project.folder / "leadhand-demo"
    listed = project.ended(project.start(LIST))
    own = "leadhand-demo/own.py"
    texts = {b.directives.get("file"): b.text for b in blocks(ROOT / "README.md")}
    project.write("own.py", texts[own])
    ran = project.leadhand("workflow", "own.py", timeout=60)
    assert ran.code == 0, ran.err
    now = [*shown(printed), *listed.out.splitlines()]
    recorded = [line for line in text_of(PICTURE.read_text()) if not line.startswith("$ ")]
    assert comparable(recorded) == comparable(now), "run `make recording`"
