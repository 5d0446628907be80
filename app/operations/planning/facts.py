"""Applies the ends of child sessions to the plan whose tasks they carried out."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.compiler.checker_names import check_names
from app.compiler.plan import document_of
from app.compiler.replans import REPLAN_STEP
from app.domain.control import PARENT_DID
from app.domain.ids import SessionRef
from app.domain.plans import MERGE, REPLAN, TaskLink, parse_link, parse_plan
from app.domain.states import SessionStatus
from app.operations.planning.edits import edit_arguments
from app.operations.registry import Registry
from app.operations.transitions import Transitions
from app.store.store import Store
from leadhand.errors import PlanRefused
from leadhand.models.plans import PlanOperation

#: The statuses of a child session that change its task.
_FACTS = frozenset(
    {
        SessionStatus.COMPLETED,
        SessionStatus.FAILED,
        SessionStatus.EXITED,
        SessionStatus.ABORTED,
        SessionStatus.STOPPED,
        SessionStatus.ACTIVE,
        "deleted",
    }
)
_OPERATIONS = TypeAdapter(tuple[PlanOperation, ...])
#: Characters of a reason that are kept.
_LONGEST = 2_000


class PlanFacts:
    """Applies facts to plans. Each may be applied again."""

    def __init__(self, store: Store, registry: Registry, transitions: Transitions) -> None:
        self._store = store
        self._registry = registry
        self._transitions = transitions

    def apply(
        self, child: SessionRef, fields: Mapping[str, str], parent: Mapping[str, str]
    ) -> None:
        """Update a plan because a child session ended, stopped or resumed. Raises SessionUnknown.

        A child that stopped with its parent resumes with it, and changes nothing.
        """
        status = fields.get("status", "deleted")
        reason = json.loads(fields.get("reason") or "null")
        stops = status == SessionStatus.STOPPED
        if status not in _FACTS or (stops and (reason or {}).get("text") == PARENT_DID):
            return
        ref = SessionRef(parent["session"], child.root)
        link = parse_link(parent["task"])
        arguments: dict[str, JsonValue] = {
            "task": link.task,
            "run": link.run,
            "child": child.id,
            "status": status,
            "reason": reason,
            "address": parent["address"],
            "merge": link.kind == MERGE or None,
            **self._replan(ref, child, link, status),
        }
        answer = self._transitions.run("plan_fact", ref, arguments)
        self._transitions.dispatch(ref, answer)

    def is_unapplied(self, child: SessionRef, parent: Mapping[str, str]) -> bool:
        """Whether a plan still has a task at work though its child session has ended."""
        plan = parse_plan(self._store.plan(SessionRef(parent["session"], child.root)))
        link = parse_link(parent["task"])
        task = next((one for one in plan.tasks if one.id == link.task), None) if plan else None
        return task is not None and task.is_at_work(link)

    def _replan(
        self, ref: SessionRef, child: SessionRef, link: TaskLink, status: str
    ) -> dict[str, JsonValue]:
        """The arguments for the end of a session that asked the team lead."""
        if link.kind != REPLAN:
            return {}
        found: dict[str, JsonValue] = {"replan": True, "by": child.id}
        if status != SessionStatus.COMPLETED:
            return found
        document = document_of(self._registry.program(self._registry.facts(ref).program))
        run = int(self._store.values(child, "runs", [REPLAN_STEP]).get(REPLAN_STEP, 1))
        address = REPLAN_STEP if run == 1 else f"{REPLAN_STEP}~{run}"
        outcome = self._store.values(child, "out", [address]).get(address, "{}")
        return found | proposed_edit(outcome, ref.id, check_names(document.checkers))


def proposed_edit(outcome: str, session: str, checkers: list[str]) -> dict[str, JsonValue]:
    """Extracts a team lead's proposed plan edit from a step's outcome, or why there is none.

    The edit consists of Lua arguments. It is checked again, because an outcome is not signed. An
    edit has no commands.
    """
    value = json.loads(outcome).get("value")
    value = value if isinstance(value, dict) else {}
    why = str(value.get("why") or "")[:_LONGEST] or None
    try:
        operations = _OPERATIONS.validate_python(value.get("operations") or ())
        arguments = edit_arguments(session, operations, checkers)
    except (ValidationError, PlanRefused) as error:
        return {"why": f"its answer is no edit of the plan: {error}"[:_LONGEST]}
    if not arguments:
        return {"why": why or "it sees no other way"}
    dumped = [one.model_dump(mode="json", exclude_unset=True) for one in operations]
    return {"operations": arguments, "edit": json.dumps(dumped), "why": why}
