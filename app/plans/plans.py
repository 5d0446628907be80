"""Plans as people and child sessions change them, until the work is brought home.

All functions raise SessionUnknown and NoPlan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath

from pydantic import JsonValue

from app.compiler.merges import apply_program, diff_program
from app.compiler.workflow import check_names
from app.context import Context
from app.core.addresses import SessionRef
from app.core.environment import SessionEnvironment
from app.core.folders import Survey
from app.core.outcomes import Outcome
from app.core.program import Program
from app.core.records import Reply
from app.core.states import ENDED
from app.plans.edits import edit_arguments, read_survey
from app.plans.tasks import PlanRecord, parse_link, parse_plan, record_of
from app.plans.view import StoredPlan, merge_view, plan_view, read_plan
from app.programs import Facts
from app.redaction import without_keys
from app.security.signatures import Caller
from app.sessions.context import SessionContext
from app.sessions.inbox import report_to_parent
from app.sessions.submit import About, digest_of
from leadhand.errors import (
    AnswerUnwanted,
    IdempotencyConflict,
    NoPlan,
    PlanChanged,
    PlanRefused,
    ReportLate,
)
from leadhand.models.plans import PlanEdit, TaskReport, check_checkers
from leadhand.models.views.plan import HomeView, MergeView, PlanView, ReportView, TaskView

_HEADS = "refs/heads/"


def show(engine: Context, session: str) -> PlanView:
    """Return the current plan of a session. Raises NoPlan if the session is no plan."""
    return plan_view(_read_plan(engine, session))


def edit(
    engine: Context, session: str, given: PlanEdit, *, version: int | None, by: str
) -> PlanView:
    """Apply all of these edits to a plan, or none. Raises PlanChanged, PlanRefused."""
    plan = _read_plan(engine, session)
    names = check_names(plan.document.checkers)
    operations = edit_arguments(session, given.operations, names)
    return _apply_edit(engine, plan, operations, version=version, by=by)


def decide(
    engine: Context,
    session: str,
    proposal: str,
    *,
    accept: bool,
    by: str,
    version: int | None = None,
) -> PlanView:
    """Accept or refuse a proposed task or edit. Raises PlanChanged, PlanRefused."""
    operation: JsonValue = {"op": "decide", "proposal": proposal, "accept": accept}
    plan = _read_plan(engine, session)
    try:
        return _apply_edit(engine, plan, [operation], version=version, by=by)
    except PlanRefused as error:
        if error.what == proposal:  # no task has this id
            raise PlanRefused(session, "", f"proposal {proposal!r}: {error.why}") from None
        raise


def approve(
    engine: SessionContext, session: str, *, by: str, version: int | None = None
) -> PlanView:
    """Approve the draft, so that its tasks start. Raises PlanChanged, AnswerUnwanted."""
    _answer(engine, session, "approve", accept=True, by=by, version=version)
    return show(engine, session)


def reject(engine: SessionContext, session: str, text: str, *, by: str) -> PlanView:
    """Reject a plan's draft, so that the team lead writes another. Raises AnswerUnwanted."""
    _answer(engine, session, text, accept=False, by=by)
    return show(engine, session)


def report(
    engine: SessionContext,
    child: str,
    given: TaskReport,
    *,
    by: Caller | None = None,
    idempotency_key: str | None = None,
) -> ReportView:
    """Store a child session's report about its task (status, notes, proposals) in its plan.

    If its parent is no plan, the report is a message in the parent's inbox. A repeated call
    with the same key changes nothing. Raises NoPlan, ReportLate, IdempotencyConflict, and as
    `append_message`.
    """
    facts = engine.registry.facts(engine.registry.ref(child))
    if facts.parent is not None and not given.proposals and not _has_task(engine, child):
        return report_to_parent(engine, child, given, by=by, key=idempotency_key)
    ref, parent = _link_of(engine, child)
    if given.proposals:
        _check_proposals(engine, child, parent["session"], given)
    link = parse_link(parent["task"])
    arguments: dict[str, JsonValue] = {
        "task": link.task,
        "run": link.run,
        "child": child,
        "status": given.status,
        "pr_url": given.pr_url,
        "notes": None if given.notes is None else without_keys(given.notes),
        "digest": digest_of(given.model_dump_json()),
    }
    if idempotency_key is not None:
        arguments["key"] = digest_of(f"{child} {idempotency_key}")
    if given.proposals:
        arguments["proposals"] = [
            {"task": record_of(one.task), "why": one.why} for one in given.proposals
        ]
    answer = engine.transitions.apply("plan_report", ref, arguments)
    if answer.word == "late":
        raise ReportLate(child, str(answer.state))
    if answer.word == "conflict":
        raise IdempotencyConflict(str(idempotency_key))
    if answer.word == "no_plan":
        raise NoPlan(child, "its plan has no such task any more")
    return ReportView(
        session=ref.id, task=link.task, status=given.status, version=answer.version or 0,
        repeated=answer.word == "repeated",
    )  # fmt: skip


