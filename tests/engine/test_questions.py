"""The list of open questions: of all sessions in pages, and of one session's tree."""

from __future__ import annotations

import pytest

from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.errors import InvalidDocument
from app.sessions import questions as module
from app.sessions.questions import list_questions, list_questions_of_tree
from app.sessions.submit import About
from leadhand.errors import SessionUnknown
from leadhand.models.views.explain import QuestionView
from tests.engine.driving import Bench
from tests.engine.world import World
from tests.flows import flow
from workers.attempt.settle import park


def ask(id_: str, question: str = "well?") -> Step:
    return Step(id=id_, action=Action.HUMAN, needs=(), timeout_s=60, inputs={"question": question})


def start(world: World, *body: Step) -> SessionRef:
    id_ = world.engine.submit.program(Program(body=body), About(kind="flow", name="x")).session
    ref = SessionRef(id_, id_)
    for step in body:
        put(world, ref, step.id)
    return ref


def put(world: World, ref: SessionRef, address: str) -> None:
    assert park(world.engine, world.engine.attempts.work(ref, world.grant(ref, address))) is None


def all_pages(world: World, limit: int) -> list[QuestionView]:
    found: list[QuestionView] = []
    cursor: str | None = None
    while True:
        page = list_questions(world.engine, limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


@pytest.fixture
def world(bench: Bench) -> World:
    return World.of(bench)


def test_a_question_names_its_times_and_the_command_that_answers_it(world: World) -> None:
    ref = start(world, ask("title", "Which title?"))
    [view] = list_questions(world.engine, limit=50, cursor=None).items
    assert (view.session, view.name, view.address) == (ref.id, "x", "title")
    assert view.question == "Which title?"
    assert view.answer == f"leadhand answer {ref.id} title TEXT"
    assert view.since is not None
    assert view.until is not None
    assert view.since < view.until
    world.engine.answers.give(ref.id, "Moby Dick")
    assert list_questions(world.engine, limit=50, cursor=None).items == []


@pytest.mark.parametrize("looked_at", [1, 2, 2000])
@pytest.mark.parametrize("limit", [1, 2, 50])
def test_pages_list_each_question_once(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: int, looked_at: int
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT", looked_at)
    asked = [
        (start(world, ask("a"), ask("b"), ask("c")).id, address) for address in ("a", "b", "c")
    ]
    wait = Step(id="wait", action=Action.WAIT, timeout_s=60, inputs={"seconds": 60})
    silent = start(world, wait).id
    sessions = [start(world, ask("a"), ask("b")).id for _ in range(3)]
    found = [(view.session, view.address) for view in all_pages(world, limit)]
    assert len(found) == len(set(found)) == 15
    assert silent not in {session for session, _ in found}
    assert {(session, "b") for session in sessions} < set(found)
    assert {session for session, _ in asked} < {session for session, _ in found}


def test_the_questions_of_a_tree_include_those_of_child_sessions(world: World) -> None:
    given = flow({"type": "human", "question": "below?", "label": "ask"})
    document = given.model_dump(mode="json", exclude_unset=True) | {"kind": "flow"}
    kid = Step(id="kid", action=Action.CHILD, needs=(), inputs={"document": document})
    parent = start(world, kid, ask("above"))
    (child,) = world.engine.store.children(parent)
    put(world, SessionRef(child, parent.id), "ask")
    start(world, ask("elsewhere"))
    found = list_questions_of_tree(world.engine, parent.id, limit=50).items
    assert [(view.session, view.address) for view in found] == [
        (parent.id, "above"),
        (child, "ask"),
    ]


def test_a_stopped_session_asks_nothing(world: World) -> None:
    ref = start(world, ask("a"))
    world.engine.control.apply(ref.id, "stop")
    assert list_questions(world.engine, limit=50, cursor=None).items == []
    assert list_questions_of_tree(world.engine, ref.id, limit=50).items == []


def test_an_unknown_session_or_cursor_is_refused(world: World) -> None:
    with pytest.raises(SessionUnknown):
        list_questions_of_tree(world.engine, "00000000", limit=50)
    with pytest.raises(InvalidDocument):
        list_questions(world.engine, limit=50, cursor="bm8=")
