"""Formats plans, drafts and proposals as text (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from leadhand.cli.render.tables import plural, table
from leadhand.cli.render.times import clock_time
from leadhand.models.text import block, plain, plain_ends, reason_text
from leadhand.models.views.plan import MergeView, PlanView, ProposalView, TaskView
from leadhand.models.views.result import ResultView

#: The most lines of a description in a draft.
_LINES = 6
_STATUSES = ("completed", "in_progress", "pending", "blocked", "failed")


def status_text(task: TaskView) -> str:
    """Returns a task's status, for a completed one with whether it is verified.

    >>> status_text(TaskView(id="a", title="A", status="completed", verified=True))
    'completed, verified'
    >>> status_text(TaskView(id="a", title="A", status="completed"))
    'completed, unverified'
    """
    if task.status != "completed":
        return task.status
    return "completed, verified" if task.verified else "completed, unverified"


def plan_lines(plan: PlanView) -> Iterator[str]:
    """Formats a plan: its state, and each task with its status and result."""
    yield f"plan of session {plan.session}: {plan.state}, version {plan.version}"
    yield f"request: {plain(plan.request)}"
    if not plan.tasks:
        yield "no tasks yet: the team lead has drafted none"
        return
    yield _progress(plan)
    if plan.state == "refining":
        yield from _deadline(plan)
    head = ["TASK", "STATUS", "SESSION", "AFTER", "TITLE"]
    rows = [
        [task.id, status_text(task), task.session or "-", ", ".join(task.dependencies) or "-",
         task.title]
        for task in plan.tasks
    ]  # fmt: skip
    first, *lines = table(head, rows)
    yield first
    for task, line in zip(plan.tasks, lines, strict=True):
        yield line
        yield from (f"  {text}" for text in _results(task))
    yield from _hints(plan)


def draft_lines(plan: PlanView) -> Iterator[str]:
    """Formats a plan's draft for a person: its numbered tasks."""
    yield f"draft of session {plan.session}, version {plan.version}: {plain(plan.request)}"
    for number, task in enumerate(plan.tasks, start=1):
        yield f"{number:>3}. {task.id}: {plain(task.title)}"
        facts = list(_facts(task))
        if facts:
            yield f"     {'; '.join(facts)}"
        lines = list(block(task.description, indent="     "))
        yield from lines[:_LINES]
        if len(lines) > _LINES:
            yield f"     … {plural(len(lines) - _LINES, 'more line')}"
    yield from block(plan.question or "", indent="")
    yield from _deadline(plan)


def plan_summary(result: ResultView, plan: PlanView) -> Iterator[str]:
    """Formats a plan's result as lines: its status, its tasks, and commands to run next."""
    why = plain(result.exit_reason)
    if not why and result.status != "completed" and result.reason is not None:
        why = reason_text(result.reason.model_dump())
    yield f"session {result.session_id}: {result.status}" + (f": {why}" if why else "")
    for warning in result.warnings:
        yield f"warning: {plain(warning, most=400)}"
    yield from plan_lines(plan)
    if result.status in ("failed", "stopped"):
        yield f"continue with: leadhand resume {result.session_id}"


def proposal_lines(plan: PlanView, *, every: bool) -> Iterator[str]:
    """Formats the proposals of child sessions: the open ones, or all."""
    found = [one for one in plan.proposals if every or one.status == "open"]
    for one in found:
        yield from _proposal(plan.session, one)
    if not found:
        yield "no open proposals" if not every else "no proposals"


def _proposal(session: str, one: ProposalView) -> Iterator[str]:
    by = f" by {plain(one.decided_by)}" if one.decided_by else ""
    yield f"{one.id}  {one.status}{by}  proposed by session {one.by} at {clock_time(one.at)}"
    if one.task is not None:
        yield f"  {one.task.id}: {plain(one.task.title)}"
        for fact in _facts(one.task):
            yield f"  {fact}"
        yield from block(one.task.description, indent="  ")
    yield from edit_lines(one)
    if one.why:
        yield f"  why: {plain(one.why, most=400)}"
    if one.note:
        yield f"  note: {plain(one.note, most=400)}"
    if one.status == "open":
        if one.until is not None:
            yield f"  refused without a decision: {clock_time(one.until)}"
        yield f"  accept it with: leadhand plan accept {session} {one.id}"
        yield f"  refuse it with: leadhand plan refuse {session} {one.id}"


def _progress(plan: PlanView) -> str:
    counts = [f"{plan.progress[name]} {name}" for name in _STATUSES if plan.progress.get(name)]
    verified = plan.progress.get("verified", 0)
    return f"{plural(len(plan.tasks), 'task')}: {', '.join(counts)}; {verified} verified"


def _deadline(plan: PlanView) -> Iterator[str]:
    if plan.deadline is not None:
        then = "starts as it is" if plan.on_deadline == "approve" else "stops, and can be resumed"
        yield f"without an approval until {clock_time(plan.deadline)} the plan {then}"


