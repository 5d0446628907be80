"""A bulk call with the token of a preview applies to what was counted, and to nothing else."""

from __future__ import annotations

import pytest

from app.engine import Engine
from app.errors import InvalidDocument
from app.sessions import bulk
from app.sessions.bulk import Counted, How, make_token
from leadhand.contract.sessions import SessionsWanted
from tests.session_driving import end, run_iteration
from tests.silent_engine import loop, silent_engine

LOOPS = SessionsWanted(kind="loop")
FAILED = SessionsWanted(status=("failed",))


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret="s")


def started(engine: Engine, count: int) -> list[str]:
    return [str(engine.submit.document(loop()).session) for _ in range(count)]


def status(engine: Engine, session: str) -> str:
    return engine.queries.session(session).status


def test_session_that_came_later_is_not_touched(engine):
    first, second = started(engine, 2)
    token = engine.bulk.preview("stop", LOOPS).token
    (later,) = started(engine, 1)
    view = engine.bulk.carry_out_token(How("stop"), str(token))
    assert (view.matched, view.done, view.refused, view.changed) == (2, 2, 0, [])
    assert [status(engine, one) for one in (first, second, later)] == [
        "stopped", "stopped", "active",
    ]  # fmt: skip


def test_session_that_changed_is_left_out_and_listed(engine):
    failed, resumed, deleted, again = started(engine, 4)
    for session in (failed, resumed, deleted, again):
        end(engine, session, "failed")
    token = engine.bulk.preview("delete", FAILED).token
    engine.control.apply(resumed, "resume")
    engine.deletion.delete(deleted, force=False, seen=None)
    engine.control.apply(again, "resume")
    end(engine, again, "failed")
    view = engine.bulk.carry_out_token(How("delete"), str(token))
    assert (view.matched, view.done, view.refused) == (4, 1, 0)
    assert set(view.changed) == {resumed, deleted, again}
    assert engine.store.ref(failed) is None
    assert [status(engine, one) for one in (resumed, again)] == ["active", "failed"]


def test_session_at_work_goes_on_and_is_stopped_all_the_same(engine):
    (session,) = started(engine, 1)
    token = engine.bulk.preview("stop", LOOPS).token
    run_iteration(engine, session, "retry")
    assert engine.bulk.carry_out_token(How("stop"), str(token)).done == 1


def test_refusal_is_no_change(engine):
    (session,) = started(engine, 1)
    end(engine, session, "completed")
    token = engine.bulk.preview("resume", LOOPS).token
    view = engine.bulk.carry_out_token(How("resume"), str(token))
    assert (view.done, view.refused, view.changed) == (0, 1, [])


@pytest.mark.parametrize(
    "token",
    [
        "",
        "b1.",
        "b1.!!",
        "b1.AAAA",
        make_token("stop", [])[:-4],
        make_token("stop", [Counted("a", "b", "c")]),  # type: ignore[arg-type]
        make_token("abort", []),
        "b2." + make_token("stop", [])[3:],
        "b1." + "A" * bulk.LONGEST,
    ],
)
def test_other_token_is_refused(engine, token):
    with pytest.raises(InvalidDocument):
        engine.bulk.carry_out_token(How("stop"), token)


def test_token_of_a_thousand_sessions_fits():
    rows = [Counted(f"{number * 7919:08x}", "failed", 1_795_000_000_000 + number * 977)
            for number in range(1000)]  # fmt: skip
    assert len(make_token("delete", rows)) < bulk.LONGEST / 2


def test_token_that_unpacks_to_a_great_deal_is_refused(engine):
    token = make_token("stop", [Counted("a" * 8, "x" * 5_000_000, 1)])
    with pytest.raises(InvalidDocument):
        engine.bulk.carry_out_token(How("stop"), token)
