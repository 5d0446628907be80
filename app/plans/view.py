"""Builds the view of a plan from its session's records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.compiler.plan import EXECUTE, document_of
from app.compiler.workflow import check_names
from app.core.addresses import SessionRef, iso
from app.core.program import Action, Program
from app.core.records import StepRecord
from app.core.states import SessionStatus
from app.plans.tasks import (
    PlanRecord,
    ProposalRecord,
    ReplanRecord,
    TaskRecord,
    parse_plan,
    progress_of,
    statuses_of,
)
from app.redaction import without_secrets
from app.store.store import Store
from leadhand.models.plans import PlanDocument, PlannedTask
from leadhand.models.views.plan import (
    MergeView,
    PlanView,
    ProposalView,
    ReplanView,
    TaskRun,
    TaskView,
)
from leadhand.models.views.result import Spawned


class StoredPlan(NamedTuple):
    """A plan with what belongs to it."""

    ref: SessionRef
    document: PlanDocument
    record: PlanRecord | None
    version: int
    status: str
    #: The parked refine step and its address; None if it does not wait.
    refine: tuple[str, StepRecord] | None
    #: Whether the draft is approved, though the tasks may not have begun.
    is_approved: bool


def read_plan(
    store: Store, ref: SessionRef, fields: Mapping[str, str], program: Program
) -> StoredPlan:
    """Reads a plan session's stored plan, with its document, version, status and waiting review."""
    stored = store.plan(ref)
    return StoredPlan(
        ref,
        document_of(program),
        parse_plan(stored),
        int(stored.get("version", 0)),
        fields["status"],
        _refine(store, ref, program),
        bool(store.steps(ref, [EXECUTE])) or _is_answered(store, ref),
    )


def exported_plan(
    store: Store, ref: SessionRef, fields: Mapping[str, str], program: Program
) -> PlanView | None:
    """Returns the plan of a session for an export, redacted; None if it has no plan."""
    if fields.get("kind") != "plan":
        return None
    view = plan_view(read_plan(store, ref, fields, program))
    return PlanView.model_validate(without_secrets(view.model_dump(mode="json")))


def spawned_by(store: Store, ref: SessionRef) -> Spawned:
    """Returns what an ended plan has started for its tasks.

    The step that executes a plan has no outcome if the session was aborted or exited before.
    """
    stored = store.plan(ref)
    head = json.loads(stored.get("head") or "{}")
    address = str(head.get("address") or EXECUTE)
    found = store.values(ref, "out", [address]).get(address)
    value = json.loads(found).get("value") if found else None
    if not isinstance(value, dict):
        value = _started(parse_plan(stored))
    lists = {name: value[name] for name in Spawned.model_fields if name in value}
    return Spawned.model_validate(without_secrets(lists))


def _started(plan: PlanRecord | None) -> dict[str, JsonValue]:
    """The lists of a plan that has no result."""
    tasks = plan.tasks if plan is not None else ()
    failed = (one for one in tasks if one.state == "done" and not one.verified)
    return {
        "sessions": [
            {"id": one.id, "session": one.session, "run": one.run} for one in tasks if one.session
        ],
        "worktrees": [
            one.model_dump(include={"id", "folder", "branch", "base", "merged"})
            for one in tasks
            if one.folder
        ],
        "failed": [
            {
                "id": one.id,
                "reason": one.reason.text if one.reason else one.fact or "failed",
                "session": one.session,
            }
            for one in failed
        ],
    }


def _refine(store: Store, ref: SessionRef, program: Program) -> tuple[str, StepRecord] | None:
    parked = store.members(ref, "parked")
    for address, record in store.steps(ref, parked).items():
        step = program.step_or_none(address)
        if step is not None and step.action is Action.HUMAN and record.parked:
            return address, record
    return None


def _is_answered(store: Store, ref: SessionRef) -> bool:
    """Whether the draft is approved, and its folder is compared before the tasks begin."""
    live = store.steps(ref, store.members(ref, "live"))
    return any(record.given is not None for record in live.values())


