"""A short run of chaos: the promises are kept, and a broken one would be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.faults import KINDS, LONG
from tests.chaos.run import Plan, run, told_of
from tests.effort import few_or_all

pytestmark = pytest.mark.chaos


#: Its sessions have a plan with merges, and a worker is killed while git works for it.
SHORTEST = Plan(seed=1, minutes=0.2, sessions=8, every_s=1.8, workers=2, lease_s=2, longest_s=1)
SHORT = Plan(seed=3, minutes=0.25, sessions=16, every_s=1.8, workers=2, lease_s=3, longest_s=2)


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("plan", few_or_all(SHORTEST, SHORT))
def test_every_promise_is_kept_in_a_short_run(tmp_path: Path, plan: Plan):
    lines: list[str] = []
    found = run(plan, tmp_path, lines.append)
    assert not found.broken, "\n".join([*lines, *told_of(plan, found)])
    assert len(found.faults) >= 5


def test_the_same_seed_breaks_the_same_things():
    plan = Plan(seed=7, minutes=5)
    assert plan.faults == Plan(seed=7, minutes=5).faults
    assert plan.faults != Plan(seed=8, minutes=5).faults
    assert {fault.kind for fault in plan.faults} == set(KINDS)
    short = [Plan(seed=seed, minutes=0.25, every_s=1.8) for seed in range(50)]
    assert {fault.kind for plan in short for fault in plan.faults} == set(KINDS) - {LONG}
