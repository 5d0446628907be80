"""The first thing that a newcomer runs: the demo, from a copy of the examples."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.acceptance.conftest import MakeProject

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(200)
def test_the_demo_is_refused_once_a_phase_and_accepted_in_the_end(
    make_project: MakeProject,
) -> None:
    project = make_project()
    shutil.copytree(ROOT / "examples", project.folder / "examples")
    demo = project.start(["sh", "examples/demo.sh"], AGENT="")
    project.home = project.folder / "leadhand-demo"
    ended = project.ended(demo, timeout=180)
    assert ended.code == 0, ended.err
    lines = [line.partition("] ")[2] for line in (ended.out + ended.err).splitlines()]
    refusals = [line.partition(": retry: ")[0] for line in lines if ": retry: " in line]
    assert refusals == ["red 1/3 must-fail", "green 1/5 pytest", "refactor 1/3 tidy"]
    accepted = [line for line in lines if line.endswith(": accept after 2 iterations")]
    assert accepted == [
        f"{phase}: accept after 2 iterations" for phase in ("red", "green", "refactor")
    ]
    assert "done: the tests pass, and the code is fit to be read" in ended.out
