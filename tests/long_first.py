"""Orders a test run: each worker of xdist begins with its share of the long tests.

A long test that begins last keeps one worker busy while the others have nothing left to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

#: Seconds of the tests that took longest, by file and name, with three workers on two cores.
SECONDS: Mapping[tuple[str, str], int] = {
    ("contract/test_description.py", "test_the_served_api_answers_as_it_is_described"): 40,
    ("chaos/test_chaos.py", "test_every_promise_is_kept_in_a_short_run"): 40,
    (
        "integration/embedded/test_full_disk.py",
        "test_full_disk_is_reported_while_a_command_waits_and_work_goes_on_with_room",
    ): 30,
    (
        "acceptance/test_demo.py",
        "test_the_demo_is_refused_once_a_phase_and_accepted_in_the_end",
    ): 30,
    (
        "integration/api/test_half_open_requests.py",
        "test_two_hundred_half_open_requests_delay_no_call_and_are_closed",
    ): 25,
    (
        "integration/embedded/test_lost_store.py",
        "test_emptied_store_under_running_processes_is_refused_until_it_is_accepted",
    ): 20,
    (
        "acceptance/test_seed_example.py",
        "test_the_seeds_example_runs_unchanged_beside_hostile_modules",
    ): 20,
    ("acceptance/test_flows.py", "test_a_persons_way_with_flows"): 16,
    ("model/test_engine_model.py", "test_the_scripts_do_what_the_model_does"): 10,
    ("model/test_whole_programs.py", "test_whole_programs_end_as_the_interpreter_says"): 10,
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
