"""Functions that start plans: a request that is decomposed into tasks, or given tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from leadhand.callables import CheckerLike, DoerLike, as_checkers, as_doer
from leadhand.client.client import Client, borrowed
from leadhand.models.plans import PlanDocument, PlannedTask
from leadhand.models.validation_messages import first_error
from leadhand.models.views.plan import PlanView, TaskView
from leadhand.models.views.result import ResultView
from leadhand.run import print_message, run_to_end, working_folder

__all__ = ["PlanResult", "plan_document", "read_plan", "run_plan", "start_plan"]


@dataclass(frozen=True)
class PlanResult:
    """The result of a plan."""

    session_id: str
    #: completed, failed, stopped, exited or aborted.
    status: str
    #: By id, in the order of the plan.
    tasks: dict[str, TaskView] = field(default_factory=dict)
    #: Why the session ended without success.
    reason: str = ""

    @property
    def accepted(self) -> list[str]:
        """Return the ids of the tasks whose work was accepted."""
        return [one.id for one in self.tasks.values() if one.verified]

    @property
    def failed(self) -> list[str]:
        """Return the ids of the tasks that failed."""
        return [one.id for one in self.tasks.values() if one.status == "failed"]

    @classmethod
    def of(cls, result: ResultView, plan: PlanView) -> PlanResult:
        """Build the result from a session's result and its plan."""
        reason = result.exit_reason or (result.reason.text if result.reason is not None else "")
        return cls(
            session_id=result.session_id,
            status=result.status,
            tasks={task.id: task for task in plan.tasks},
            reason=reason,
        )


def start_plan(
    request: str,
    checkers: CheckerLike | Sequence[CheckerLike] = (),
    *,
    tasks: Sequence[PlannedTask | Mapping[str, Any]] | None = None,
    doer: DoerLike | None = None,
    task_agent: str | None = None,
    cwd: str | Path | None = None,
    client: Client | None = None,
    **settings: Any,
) -> str:
    """Start a plan and return its session's id at once.

    `doer` or `task_agent` carries out the tasks, and `agent` is the team lead. Also accepts the
    other fields of `PlanDocument` (refine, at_once, task_retries, on_task_failure, unchecked ...).
    Raises ValueError for an invalid plan and creates no session then.
    """
    document = plan_document(
        request, checkers, tasks=tasks, doer=as_doer(doer, task_agent), cwd=cwd, **settings
    )
    with borrowed(client) as server:
        return server.submit(document).id


def run_plan(
    request: str,
    checkers: CheckerLike | Sequence[CheckerLike] = (),
    *,
    tasks: Sequence[PlannedTask | Mapping[str, Any]] | None = None,
    doer: DoerLike | None = None,
    task_agent: str | None = None,
    cwd: str | Path | None = None,
    client: Client | None = None,
    **settings: Any,
) -> PlanResult:
    """Start a plan, wait for its end and return its result; Ctrl-C stops it.

    A person must approve the tasks meanwhile, unless `refine=False` is given.
    """
    document = plan_document(
        request, checkers, tasks=tasks, doer=as_doer(doer, task_agent), cwd=cwd, **settings
    )
    with borrowed(client) as server:
        result = run_to_end(server, document, say=print_message)
        return PlanResult.of(result, server.plan(result.session_id))


def read_plan(session: str, *, client: Client | None = None) -> PlanView:
    """Returns the current plan of a session. Raises NoPlan and SessionUnknown."""
    with borrowed(client) as server:
        return server.plan(session)


def plan_document(
    request: str,
    checkers: CheckerLike | Sequence[CheckerLike],
    *,
    doer: object,
    cwd: str | Path | None,
    tasks: Sequence[PlannedTask | Mapping[str, Any]] | None = None,
    **settings: Any,
) -> PlanDocument:
    """Builds the document of a plan. Raises ValueError if it is invalid."""
    try:
        return PlanDocument.model_validate(
            {
                **settings,
                "request": request,
                "checkers": as_checkers(checkers),
                "tasks": tasks,
                "doer": doer,
                "cwd": working_folder(cwd),
            }
        )
    except ValidationError as error:
        raise ValueError(first_error(error)) from None
