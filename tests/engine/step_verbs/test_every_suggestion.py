"""Every kind of suggestion of `explain` is carried out, and has the effect that it names."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Usage
from app.core.program import Action, Step
from app.sessions.attempts import Work
from app.sessions.suggestions import Why
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.verdicts import ReasonCode
from leadhand.models.views.explain import SuggestedAction
from tests.engine.driving import Bench
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.step_verbs.test_suggestions import (
    carry_out,
    failed_graph,
    failure,
    publish_tool,
    suggested,
)
from tests.engine.world import World
from tests.flows import flow
from tests.unit.workers.folders.repositories import git, make_repository
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.checkers.combine import judge
from workers.registry.agents import AgentBook

#: What each step does, by its id; an agent's or tool's default is to succeed, a check's to accept.
Acts = Mapping[str, Outcome]
ACCEPT, RETRY, TERMINATE = (
    Outcome.model_validate({"word": "succeeded", "verdict": verdict, "text": f"it says {verdict}"})
    for verdict in ("accept", "retry", "terminate")
)
BROKEN = failure(ReasonCode.FAILED_STEP, "it is broken")


class Driven:
    """A session whose steps are carried out one by one, judges by the workers' own code."""

    def __init__(self, world: World, session: str) -> None:
        self.world, self.engine = world, world.engine
        self.id, self.ref = session, SessionRef(session, session)
        #: The ids of the steps that were carried out.
        self.called: list[str] = []

    def run(self, acts: Acts | None = None) -> Driven:
        """Carry out all that is ready, until nothing is."""
        self.called = []
        while hints := [hint for hint in self.world.hints if hint[0].id == self.id]:
            self.world.hints.remove(hints[0])
            grants = self.world.claim(self.ref, hints[0][1]).grants
            while grants:
                work = self.engine.attempts.work(self.ref, grants[0])
                self.called.append(work.step.id)
                reply = self.world.settle(self.ref, grants[0], self._act(work, acts or {}))
                grants = (*grants[1:], *reply.grants)
        return self

    def _act(self, work: Work, acts: Acts) -> Outcome:
        if work.step.id in acts:
            return acts[work.step.id]
        if work.step.action is Action.JUDGE:
            return judge(work.inputs)
        return ACCEPT if work.step.action in (Action.CHECK, Action.BREAK) \
            else Outcome(word="succeeded", text="done")  # fmt: skip

    def after(self, action: SuggestedAction) -> Driven:
        """What the action is about: this session, or a new one."""
        return Driven(self.world, carry_out(self.engine, action))

    @property
    def status(self) -> str:
        return self.engine.queries.session(self.id).status


class Case(NamedTuple):
    """A session that ended, and what must hold once the suggested action was carried out."""

    session: Driven
    holds: Callable[[Driven], object]
    #: The step that the suggestion names, where several have the same kind.
    address: str | None = None


def loop(bench: Bench, *checkers: str, **more: Any) -> Driven:
    world = World.of(bench)
    given = {
        "task": "Do it",
        "doer": {"command": "true"},
        "baseline": False,
        "checkers": checkers or ("true",),
        **more,
    }
    return Driven(world, world.engine.submit.document(LoopDocument.model_validate(given)).session)


def graph(bench: Bench, *steps: Mapping[str, object], **more: Any) -> Driven:
    world = GraphWorld(World.of(bench), steps, **more)
    return Driven(world.world, world.id)


def completes(*called: str, acts: Acts | None = None) -> Callable[[Driven], object]:
    """It completes, and carries out these steps."""

    def holds(then: Driven) -> None:
        then.run(acts)
        assert (then.status, then.called) == ("completed", list(called))

    return holds


def begins(then: Driven) -> None:
    """It is another session, which runs."""
    assert then.status == "active"
    assert then.run().called


def is_stopped(bench: Bench) -> Case:
    session = loop(bench)
    session.engine.control.apply(session.id, "stop")
    session.world.hints.clear()
    return Case(session, completes("do", "check.true", "judge"))


def doer_failed(bench: Bench) -> Case:
    return Case(loop(bench).run({"do": BROKEN}), completes("do", "check.true", "judge"))


def doer_tampered(resumed: str) -> Callable[[Bench], Case]:
    cheat = failure(ReasonCode.TAMPERED, "a test was changed")
    cheat = cheat.model_copy(update={"word": "succeeded", "verdict": "terminate"})

    def make(bench: Bench) -> Case:
        def holds(then: Driven) -> None:
            assert then.engine.store.fields(then.ref)["resumed"] == resumed
            completes("do", "check.true", "judge")(then)

        return Case(loop(bench).run({"do": cheat}), holds)

    return make


