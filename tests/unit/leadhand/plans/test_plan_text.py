"""How plans, drafts, proposals and results are shown."""

from __future__ import annotations

from leadhand.cli.render.plan_text import (
    draft_lines,
    numbered_task,
    plan_lines,
    plan_summary,
    proposal_lines,
)
from leadhand.cli.render.times import clock_time
from leadhand.models.verdicts import Reason
from leadhand.models.views.plan import PlanView, ProposalView, TaskRun, TaskView
from leadhand.models.views.result import ResultView

S = "1a2b3c4d"
AT = clock_time("2026-11-22T12:00:00+00:00")


def task(id_: str, status: str = "pending", **more: object) -> TaskView:
    return TaskView.model_validate({"id": id_, "title": f"Do {id_}", "status": status, **more})


def plan(*tasks: TaskView, state: str = "executing", **more: object) -> PlanView:
    fields = {"session": S, "state": state, "version": 4, "request": "Build\nit.", **more}
    return PlanView.model_validate({**fields, "tasks": list(tasks)})


def test_plan_shows_each_task_with_what_came_of_it() -> None:
    failed = Reason(code="contested", text="it reported completed", beneath=None)
    runs = [TaskRun(run=1, session="00000001"), TaskRun(run=2, session="00000002")]
    shown = plan(
        task("a", "completed", verified=True, session="0000000a", run=1, branch="leadhand/a",
             pr_url="https://example.org/1", notes="all\x1b[31m done"),
        task("b", "completed", session="0000000b", run=1, dependencies=["a"]),
        task("c", "failed", session="00000002", run=2, runs=runs, reason=failed),
        progress={"completed": 2, "failed": 1, "verified": 1},
    )  # fmt: skip
    assert list(plan_lines(shown)) == [
        f"plan of session {S}: executing, version 4",
        "request: Build it.",
        "3 tasks: 2 completed, 1 failed; 1 verified",
        "TASK  STATUS                 SESSION   AFTER  TITLE",
        "a     completed, verified    0000000a  -      Do a",
        "  pull request: https://example.org/1",
        "  branch: leadhand/a",
        "  notes: all done",
        "b     completed, unverified  0000000b  a      Do b",
        "c     failed                 00000002  -      Do c",
        "  why: it reported completed",
        "  run 2, after 00000001",
        f"try a failed task again with: leadhand plan retry {S} c",
    ]


def test_plan_without_a_draft_says_so() -> None:
    assert list(plan_lines(plan(state="planning")))[-1] == (
        "no tasks yet: the team lead has drafted none"
    )


def test_draft_numbers_its_tasks_and_cuts_long_descriptions() -> None:
    shown = plan(
        task("a", description="\n".join(map(str, range(9)))),
        task("b", dependencies=["a"], agent="codex", checkers=["lint"], priority=0),
        state="refining",
        deadline="2026-11-22T12:00:00+00:00",
        on_deadline="stop",
    )
    lines = list(draft_lines(shown))
    assert lines[1] == "  1. a: Do a"
    assert lines[7:10] == [
        "     5",
        "     … 3 more lines",
        "  2. b: Do b",
    ]
    assert lines[10] == "     after a; agent codex; checkers lint; priority 0"
    assert lines[11] == (f"without an approval until {AT} the plan stops, and can be resumed")


def test_task_is_named_by_number_or_id() -> None:
    shown = plan(task("a"), task("2"), task("c"))
    assert [numbered_task(shown, given) for given in ("a", "1", "2", "3", "4", "0", "x")] == [
        "a", "a", "2", "c", None, None, None,
    ]  # fmt: skip


def test_proposals_show_how_to_decide_while_they_are_open() -> None:
    first = ProposalView(
        id="p1", task=task("more", description="x"), why="it is missing", by="0000000a",
        at="2026-11-22T12:00:00+00:00", status="open",
    )  # fmt: skip
    second = first.model_copy(update={"id": "p2", "status": "refused", "decided_by": "ann"})
    shown = plan(task("a"), proposals=[first, second])
    assert list(proposal_lines(shown, every=False)) == [
        f"p1  open  proposed by session 0000000a at {AT}",
        "  more: Do more",
        "  x",
        "  why: it is missing",
        f"  accept it with: leadhand plan accept {S} p1",
        f"  refuse it with: leadhand plan refuse {S} p1",
    ]
    both = list(proposal_lines(shown, every=True))
    assert f"p2  refused by ann  proposed by session 0000000a at {AT}" in both
    assert list(proposal_lines(plan(), every=False)) == ["no open proposals"]
    assert f"there are proposals to decide: leadhand plan proposals {S}" in list(plan_lines(shown))


def test_edit_of_the_team_lead_is_shown_by_its_operations() -> None:
    edit = ProposalView.model_validate({
        "id": "p1", "about": "a", "by": "0000000a", "at": "2026-11-22T12:00:00+00:00",
        "status": "open", "operations": [
            {"op": "add", "task": {"id": "more", "title": "Do \x1b[31mmore"}},
            {"op": "change", "id": "a", "dependencies": ["more"], "agent": None},
            {"op": "retry", "id": "a"},
        ],
    })  # fmt: skip
    assert list(proposal_lines(plan(proposals=[edit]), every=False))[1:5] == [
        "  the team lead, after task a failed:",
        "  - add more: Do more",
        "  - change a: dependencies more; agent the plan's",
        "  - retry a",
    ]


def test_task_shows_what_came_of_asking_the_team_lead() -> None:
    def line(**replan: object) -> str:
        shown = plan(task("a", "failed", replan={"run": 1, **replan}))
        return next(text for text in plan_lines(shown) if "team lead" in text).strip()

    assert line(state="asked") == "the team lead is asked for another way"
    proposed = line(state="proposed", session="0000000a", proposal="p1")
    assert proposed == "the team lead proposed p1 (session 0000000a)"
    assert line(state="none", why="no model") == "the team lead proposed nothing: no model"


def test_summary_says_why_a_plan_failed_and_how_to_go_on() -> None:
    result = ResultView(
        session_id=S, kind="plan", status="failed", verdict="terminate", iterations=1,
        reason=Reason(code="failed_step", text="no task was accepted", beneath=None),
        warnings=["task a failed: no way"],
    )  # fmt: skip
    lines = list(plan_summary(result, plan(task("a", "failed"), state="ended")))
    assert lines[0] == f"session {S}: failed: no task was accepted"
    assert lines[1] == "warning: task a failed: no way"
    assert lines[-1] == f"continue with: leadhand resume {S}"
