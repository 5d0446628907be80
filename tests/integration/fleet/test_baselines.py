"""Baselines: commands that check run once before the loop, on the work as it is then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet import Fleet

PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -p no:cacheprovider"
TESTS = "import calc\ndef test_a(): assert calc.ok\ndef test_b(): pass\n"


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=2)
    yield fleet
    fleet.close()


@pytest.mark.timeout(120)
def test_checks_say_whether_they_were_red_before_the_work(fleet: Fleet) -> None:
    folder = fleet.folder / "work"
    folder.mkdir()
    (folder / "calc.py").write_text("ok = False\n")
    (folder / "test_calc.py").write_text(TESTS)
    fleet.worker("one")
    doer = "echo 'ok = True' > calc.py; sed -i '/test_b/d' test_calc.py"
    session = fleet.submitted(
        *(PYTEST, "test -f calc.py"),
        doer={"command": doer}, cwd=str(folder), baseline=True, budget={"iterations": 2},
    )  # fmt: skip
    result = fleet.ended(session, timeout=90)
    assert (result.verdict, result.iterations) == ("accept", 1)
    checks = {check["name"]: check for check in result.history[0].checks}
    assert [check["baseline"] for check in checks.values()] == ["red", "green"]
    assert "It was red before the work.\n\n" in str(checks["pytest"]["feedback"])
    assert "It was green before the work, too: " in str(checks["test"]["feedback"])
    assert any("1 of 2 tests are gone" in warning for warning in result.warnings)
    assert any("test_calc::test_b" in warning for warning in result.warnings)
    steps = fleet.engine.queries.steps(session).items
    before = [step for step in steps if step.address.startswith("base.")]
    assert [step.verdict for step in before] == [None, None]
    (do,) = (step for step in steps if step.address.endswith("/do"))
    assert all(str(step.ended_at) <= str(do.started_at) for step in before)
