"""Compiles plans, and the sessions that ask a team lead what to do about a failed task."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import JsonValue

from app.compiler.folders import survey_step
from app.compiler.workflow import check_names
from app.core.addresses import lock_name
from app.core.program import Action, Loop, Program, RetryPolicy, Step
from app.core.references import literal
from app.errors import InvalidDocument
from leadhand.models.plans import PlanDocument, PlannedTask, check_checkers
from leadhand.models.text import headline

#: How often the team lead is asked again after an answer that is not a list of tasks.
DRAFT_RETRIES = 2
#: The most drafts that a person may ask for.
MAX_DRAFTS = 50
#: The node that executes the plan.
EXECUTE = "execute"
#: The step whose outcome is the proposal.
REPLAN_STEP = "replan"


def compile_plan(document: PlanDocument) -> Program:
    """Compiles a plan: survey the folder, analyze, draft until approved, then execute.

    Given tasks are not analyzed, and without `refine` the first draft is executed.

    Raises InvalidDocument if a given task names a checker that the plan does not have.
    """
    _check_given(document)
    nodes: list[Step | Loop] = []
    if has_workspaces(document):
        nodes.append(_survey(document))
    if document.tasks is None:
        nodes.append(_analyze(document))
    draft = _draft(document)
    if document.refine:
        refine = _refine(document)
        nodes.append(
            Loop(id="drafting", label="refine", body=(draft, refine), max_iterations=MAX_DRAFTS)
        )
    else:
        nodes.append(draft)
    nodes.append(_execute(document))
    name = document.label or headline(document.request) or "plan"
    return Program(name=name, body=tuple(nodes))


def _survey(document: PlanDocument) -> Step:
    return survey_step(
        document.workspace, merge=merges(document), target=literal(document.target or "")
    )


def has_workspaces(document: PlanDocument) -> bool:
    """Whether each task of the plan works in its own folder; false for a plan without a folder."""
    return document.workspace != "shared" and document.cwd is not None


def merges(document: PlanDocument) -> bool:
    """Whether the plan merges accepted work if its folder is in a repository."""
    return has_workspaces(document) and document.workspace != "copy" and document.merge != "none"


def checker_names(document: PlanDocument) -> list[str]:
    """Returns the names by which tasks refer to the plan's checkers."""
    return check_names(document.checkers)


def _check_given(document: PlanDocument) -> None:
    names = checker_names(document)
    for number, task in enumerate(document.tasks or ()):
        try:
            check_checkers(task.id, task.checkers, names)
        except ValueError as error:
            field = f"tasks[{number}].checkers"
            raise InvalidDocument(field, list(task.checkers or ()), str(error)) from None


def _limits(document: PlanDocument) -> tuple[str, ...]:
    named = (("agent", document.agent), ("model", document.model))
    return tuple(lock_name(f"{kind}:{name}") for kind, name in named if name)


def _lead(document: PlanDocument) -> dict[str, JsonValue] | None:
    return {"agent": literal(document.agent)} if document.agent else None


def _analyze(document: PlanDocument) -> Step:
    task = (
        "You are a team lead. Analyze this request: look at the files it concerns, and say what"
        " has to be done, in which parts, and what could go wrong. Change nothing, and do none of"
        f" the work.\n\n# Request\n\n{document.request}"
    )
    return Step(
        id="analyze",
        action=Action.AGENT,
        folder=True,
        timeout_s=document.timeout_s,
        limits=_limits(document),
        inputs={"task": literal(task), "doer": _lead(document), "model": document.model},
    )


def _draft(document: PlanDocument) -> Step:
    given = document.tasks
    step = draft_step(document, "decompose")
    inputs: dict[str, JsonValue] = {
        **step.inputs,
        "analysis": "${analyze.text}" if given is None else "",
        "given": None if given is None else _as_text(given),
        "change": "${previous.refine.text}" if document.refine else None,
    }
    return step.model_copy(update={"inputs": inputs})


def draft_step(document: PlanDocument, id_: str) -> Step:
    """Builds the step that asks the team lead for tasks."""
    return Step(
        id=id_,
        action=Action.DRAFT,
        folder=True,
        timeout_s=document.timeout_s,
        retry=RetryPolicy(retries=DRAFT_RETRIES),
        limits=_limits(document),
        inputs={
            "request": literal(document.request),
            "checkers": [literal(name) for name in checker_names(document)],
            "doer": _lead(document),
            "model": document.model,
        },
    )


def _as_text(tasks: Iterable[PlannedTask]) -> str:
    """Tasks as one literal JSON text, so that nothing in their texts is a reference."""
    return literal(json.dumps([one.model_dump(mode="json", exclude_unset=True) for one in tasks]))


def _refine(document: PlanDocument) -> Step:
    return Step(
        id="refine",
        action=Action.HUMAN,
        timeout_s=document.refine_timeout_s,
        inputs={
            "question": "Approve the plan, or say what the team lead is to change.",
            "draft": "${decompose.value}",
            "settings": _settings(document),
            "default": document.on_deadline,
            **({"binds": True} if document.cwd is not None else {}),
        },
    )


def _execute(document: PlanDocument) -> Step:
    # JSON of an object begins with a brace, so it is never taken for a reference.
    # The webhook has a secret, which exports of the program must not show.
    plan = document.model_dump_json(exclude_unset=True, exclude={"webhook"})
    inputs: dict[str, JsonValue] = {"plan": plan}
    if not document.refine:
        inputs |= {"draft": "${decompose.value}", "settings": _settings(document)}
    return Step(id=EXECUTE, action=Action.PLAN, timeout_s=30 * 24 * 3600.0, inputs=inputs)


def document_of(program: Program) -> PlanDocument:
    """Returns the document from which the program of a plan was compiled."""
    return PlanDocument.model_validate_json(str(program.step(EXECUTE).inputs["plan"]))


def _settings(document: PlanDocument) -> dict[str, JsonValue]:
    return {
        "at_once": document.at_once,
        "retries": document.task_retries,
        "on_failure": document.on_task_failure,
        "proposals": document.proposals,
        "proposal_ms": round(document.proposal_timeout_s * 1000),
        **({"merge": True} if merges(document) else {}),
        **(_replans(document) if document.on_task_failure == "replan" else {}),
    }


def _replans(document: PlanDocument) -> dict[str, JsonValue]:
    return {
        "replan_max": document.max_replans,
        "replan_ms": round(document.replan_timeout_s * 1000),
    }


def replan_program(document: PlanDocument, task: str, run: int, reason: str) -> Program:
    """Builds the program that asks a plan's team lead how to edit the plan after a task failed."""
    failed: dict[str, JsonValue] = {"task": task, "run": run, "reason": reason}
    step = draft_step(document, REPLAN_STEP).model_copy(
        update={"timeout_s": min(document.timeout_s, document.replan_timeout_s)}
    )
    inputs = {**step.inputs, "failed": literal(json.dumps(failed))}
    step = step.model_copy(update={"inputs": inputs})
    return Program(name=f"replan/{task}", body=(step,))