def plan_view(plan: StoredPlan) -> PlanView:
    """Builds the API's view of a plan: state, version, tasks, progress and proposals."""
    record = plan.record
    tasks = record.tasks if record is not None else ()
    statuses = statuses_of(tasks)
    parked = (plan.refine[1].parked if plan.refine is not None else None) or {}
    until, question = parked.get("until_ms"), parked.get("question")
    return PlanView(
        session=plan.ref.id,
        state=_state(plan),
        version=plan.version,
        request=plan.document.request,
        tasks=[_task_view(task, statuses[task.id]) for task in tasks],
        progress=progress_of(statuses.values(), sum(task.verified for task in tasks)),
        proposals=[_proposal_view(one) for one in record.proposals] if record is not None else [],
        checkers=check_names(plan.document.checkers),
        question=question if isinstance(question, str) else None,
        deadline=iso(until) if isinstance(until, int) else None,
        on_deadline=plan.document.on_deadline if plan.refine else None,
    )


def _state(plan: StoredPlan) -> str:
    if plan.status in ("completed", "failed", "exited", "aborted"):
        return "ended"
    if plan.record is None:
        return "planning"
    if plan.record.state == "refining" and plan.refine is None:
        return "executing" if plan.is_approved else "planning"
    return plan.record.state


def _task_view(record: TaskRecord, status: str) -> TaskView:
    return _planned(record.task).model_copy(
        update={
            "status": status,
            "verified": record.verified,
            "reason": record.reason,
            "session": record.session,
            "run": record.run,
            "runs": [
                TaskRun(
                    run=one.run, session=one.session, ended=one.ended,
                    reason=one.reason,
                )
                for one in record.runs
            ],
            "pr_url": record.pr_url,
            "notes": record.notes or "",
            "branch": record.branch,
            "folder": record.folder,
            "base": record.base,
            "merge": merge_view(record) if record.merge is not None else None,
            "replan": _replan_view(record.replan) if record.replan is not None else None,
            "history": list(record.history),
        }
    )  # fmt: skip


def _replan_view(record: ReplanRecord) -> ReplanView:
    found = "proposed" if record.proposal else "none" if record.ended else "asked"
    return ReplanView(
        run=record.run,
        state=found,  # type: ignore[arg-type]  # one of its words
        session=record.session,
        proposal=record.proposal,
        why=record.why or "",
    )


def merge_view(record: TaskRecord) -> MergeView:
    """Builds the API's view of a plan task's merge: state, session, branch, commit and reason."""
    merge = record.merge
    assert merge is not None
    failed = merge.ended not in (None, SessionStatus.COMPLETED)
    state = "merged" if record.fact == "accepted" else "failed" if failed else "merging"
    return MergeView(
        task=record.id,
        run=merge.run,
        state=state,  # type: ignore[arg-type]  # one of its words
        session=merge.session,
        branch=record.branch,
        tip=record.tip,
        commit=record.merged,
        into=record.into,
        merged_at=iso(merge.at) if merge.at is not None else None,
        reason=record.reason if failed else None,
    )


def _planned(task: PlannedTask) -> TaskView:
    """A task as it was planned; nothing has come of it yet."""
    return TaskView(
        id=task.id,
        title=task.title,
        description=task.description,
        dependencies=list(task.dependencies),
        status="pending",
        agent=task.agent,
        model=task.model,
        checkers=None if task.checkers is None else list(task.checkers),
        rule=task.rule,
        file_scope=list(task.file_scope),
        priority=task.priority,
        max_iterations=task.max_iterations,
    )


def _proposal_view(record: ProposalRecord) -> ProposalView:
    task = None
    if record.task is not None:
        found = TaskRecord.model_validate({"at": 0, "state": "waiting", **record.task})
        task = _planned(found.task)
    return ProposalView(
        id=record.id,
        task=task,
        about=record.about,
        operations=json.loads(record.edit) if record.edit else [],
        why=record.why or "",
        by=record.by,
        at=iso(record.at),
        status=record.status,  # type: ignore[arg-type]  # the model checks it
        decided_by=record.decided_by,
        note=record.note or "",
        until=None if record.until_ms is None else iso(record.until_ms),
    )
