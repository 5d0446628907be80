"""Functions that run in a worker's own processes, on real workers: called, watched and ended."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.core.program import Action, Program, Step
from app.errors import InvalidDocument
from app.sessions.submit import About
from tests.fleet import Fleet
from tests.waiting import wait_until

CODE = '''
import os
import re
import signal
from pathlib import Path

def process() -> dict:
    """Where it runs."""
    return {"pid": os.getpid(), "module": __name__}

def double(number: int) -> int:
    return number * 2

def third(iteration: int, cwd: str, step) -> tuple[bool, str]:
    return iteration >= 3, f"pid {os.getpid()} in {cwd}: {type(iteration).__name__}, {step}"

def hold(file: str) -> bool:
    """Never gives the interpreter back."""
    Path(file).write_text(str(os.getpid()))
    return re.match("(a+)+$", "a" * 60 + "b") is None

def die(file: str, times: int) -> int:
    """Ends its process as often as asked."""
    with Path(file).open("a") as notes:
        notes.write("x")
    if Path(file).stat().st_size <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return times
'''
NAMED = """
[functions."sums:process"]
inline = true
[functions."sums:double"]
inline = true
[functions."sums:third"]
inline = true
[functions."sums:hold"]
inline = true
timeout_s = {hold_s}
[functions."sums:die"]
inline = true
"""


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/sums.py").write_text(CODE)
    name_functions(tmp_path)
    (tmp_path / "work").mkdir()
    tools = str(tmp_path / "tools")
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=5, LEADHAND_TOOLS=tools)
    yield fleet
    fleet.close()


def name_functions(folder: Path, *, hold_s: float = 1) -> None:
    (folder / "tools/tools.toml").write_text(NAMED.format(hold_s=hold_s))


def run(fleet: Fleet, *steps: Step) -> str:
    about = About(kind="graph", name="test", cwd=str(fleet.folder / "work"))
    return fleet.engine.submit.program(Program(name="test", body=steps), about).session


def call(name: str, function: str, *needs: str, quick: bool = True, **arguments: Any) -> Step:
    inputs: dict[str, Any] = {"tool": f"sums:{function}", "arguments": arguments}
    return Step(id=name, action=Action.TOOL, needs=needs, quick=quick, inputs=inputs, timeout_s=60)


def values(fleet: Fleet, session: str) -> dict[str, Any]:
    found = fleet.engine.store.outcomes(fleet.engine.registry.ref(session))
    return {address: json.loads(text).get("value") for address, text in found.items()}


def attempts(fleet: Fleet, session: str) -> dict[str, tuple[int, int]]:
    """The number of the last attempt of each step, and how many were lost."""
    steps = fleet.engine.queries.steps(session).items
    return {step.address: (step.attempt, step.lost) for step in steps}


@pytest.mark.timeout(60)
def test_inline_function_runs_in_the_process_that_holds_the_step(fleet: Fleet) -> None:
    worker = fleet.worker("one")
    (tool,) = [one for one in fleet.engine.fleet.tools() if one.name == "sums:double"]
    assert tool.inline_s == 5
    session = run(
        fleet,
        call("a", "process"),
        call("b", "double", number="21"),
        call("c", "double", number="4"),
        call("d", "double", number="many"),
    )
    result = fleet.ended(session)
    assert "argument 'number': it is 'many'; it should be a valid integer" in str(result.reason)
    found = values(fleet, session)
    assert (found["b"], found["c"]) == (42, 8)
    pool = [child.pid for child in psutil.Process(worker.pid).children()]
    assert found["a"]["pid"] in pool
    assert found["a"]["module"].startswith("_leadhand_inline_")


@pytest.mark.timeout(60)
def test_changed_file_is_imported_again(fleet: Fleet) -> None:
    fleet.worker("one", LEADHAND_CONCURRENCY="1")
    before = run(fleet, call("a", "double", number=2))
    assert fleet.ended(before).status == "completed"
    file = fleet.folder / "tools/sums.py"
    file.write_text(CODE.replace("number * 2", "number * 3"))
    after = run(fleet, call("a", "double", number=2))
    assert fleet.ended(after).status == "completed"
    assert (values(fleet, before)["a"], values(fleet, after)["a"]) == (4, 6)


@pytest.mark.timeout(60)
def test_call_that_holds_the_interpreter_is_ended_at_its_time_limit(fleet: Fleet) -> None:
    fleet.worker("one", LEADHAND_CONCURRENCY="1")
    session = run(fleet, call("a", "hold", file=str(fleet.folder / "held")))
    result = fleet.ended(session)
    assert result.status == "failed"
    assert result.reason is not None
    assert result.reason.code == "timeout"
    assert "tool 'sums:hold' timed out after 1 seconds" in str(result.reason)
    assert attempts(fleet, session)["a"] == (1, 0)
    held = int((fleet.folder / "held").read_text())
    wait_until(lambda: not psutil.pid_exists(held), timeout=5)
    after = run(fleet, call("a", "double", number=2))
    assert fleet.ended(after).status == "completed"


def run_with_deaths(fleet: Fleet, name: str) -> str:
    """A session whose second step ends its process twice while others wait behind it."""
    behind = [call(f"b{n}", "double", "first", number=n) for n in range(4)]
    die = call("die", "die", "first", file=str(fleet.folder / f"deaths-{name}"), times=2)
    return run(fleet, call("first", "double", number=1), die, *behind)


def require_two_lost_attempts(fleet: Fleet, session: str, *, timeout: float = 50) -> None:
    result = fleet.ended(session, timeout=timeout)
    assert result.status == "completed", result
    found = attempts(fleet, session)
    assert found.pop("die") == (3, 2)
    assert set(found.values()) == {(1, 0)}
    assert set(fleet.outcomes(session).values()) == {1}


@pytest.mark.timeout(60)
def test_killed_process_costs_its_call_one_attempt_and_the_steps_behind_it_none(
    fleet: Fleet,
) -> None:
    fleet.worker("one", LEADHAND_CONCURRENCY="1")
    require_two_lost_attempts(fleet, run_with_deaths(fleet, "once"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_hundred_killed_processes_cost_five_hundred_attempts(fleet: Fleet) -> None:
    fleet.worker("one")
    fleet.worker("two")
    # All run beside each other, so the first may be among the last that end.
    for session in [run_with_deaths(fleet, str(number)) for number in range(250)]:
        require_two_lost_attempts(fleet, session, timeout=500)


@pytest.mark.timeout(60)
def test_stop_ends_a_call_that_holds_the_interpreter(fleet: Fleet) -> None:
    name_functions(fleet.folder, hold_s=60)
    fleet.worker("one", LEADHAND_CONCURRENCY="1")
    behind = [call(f"b{n}", "double", "first", number=n) for n in range(3)]
    hold = call("hold", "hold", "first", file=str(fleet.folder / "held"))
    session = run(fleet, call("first", "double", number=1), hold, *behind)
    # The steps behind it are handed back, and another process carries them out.
    wait_until(lambda: (fleet.folder / "held").exists(), timeout=20)
    fleet.worker("two", LEADHAND_CONCURRENCY="1")
    wait_until(lambda: len(fleet.outcomes(session)) == 4, timeout=20)
    held = psutil.Process(int((fleet.folder / "held").read_text()))
    fleet.engine.control.apply(session, "stop")
    assert fleet.ended(session, timeout=20).status == "stopped"
    wait_until(lambda: not held.is_running(), timeout=20)
    found = attempts(fleet, session)
    assert {found[f"b{n}"] for n in range(3)} == {(1, 0)}


@pytest.mark.timeout(60)
def test_drained_worker_hands_back_a_call_that_holds_the_interpreter(fleet: Fleet) -> None:
    name_functions(fleet.folder, hold_s=60)
    worker = fleet.worker("one", LEADHAND_CONCURRENCY="1", LEADHAND_DRAIN_S="1")
    session = run(fleet, call("hold", "hold", file=str(fleet.folder / "held")))
    wait_until(lambda: (fleet.folder / "held").exists(), timeout=20)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=20) == 0
    name_functions(fleet.folder, hold_s=0.5)
    fleet.worker("two")
    result = fleet.ended(session)
    assert result.reason is not None
    assert result.reason.code == "timeout"
    assert attempts(fleet, session)["hold"] == (1, 0)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.timeout(60)
def test_checker_is_a_tool_of_the_worker(fleet: Fleet, inline: bool) -> None:
    if not inline:
        (fleet.folder / "tools/tools.toml").unlink()
    worker = fleet.worker("one")
    session = fleet.loop("true", "tool: sums:third", max_iterations=5)
    result = fleet.ended(session)
    assert (result.verdict, result.iterations) == ("accept", 3)
    (first, second, _) = result.history
    pool = {f"pid {child.pid}" for child in psutil.Process(worker.pid).children()}
    assert f"in {fleet.folder}: int, loop~1[1]/check.third" in first.feedback
    assert (first.feedback.partition(" in")[0] in pool) is inline
    assert second.verdict == "retry"
    with pytest.raises(InvalidDocument, match="no worker has this tool") as refused:
        fleet.loop("true", "tool: sums:fourth")
    assert refused.value.field == "checkers[0].tool"
    with pytest.raises(InvalidDocument, match="it requires 'number', and a checker gives only"):
        fleet.loop("true", "tool: sums:double")
