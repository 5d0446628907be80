"""A loop that is judged by a rubric, which somebody changes while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet import Fleet


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=2)
    yield fleet
    fleet.close()


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_each_iteration_is_judged_by_the_rubric_as_it_is_then(fleet: Fleet) -> None:
    folder = fleet.folder / "work"
    folder.mkdir()
    (folder / "RUBRIC.md").write_text("## Gates\n- `echo x >> ../ran`\n- `test -f never`\n")
    (folder / "next.md").write_text("## Gates\n- `echo x >> ../ran`\n- `test -f done`\n")
    fleet.worker("one")
    doer = 'if [ "$LEADHAND_ITERATION" = 3 ]; then mv next.md RUBRIC.md; touch done; fi'
    session = fleet.loop(doer, "rubric: RUBRIC.md", cwd=str(folder))
    result = fleet.ended(session, timeout=60)
    assert (result.verdict, result.iterations) == ("accept", 3)
    checks = [entry.checks[0] for entry in result.history]
    assert checks[0]["rubric"] == checks[1]["rubric"] != checks[2]["rubric"]
    assert "Gate `test -f never` failed" in result.history[0].feedback
    assert (fleet.folder / "ran").read_text().count("x") == 3, "each iteration runs all gates"
    assert [gate["passed"] for gate in checks[1]["gates"]] == [True, False]  # type: ignore[index, call-overload, union-attr]
