"""Quick checks that are settled together: each is a step of its own."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.program import Action, Loop, Program, Step
from app.core.records import Grant
from app.errors import ProgramStale
from app.sessions.attempts import Work
from app.sessions.submit import About
from leadhand.errors import StoreAway
from tests.engine.world import World
from tests.waiting import wait_until
from workers.attempt.attempt import TAKE, Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.processes.warm_pool import CallSlots
from workers.registry.agents import AgentBook
from workers.registry.inline import InlineFunctions
from workers.registry.tools import ToolCatalogue

#: Each check accepts from one iteration on; before it, each does what its name says.
CODE = """
import os, pathlib, time

def called():
    with open("called", "a") as file:
        file.write(os.environ["LEADHAND_STEP"] + "\\n")

def plain(iteration):
    called()
    return iteration >= 2

def waits(iteration):
    called()
    while iteration == 2 and not pathlib.Path("go").exists():
        time.sleep(0.01)
    return iteration >= 2

def slow(iteration):
    called()
    if iteration == 2:
        time.sleep(1.2)
    return iteration >= 2

def ends(iteration):
    called()
    if iteration == 2:
        os._exit(1)
    return iteration >= 3

def empties(iteration):
    called()
    import redis
    with redis.Redis.from_url(pathlib.Path("url").read_text()) as client:
        client.function_flush()
        client.script_flush()
    return iteration >= 2
"""

#: A tool that runs in the worker's process.
HOLDING = """
import pathlib, time

def hold():
    while not pathlib.Path("{folder}/go").exists():
        time.sleep(0.01)
    return True