def _check_proposals(engine: Context, child: str, session: str, report: TaskReport) -> None:
    """Raises PlanRefused if a proposed task names a checker that the plan does not have."""
    names = check_names(_read_plan(engine, session).document.checkers)
    for one in report.proposals:
        try:
            check_checkers(one.task.id, one.task.checkers, names)
        except ValueError as error:
            raise PlanRefused(child, one.task.id, str(error)) from None


def read_task(engine: Context, child: str) -> TaskView:
    """Return the plan's task that a child session carries out. Raises NoPlan without one."""
    _, parent = _link_of(engine, child)
    task = parse_link(parent["task"]).task
    tasks = show(engine, parent["session"]).tasks
    found = next((one for one in tasks if one.id == task), None)
    if found is None:
        raise NoPlan(child, "its plan has no such task any more")
    return found


def _has_task(engine: Context, child: str) -> bool:
    parent = engine.store.fields(engine.registry.ref(child)).get("parent")
    return "task" in json.loads(parent or "{}")


def _link_of(engine: Context, child: str) -> tuple[SessionRef, Mapping[str, str]]:
    """The session whose plan a child belongs to, and the child's link to it."""
    ref = engine.registry.ref(child)
    parent: Mapping[str, str] = json.loads(engine.store.fields(ref).get("parent") or "{}")
    if "task" not in parent:
        raise NoPlan(child, "it carries out no task of a plan")
    return SessionRef(parent["session"], ref.root), parent


def _read_plan(engine: Context, session: str) -> StoredPlan:
    ref = engine.registry.ref(session)
    fields = engine.store.fields(ref)
    if fields.get("kind") != "plan":
        raise NoPlan(session, f"it is a {fields.get('kind')}; plans are of kind plan")
    program = engine.registry.program(fields["program"])
    return read_plan(engine.store, ref, fields, program)


def _apply_edit(
    engine: Context, plan: StoredPlan, operations: list[JsonValue], *, version: int | None, by: str
) -> PlanView:
    session = plan.ref.id
    if plan.record is None:
        raise NoPlan(session, "its team lead has not drafted one yet")
    if plan.record.state == "refining" and plan.refine is None and not plan.is_approved:
        why = "its team lead is changing the draft; edit the next one"
        raise PlanRefused(session, "", why)
    arguments: dict[str, JsonValue] = {"operations": operations, "by": by, "version": version}
    answer = engine.transitions.apply("plan_edit", plan.ref, arguments)
    match answer.word:
        case "edited":
            return show(engine, session)
        case "stale":
            raise PlanChanged(session, answer.version or 0)
        case "refused":
            raise _refusal(session, answer)
        case "ended":
            why = f"the session is {answer.status}"
            raise PlanRefused(session, "", why)
        case _:
            raise NoPlan(session, "its team lead has not drafted one yet")