def checker_refused_for_good(bench: Bench) -> Case:
    ended = loop(bench, "lint", "tests").run({"check.tests": TERMINATE})
    return Case(ended, completes("do", "check.lint", "check.tests", "judge"))


def checker_was_lost(bench: Bench) -> Case:
    lost = failure(ReasonCode.LOST, "its worker was lost 6 times")
    return Case(loop(bench).run({"check.true": lost}), completes("do", "check.true", "judge"))


def iterations_are_used_up(bench: Bench) -> Case:
    ended = loop(bench, max_iterations=1).run({"check.true": RETRY})
    return Case(ended, completes("do", "check.true", "judge"))


def budget_is_spent(name: str, limit: float) -> Callable[[Bench], Case]:
    def case(bench: Bench) -> Case:
        limits = {} if name == "wall_s" else {"stage_stops": 100, "stops": 100}
        phase = {"name": "p", "task": "t", "checkers": ["true"], "on_fail": "retry:5",
                 "max_iterations": 1, "baseline": False}  # fmt: skip
        document = {"name": "w", "doer": {"command": "true"}, "phases": [phase],
                    "budget": {**limits, name: limit}}  # fmt: skip
        world = World.of(bench)
        made = world.engine.submit.document(WorkflowDocument.model_validate(document))
        session = Driven(world, made.session)
        if name == "wall_s":
            world.later(6_000)
        used = Usage(cost_usd=1, input_tokens=7)
        doer = Outcome(word="succeeded", usage=used)
        session.run({"do": doer, "check.true": RETRY})
        assert session.status == "failed"
        world.hints.clear()

        def holds(then: Driven) -> None:
            assert then.run().status == "completed"

        return Case(session, holds)

    return case


def one_checker_refused(bench: Bench) -> Case:
    ended = loop(bench, "lint", "tests", max_iterations=1).run({"check.lint": RETRY})
    return Case(ended, completes("check.tests", "judge"))


def a_second_checker_refuses_too(bench: Bench) -> Case:
    ended = loop(bench, "lint", "tests", max_iterations=1).run(
        {"check.lint": RETRY, "check.tests": RETRY}
    )

    def holds(then: Driven) -> None:
        assert then.run({"check.tests": RETRY}).status == "failed"
        (last,) = then.engine.queries.result(then.id).history[-1:]
        checks = {check["name"]: check["verdict"] for check in last.checks}
        assert (last.verdict, checks) == ("retry", {"lint": None, "tests": "retry"})

    return Case(ended, holds, "loop~1[1]/check.lint")


def checker_of_several_phases_refused(bench: Bench) -> Case:
    world = World.of(bench)
    phases = [{"name": n, "task": "t", "checkers": ["lint", "tests"], "max_iterations": 1,
               "baseline": False}
              for n in ("one", "two")]  # fmt: skip
    document = {"name": "w", "doer": {"command": "true"}, "phases": phases}
    made = world.engine.submit.document(WorkflowDocument.model_validate(document))
    ended = Driven(world, made.session).run({"check.lint": RETRY})
    steps = ("check.tests", "judge", "do", "check.lint", "check.tests", "judge")
    return Case(ended, completes(*steps))


def tool_is_missing(near: str | None) -> Callable[[Bench], Case]:
    def case(bench: Bench) -> Case:
        text = "ToolNotFound: tool 'papers:searched' is not known here; known are"
        world = failed_graph(bench, failure(ReasonCode.FAILED_STEP, text))
        if near is not None:
            publish_tool(world.world, near)
        return Case(Driven(world.world, world.id), completes("a", "b"))

    return case


def step_failed(code: ReasonCode) -> Callable[[Bench], Case]:
    def case(bench: Bench) -> Case:
        world = failed_graph(bench, failure(code, "something went wrong"))
        return Case(Driven(world.world, world.id), completes("a", "b"))

    return case


def step_of_a_loop_failed(bench: Bench) -> Case:
    return Case(loop(bench).run({"do": BROKEN}), completes("do", "check.true", "judge"))


UNFIT = failure(ReasonCode.FAILED_STEP, "tool 'echo': argument 'n': it is \"x\"; it is odd")


def value_of_a_step_is_unfit(bench: Bench) -> Case:
    make = {"name": "make", "tool": "papers:search"}
    use = {"name": "use", "arguments": {"n": "${make.text}"}}
    made = Outcome(word="succeeded", value={"text": "x"})
    ended = graph(bench, make, use).run({"make": made, "use": UNFIT})
    return Case(ended, completes("make", "use", acts={"make": made}))


def value_of_an_input_is_unfit(bench: Bench) -> Case:
    use = {"name": "use", "arguments": {"n": "${inputs.size}"}}
    ended = graph(bench, use, inputs={"size": "x"}).run({"use": UNFIT})
    return Case(ended, completes("use"))