"""


@pytest.fixture
def world(store_url: str, redis_url: str, tmp_path: Path) -> World:
    (tmp_path / "judging.py").write_text(CODE)
    (tmp_path / "url").write_text(redis_url)
    (tmp_path / "called").touch()
    return World(store_url)


@pytest.fixture
def attempts(world: World) -> Iterator[Attempts]:
    heart = Heartbeats(world.engine)
    book = AgentBook.load([])
    attempts = Attempts(world.engine, worker="w", agents=lambda: book, heart=heart)
    yield attempts
    attempts.close()


def begun(world: World, folder: Path | str, *checks: str, own: Sequence[str] = ()) -> SessionRef:
    """A loop of three iterations: a doer, these checks side by side, a judge.

    Those in `own` are called in processes of their own.
    """
    steps = tuple(
        Step(
            id=f"c{number}",
            action=Action.CHECK,
            needs=("do",),
            quick=True,
            inputs={
                "checker": {"callable": f"judging:{check}", "quick": check not in own},
                "iteration": "${turn.iteration}",
            },
        )
        for number, check in enumerate(checks, start=1)
    )
    judge = Step(
        id="judge",
        action=Action.JUDGE,
        needs=tuple(step.id for step in steps),
        inputs={"checks": [{"name": s.id, "outcome": f"${{{s.id}:}}"} for s in steps]},
    )
    do = Step(id="do", action=Action.TOOL, quick=True, inputs={"tool": "noop"})
    body = (do, *steps, judge)
    program = Program(body=(Loop(id="loop", body=body, max_iterations=3),))
    id_ = world.engine.submit.program(
        program, About(kind="loop", name="x", cwd=str(folder))
    ).session
    return SessionRef(id_, id_)


def carry_out(world: World, attempts: Attempts) -> None:
    """Take hints until there are none."""
    while world.hints:
        ref, address = world.hints.pop(0)
        hints = attempts(ref, address) or ()
        world.hints += [(ref, hint.address) for hint in hints]


def carry_to_the_end(world: World, attempts: Attempts, ref: SessionRef) -> None:
    """Take hints until the session has ended: on a busy machine a check is handed back late."""

    def ended() -> bool:
        return world.engine.queries.session(ref.id).status in ("completed", "failed")

    while not ended():
        wait_until(lambda: world.hints or ended(), timeout=20)
        carry_out(world, attempts)


def set_to_work(world: World, attempts: Attempts) -> threading.Thread:
    """Carry out the hints in a thread, in parallel with the test."""
    at_work = threading.Thread(target=carry_out, args=(world, attempts))
    at_work.start()
    return at_work


def calls(folder: Path) -> Counter[str]:
    return Counter((folder / "called").read_text().split())


def outcomes(world: World, ref: SessionRef) -> Counter[str]:
    events = world.engine.queries.events(ref.id, limit=1000)
    return Counter(e.address for e in events if e.type == "step.settled" and e.address)


def require_each_once(world: World, ref: SessionRef, folder: Path, *, iterations: int) -> None:
    """Each check was called once and has one outcome; the ledger has all of them."""
    assert set(outcomes(world, ref).values()) == {1}
    checks = {f"loop~1[{i}]/c{n}": 1 for i in range(1, iterations + 1) for n in (1, 2, 3)}
    assert calls(folder) == checks
    result = world.engine.queries.result(ref.id)
    assert (result.verdict, result.iterations) == ("accept", iterations)
    assert [len(entry.checks) for entry in result.history] == [3] * iterations


@pytest.mark.parametrize(
    ("checks", "iterations"),
    [
        (("plain", "plain", "plain"), 2),
        (("plain", "ends", "plain"), 3),
        (("ends", "plain", "plain"), 3),
        (("empties", "plain", "plain"), 2),
        (("plain", "plain", "empties"), 2),
    ],
)
def test_each_is_called_and_recorded_once(
    world: World, attempts: Attempts, tmp_path: Path, checks: tuple[str, ...], iterations: int
):
    ref = begun(world, tmp_path, *checks)
    carry_to_the_end(world, attempts, ref)
    require_each_once(world, ref, tmp_path, iterations=iterations)


@pytest.mark.parametrize("own", [(), ("waits",)])
def test_what_is_done_is_recorded_before_one_that_is_slow(
    world: World, attempts: Attempts, tmp_path: Path, own: tuple[str, ...]
):
    ref = begun(world, tmp_path, "plain", "waits", "plain", own=own)
    at_work = set_to_work(world, attempts)
    wait_until(lambda: outcomes(world, ref)["loop~1[2]/c1"])
    wait_until(lambda: calls(tmp_path)["loop~1[2]/c2"])
    assert not outcomes(world, ref)["loop~1[2]/c2"]
    (tmp_path / "go").touch()
    at_work.join(timeout=20)
    carry_to_the_end(world, attempts, ref)
    require_each_once(world, ref, tmp_path, iterations=2)


def test_no_check_waits_for_a_store_that_takes_no_outcome(
    world: World, attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The others are carried out meanwhile, and all are settled once it does."""
    ref = begun(world, tmp_path, "plain", "waits", "plain")
    refused: list[str] = []

    def may_refuse(operation: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            if calls(tmp_path)["loop~1[2]/c2"] and not (tmp_path / "back").exists():
                refused.append(operation.__name__)
                raise StoreAway("redis://away")
            return operation(*args, **more)

        return call

    for name in ("settle", "settle_all"):
        operation = getattr(world.engine.attempts, name)
        monkeypatch.setattr(world.engine.attempts, name, may_refuse(operation))
    at_work = set_to_work(world, attempts)
    try:
        wait_until(lambda: refused)
        (tmp_path / "go").touch()
        wait_until(lambda: calls(tmp_path)["loop~1[2]/c3"], timeout=10)
    finally:
        (tmp_path / "back").touch()
        at_work.join(timeout=20)
    carry_to_the_end(world, attempts, ref)
    require_each_once(world, ref, tmp_path, iterations=2)


def test_an_error_of_one_drops_no_other(
    world: World, attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What is finished is settled, and what has not begun is handed back."""
    ref = begun(world, tmp_path, "plain", "plain", "plain")
    read = world.engine.attempts.work

    def work(ref: SessionRef, grant: Grant) -> Work:
        if grant.address == "loop~1[2]/c2":
            raise ProgramStale("read it again")
        return read(ref, grant)

    monkeypatch.setattr(world.engine.attempts, "work", work)
    with pytest.raises(ProgramStale):
        carry_to_the_end(world, attempts, ref)
    assert outcomes(world, ref)["loop~1[2]/c1"] == 1

    def released() -> set[str | None]:
        events = world.engine.queries.events(ref.id, limit=1000)
        return {e.address for e in events if e.type == "step.released"}

    wait_until(lambda: "loop~1[2]/c3" in released())


def test_those_behind_one_that_is_slow_are_others_to_begin(
    world: World, attempts: Attempts, tmp_path: Path
):
    """Each step was hinted once: by its settler, or by a new hint."""
    ref = begun(world, tmp_path, "slow", "plain", "waits")
    at_work = set_to_work(world, attempts)
    wait_until(lambda: outcomes(world, ref)["loop~1[2]/c1"])
    (tmp_path / "go").touch()
    at_work.join(timeout=20)
    carry_to_the_end(world, attempts, ref)
    released = {
        e.address for e in world.engine.queries.events(ref.id, limit=1000) if "released" in e.type
    }
    # On a busy machine the start of the process in the first iteration is slow as well.
    assert {a for a in released if a and "[2]" in a} == {"loop~1[2]/c2", "loop~1[2]/c3"}
    require_each_once(world, ref, tmp_path, iterations=2)


def test_watchdog_knows_the_steps_in_hand_once_some_are_settled(world: World, tmp_path: Path):
    """A step that is granted early is handed back if the process is killed in an inline call."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "tools.toml").write_text('[functions."holding:hold"]\ninline = true\n')
    (tools / "holding.py").write_text(HOLDING.format(folder=tmp_path))
    slots, book = CallSlots(), AgentBook.load([])
    attempts = Attempts(
        world.engine,
        worker="w",
        agents=lambda: book,
        heart=Heartbeats(world.engine),
        shelf=ToolCatalogue([tools], inline=InlineFunctions([tools])),
        slot=slots.own(),
    )
    plain: dict[str, JsonValue] = {"callable": "judging:plain", "quick": True}
    hold: dict[str, JsonValue] = {"tool": "holding:hold", "quick": True}
    body = [
        Step(
            id=id_,
            action=Action.CHECK,
            quick=True,
            needs=needs,
            inputs={"checker": checker, "iteration": 2},
        )
        for id_, needs, checker in (
            ("first", (), plain),
            ("done", ("first",), plain),
            ("held", ("first",), hold),
            ("after", ("done",), plain),
        )
    ]
    about = About(kind="flow", name="x", cwd=str(tmp_path))
    id_ = world.engine.submit.program(Program(body=tuple(body)), about).session
    at_work = set_to_work(world, attempts)
    try:
        (call,) = wait_until(lambda: [*slots.running()])
        _, *grants = json.loads(slots.text(call))
    finally:
        (tmp_path / "go").touch()
        at_work.join(timeout=20)
        attempts.close()
    assert [grant["address"] for grant in grants] == ["held", "after"]
    assert world.engine.queries.session(id_).status == "completed"


def test_a_wide_fan_out_is_taken_a_few_at_a_time(world: World, attempts: Attempts, tmp_path: Path):
    (tmp_path / "go").touch()
    inputs: dict[str, JsonValue] = {
        "checker": {"callable": "judging:waits", "quick": True}, "iteration": 2,
    }  # fmt: skip
    first = Step(id="first", action=Action.CHECK, quick=True, inputs=inputs)
    then = first.model_copy(update={"id": "then", "needs": ("first",), "for_each": (0,) * 30})
    program = Program(body=(first, then))
    id_ = world.engine.submit.program(
        program, About(kind="flow", name="x", cwd=str(tmp_path))
    ).session
    carry_out(world, attempts)
    running = most = 0
    for event in world.engine.queries.events(id_, limit=1000):
        running += (event.type == "step.claimed") - (event.type == "step.settled")
        most = max(most, running)
    assert world.engine.queries.session(id_).status == "completed"
    assert 2 <= most <= TAKE + 1
    assert set(outcomes(world, SessionRef(id_, id_)).values()) == {1}


def test_what_cannot_be_asked_ahead_is_told_by_whoever_carries_it_out(
    store_url: str, tmp_path: Path
):
    """No folder can be made for a session without one: each check says so, once."""
    (tmp_path / "file").touch()
    world = World(store_url)
    settings = world.engine.settings.model_copy(update={"spill": str(tmp_path / "file")})
    world.engine.settings = settings
    heart, book = Heartbeats(world.engine), AgentBook.load([])
    attempts = Attempts(world.engine, worker="w", agents=lambda: book, heart=heart)
    ref = begun(world, "", "plain", "plain")
    carry_out(world, attempts)
    attempts.close()
    assert world.engine.queries.session(ref.id).status == "failed"
    assert not [
        step for step in world.engine.queries.steps(ref.id).items if step.state == "running"
    ]


def test_a_stop_reaches_each_of_them(world: World, attempts: Attempts, tmp_path: Path):
    ref = begun(world, tmp_path, "plain", "waits", "plain")
    at_work = set_to_work(world, attempts)
    wait_until(lambda: calls(tmp_path)["loop~1[2]/c2"])
    world.engine.control.apply(ref.id, "stop")
    at_work.join(timeout=20)
    assert world.engine.queries.session(ref.id).status == "stopped"
    (tmp_path / "go").touch()
    world.engine.control.apply(ref.id, "resume")
    carry_out(world, attempts)
    assert set(outcomes(world, ref).values()) == {1}
    assert world.engine.queries.result(ref.id).verdict == "accept"
    stopped = calls(tmp_path)
    assert stopped["loop~1[2]/c1"] == 1
    assert stopped["loop~1[2]/c2"] == 2