def _facts(task: TaskView) -> Iterator[str]:
    """The settings of a task that differ from the plan's."""
    if task.dependencies:
        yield f"after {', '.join(task.dependencies)}"
    if task.agent is not None:
        yield f"agent {plain(task.agent)}"
    if task.model is not None:
        yield f"model {plain(task.model)}"
    if task.checkers is not None:
        yield f"checkers {plain(', '.join(task.checkers))}"
    if task.file_scope:
        yield f"files {plain(', '.join(task.file_scope))}"
    if task.priority != TaskView.model_fields["priority"].default:
        yield f"priority {task.priority}"


def _results(task: TaskView) -> Iterator[str]:
    """The result of a task."""
    if task.reason is not None and task.status in ("failed", "blocked"):
        yield f"why: {reason_text(task.reason.model_dump())}"
    if task.run > 1:
        before = ", ".join(run.session for run in task.runs[:-1])
        yield f"run {task.run}" + (f", after {before}" if before else "")
    yield from replan_lines(task)
    if task.pr_url:
        yield f"pull request: {plain(task.pr_url)}"
    if task.branch:
        yield f"branch: {plain(task.branch)}" + (f", from {task.base[:12]}" if task.base else "")
    if task.merge is not None:
        yield _merge_line(task.merge)
    if task.folder:
        yield f"folder: {plain(task.folder)}"
    if task.notes:
        yield f"notes: {plain_ends(task.notes, most=400)}"


def _merge_line(merge: MergeView) -> str:
    by = f" (session {merge.session})" if merge.session else ""
    if merge.state == "merged" and merge.commit is not None:
        return f"merged: {merge.commit[:12]} in {plain(merge.into or '')}{by}"
    return f"merge: {'in progress' if merge.state == 'merging' else merge.state}{by}"


def _hints(plan: PlanView) -> Iterator[str]:
    if plan.state == "refining":
        yield f"approve it with: leadhand plan approve {plan.session}"
        yield f"change it with: leadhand plan edit {plan.session}"
        yield f"or let the team lead change it: leadhand plan change {plan.session} TEXT"
    failed = [task.id for task in plan.tasks if task.status == "failed"]
    if failed and plan.state == "executing":
        yield f"try a failed task again with: leadhand plan retry {plan.session} {failed[0]}"
    if any(one.merge is not None and one.merge.state == "merged" for one in plan.tasks):
        yield f"bring the merged work to your branch with: leadhand plan apply {plan.session}"
    if any(one.status == "open" for one in plan.proposals):
        yield f"there are proposals to decide: leadhand plan proposals {plan.session}"


def changed_line(plan: PlanView, what: str) -> str:
    """Formats one line about a change of a plan, with its state and version."""
    return f"{what}; the plan of session {plan.session} is {plan.state}, version {plan.version}"


def numbered_task(plan: PlanView, given: str) -> str | None:
    """Returns the id of the task that a person names by id or number (from 1); None if unknown."""
    ids: Sequence[str] = [task.id for task in plan.tasks]
    if given in ids:
        return given
    if given.isdecimal() and 1 <= int(given) <= len(ids):
        return ids[int(given) - 1]
    return None


def replan_lines(task: TaskView) -> Iterator[str]:
    """Formats what the team lead proposed after a task failed; nothing if it was not asked."""
    replan = task.replan
    if replan is None:
        return
    by = f" (session {replan.session})" if replan.session else ""
    if replan.state == "asked":
        yield f"the team lead is asked for another way{by}"
    elif replan.state == "proposed":
        yield f"the team lead proposed {replan.proposal}{by}"
    else:
        yield f"the team lead proposed nothing{by}: {plain(replan.why, most=400)}"


def edit_lines(proposal: ProposalView) -> Iterator[str]:
    """Formats the edits that a team lead proposed, one per line."""
    if proposal.about is not None:
        yield f"  the team lead, after task {proposal.about} failed:"
    yield from (f"  - {_operation(one)}" for one in proposal.operations)


def _operation(operation: Mapping[str, JsonValue]) -> str:
    """An operation on a plan in one line.

    >>> _operation({"op": "change", "id": "a", "dependencies": ["b"], "title": "A"})
    'change a: dependencies b; title A'
    """
    task = operation.get("task")
    if isinstance(task, dict):
        return f"add {task.get('id')}: {plain(str(task.get('title')))}"
    given = [(name, one) for name, one in operation.items() if name not in ("op", "id")]
    fields = [f"{name} {plain(_field(one))}" for name, one in given]
    return f"{operation.get('op')} {operation.get('id')}" + (
        f": {'; '.join(fields)}" if fields else ""
    )


def _field(value: JsonValue) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "the plan's" if value is None else str(value)
