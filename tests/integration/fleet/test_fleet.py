"""Real workers: loops that fail and learn, workers that die, controls that reach what runs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from redis import Redis

from app.security.signatures import verify
from leadhand.models.views.result import LedgerEntry
from tests.fleet import Fleet
from tests.processes import kill, runs, words
from tests.waiting import wait_until
from tests.wire import Wire

#: Fails its checker first, and is mended by feedback.
LEARNS = """
import os, pathlib, sys
prompt = sys.stdin.read()
if "Checker Feedback" in prompt:
    pathlib.Path("good.txt").write_text("good")
print("turn", os.environ["LEADHAND_ITERATION"])
"""
#: Runs until somebody writes `go`, and leaves a mark of each start.
WAITS = """
import os, pathlib, time, uuid
pathlib.Path(f"started.{uuid.uuid4().hex}").write_text(str(os.getpid()))
while not pathlib.Path("go").exists():
    time.sleep(0.02)
print("went")
"""
#: Takes the pool process down that runs it, each time.
KILLS = """
import psutil
next(p for p in psutil.Process().parents() if "leadhand.serve" in p.cmdline()).kill()
"""


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=1.5)
    yield fleet
    fleet.close()


def pool_of(worker: int) -> list[psutil.Process]:
    """The processes of a worker's pool."""
    children = [one for one in psutil.Process(worker).children() if runs(one)]
    return [one for one in children if "leadhand.serve" in words(one)]


def started(fleet: Fleet) -> list[int]:
    """The processes of all starts of the waiting doer so far."""
    texts = [path.read_text() for path in fleet.folder.glob("started.*")]
    return [int(text) for text in texts if text]


def ran_side_by_side(entry: LedgerEntry) -> bool:
    """Whether all checks of an iteration had begun before the first of them ended."""
    begun = [int(str(check["started_ms"])) for check in entry.checks]
    ended = [int(str(check["ended_ms"])) for check in entry.checks]
    return max(begun) < min(ended)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_refused_loop_learns_and_its_checkers_run_side_by_side(fleet: Fleet) -> None:
    fleet.worker("one")
    doer = fleet.script("doer.py", LEARNS)
    result = fleet.ended(fleet.loop(doer, "sleep 0.5; test -f good.txt", "sleep 0.5; true"))
    assert (result.verdict, result.iterations, result.status) == ("accept", 2, "completed")
    assert [entry.verdict for entry in result.history] == ["retry", "accept"]
    assert {str(check["verdict"]) for check in result.history[0].checks} == {"retry", "accept"}
    assert ran_side_by_side(result.history[0])


def test_two_workers_share_one_sessions_checkers(fleet: Fleet) -> None:
    fleet.worker("one", LEADHAND_CONCURRENCY="1")
    fleet.worker("two", LEADHAND_CONCURRENCY="1")
    session = fleet.loop("true", "sleep 1; true # a", "sleep 1; true # b")
    result = fleet.ended(session)
    assert ran_side_by_side(result.history[0])
    pinged = fleet.celery.control.inspect(timeout=3).ping() or {}
    assert {name.partition("@")[0] for name in pinged} == {"one", "two"}
    owners = {s.worker for s in fleet.engine.queries.steps(session).items if s.action == "check"}
    assert {str(owner).partition("/")[0] for owner in owners} == {"one", "two"}


@pytest.mark.slow
def test_inspect_names_workers_and_tasks(fleet: Fleet) -> None:
    fleet.worker("one")
    session = fleet.loop(fleet.script("doer.py", WAITS), "true")
    wait_until(lambda: started(fleet))
    running = fleet.celery.control.inspect(timeout=3).active() or {}
    ((name, tasks),) = running.items()
    assert name.startswith("one@")
    assert [(t["name"], t["args"]) for t in tasks] == [
        ("leadhand.agent", [session, session, "loop~1[1]/do"])
    ]
    (fleet.folder / "go").touch()
    assert fleet.ended(session).verdict == "accept"


def test_a_killed_workers_step_runs_again_and_is_recorded_once(fleet: Fleet) -> None:
    first = fleet.worker("one")
    session = fleet.loop(fleet.script("doer.py", WAITS), "true")
    wait_until(lambda: started(fleet))
    fleet.kill(first)
    wait_until(lambda: not any(map(alive, started(fleet))))
    fleet.worker("two")
    wait_until(lambda: len(started(fleet)) == 2, timeout=15)
    (fleet.folder / "go").touch()
    result = fleet.ended(session)
    assert result.verdict == "accept"
    assert set(fleet.outcomes(session).values()) == {1}
    counters = fleet.engine.queries.session(session).counters
    assert (counters.attempts_lost, counters.steps, counters.iterations) == (1, 3, 1)


