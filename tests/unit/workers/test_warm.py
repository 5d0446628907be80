"""Functions that are declared quick: what they share by their process that stays, and what not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from pydantic import JsonValue

from app.core.outcomes import Outcome
from app.core.program import Action
from tests.waiting import wait_until
from workers.attempt.actions import BodyTask, run_body
from workers.processes.warm_pool import Warm
from workers.registry.agents import AgentBook

CODE = """
import os, subprocess, sys, threading, time

calls = 0

def judge(work):
    global calls
    calls += 1
    print("call", calls, os.environ["LEADHAND_STEP"], "LEADHAND_SECRET" in os.environ)
    return True

def number():
    return ["accept", f"{os.getpid()}"]

def hang():
    time.sleep(60)

def go():
    while not os.path.exists("go"):
        time.sleep(0.005)
    return ["accept", ""]

def leave(work):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return ["accept", f"{os.getpid()}"]

def gone():
    os._exit(3)
"""


@pytest.fixture
def check(tmp_path: Path) -> Iterator[Callable[..., Outcome]]:
    (tmp_path / "judging.py").write_text(CODE)
    warm = Warm()

    def run(
        function: str, *, step: str = "l~1[1]/check", timeout_s: float = 20.0, cancel=None, **more
    ):
        checker: dict[str, JsonValue] = {"callable": f"judging:{function}", "quick": True}
        task = BodyTask(
            session="ab12cd34",
            address=step,
            action=Action.CHECK,
            iteration=1,
            attempt=1,
            inputs={"checker": checker, "work": "w", "iteration": 1},
            cwd=tmp_path,
            spill=tmp_path / "spill",
            timeout_s=timeout_s,
            url="http://127.0.0.1:1",
            mint=lambda: "lhc1.x.y",
            agents=AgentBook(agents={}),
            default_agent=None,
            warm=warm,
            **more,
        )
        return run_body(task, cancel or threading.Event())

    yield run
    warm.close()


def test_quick_functions_of_a_folder_share_a_process_and_hear_of_their_own_step(check, monkeypatch):
    monkeypatch.setenv("LEADHAND_SECRET", "hush")
    first, second = check("judge", step="a"), check("judge", step="b")
    assert (first.verdict, first.text) == ("accept", "call 1 a False")
    assert second.text == "call 2 b False"


def test_a_function_whose_file_changed_is_read_anew(check, tmp_path):
    assert check("judge").text.startswith("call 1")
    (tmp_path / "judging.py").write_text(CODE.replace('"call"', '"new call"'))
    assert check("judge").text.startswith("new call 1")


def test_one_that_overruns_is_ended_with_its_process(check):
    pid = int(check("number").text)
    slow = check("hang", timeout_s=0.5)
    assert (slow.verdict, slow.decided_by) == ("retry", "timeout")
    wait_until(lambda: not psutil.pid_exists(pid))
    assert int(check("number").text) != pid


def test_one_that_answers_in_time_counts_although_the_worker_reads_late(check, tmp_path):
    check("number")

    def read_late() -> None:
        (tmp_path / "go").touch()
        is_over = time.monotonic() + 1.0
        wait_until(lambda: time.monotonic() > is_over)

    assert check("go", timeout_s=1.0, on_slow=read_late).verdict == "accept"


def test_one_that_is_cancelled_is_ended(check):
    cancel = threading.Event()
    cancel.set()
    began = time.monotonic()
    ended = check("hang", cancel=cancel)
    assert ended.reason is not None
    assert ended.reason.code == "cancelled"
    assert time.monotonic() - began < 30


def test_one_that_leaves_a_thread_behind_does_not_keep_its_process(check):
    pid = int(check("leave").text)
    wait_until(lambda: not psutil.pid_exists(pid))
    assert pid != os.getpid()


def test_one_that_ends_its_process_has_given_no_verdict(check):
    ended = check("gone")
    assert (ended.verdict, ended.decided_by) == ("retry", "failed")
    assert check("judge").verdict == "accept"