def item_failed(bench: Bench) -> Case:
    each = {"name": "each", "for_each": [1, 2], "arguments": {"n": "${item}"}}
    session = graph(bench, each, {"name": "last", "depends_on": ["each"]})
    (first, second) = (session.world.grant(session.ref, f"each~1#{n}") for n in (1, 2))
    session.world.settle(session.ref, first)
    session.world.settle(session.ref, second, BROKEN)
    session.world.hints.clear()
    return Case(session, completes("last"))


def step_of_a_graph_failed(bench: Bench) -> Case:
    return Case(graph(bench, {"name": "a"}, {"name": "b", "depends_on": ["a"]}).run({"a": BROKEN}),
                completes("b"))  # fmt: skip


def step_of_a_flow_loop_failed(bench: Bench) -> Case:
    world = World.of(bench)
    tool = {"type": "tool", "tool": "papers:search", "arguments": {}}
    leave = {"type": "break", "command": "true", "breakOn": "yes"}
    inner = {"type": "startLoop", "maxIterations": 2, "steps": [{**tool, "label": "look"}, leave]}
    session = Driven(world, world.engine.submit.document(flow(inner)).session)
    session.run({"look": BROKEN})
    (breaks,) = (step.id for _, step in _program(session).walk()
                 if isinstance(step, Step) and step.action is Action.BREAK)  # fmt: skip
    return Case(session, completes(breaks))


def _program(session: Driven) -> Any:
    return session.engine.registry.program(session.engine.store.fields(session.ref)["program"])


def doer_of_a_loop_is_skipped(bench: Bench) -> Case:
    return Case(loop(bench).run({"do": BROKEN}), completes("check.true", "judge"))


def ended_for_good(verb: Any) -> Callable[[Bench], Case]:
    def case(bench: Bench) -> Case:
        session = loop(bench)
        session.engine.control.apply(session.id, verb, reason="it is wrong")
        return Case(session, begins)

    return case


def no_progress(bench: Bench) -> Case:
    session = loop(bench, max_iterations=9, no_progress=1)
    same = Outcome(word="succeeded", digest="git:1")
    session.run({"do": same, "check.true": RETRY})
    return Case(session, begins)


CASES: dict[str, tuple[Why, Callable[[Bench], Case]]] = {
    "a stopped session": (Why.CONTINUES, is_stopped),
    "a failed doer": (Why.FAILED_RUNS_AGAIN, doer_failed),
    "protected files": (Why.FILES_PUT_BACK, doer_tampered("compare")),
    "protected files of a person": (Why.FILES_TAKEN, doer_tampered("accept")),
    "a checker that terminates": (Why.FAILED_RUNS_AGAIN, checker_refused_for_good),
    "a lost checker": (Why.FAILED_RUNS_AGAIN, checker_was_lost),
    "the iterations of a loop": (Why.LIMIT_RAISED, iterations_are_used_up),
    "cost": (Why.LIMIT_RAISED, budget_is_spent("cost_usd", 1)),
    "tokens": (Why.LIMIT_RAISED, budget_is_spent("tokens", 7)),
    "steps": (Why.LIMIT_RAISED, budget_is_spent("steps", 3)),
    "iterations": (Why.LIMIT_RAISED, budget_is_spent("iterations", 1)),
    "time": (Why.LIMIT_RAISED, budget_is_spent("wall_s", 5)),
    "stops of a stage": (Why.LIMIT_RAISED, budget_is_spent("stage_stops", 1)),
    "stops": (Why.LIMIT_RAISED, budget_is_spent("stops", 1)),
    "one of two checkers": (Why.OTHERS_DECIDE, one_checker_refused),
    "both checkers": (Why.OTHERS_DECIDE, a_second_checker_refuses_too),
    "a checker of a phase": (Why.OTHERS_DECIDE, checker_of_several_phases_refused),
    "a tool with another name": (Why.OTHER_TOOL, tool_is_missing("papers:search")),
    "a tool of no worker": (Why.WITH_ITS_TOOL, tool_is_missing(None)),
    "a failed step": (Why.RUNS_AGAIN, step_failed(ReasonCode.FAILED_STEP)),
    "a failed step of a loop": (Why.RUNS_AGAIN, step_of_a_loop_failed),
    "a step that took too long": (Why.WHOLE_TIME, step_failed(ReasonCode.TIMEOUT)),
    "a lost step": (Why.OTHER_WORKER, step_failed(ReasonCode.LOST)),
    "an answer that cannot be read": (Why.ANSWERS_AGAIN, step_failed(ReasonCode.INVALID_ANSWER)),
    "a question that was declined": (Why.ASKED_AGAIN, step_failed(ReasonCode.DECLINED)),
    "a value of a step": (Why.VALUE_MADE_AGAIN, value_of_a_step_is_unfit),
    "a value of an input": (Why.OTHER_INPUT, value_of_an_input_is_unfit),
    "an item": (Why.WITHOUT_ITEM, item_failed),
    "a step of a graph": (Why.WITHOUT_STEP, step_of_a_graph_failed),
    "a step of a flow's loop": (Why.WITHOUT_STEP, step_of_a_flow_loop_failed),
    "the doer of a loop": (Why.WITHOUT_STEP, doer_of_a_loop_is_skipped),
    "work refused for good": (Why.REFUSED_FOR_GOOD, lambda bench: Case(
        loop(bench).run({"check.true": TERMINATE}), begins)),
    "work that stays the same": (Why.REFUSED_FOR_GOOD, no_progress),
    "an exit": (Why.ENDED_FOR_GOOD, ended_for_good("exit")),
    "an abort": (Why.ENDED_FOR_GOOD, ended_for_good("abort")),
}  # fmt: skip


