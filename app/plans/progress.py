"""Creates the child sessions of a plan's tasks, and looks at plans that execute.

Both may be done twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from pydantic import JsonValue, ValidationError

from app.compiler.merges import merge_program
from app.compiler.plan import document_of, replan_program
from app.compiler.workflow import check_names
from app.context import Context
from app.core.addresses import SessionRef
from app.core.folders import MERGE_FOLDER, WORKSPACE, Merge, Survey, Workspace, workspace_of
from app.core.program import Program
from app.errors import InvalidDocument, ParentRests
from app.plans.edits import apply_fact, read_survey
from app.plans.tasks import MERGE, REPLAN, PlanRecord, TaskLink, TaskRecord, parse_link, parse_plan
from app.sessions.context import SessionContext
from app.sessions.submit import About, Submitted
from leadhand.errors import LeadhandError, ProgramNewer, StoreAway
from leadhand.models.documents import Budget, Checker, Doer, LoopDocument
from leadhand.models.plans import PlanDocument

#: The checker of a plan that says it has none.
_UNCHECKED = Checker(name="unchecked", command="true")
#: Where a task with a folder of its own works.
_FOLDER = (
    "# Your folder\n\nYou work in a folder of your own. Other tasks have others and do not see"
    " yours: change files in this folder only. If it is a git worktree, stay on its branch. What"
    " you do not commit is committed at the end."
)
#: Seconds after which a session that asks the team lead ends, once the plan waits no longer.
_GRACE_S = 120.0
#: Characters of the reason for which an earlier run failed, in the prompt of the next.
_LAST_REASON = 4_000


class _Due(NamedTuple):
    """A run of a task that is due: it, its merge, or what the team lead is asked about it."""

    ref: SessionRef
    plan: PlanRecord
    task: TaskRecord
    #: The parent of the session, and the key by which a second create finds it.
    parent: dict[str, JsonValue]
    key: str


#: The session that was created, and what the plan records about it.
_Started = tuple[Submitted, dict[str, JsonValue]]


def spawn_task(engine: SessionContext, ref: SessionRef, run_of_task: str) -> None:
    """Create the child session for a run of a task, given as `task~run`, if it is due.

    `merge/task~run` is the session that merges the run's work, and `replan/task~run` the one
    that asks the team lead about it. A session that was created is left alone. A task that
    cannot start fails with the reason.
    """
    link = parse_link(run_of_task)
    plan = parse_plan(engine.store.plan(ref))
    task = _task(plan, link.task)
    if plan is None or task is None or not task.is_due(link):
        return
    step = engine.store.steps(ref, [plan.address]).get(plan.address)
    if step is None or step.state != "parked":
        return
    parent: dict[str, JsonValue] = {
        "session": ref.id,
        "address": plan.address,
        "fence": step.fence,
        "base": engine.store.keys.base(ref),
        "task": run_of_task,
    }
    due = _Due(ref, plan, task, parent, f"{ref.id}:{plan.address}:{run_of_task}")
    starts = {MERGE: _start_merge, REPLAN: _start_replan}
    try:
        submitted, facts = starts.get(link.kind, _start_run)(engine, due)
    except StoreAway:
        raise
    except (ParentRests, ProgramNewer):
        return  # the plan rests, or a newer process creates it; a resume or a look queues it
    except (ValidationError, LeadhandError) as error:
        if isinstance(error, InvalidDocument) and error.field == "place":
            return  # its workers are away; the next look queues it again
        why = f"its session cannot be created: {error}"
        _record_refusal(engine, ref, link, why, plan.address)
        return
    arguments: dict[str, JsonValue] = {
        "task": link.task, "run": link.run, "child": submitted.session, **facts,
    }  # fmt: skip
    engine.transitions.apply("plan_started", ref, arguments)
    if not submitted.created:  # it may have ended before it was recorded
        engine.reports.deliver(SessionRef(submitted.session, ref.root))


def _start_run(engine: SessionContext, due: _Due) -> _Started:
    """Create the session of a task's run."""
    workspace = _workspace_of_run(engine, due.ref, due.task)
    submitted = engine.submit.document(
        _document_of(engine, due.ref, due.plan, due.task),
        idempotency_key=due.key, parent=due.parent, root=due.ref.root, workspace=workspace,
    )  # fmt: skip
    return submitted, {
        "folder": workspace.path if workspace else None,
        "branch": (workspace.branch or None) if workspace else None,
    }


