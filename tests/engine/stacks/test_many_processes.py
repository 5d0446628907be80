"""Twenty processes at once on one stack: no change is lost, and none is carried out twice."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import NamedTuple

import pytest

from app import stacks
from app.stacks import StackCall, WorkflowFilter
from leadhand.contract.stacks import StartWorkflow
from leadhand.models.stacks import StackChange
from tests.silent_engine import silent_engine

PROCESSES, ATTEMPTS = 20, 15
SHARED = "0000000a"


class Work(NamedTuple):
    """What one process did."""

    attempts: list[int]
    kept: str
    ended: list[str]


def work(url: str, number: int) -> Work:
    """Nest workflow sessions, count attempts of the shared one, and end some in the middle."""
    engine = silent_engine(url)
    new = StartWorkflow(job_name="job", workflow_name=f"w{number}", goal="", first_step_id="one")
    attempts: list[int] = []
    ended: list[str] = []
    kept = _id(stacks.start(engine, StackCall("s"), new))
    for turn in range(ATTEMPTS):
        call = StackCall("s", SHARED, f"p{number}", f"k{turn}")
        twice = [
            stacks.record_quality_attempt(engine, call, "test").quality_attempts for _ in range(2)
        ]
        assert twice[0] == twice[1]
        attempts.append(twice[0] or 0)
        if turn % 5 == 0:
            own = _id(stacks.start(engine, StackCall("s"), new))
            stacks.complete_step(engine, StackCall("s", own), "one", {"by": number})
            stacks.complete(engine, StackCall("s", own))
            ended.append(own)
    return Work(attempts, kept, ended)


def _id(change: StackChange) -> str:
    assert change.workflow is not None
    return change.workflow.session_id


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_processes_share_one_stack(store_url: str) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # the engine is imported once, not twenty times
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as processes:
        check_shared_stack(store_url, processes)


def test_twenty_clients_share_one_stack(store_url: str) -> None:
    with ThreadPoolExecutor(PROCESSES) as threads:
        check_shared_stack(store_url, threads)


def check_shared_stack(store_url: str, workers: Executor) -> None:
    engine = silent_engine(store_url)
    new = StartWorkflow(job_name="job", workflow_name="shared", goal="", first_step_id="one")
    stacks.start(engine, StackCall("s"), new, new_id=lambda: SHARED)
    done = list(workers.map(work, [store_url] * PROCESSES, range(PROCESSES)))
    found = sorted(attempt for one in done for attempt in one.attempts)
    assert found == list(range(1, PROCESSES * ATTEMPTS + 1))
    stack = stacks.read_stack(engine, "s")
    on_stack = [one.session_id for one in stack.workflows]
    assert Counter(on_stack) == Counter([SHARED, *(one.kept for one in done)])
    assert [one.parent_id for one in stack.workflows] == [None, *on_stack[:-1]]
    listed = stacks.list_workflows(engine, "s", WorkflowFilter(status="completed"), limit=500)
    ended = {session for one in done for session in one.ended}
    assert {one.session_id for one in listed.items} == ended
    assert len(ended) == PROCESSES * 3
    # A start, its step and its end, and the attempts, each once.
    changes = 1 + PROCESSES * (1 + ATTEMPTS + 3 * 3)
    assert stack.version == changes