def test_a_killed_pool_process_costs_one_attempt(fleet: Fleet) -> None:
    fleet.worker("one")
    session = fleet.loop(fleet.script("doer.py", WAITS), "true")
    wait_until(lambda: started(fleet))
    (step,) = [s for s in fleet.engine.queries.steps(session).items if s.state == "running"]
    os.kill(int(str(step.worker).partition("/")[2]), signal.SIGKILL)
    wait_until(lambda: len(started(fleet)) == 2, timeout=20)
    (fleet.folder / "go").touch()
    assert fleet.ended(session).verdict == "accept"
    assert set(fleet.outcomes(session).values()) == {1}


def test_stop_ends_the_running_process_and_resume_goes_on(fleet: Fleet) -> None:
    fleet.worker("one")
    session = fleet.loop(fleet.script("doer.py", WAITS), "true")
    wait_until(lambda: started(fleet))
    fleet.engine.control.apply(session, "stop")
    wait_until(lambda: fleet.engine.queries.session(session).status == "stopped")
    assert not any(map(alive, started(fleet)))
    assert fleet.engine.queries.result(session).verdict is None
    (fleet.folder / "go").touch()
    fleet.engine.control.apply(session, "resume")
    assert fleet.ended(session).verdict == "accept"
    (do,) = [s for s in fleet.engine.queries.steps(session).items if s.action == "agent"]
    assert (do.attempt, do.lost, do.failed) == (1, 0, 0)


def test_abort_kills_what_runs(fleet: Fleet) -> None:
    fleet.worker("one")
    session = fleet.loop(fleet.script("doer.py", WAITS), "true")
    wait_until(lambda: started(fleet))
    fleet.engine.control.apply(session, "abort", reason="enough")
    result = fleet.ended(session)
    assert (result.status, result.verdict) == ("aborted", None)
    assert result.reason is not None
    assert result.reason.text == "enough"
    assert not any(map(alive, started(fleet)))


@pytest.mark.slow
def test_a_drained_worker_hands_its_step_back_uncounted(fleet: Fleet) -> None:
    first = fleet.worker("one", LEADHAND_DRAIN_S="0.2")
    session = fleet.loop(fleet.script("doer.py", WAITS), "true")
    wait_until(lambda: started(fleet))
    first.terminate()
    assert first.wait(timeout=20) == 0
    fleet.worker("two")
    wait_until(lambda: len(started(fleet)) == 2)
    (fleet.folder / "go").touch()
    assert fleet.ended(session).verdict == "accept"
    assert fleet.engine.queries.session(session).counters.attempts_lost == 0


@pytest.mark.slow
def test_a_drained_worker_finishes_what_ends_in_time(fleet: Fleet) -> None:
    first = fleet.worker("one", LEADHAND_DRAIN_S="60")
    session = fleet.loop(fleet.script("doer.py", WAITS), "true")
    wait_until(lambda: started(fleet))
    first.terminate()
    (fleet.folder / "go").touch()
    assert first.wait(timeout=30) == 0
    assert fleet.outcomes(session) == {"loop~1[1]/do": 1}
    fleet.worker("two")
    assert fleet.ended(session).verdict == "accept"
    assert len(started(fleet)) == 1


@pytest.mark.slow
def test_a_step_that_kills_its_workers_ends_lost_and_the_session_says_so(
    tmp_path: Path, store_url: str, broker_url: str
) -> None:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=0.5)
    fleet.worker("one")
    try:
        result = fleet.ended(fleet.loop(fleet.script("doer.py", KILLS), "true"), timeout=120)
    finally:
        fleet.close()
    assert (result.status, result.verdict) == ("failed", "terminate")
    assert result.reason is not None
    assert (result.reason.root.code, result.reason.root.at) == ("lost", "loop~1[1]/do")
    assert fleet.engine.queries.session(result.session_id).counters.attempts_lost == 6


@pytest.mark.slow
def test_a_worker_cut_off_longer_than_its_lease_kills_its_body(fleet: Fleet) -> None:
    first = fleet.worker("one")
    session = fleet.loop(fleet.script("doer.py", WAITS), "true")
    (body,) = wait_until(lambda: started(fleet))
    (step,) = [s for s in fleet.engine.queries.steps(session).items if s.state == "running"]
    pool = int(str(step.worker).partition("/")[2])
    os.kill(pool, signal.SIGSTOP)
    fleet.worker("two")
    wait_until(lambda: len(started(fleet)) == 2, timeout=20)
    os.kill(pool, signal.SIGCONT)
    wait_until(lambda: not alive(body), timeout=15)
    (fleet.folder / "go").touch()
    assert fleet.ended(session).verdict == "accept"
    assert set(fleet.outcomes(session).values()) == {1}
    assert first.poll() is None


