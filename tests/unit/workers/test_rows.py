"""Calls that a process that stays is sent at once: each is made once, whatever the others do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from app.core.outcomes import Outcome
from app.core.program import Action
from tests.waiting import wait_until
from workers.attempt.actions import BodyTask, run_body
from workers.checkers.check import quick_check
from workers.processes.warm_pool import ROW_BYTES, Row, Warm
from workers.registry.agents import AgentBook

CODE = """
import os, pathlib, sys, threading, time

def judge(work):
    with open("called", "a") as file:
        file.write(os.environ["LEADHAND_STEP"] + "\\n")
    return ["accept", f"{os.getpid()}"]

def leave(work):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return judge(work)

def gone(work):
    judge(work)
    os._exit(3)

def hang(work):
    judge(work)
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    return True
"""
Make = Callable[..., BodyTask]


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[Warm]:
    (tmp_path / "judging.py").write_text(CODE)
    warm = Warm()
    yield warm
    warm.close()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(to: Warm | Row, step: str, function: str = "judge", work: str = "w") -> BodyTask:
        return BodyTask(
            session="ab12cd34",
            address=step,
            action=Action.CHECK,
            iteration=1,
            attempt=1,
            inputs={"checker": {"callable": f"judging:{function}", "quick": True}, "work": work},
            cwd=tmp_path,
            spill=tmp_path / "spill",
            timeout_s=20,
            url="http://127.0.0.1:1",
            mint=lambda: "lhc1.x.y",
            agents=AgentBook(agents={}),
            default_agent=None,
            warm=to,
        )

    return make


@pytest.fixture
def begun(warm: Warm, make: Make, tmp_path: Path) -> str:
    """The number of a process that stands there and was asked once."""
    number = run_body(make(warm, "first"), threading.Event()).text
    (tmp_path / "called").unlink()
    return number


def sent(row: Row, *tasks: BodyTask, within: float = 20) -> list[Callable[[], Outcome]]:
    """What makes each of them, now that the process was asked for all."""
    bodies = [body for task in tasks if (body := quick_check(task))]
    row.send([body.call for body in bodies], begin_by=time.monotonic() + within)
    return [partial(run_body, body.task, threading.Event(), body.outcome) for body in bodies]


def called(folder: Path) -> list[str]:
    return (folder / "called").read_text().split()


def test_one_process_answers_all_in_their_order(begun: str, warm: Warm, make: Make, tmp_path: Path):
    with warm.row() as row:
        bodies = sent(row, *(make(row, step) for step in "abc"))
        assert row.soon()
        assert [body().text for body in bodies] == [begun] * 3
    assert called(tmp_path) == ["a", "b", "c"]
    assert run_body(make(warm, "d"), threading.Event()).text == begun


def test_where_no_process_stands_ready_each_is_called_by_itself(
    warm: Warm, make: Make, tmp_path: Path
):
    with warm.row() as row:
        bodies = sent(row, *(make(row, step) for step in "ab"))
        assert not row.soon()
        assert {body().verdict for body in bodies} == {"accept"}
    assert called(tmp_path) == ["a", "b"]


def test_what_was_not_begun_in_time_is_called_by_itself(
    begun: str, warm: Warm, make: Make, tmp_path: Path
):
    with warm.row() as row:
        bodies = sent(row, make(row, "a"), make(row, "b"), within=-1)
        assert not row.soon()
        assert begun not in {body().text for body in bodies}
    assert called(tmp_path) == ["a", "b"]
    assert run_body(make(warm, "c"), threading.Event()).text == begun


@pytest.mark.parametrize("function", ["gone", "leave"])
def test_after_one_that_costs_its_process_the_others_are_asked_anew(
    begun: str, warm: Warm, make: Make, tmp_path: Path, function: str
):
    with warm.row() as row:
        bodies = sent(row, make(row, "a", function), make(row, "b"), make(row, "c"))
        first, *others = [body() for body in bodies]
    assert first.verdict == ("retry" if function == "gone" else "accept")
    assert begun not in {other.text for other in others}
    assert {other.verdict for other in others} == {"accept"}
    assert called(tmp_path) == ["a", "b", "c"]


def test_after_one_that_is_cancelled_the_others_are_asked_anew(
    begun: str, warm: Warm, make: Make, tmp_path: Path
):
    with warm.row() as row:
        _, second = sent(row, hanging := make(row, "a", "hang"), make(row, "b"))
        wait_until((tmp_path / "called").exists)
        cancel = threading.Event()
        cancel.set()
        reason = run_body(hanging, cancel).reason
        assert reason is not None
        assert reason.code == "cancelled"
        assert second().text != begun
    assert called(tmp_path) == ["a", "b"]


def test_one_that_overruns_has_ended_before_it_is_told(
    begun: str, warm: Warm, make: Make, tmp_path: Path
):
    with warm.row() as row:
        slow = replace(make(row, "a", "hang"), timeout_s=0.1)
        first, second = sent(row, slow, make(row, "b"))
        assert first().decided_by == "timeout"
        assert not psutil.pid_exists(int(begun))
        assert second().text != begun
    assert called(tmp_path) == ["a", "b"]


def test_a_file_that_changed_meanwhile_is_read_anew(
    begun: str, warm: Warm, make: Make, tmp_path: Path
):
    (tmp_path / "judging.py").write_text(CODE + "\n")
    with warm.row() as row:
        bodies = sent(row, make(row, "a"), make(row, "b"))
        assert begun not in {body().text for body in bodies}
    assert called(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("function", ["judge", "hang"])
def test_one_that_nobody_asks_about_any_more_holds_nobody_up(
    begun: str, warm: Warm, make: Make, function: str
):
    with warm.row() as row:
        first, _, third = sent(row, make(row, "a"), make(row, "b"), make(row, "c"))
        assert {first().text, third().text} == {begun}
    with warm.row() as row:
        sent(row, make(row, "d"), make(row, "e", function))[0]()
    again = run_body(make(warm, "f"), threading.Event()).text
    assert (again == begun) is (function == "judge")


def test_what_would_not_fit_into_the_socket_is_not_sent_at_once(
    begun: str, warm: Warm, make: Make, tmp_path: Path
):
    large = "x" * (ROW_BYTES // 2)
    with warm.row() as row:
        bodies = sent(row, *(make(row, step, work=large) for step in "ab"))
        assert not row.soon()
        assert [body().text for body in bodies] == [begun] * 2
    assert called(tmp_path) == ["a", "b"]