def is_meant(action: SuggestedAction, why: Why) -> bool:
    """Whether it is of this kind: the text may have a name in it."""
    before, _, after = why.partition("{")
    return action.why.startswith(before) and action.why.endswith(after.partition("}")[2])


@pytest.mark.parametrize("name", CASES)
def test_suggestion_has_the_effect_that_it_names(bench: Bench, name: str) -> None:
    why, make = CASES[name]
    case = make(bench)
    actions = suggested(case.session.engine, case.session.id)
    meant = [one for one in actions if is_meant(one, why) and case.address in (None, one.address)]
    assert meant, [(one.why, one.address) for one in actions]
    case.session.world.hints.clear()
    case.holds(case.session.after(meant[0]))


def test_each_kind_of_suggestion_is_carried_out_here() -> None:
    assert {why for why, _ in CASES.values()} == {*Why} - {Why.FOLDER_MADE_AGAIN}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_session_whose_worktree_is_gone_continues_in_a_new_one(
    store_url: str, tmp_path: Path
) -> None:
    world = World(store_url, worktrees=tmp_path / "state")
    book = AgentBook.load([])
    attempts = Attempts(
        world.engine, worker="w", agents=lambda: book, heart=Heartbeats(world.engine)
    )
    repo = make_repository(tmp_path / "repo")
    document = LoopDocument.model_validate({
        "task": "Do it", "doer": {"command": "pwd > where"}, "worktree": True, "cwd": str(repo),
        "checkers": [{"command": f"test -e {tmp_path}/good"}], "max_iterations": 1,
    })  # fmt: skip
    session = world.engine.submit.document(document, free=True).session

    def run() -> str:
        while world.hints:
            ref, address = world.hints.pop(0)
            world.hints += [(ref, hint.address) for hint in attempts(ref, address) or ()]
        return world.engine.queries.session(session).status

    assert run() == "failed"
    (tmp_path / "good").touch()
    folder = Path(world.engine.queries.session(session).cwd or "")
    shutil.rmtree(folder)
    world.engine.control.apply(session, "resume", max_iterations=2)
    assert run() == "failed"
    view = world.engine.explainer.explain(session)
    assert view.text.startswith("the worktree")
    assert [(one.verb, one.address, one.why) for one in view.actions] == [
        ("retry", "workspace", Why.FOLDER_MADE_AGAIN),
    ]  # fmt: skip
    assert not any(line.startswith("leadhand resume") for line in view.next)
    carry_out(world.engine, view.actions[0])
    assert run() == "completed"
    assert git(repo, "show", f"leadhand/{session}:where") == str(folder)
    attempts.close()


def test_work_is_accepted_on_the_word_of_the_person_who_skips_all_checkers(bench: Bench) -> None:
    session = loop(bench, "lint", "tests", max_iterations=1).run({"check.lint": RETRY})
    skip = session.engine.skips.skip
    skip(session.id, "loop~1[1]/check.lint", author="token ada (t1)", reason="it is wrong")
    skip(session.id, "loop~2[1]/check.tests", author="token bob (t2)")
    session.called = []
    assert session.run().status == "completed"
    (entry,) = session.engine.queries.result(session.id).history[-1:]
    said = (
        "no checker judged the work: 'lint' was skipped by token ada (t1): it is wrong;"
        " 'tests' was skipped by token bob (t2)"
    )
    assert (entry.verdict, entry.decided_by, entry.feedback) == ("accept", "user_skip", said)
    assert entry.reason is not None
    assert (entry.reason.code, entry.reason.text) == ("user_skip", said)
    assert [check["decided_by"] for check in entry.checks] == ["user_skip", "user_skip"]
    assert session.engine.queries.session(session.id).warnings == [said]