def _answer(
    engine: SessionContext,
    session: str,
    text: str,
    *,
    accept: bool,
    by: str,
    version: int | None = None,
) -> None:
    plan = _read_plan(engine, session)
    if plan.refine is None:
        state = plan.record.state if plan.record is not None else "being drafted"
        raise AnswerUnwanted(session, f"nothing waits for approval; the plan is {state}")
    address, record = plan.refine
    outcome = Outcome(word="succeeded", text=text, verdict="accept" if accept else "retry")
    answer = engine.answers.settle(
        plan.ref, address, outcome, fence=record.fence, by=by, plan_version=version
    )
    if answer.word == "stale":
        raise PlanChanged(session, answer.version or 0)
    if answer.word != "settled":
        why = f"another answer came first, by {answer.by}" if answer.by else "it waits no more"
        raise AnswerUnwanted(session, why)


def _refusal(session: str, answer: Reply) -> PlanRefused:
    return PlanRefused(session, answer.text or "", str(answer.why), answer.number)


def list_merges(engine: Context, session: str) -> list[MergeView]:
    """Return a view of each merge of a plan's tasks, in the order of the plan."""
    _, _, plan = _read_record(engine, session)
    return [merge_view(one) for one in plan.tasks if one.merge is not None] if plan else []


def apply_work(
    engine: SessionContext,
    session: str,
    branch: str = "",
    environment: SessionEnvironment | None = None,
) -> HomeView:
    """Start a session that fast-forwards a user's branch to the plan's merged work.

    The files that it writes have the modes of the caller's `environment`. Raises PlanRefused
    for a plan that has no branch.
    """
    ref, facts, _ = _read_record(engine, session)
    survey = _read_survey(engine, ref)
    program = apply_program(session, facts.cwd or "", _source_of(survey), branch)
    # Once the plan has ended nothing holds its folder: wait for others that work there.
    is_free = facts.cwd and engine.store.fields(ref).get("status") in ENDED
    folder = facts.cwd if is_free else None
    label = f"Apply plan {session}"
    return _start_session(engine, ref, program, survey, label, folder, environment)


def compare_work(
    engine: SessionContext, session: str, task: str | None, *, unmerged: bool
) -> HomeView:
    """Start a session that computes the diff of a task, the plan, or its unmerged work.

    Each is compared with the commit that it has in common with the branch that is to get it.
    """
    ref, facts, plan = _read_record(engine, session)
    survey = _read_survey(engine, ref)
    tasks = plan.tasks if plan is not None else ()
    if task is not None and not any(one.id == task for one in tasks):
        raise PlanRefused(session, task, "the plan has no such task")
    chosen = [one for one in tasks if one.branch and task in (None, one.id)]
    pairs = [(survey.home, _HEADS + _source_of(survey))]
    if unmerged or task is not None:
        pairs = [
            # The target has merged work itself: that is compared with where it started.
            (one.base if one.merged and one.base else survey.target, f"{_HEADS}{one.branch}")
            for one in chosen
            if not (unmerged and one.merged)
        ]
    program = diff_program(facts.cwd or "", pairs)
    return _start_session(engine, ref, program, survey, f"Diff of plan {session}")


def _start_session(
    engine: SessionContext,
    ref: SessionRef,
    program: Program,
    survey: Survey,
    label: str,
    folder: str | None = None,
    environment: SessionEnvironment | None = None,
) -> HomeView:
    facts = engine.registry.facts(ref)
    own = folder or str(PurePosixPath(survey.shelf, ".home"))
    about = About(
        kind="workflow", name=program.name, label=label, cwd=own, folder=own,
        listed_in=facts.cwd or "", place=facts.place,
    )  # fmt: skip
    started = engine.submit.program(program, about, environment=environment)
    return HomeView(session=started.session, source=_source_of(survey))


def _source_of(survey: Survey) -> str:
    return survey.target.removeprefix(_HEADS)


def _read_survey(engine: Context, ref: SessionRef) -> Survey:
    survey = read_survey(engine.store, ref)
    if survey is None or not survey.merge:
        raise PlanRefused(ref.id, "", "it merges nothing: it has no branch of its own")
    return survey


def _read_record(engine: Context, session: str) -> tuple[SessionRef, Facts, PlanRecord | None]:
    ref = engine.registry.ref(session)
    facts = engine.registry.facts(ref)
    if facts.kind != "plan":
        raise NoPlan(session, f"it is a {facts.kind}; plans are of kind plan")
    return ref, facts, parse_plan(engine.store.plan(ref))
