"""Reruns: the document of a session as a new session, with changes."""

from __future__ import annotations

import pytest

from app.core.addresses import SessionRef
from app.errors import InvalidDocument
from app.sessions.documents import Changes, submitted_document
from app.sessions.fork import Wish
from leadhand.errors import ControlRefused
from leadhand.flows.documents import AnyDocument
from leadhand.models.documents import Checker, LoopDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from tests.engine.driving import Bench
from tests.engine.world import World

LOOP = LoopDocument.model_validate(
    {
        "task": "old",
        "checkers": ["true"],
        "webhook": {"url": "https://93.184.216.34/x", "secret": "s" * 20},
    }
)
WORKFLOW = WorkflowDocument.model_validate(
    {"name": "w", "phases": [{"name": n, "task": "t", "checkers": ["true"]} for n in ("a", "b")]}
)


def rerun(world: World, document: AnyDocument, changes: Changes) -> tuple[str, AnyDocument]:
    engine = world.engine
    session = engine.submit.document(document).session
    made = world.engine.reruns.rerun(session, changes).session
    ref = SessionRef(made, made)
    view = world.engine.queries.session(made)
    assert view.made_from is not None
    assert (view.made_from.session, view.made_from.verb) == (session, "rerun")
    return made, submitted_document(
        engine.store, engine.registry, ref, engine.store.fields(ref), "rerun"
    )


def test_loop_runs_again_with_another_task_checkers_and_agent(bench: Bench) -> None:
    checkers = (Checker.model_validate("make test"),)
    _, document = rerun(World.of(bench), LOOP, Changes("new", checkers, "claude", label="second"))
    assert isinstance(document, LoopDocument)
    assert (document.task, document.checkers, document.label) == ("new", checkers, "second")
    assert document.doer is not None
    assert document.doer.agent == "claude"


def test_secret_of_a_webhook_is_not_stored_with_the_document(bench: Bench) -> None:
    world = World.of(bench)
    session = world.engine.submit.document(LOOP).session
    text = world.engine.store.copies().request(SessionRef(session, session))
    assert text is not None
    assert "s" * 20 not in text


def test_workflow_runs_again_with_another_agent_in_each_phase(bench: Bench) -> None:
    _, document = rerun(World.of(bench), WORKFLOW, Changes(agent="codex"))
    assert isinstance(document, WorkflowDocument)
    assert {phase.doer.agent for phase in document.phases if phase.doer} == {"codex"}


def test_plan_runs_again_with_another_request(bench: Bench) -> None:
    plan = PlanDocument.model_validate({"request": "old", "unchecked": True})
    _, document = rerun(World.of(bench), plan, Changes("new"))
    assert isinstance(document, PlanDocument)
    assert document.request == "new"


def test_change_that_does_not_apply_is_refused(bench: Bench) -> None:
    world = World.of(bench)
    session = world.engine.submit.document(WORKFLOW).session
    with pytest.raises(InvalidDocument, match="a workflow has no single task"):
        world.engine.reruns.rerun(session, Changes("new"))
    with pytest.raises(InvalidDocument, match="it has several phases"):
        world.engine.reruns.rerun(session, Changes(checkers=LOOP.checkers))
    with pytest.raises(InvalidDocument, match="a workflow has no inputs"):
        world.engine.reruns.rerun(session, Changes(inputs={"x": 1}))


@pytest.mark.parametrize("forged", ["document", "seal", "other session"])
def test_stored_document_that_was_not_signed_does_not_run(bench: Bench, forged: str) -> None:
    world = World.of(bench)
    engine = world.engine
    session = engine.submit.document(LOOP).session
    ref, store = SessionRef(session, session), engine.store
    key, redis = store.keys.part(ref, "session"), store._redis
    if forged == "document":
        request = store.keys.part(ref, "request")
        redis.set(request, str(redis.get(request)).replace("true", "curl evil"))
    elif forged == "seal":
        redis.hdel(key, "request_seal")
    else:
        other = engine.submit.document(LOOP).session
        seal = store.fields(SessionRef(other, other))["request_seal"]
        redis.hset(key, "request_seal", seal)
    for verb in (lambda: engine.reruns.rerun(session, Changes()), lambda: fork(world, session)):
        with pytest.raises(ControlRefused, match=r"its stored document .* so it may not run"):
            verb()


def fork(world: World, session: str) -> None:
    world.engine.forks.fork(session, Wish())
