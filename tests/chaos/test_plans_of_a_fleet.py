"""Plans on a fleet of real processes, of which one is killed while tasks work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from tests.chaos.plan_load import Plans
from tests.chaos.planned import as_drawn, planned
from tests.chaos.records import account_of, with_children
from tests.chaos.stack import Stack
from tests.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]

#: How many plans are tried; each has its tasks, their ends and the time of the kill from its seed.
ORDERS = int(os.environ.get("LEADHAND_TEST_ORDERS", "3"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("plans"), workers=2, lease_s=5)
    with stack.running():
        yield stack


@pytest.mark.parametrize("seed", range(ORDERS))
def test_a_plan_says_what_its_children_came_to_after_a_kill(stack: Stack, seed: int) -> None:
    random = Random(seed)
    end, document = Plans(random, stack.command, longest_s=2).plan()
    session = stack.clients[0].submit(document, f"order {seed}").id
    before = random.randrange(3)
    wait_until(lambda: begun(stack, session) > before, timeout=90)
    pools = [process for worker in stack.workers for process in worker.children()]
    random.choice(pools).kill()
    ended = ("completed", "failed")
    wait_until(lambda: stack.clients[1].session(session).status in ended, timeout=240)
    record, *others = with_children(stack.engine, session)
    below = {child.ref.id: child for child in others}
    assert (record.status, record.reason.code if record.reason else None) == (end.status, end.code)
    assert list(planned(record, below, account_of(stack.account))) == []
    assert list(as_drawn(document, record, below)) == []


def begun(stack: Stack, session: str) -> int:
    """How many doers of the plan's tasks have begun."""
    found = account_of(stack.account)
    return sum(len(found.get(child, ())) for child in children(stack, session))


def children(stack: Stack, session: str) -> frozenset[str]:
    first, *_ = with_children(stack.engine, session)
    return first.children
