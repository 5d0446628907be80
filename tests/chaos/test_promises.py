"""Single promises on a whole fleet of real processes, each shown by the one fault that tries it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from app.core.addresses import SessionRef
from leadhand.models.documents import LoopDocument
from tests.chaos.promises import of_session
from tests.chaos.records import Body, account_of, record_of
from tests.chaos.stack import Member, Stack
from tests.processes import runs
from tests.waiting import wait_until
from workers.attempt.heartbeat import BEAT_S

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

LEASE_S = 6.0
Said = Callable[[str, float], None]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two workers at two places and two APIs; each test leaves it whole."""
    stack = Stack(tmp_path_factory.mktemp("chaos"), workers=2, lease_s=LEASE_S)
    with stack.running():
        yield stack


@pytest.fixture
def said(record_testsuite_property: Callable[[str, object], None]) -> Said:
    """Leaves what was measured in the report, where there is one."""
    return record_testsuite_property


def submit(stack: Stack, seconds: float, *, place: str = "") -> str:
    """A loop whose doer takes so long; without a place any worker may have it."""
    given = {
        "task": "work",
        "doer": {"command": stack.command("work", seconds)},
        "baseline": False,
        "checkers": [{"command": stack.command("check", 0, "1:1")}],
        **({"place": place, "cwd": str(stack.folder / place)} if place else {}),
    }
    return stack.engine.submit.document(LoopDocument.model_validate(given)).session


def bodies(stack: Stack, session: str) -> list[Body]:
    """The runs of the session's doer, the first one first."""
    found = account_of(stack.account).get(session, [])
    return sorted((b for b in found if b.kind == "work"), key=lambda body: body.began)


def events(stack: Stack, session: str) -> list[str]:
    found = stack.engine.queries.events(session, limit=1000)
    return [event.type for event in found]


def require_whole(stack: Stack, *sessions: str) -> None:
    """They end completed, and all that was promised of a session holds for each."""

    def all_ended() -> bool:
        return all(stack.engine.queries.session(one).status == "completed" for one in sessions)

    wait_until(all_ended, timeout=120)
    account = account_of(stack.account)
    for session in sessions:
        record = record_of(stack.engine, SessionRef(session, session))
        assert not list(of_session(record, account[session]))


def owner(stack: Stack, session: str) -> Member:
    """Who runs its step now."""
    (step,) = [s for s in stack.engine.queries.steps(session).items if s.state == "running"]
    return next(m for m in stack.workers if m.name == str(step.worker).partition("/")[0])


def kill(member: Member) -> float:
    """Kill a member as its machine would; since when it is dead."""
    member.wanted_down = True
    member.signal(signal.SIGKILL)
    return time.time()


@pytest.mark.slow
def test_fifty_running_sessions_outlive_a_killed_redis(stack: Stack):
    folders = [stack.folder / "left", stack.folder / "right"]
    sessions = [submit(stack, 0.1) for _ in range(50)]
    wait_until(lambda: len(account_of(stack.account)) >= 10, timeout=60)
    assert sum(stack.engine.queries.session(one).status == "active" for one in sessions) > 25
    stack.server.signal(signal.SIGKILL)
    stack.server.start()
    wait_until(stack.server.answers, timeout=30)
    require_whole(stack, *sessions)
    assert all(folder.exists() for folder in folders)


def until_claimed_again(stack: Stack) -> float:
    """Seconds from the death of a step's worker until another one has the step."""
    session = submit(stack, 0.5)
    wait_until(lambda: bodies(stack, session), timeout=30)
    member = owner(stack, session)
    dead = kill(member)
    wait_until(lambda: len(claims(stack, session)) == 2, timeout=60)
    member.start()
    require_whole(stack, session)
    return claims(stack, session)[1] - dead


def claims(stack: Stack, session: str) -> list[float]:
    """When its doer was claimed."""
    found = stack.engine.queries.events(session, limit=1000)
    told = [e.at_ms for e in found if e.type == "step.claimed" and str(e.address).endswith("/do")]
    return [at_ms / 1000 for at_ms in told]


def test_a_killed_workers_step_runs_again_within_a_lease_and_two_seconds(stack: Stack, said: Said):
    took = best_of_three(lambda: until_claimed_again(stack), LEASE_S + 2)
    said("seconds until a killed worker's step ran again", took)
    assert took <= LEASE_S + 2


def until_ended(stack: Stack) -> float:
    """Seconds from a stop until the running process has gone."""
    session = submit(stack, 30)
    wait_until(lambda: bodies(stack, session), timeout=30)
    asked = time.time()
    stack.clients[1].stop(session)
    wait_until(lambda: not stack.bodies(), timeout=30)
    took = time.time() - asked
    wait_until(lambda: stack.engine.queries.session(session).status == "stopped", timeout=30)
    stack.clients[0].abort(session)
    return took


def test_a_stop_reaches_the_running_process_within_one_heartbeat(stack: Stack, said: Said):
    took = best_of_three(lambda: until_ended(stack), BEAT_S + 1)
    said("seconds until a stop had ended the running process", took)
    assert took <= BEAT_S + 1


def best_of_three(measured: Callable[[], float], limit: float) -> float:
    """What was measured, again where a busy machine got in the way."""
    best = float("inf")
    for _ in range(3):
        best = min(best, measured())
        if best <= limit:
            break
    return best


@pytest.mark.slow
def test_apis_alone_find_what_dead_workers_held(stack: Stack):
    session = submit(stack, 1.0)
    wait_until(lambda: bodies(stack, session), timeout=30)
    for member in stack.workers:
        kill(member)
    wait_until(lambda: "step.expired" in events(stack, session), timeout=60)
    assert not any(member.up for member in stack.workers)
    for member in stack.workers:
        member.start()
    require_whole(stack, session)


@pytest.mark.slow
def test_a_half_open_connection_heals_within_30_s(stack: Stack, said: Said):
    (member,) = [member for member in stack.workers if member.name == "left1"]
    require_whole(stack, submit(stack, 0, place="left"))  # it is connected, and at work
    cut = sum(wire.black_hole() for wire in member.wires)
    assert cut >= 3
    since = time.time()
    session = submit(stack, 0, place="left")
    wait_until(lambda: bodies(stack, session), timeout=60)
    took = bodies(stack, session)[0].began - since
    said("seconds until a half-open connection was healed", took)
    require_whole(stack, session)
    assert member.up
    assert took <= 30


@pytest.mark.slow
def test_a_killed_api_is_started_again_at_its_address(stack: Stack):
    api = stack.apis[0]
    wait_until(stack.clients[0].workers, timeout=60)
    children = api.children()
    assert children
    kill(api)
    wait_until(lambda: not any(map(runs, children)), timeout=5)
    api.start()
    wait_until(stack.clients[0].workers, timeout=60)
    assert api.up
