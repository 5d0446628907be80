"""Lists of sessions: the filters, the pages, and what is done to all that a filter means."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from app.compiler import compile_document
from app.core.addresses import SessionRef, iso
from app.engine import Engine
from app.errors import InvalidDocument
from app.sessions import bulk
from app.sessions.bulk import How
from app.sessions.listing import BATCH
from app.sessions.submit import About
from leadhand.contract.sessions import SessionsWanted
from leadhand.models.verdicts import ReasonCode
from tests.silent_engine import loop, silent_engine
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.registry.agents import AgentBook

MINUTE = 60_000
BEGAN = 1_700_000_000_000


class Clock:
    now = BEGAN

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(store_url, clock) -> Engine:
    return silent_engine(store_url, clock=clock)


def started(engine: Engine, clock: Clock, count: int, **more: object) -> list[str]:
    """New sessions, a minute apart."""
    made = []
    for _ in range(count):
        clock.now += MINUTE
        made.append(engine.submit.document(loop(**more)).session)
    return made


def labelled(engine: Engine, clock: Clock, count: int, label: str) -> list[str]:
    """New sessions, a minute apart, with a label that is not theirs alone."""
    made, program = [], compile_document(loop())
    for _ in range(count):
        clock.now += MINUTE
        about = About(kind="loop", name=program.name, label=label)
        made.append(engine.submit.program(program, about).session)
    return made


def listed(engine: Engine, limit: int = 50, **wanted: object) -> list[str]:
    """All that is listed, page by page."""
    found: list[str] = []
    cursor = None
    while True:
        asked = SessionsWanted.model_validate(wanted)
        page = engine.queries.sessions(asked, limit=limit, cursor=cursor)
        found += [view.id for view in page.items]
        if page.next is None:
            return found
        cursor = page.next


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def test_sessions_are_listed_newest_first_whatever_became_of_them(engine, clock):
    made = started(engine, clock, 5)
    engine.control.apply(made[0], "abort")
    engine.control.apply(made[3], "stop")
    assert listed(engine) == made[::-1]
    assert listed(engine, status=["active"]) == [made[4], made[2], made[1]]
    assert listed(engine, status=["aborted", "stopped"]) == [made[3], made[0]]
    assert listed(engine, status=["stopped", "active", "aborted"], limit=2) == made[::-1]


def test_sessions_of_one_ms_are_each_listed_once(engine):
    made = {engine.submit.document(loop()).session for _ in range(25)}
    for limit in (1, 4, 25):
        found = listed(engine, limit=limit)
        assert len(found) == len(set(found)) == 25
        assert set(found) == made


def test_more_sessions_of_one_ms_than_are_read_in_one_go(engine):
    made = {engine.submit.document(loop()).session for _ in range(2 * BATCH + 3)}
    assert set(listed(engine, limit=BATCH)) == made
    assert set(listed(engine, limit=7, status=["active"])) == made


def test_a_filter_means_what_is_all_of_it(engine, clock):
    first, second = started(engine, clock, 2)
    (third,) = started(engine, clock, 1, label="nightly")
    engine.control.apply(third, "abort", reason="enough")
    (fourth,) = started(engine, clock, 1, label="nightly")
    assert listed(engine, label="nightly") == [fourth, third]
    assert listed(engine, label="nightly", status=["aborted"]) == [third]
    assert listed(engine, label="other") == []
    assert listed(engine, reason="aborted") == [third]
    assert listed(engine, reason="user_stop") == []
    assert listed(engine, kind="workflow") == []
    assert listed(engine, kind="loop", name=engine.queries.session(first).name) == [second, first]
    assert listed(engine, parent="deadbeef") == []


def test_times_bound_a_list_from_both_ends(engine, clock):
    made = started(engine, clock, 4)
    times = [BEGAN + MINUTE * n for n in (1, 2, 3, 4)]
    assert engine.queries.session(made[1]).created_at == iso(times[1])
    assert listed(engine, created_after=at(times[1])) == made[:0:-1]
    assert listed(engine, created_before=at(times[1])) == [made[0]]
    assert listed(engine, created_after=at(times[1]), created_before=at(times[3])) == [
        made[2],
        made[1],
    ]
    assert listed(engine, created_after=at(times[1] + 1), status=["active"], limit=1) == [
        made[3],
        made[2],
    ]


def test_a_page_that_looked_at_enough_says_that_more_may_come(engine, monkeypatch):
    monkeypatch.setattr("app.sessions.listing.LOOKED_AT", 3)
    made = [engine.submit.document(loop(label="last")).session] + [
        engine.submit.document(loop()).session for _ in range(7)
    ]
    page = engine.queries.sessions(SessionsWanted(reason=ReasonCode.EXIT), limit=5)
    assert (page.items, page.next is None, page.partial, page.examined) == ([], False, True, 3)
    full = engine.queries.sessions(SessionsWanted(kind="loop"), limit=2)
    assert (len(full.items), full.next is None, full.partial, full.examined) == (2, False, False, 2)
    assert listed(engine, label="last") == [made[0]]


@pytest.mark.parametrize(
    "cursor", ["x", "e30=", "WzEsMl0=", "aW5m", "bmFu", "LTE=", "MWU0MDA=", "\udcff", "[" * 99]
)
def test_a_cursor_that_was_never_given_is_refused(engine, cursor):
    session = engine.submit.document(loop()).session
    for ask in (engine.queries.sessions, lambda **p: engine.queries.steps(session, **p),
                lambda **p: engine.queries.ledger(session, **p)):  # fmt: skip
        with pytest.raises(InvalidDocument) as caught:
            ask(cursor=cursor)
        assert caught.value.field == "cursor"


def test_a_preview_counts_and_does_nothing(engine, clock):
    made = started(engine, clock, 30)
    wanted = SessionsWanted(kind="loop")
    view = engine.bulk.preview("abort", wanted)
    assert (view.matched, view.done, view.dry_run) == (30, 0, True)
    assert view.first == made[::-1][: bulk.NAMED]
    assert listed(engine, status=["active"]) == made[::-1]


def test_what_is_done_to_all_holds_for_those_that_do_not_refuse(engine, clock):
    made = started(engine, clock, 4)
    engine.control.apply(made[1], "abort")
    view = engine.bulk.carry_out(How("stop"), SessionsWanted(kind="loop"))
    assert (view.matched, view.done, view.refused, view.next) == (4, 3, 1, None)
    assert [(r.session, r.status) for r in view.refusals] == [(made[1], "aborted")]
    assert listed(engine, status=["stopped"]) == [made[3], made[2], made[0]]
    assert engine.bulk.carry_out(How("resume"), SessionsWanted(status=("stopped",))).done == 3
    assert engine.bulk.carry_out(How("delete"), SessionsWanted(status=("active",))).refused == 3
    everything = SessionsWanted(kind="loop")
    assert engine.bulk.carry_out(How("delete", force=True), everything).done == 4
    assert listed(engine) == []


def failed(engine: Engine) -> str:
    """A session that was not accepted in its one iteration."""
    work = Attempts(
        engine, worker="w/1", agents=lambda: AgentBook.load([]), heart=Heartbeats(engine)
    )
    session = engine.submit.document(loop(max_iterations=1, checkers=["false"])).session
    for address in ("do", "check.false", "judge"):
        work(SessionRef(session, session), f"loop~1[1]/{address}")
    assert engine.queries.session(session).status == "failed"
    return session


def test_a_session_of_a_newer_version_holds_up_none_of_the_others(store_url, redis_client):
    engine = silent_engine(store_url, secret="s")
    stopped, newer = (
        [engine.submit.document(loop()).session for _ in range(2)],
        failed(engine),
    )
    for session in stopped:
        engine.control.apply(session, "stop")
    [fields] = redis_client.scan_iter(f"*{newer}*session")
    program = f"lh:program:{redis_client.hget(fields, 'program')}"
    document = json.loads(redis_client.hget(program, "document"))
    redis_client.hset(program, "document", json.dumps({**document, "unheard_of": 1}))
    older = silent_engine(store_url, secret="s")
    view = older.bulk.carry_out(How("resume"), SessionsWanted(status=("failed", "stopped")))
    assert (view.matched, view.done, view.refused) == (3, 2, 1)
    [refusal] = view.refusals
    assert (refusal.session, refusal.status) == (newer, "failed")
    assert "newer version" in refusal.why


def carried_out(engine, how, wanted) -> list[tuple[int, int]]:
    """What each call did and was refused, as one who goes on with its cursor makes them."""
    calls, cursor = [], None
    while True:
        view = engine.bulk.carry_out(how, wanted, cursor=cursor)
        calls.append((view.done, view.refused))
        cursor = view.next
        if cursor is None:
            return calls


def test_one_call_does_so_much_and_says_where_to_go_on(engine, clock, monkeypatch):
    monkeypatch.setattr("app.sessions.bulk.DONE_AT_MOST", 2)
    made = started(engine, clock, 5)
    assert carried_out(engine, How("abort"), SessionsWanted(status=("active",))) == [
        (2, 0), (2, 0), (1, 0),
    ]  # fmt: skip
    assert listed(engine, status=["aborted"]) == made[::-1]


def test_those_that_refuse_are_work_too_and_are_met_once(engine, clock, monkeypatch):
    monkeypatch.setattr("app.sessions.bulk.DONE_AT_MOST", 3)
    made = started(engine, clock, 8)
    for session in made[1:]:
        engine.control.apply(session, "abort")
    assert carried_out(engine, How("stop"), SessionsWanted(kind="loop")) == [(0, 3), (0, 3), (1, 1)]
    assert listed(engine, status=["stopped"]) == made[:1]


def test_one_call_looks_at_so_many_whomever_it_means(engine, clock, monkeypatch):
    monkeypatch.setattr("app.sessions.bulk.LOOKED_AT", 4)
    monkeypatch.setattr("app.sessions.bulk.COUNTED", 4)
    (meant,) = started(engine, clock, 1)
    engine.control.apply(meant, "abort")
    started(engine, clock, 9)
    wanted = SessionsWanted(reason=ReasonCode.ABORTED)  # no index has it
    first = engine.bulk.preview("delete", wanted)
    assert (first.matched, first.next is None) == (0, False)
    second = engine.bulk.preview("delete", wanted, cursor=first.next)
    last = engine.bulk.preview("delete", wanted, cursor=second.next)
    assert (last.first, last.next) == ([meant], None)
    assert carried_out(engine, How("delete"), wanted) == [(0, 0), (0, 0), (1, 0)]


def test_one_call_looks_only_at_those_that_an_index_has(engine, clock, monkeypatch):
    monkeypatch.setattr("app.sessions.bulk.LOOKED_AT", 1)
    started(engine, clock, 1, label="nightly")
    started(engine, clock, 9)
    assert carried_out(engine, How("stop"), SessionsWanted(label="nightly")) == [(1, 0)]


def examined(engine: Engine, **wanted: object) -> int:
    """How many sessions the pages of a list examine."""
    total, cursor = 0, None
    while True:
        page = engine.queries.sessions(SessionsWanted.model_validate(wanted), cursor=cursor)
        assert page.examined is not None
        total += page.examined
        cursor = page.next
        if cursor is None:
            return total


def test_a_combined_filter_walks_the_smallest_of_its_indexes(engine, clock):
    first, *_ = labelled(engine, clock, 12, "many")
    labelled(engine, clock, 3, "few")
    started(engine, clock, 25)
    engine.control.apply(first, "abort")
    assert examined(engine) == 40
    assert examined(engine, kind="loop") == 40
    assert examined(engine, kind="flow") == 0
    assert examined(engine, label="many") == 12
    assert examined(engine, label="many", status=["active"]) == 12
    assert examined(engine, label="many", status=["aborted"]) == 1
    assert examined(engine, label="few", kind="loop", name="loop") == 3
    late = at(BEGAN + 12 * MINUTE)
    assert examined(engine, label="many", created_after=late) == 1
    assert examined(engine, label="many", created_before=late) == 11


def test_an_entry_of_a_session_that_is_gone_is_dropped(engine, clock, redis_client):
    gone, kept = labelled(engine, clock, 2, "nightly")
    for key in redis_client.scan_iter(f"*{gone}*"):
        redis_client.delete(key)  # its TTL has passed: no function has cleaned the indexes
    assert listed(engine, label="nightly") == [kept]
    lines = redis_client.zrange("lh:facts", 0, -1)
    assert [line for line in lines if gone in line and line.startswith("label")] == []
    assert listed(engine, kind="loop") == [kept]
    assert redis_client.zrange("lh:sessions", 0, -1) == [kept]


def test_loop_with_a_folder_of_its_own_is_titled_by_its_task(engine, tmp_path):
    document = loop(task="Mend the parser.", cwd=str(tmp_path), worktree=True)
    view = engine.queries.session(engine.submit.document(document).session)
    assert view.worktree is not None
    assert (view.title, view.doer) == ("Mend the parser.", "command true")


def test_a_view_says_what_a_loop_is_about(engine):
    checkers = ["true", {"name": "lint", "command": "ruff check"}]
    made = engine.submit.document(
        loop(
            task="\n# Write ${x} with --password=hunter2hunter2\nMore.",
            doer={"agent": "claude"},
            checkers=checkers,
        )
    ).session
    view = engine.queries.session(made)
    assert view.task is not None
    assert view.task.startswith("Write ${x} with")
    assert view.task.endswith(view.title[-5:])
    assert "More" not in view.task
    assert view.doer == "agent claude"
    assert view.checkers[1] == "lint"
    assert (
        engine.queries.session(engine.submit.document(loop(label="nightly")).session).title
        == "nightly"
    )
