"""Orders a test run: each worker of xdist begins with its share of the long tests.

A long test that begins last keeps one worker busy while the others have nothing left to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

#: Seconds of the tests that took longest, by file and name, with three workers on two cores.
SECONDS: Mapping[tuple[str, str], int] = {
    ("chaos/test_chaos.py", "test_every_promise_is_kept_in_a_short_run"): 40,
    (
        "acceptance/test_demo.py",
        "test_the_demo_is_refused_once_a_phase_and_accepted_in_the_end",
    ): 30,
    (
        "acceptance/real_agents/test_real_agents.py",
        "test_a_doer_writes_by_a_real_tool_call_and_a_checker_judges_it",
    ): 20,
    (
        "integration/fleet/test_killed_before_commit.py",
        "test_work_is_committed_once_whenever_the_worker_is_killed",
    ): 18,
    (
        "acceptance/test_seed_example.py",
        "test_the_seeds_example_runs_unchanged_beside_hostile_modules",
    ): 12,
    ("acceptance/test_documentation.py", "test_page_does_what_it_says"): 12,
}


class Named(Protocol):
    """A collected test, as far as its id goes."""

    @property
    def nodeid(self) -> str: ...


Item = TypeVar("Item", bound=Named)


def seconds_of(item: Named) -> int:
    """How long a test takes; 0 for the many that are not listed."""
    file, _, name = item.nodeid.removeprefix("tests/").partition("::")
    return SECONDS.get((file, name.partition("[")[0]), 0)


def long_first(items: list[Item], workers: int) -> list[Item]:
    """The tests in an order in which each worker's first share begins with long tests.

    `--dist worksteal` hands out contiguous shares, as equal as possible, the smaller ones first.
    """
    shares: list[list[Item]] = [[] for _ in range(workers)]
    for item in sorted(filter(seconds_of, items), key=seconds_of, reverse=True):
        min(shares, key=lambda share: sum(map(seconds_of, share))).append(item)
    others = [item for item in items if not seconds_of(item)]
    left = len(items)
    for number, share in enumerate(shares):
        size = left // (workers - number)
        left -= size
        more = max(0, size - len(share))
        share += others[:more]
        del others[:more]
    return [item for share in shares for item in share] + others