def test_lost_messages_are_sent_again(fleet: Fleet) -> None:
    session = fleet.loop("true", "true")
    fleet.celery.control.purge()
    with fleet.celery.connection_for_write() as connection:
        channel: Any = connection.default_channel
        channel.client.flushdb()
    fleet.worker("one")
    assert fleet.ended(session).verdict == "accept"


def test_exit_from_a_checker_ends_the_workflow_with_its_reason(fleet: Fleet) -> None:
    fleet.worker("one")
    session = fleet.workflow(
        "true",
        {"name": "red", "task": "t", "checker": "true"},
        {
            "name": "green",
            "task": "t",
            "checker": "echo $LEADHAND_TOKEN > token; sleep 20",
            "baseline": False,
        },
        {"name": "blue", "task": "t", "checker": "true"},
    )
    token = fleet.folder / "token"
    wait_until(lambda: token.exists() and token.read_text().strip(), timeout=15)
    caller = verify(token.read_text().strip(), secret="secret of the test")
    fleet.engine.control.apply(session, "exit", reason="needs a redesign", by=caller)
    result = fleet.ended(session)
    assert (result.status, result.verdict, result.exit_reason) == (
        "exited", "exit", "needs a redesign",
    )  # fmt: skip
    assert [(p.name, p.verdict) for p in result.phases] == [("red", "accept"), ("green", "exit")]


@pytest.mark.slow
def test_a_checker_longer_than_a_lease_costs_its_judge_nothing(fleet: Fleet) -> None:
    fleet.worker("one")
    session = fleet.loop("true", "sleep 2.5")
    assert fleet.ended(session).verdict == "accept"
    assert fleet.engine.queries.session(session).counters.attempts_lost == 0


@pytest.mark.slow
def test_a_silent_connection_fences_the_body_within_its_lease(
    fleet: Fleet, store_url: str, broker_url: str
) -> None:
    with Wire(store_url) as store, Wire(broker_url) as broker:
        fleet.worker("one", LEADHAND_REDIS_URL=store.url, LEADHAND_BROKER_URL=broker.url)
        session = fleet.loop(fleet.script("doer.py", WAITS), "true")
        (body,) = wait_until(lambda: started(fleet))
        store.go_silent()
        wait_until(lambda: not alive(body), timeout=6)
        fleet.worker("two")
        wait_until(lambda: len(started(fleet)) == 2, timeout=15)
        (fleet.folder / "go").touch()
        assert fleet.ended(session).verdict == "accept"
        assert set(fleet.outcomes(session).values()) == {1}


def test_a_worker_whose_broker_is_away_from_the_start_sweeps(
    fleet: Fleet, redis_client: Redis
) -> None:
    redis_client.zadd("lh:leases", {"0|0|gone": 1})
    fleet.begin("one", LEADHAND_BROKER_URL="redis://127.0.0.1:1/0")
    wait_until(lambda: redis_client.zcard("lh:leases") == 0, timeout=20)


def test_worker_replaces_a_pool_process_that_died_before_the_first_message(
    fleet: Fleet, broker_url: str
) -> None:
    with Wire(broker_url) as broker:
        broker.cut()  # or else the time between the two would be a few milliseconds
        worker = fleet.begin("one", LEADHAND_BROKER_URL=broker.url)
        wait_until(lambda: len(pool_of(worker.pid)) == 2)
        first, _ = pool_of(worker.pid)
        kill([first])
        broker.heal()
        assert fleet.ended(fleet.loop("true", "true")).verdict == "accept"
        assert worker.poll() is None
        wait_until(lambda: len(set(pool_of(worker.pid)) - {first}) == 2)


def test_a_full_redis_costs_nothing_but_time(fleet: Fleet, redis_client: Redis) -> None:
    fleet.worker("one")
    session = fleet.loop(fleet.script("doer.py", WAITS), "true")
    wait_until(lambda: started(fleet))
    redis_client.config_set("maxmemory", "1")
    try:
        wait_until(lambda: "beat failed" in (fleet.folder / "one.log").read_text())
    finally:
        redis_client.config_set("maxmemory", "0")
    (fleet.folder / "go").touch()
    assert fleet.ended(session).verdict == "accept"
    assert set(fleet.outcomes(session).values()) == {1}
    # kombu may warn of it with a traceback of its own: it refreshes a binding once a minute.
    ours = re.compile(r'File ".*/(app|tasks|workers)/\w+\.py"')
    assert not ours.search((fleet.folder / "one.log").read_text())