def _start_merge(engine: SessionContext, due: _Due) -> _Started:
    """Create the session that merges a task's work."""
    ref, task = due.ref, due.task
    facts, survey = engine.registry.facts(ref), _read_survey(engine, ref)
    if survey is None or facts.cwd is None or task.branch is None:
        raise InvalidDocument("workspace", task.branch, "its plan has no repository")
    merge = Merge(
        plan=ref.id, task=task.id, run=task.run, origin=facts.cwd, prefix=survey.prefix,
        branch=task.branch, target=survey.target,
    )  # fmt: skip
    program = merge_program(_document_of(engine, ref, due.plan, task), merge)
    folder = str(PurePosixPath(survey.shelf, MERGE_FOLDER, survey.prefix))
    label = f"Merge {task.id}: {task.task.title}"[:120]
    about = About(
        kind="workflow", name=program.name, label=label, cwd=folder, folder=folder,
        place=facts.place, budget=task.task.budget,
    )  # fmt: skip
    return _submit(engine, due, program, about), {"merge": True}


def _start_replan(engine: SessionContext, due: _Due) -> _Started:
    """Create the session that asks the team lead."""
    facts, task = engine.registry.facts(due.ref), due.task
    document = document_of(engine.registry.verified_program(due.ref, facts))
    asked = task.replan
    assert asked is not None  # it is due
    program = replan_program(document, task.id, asked.run, _chain_text(task))
    about = About(
        kind="workflow", name=program.name, label=f"Replan after {task.id}"[:120],
        cwd=facts.cwd or "", folder=facts.cwd or "", place=facts.place,
        budget=Budget(wall_s=document.replan_timeout_s + _GRACE_S),
    )  # fmt: skip
    if asked.past:
        due = due._replace(key=f"{due.key}#{len(asked.past) + 1}")
    return _submit(engine, due, program, about), {"replan": True}


def _submit(engine: SessionContext, due: _Due, program: Program, about: About) -> Submitted:
    return engine.submit.program(
        program, about, body=program.hash, key=due.key, parent=due.parent, root=due.ref.root
    )


def catch_up(engine: SessionContext, ref: SessionRef) -> None:
    """Apply ends of child sessions that the plan has missed, and start tasks that can start."""
    plan = parse_plan(engine.store.plan(ref))
    for task in plan.tasks if plan is not None else ():
        if task.state == "running" and task.session is not None:
            _look_at(engine, ref, f"{task.id}~{task.run}", task.session)
        if task.state == "merging" and task.merge is not None and task.merge.session:
            _look_at(engine, ref, f"{MERGE}{task.id}~{task.run}", task.merge.session)
        asked = task.replan
        if asked is not None and asked.session is not None and asked.ended is None:
            _look_at(engine, ref, f"{REPLAN}{task.id}~{asked.run}", asked.session)
    engine.transitions.apply("plan_look", ref, {})


def _look_at(engine: SessionContext, ref: SessionRef, run_of_task: str, session: str) -> None:
    child = SessionRef(session, ref.root)
    fields = engine.store.fields(child)
    if fields.get("status") == "active":
        return
    if fields:
        engine.reports.deliver(child)
        return
    parent = {"session": ref.id, "address": "", "task": run_of_task}
    apply_fact(engine, child, {}, parent)


def _record_refusal(
    engine: Context, ref: SessionRef, link: TaskLink, why: str, address: str
) -> None:
    arguments: dict[str, JsonValue] = {
        "task": link.task,
        "run": link.run,
        "child": "",
        "status": "refused",
        "reason": {"code": "failed_step", "text": why},
        "address": address,
        "merge": link.kind == MERGE or None,
        "replan": link.kind == REPLAN or None,
    }
    engine.transitions.apply("plan_fact", ref, arguments)


