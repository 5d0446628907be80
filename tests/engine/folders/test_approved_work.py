"""An approval counts for the work that its question showed, and for no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from threading import Thread

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.records import Reply
from app.plans import plans
from app.sessions.questions import list_questions_of_tree
from leadhand.models.plans import PlanEdit
from leadhand.models.views.explain import QuestionView
from tests.engine.folders.sessions import Sessions
from tests.unit.workers.folders.repositories import git, make_repository
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

ANSWER = "go on"
TASK = {"id": "one", "title": "Write it", "description": "Write it."}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    git(repo, "reset", "-q", "--hard")
    agent = '[agents.writer]\ncommand = ["sh", "-c", "echo work > a.txt"]\n'
    draft = tmp_path / "draft.json"
    draft.write_text(json.dumps({"tasks": [TASK]}))
    lead = f'[agents.lead]\ncommand = ["sh", "-c", "echo looked > seen.txt; cat {draft}"]\n'
    (tmp_path / "agents.toml").write_text(agent + lead)
    return repo


def submit(sessions: Sessions, cwd: Path, **more: object) -> str:
    written = {"agentType": "writer", "identifier": "one"}
    steps = [
        {"type": "llm", **written, "messages": [{"role": "user", "content": ["go"]}]},
        {"type": "check", "checker": {"name": "works", "command": "grep -q work a.txt"}},
        {"type": "human", "label": "release", "question": "Shall it be released?"},
        {"type": "tool", "tool": "echo", "arguments": {"released": "${steps.release}"}},
    ]
    given = {"kind": "flow", "name": "release", "cwd": str(cwd), "steps": steps}
    return sessions.submit_document({**given, **more})


def question(sessions: Sessions, session: str) -> QuestionView:
    (found,) = list_questions_of_tree(sessions.engine, session, limit=2).items
    return found


def two_steps(*between: dict[str, object]) -> list[dict[str, object]]:
    """A step that works, a question about its work, and one that works after it."""
    work: dict[str, object] = {"type": "llm", "agentType": "writer", "identifier": "one",
            "messages": [{"role": "user", "content": ["go"]}]}  # fmt: skip
    ask: dict[str, object] = {
        "type": "human",
        "label": "release",
        "question": "Shall it be released?",
    }
    return [work, ask, *between, {**work, "label": "next"}]


def answer(sessions: Sessions, session: str) -> str:
    sessions.engine.answers.give(session, ANSWER, by="kim")
    # Its reply may be lost: the same answer again changes nothing.
    sessions.engine.answers.give(session, ANSWER, by="kim")
    sessions.carry_out(session)
    return sessions.status(session)


def test_question_shows_the_newest_checks_and_the_work_that_the_answer_counts_for(
    sessions: Sessions, repo: Path
) -> None:
    session = submit(sessions, repo)
    asked = question(sessions, session)
    assert asked.question.splitlines()[2] == "Checks: works accept."
    assert "Work: 1 file has changed: a.txt. State of the folder: git:" in asked.question
    assert asked.seen is not None
    assert (asked.seen.files, asked.seen.count) == (["a.txt"], 1)
    assert [(one.name, one.verdict) for one in asked.seen.checks] == [("works", "accept")]
    (wait,) = sessions.engine.explainer.explain(session).waits
    assert asked.seen.digest[:16] in str(wait.question)
    assert answer(sessions, session) == "completed", sessions.reason(session)
    steps = sessions.engine.queries.steps(session, limit=99).items
    (step,) = (one for one in steps if one.address == asked.address)
    assert step.answered_by == "kim"
    spoken = sessions.engine.queries.transcript(session).items
    assert [one.text for one in spoken if one.role == "human"] == [ANSWER]


def test_credential_in_an_answer_is_in_no_event(sessions: Sessions, repo: Path) -> None:
    session, secret = submit(sessions, repo), "ghp_" + "a1B2" * 9
    sessions.engine.answers.give(session, f"use {secret}", by="kim")
    sessions.carry_out(session)
    assert sessions.status(session) == "completed"
    events = sessions.engine.queries.events(session, after="0-0", limit=200)
    assert "use [redacted]" in str(events)
    assert secret not in str(events)


@pytest.mark.parametrize("beside", ["branch", "subflow"])
def test_question_beside_a_step_that_works_is_bound_to_no_state_of_the_folder(
    sessions: Sessions, repo: Path, beside: str
) -> None:
    asks, (work, *_) = two_steps(), two_steps()
    other = {**work, "identifier": "two"}
    step = {
        "branch": {"type": "parallel", "branches": [{"steps": [other]}, {"steps": asks}]},
        "subflow": {"type": "subflow", "flowNames": ["works", "asks"]},
    }[beside]
    flows = {"works": {"steps": [work]}, "asks": {"steps": asks}}
    flow = {"kind": "flow", "name": "both", "cwd": str(repo), "steps": [step]}
    session = sessions.submit_document({**flow, "flows": flows} if beside == "subflow" else flow)
    (repo / "one.txt").write_text("by the agent beside it\n")
    sessions.engine.answers.give(question(sessions, session).session, ANSWER)
    sessions.carry_out(session)
    assert sessions.status(session) == "completed", sessions.reason(session)


@pytest.mark.parametrize("saves", [1, 2])
def test_answer_is_asked_for_once_more_where_the_work_has_changed_and_is_contested_after_that(
    sessions: Sessions, repo: Path, saves: int
) -> None:
    session = submit(sessions, repo)
    first = question(sessions, session)
    (repo / "one.txt").write_text("saved\n")
    assert answer(sessions, session) == "waiting"
    asked = question(sessions, session)
    assert asked.question.splitlines()[0].endswith("since the question was shown: one.txt.")
    assert asked.seen is not None
    assert asked.seen != first.seen
    assert asked.seen.files == ["a.txt", "one.txt"]
    if saves == 1:
        assert answer(sessions, session) == "completed"
        return
    (repo / "one.txt").write_text("saved again\n")
    assert answer(sessions, session) == "failed"
    reason = sessions.engine.queries.session(session).reason
    assert reason is not None
    assert (reason.root.code, "one.txt" in reason.root.text) == ("contested", True)


@pytest.mark.parametrize("begins", ["at once", "last one first"])
@pytest.mark.parametrize("how", ["branches", "subflows"])
def test_steps_side_by_side_after_an_answer_are_not_contested_by_the_work_of_each_other(
    sessions: Sessions, repo: Path, how: str, begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo.parent / "agents.toml").write_text(
        '[agents.writer]\ncommand = ["sh", "-c", "echo $$ > $$.txt"]\n'
    )
    work, ask, one = two_steps()
    flows = {
        "one": {"steps": [one]},
        "two": {"steps": [{**work, "identifier": "two", "label": "other"}]},
    }
    step = {
        "branches": {"type": "parallel", "branches": [*flows.values()]},
        "subflows": {"type": "subflow", "flowNames": [*flows]},
    }[how]
    given = {"kind": "flow", "name": "f", "cwd": str(repo), "steps": [work, ask, step]}
    session = sessions.submit_document({**given, "flows": flows} if how == "subflows" else given)
    sessions.engine.answers.give(session, ANSWER)
    sessions.carry_out(session, until="next")
    assert [address for _, address in sessions.world.hints] == ["next", "other"]
    if begins == "last one first":
        sessions.world.hints.reverse()
    else:
        other, claim = sessions.world.hints.pop(), sessions.engine.attempts.claim

        def claim_both(ref: SessionRef, address: str, *, nonce: str, worker: str) -> Reply:
            monkeypatch.undo()
            reply = claim(ref, address, nonce=nonce, worker=worker)
            beside = sessions.world.grant(*other)
            (repo / "one.txt").write_text("by the step beside it\n")
            sessions.world.settle(other[0], beside, Outcome(word="succeeded"))
            return reply

        monkeypatch.setattr(sessions.engine.attempts, "claim", claim_both)
    sessions.carry_out(session)
    children = sessions.engine.store.children(SessionRef(session, session))
    for id_ in (session, *children):
        assert sessions.status(id_) == "completed", sessions.reason(id_)


@pytest.mark.parametrize("how", ["agent", "check", "subflow", "stopped"])
def test_change_between_an_answer_that_counts_and_the_next_step_is_contested(
    sessions: Sessions, repo: Path, how: str
) -> None:
    """The step does not run; who resumes the session wants it to run on the folder as it is."""
    work, ask, following = two_steps()
    deploys = {"command": "touch deployed", "name": "deploys"}
    step = {
        "agent": following,
        "check": {"type": "check", "label": "next", "checker": deploys},
        "subflow": {"type": "subflow", "flowNames": ["sub"]},
    }["agent" if how == "stopped" else how]
    flows = {"sub": {"steps": [following]}}
    given = {"kind": "flow", "name": "f", "cwd": str(repo), "steps": [work, ask, step]}
    session = sessions.submit_document({**given, "flows": flows} if how == "subflow" else given)
    sessions.engine.answers.give(session, ANSWER)
    due = "next-said" if how == "check" else "next"
    sessions.carry_out(session, until=due)
    assert sessions.world.hints[0][1] == due
    if how == "stopped":
        sessions.engine.control.apply(session, "stop")
        sessions.carry_out(session)
    (repo / "one.txt").write_text("saved\n")
    if how == "stopped":
        sessions.engine.control.apply(session, "resume")
    sessions.carry_out(session)
    (child,) = sessions.engine.store.children(SessionRef(session, session)) or {session}
    reason = sessions.engine.queries.session(child).reason
    assert reason is not None
    assert reason.root.code == ("failed_step" if how == "check" else "contested"), reason
    named = "its files" if how == "subflow" else "one.txt"  # the snapshots are of its flow
    assert f"a person's answer counted: {named}" in reason.root.text
    assert not (repo / "deployed").exists()
    if how != "subflow":
        sessions.engine.control.apply(session, "resume")
        sessions.carry_out(session)
        assert sessions.status(session) == "completed", sessions.reason(session)


def test_worker_says_that_it_has_compared_the_folder_before_its_work_begins(
    sessions: Sessions, repo: Path
) -> None:
    """What an attempt leaves that is lost at work is nothing that a person has changed."""
    waits = "touch begun; while test ! -e go; do sleep 0.02; done"
    (repo.parent / "agents.toml").write_text(
        f'[agents.writer]\ncommand = ["sh", "-c", "test ! -e step || {{ {waits}; }}; touch step"]\n'
    )
    given = {"kind": "flow", "name": "f", "cwd": str(repo), "steps": two_steps()}
    session = sessions.submit_document(given)
    sessions.engine.answers.give(session, ANSWER)
    sessions.carry_out(session, until="next")
    at_work = Thread(target=sessions.carry_out, args=(session,))
    at_work.start()
    wait_until((repo / "begun").exists)
    sessions.world.later(sessions.engine.settings.lease_ms + 1)
    assert not sessions.world.grant(SessionRef(session, session), "next").compare
    (repo / "go").touch()
    at_work.join()


def test_subflow_that_works_in_no_folder_leaves_an_answer_to_the_step_after_it(
    sessions: Sessions, repo: Path
) -> None:
    flows = {"sub": {"steps": [{"type": "tool", "tool": "echo", "arguments": {"a": 1}}]}}
    steps = two_steps({"type": "subflow", "flowNames": ["sub"]})
    given = {"kind": "flow", "name": "f", "cwd": str(repo), "steps": steps, "flows": flows}
    session = sessions.submit_document(given)
    sessions.engine.answers.give(session, ANSWER)
    sessions.carry_out(session, until="next")
    (repo / "one.txt").write_text("saved\n")
    sessions.carry_out(session)
    assert "a person's answer counted: one.txt" in sessions.reason(session)


def test_plan_that_was_edited_keeps_its_edits_where_its_approval_is_asked_for_once_more(
    sessions: Sessions, repo: Path
) -> None:
    given = {
        "kind": "plan",
        "request": "Write",
        "agent": "lead",
        "cwd": str(repo),
        "checkers": ["true"],
    }
    session = sessions.submit_document({**given, "workspace": "shared"})
    engine = sessions.engine
    first = plans.show(engine, session)
    assert "State of the folder: git:" in str(first.question)
    added = {"op": "add", "task": {**TASK, "id": "two"}}
    plans.edit(
        engine, session, PlanEdit.model_validate({"operations": [added]}), version=None, by="kim"
    )
    (repo / "one.txt").write_text("saved\n")
    for state in ("refining", "ended"):
        plans.approve(engine, session, by="kim", version=plans.show(engine, session).version)
        sessions.carry_out(session, last="execute")
        view = plans.show(engine, session)
        assert (view.state, [one.id for one in view.tasks]) == (state, ["one", "two"])
        assert ("since the question was shown: one.txt" in str(view.question)) == (
            state == "refining"
        )