def _workspace_of_run(engine: Context, ref: SessionRef, task: TaskRecord) -> Workspace | None:
    """The folder of a task's run; None if the tasks share that of the plan."""
    facts, survey = engine.registry.facts(ref), _read_survey(engine, ref)
    if survey is None or facts.cwd is None:
        return None
    return workspace_of(survey, ref.id, task.id, task.run, facts.cwd)


def _read_survey(engine: Context, ref: SessionRef) -> Survey | None:
    """What the plan's first step found out about its folder; None if that is shared."""
    facts = engine.registry.facts(ref)
    program = engine.registry.verified_program(ref, facts)
    return read_survey(engine.store, ref) if program.has(WORKSPACE) else None


def _document_of(
    engine: Context, ref: SessionRef, plan: PlanRecord, record: TaskRecord
) -> LoopDocument:
    """The document of a task's child session, from the signed document of the plan."""
    facts = engine.registry.facts(ref)
    program = engine.registry.verified_program(ref, facts)
    document = document_of(program)
    task = record.task
    names = dict(zip(check_names(document.checkers), document.checkers, strict=True))
    wanted = [names[name] for name in task.checkers or names]
    doer = Doer(agent=task.agent) if task.agent else document.doer
    return LoopDocument(
        task=_prompt(document, plan, record, has_own_folder=program.has(WORKSPACE)),
        checkers=tuple(wanted) or (_UNCHECKED,),
        rule=task.rule,
        doer=doer,
        model=task.model,
        file_scope=task.file_scope,
        max_iterations=task.max_iterations,
        baseline=document.baseline,
        quarantine=document.quarantine,
        protected=document.protected,
        leave_out=document.leave_out,
        on_protected=document.on_protected,
        budget=task.budget,
        label=f"{task.id}: {task.title}"[:120],
        cwd=facts.cwd,
        place=facts.place or None,
    )


def _task(plan: PlanRecord | None, task: str) -> TaskRecord | None:
    return next((one for one in plan.tasks if one.id == task), None) if plan is not None else None


def _prompt(
    document: PlanDocument, plan: PlanRecord, record: TaskRecord, *, has_own_folder: bool
) -> str:
    task = record.task
    sections = [
        f"# Task {task.id}: {task.title}\n\n{task.description}".rstrip(),
        f"# The whole request\n\nThis task is one part of it; do this part alone.\n\n"
        f"{document.request}",
        _FOLDER if has_own_folder else "",
        _done_before(plan, record),
        _last_reason(record),
    ]
    return "\n\n".join(section for section in sections if section)


def _done_before(plan: PlanRecord, record: TaskRecord) -> str:
    """The tasks that this one needs, with where their work is."""
    by_id: Mapping[str, TaskRecord] = {one.id: one for one in plan.tasks}
    lines = [_where(by_id[needed]) for needed in record.deps if needed in by_id]
    if not lines:
        return ""
    needed = [by_id[one] for one in record.deps if one in by_id]
    return "\n".join(["# Done before\n", *lines, *_how_to_take(needed)])


def _how_to_take(needed: Sequence[TaskRecord]) -> Iterator[str]:
    """How a task gets the work of those that it needs, where that is elsewhere."""
    if any(one.merged for one in needed):
        yield "\nTheir work is merged: your folder has it already."
    elif any(one.branch for one in needed):
        yield "\nTheir work is not in your folder: take it with `git merge BRANCH`."
    elif any(one.folder for one in needed):
        yield "\nTheir work is not in your folder: copy what you need from theirs."


def _where(needed: TaskRecord) -> str:
    if needed.merged:
        return f"- {needed.id}: {needed.task.title} (commit {needed.merged})"
    at = f" (branch {needed.branch})" if needed.branch else ""
    at = at or (f" (folder {needed.folder})" if needed.folder else "")
    return f"- {needed.id}: {needed.task.title}{at}"


def _last_reason(record: TaskRecord) -> str:
    if record.run < 2 or record.reason is None:
        return ""
    return f"# The run before this one failed\n\n{_chain_text(record)}"


def _chain_text(record: TaskRecord) -> str:
    """Why a task failed: the texts of the chain of reasons."""
    links = record.reason.chain() if record.reason is not None else ()
    return "; ".join(link.text for link in links if link.text)[:_LAST_REASON]
