"""Applies the ends of child sessions to the plan whose tasks they carried out."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.control import PARENT_DID
from app.domain.ids import SessionRef
from app.domain.merges import MERGE
from app.domain.plans import parse_plan
from app.domain.states import SessionStatus
from app.operations.transitions import Transitions
from app.store.store import Store

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


def task_of(parent: Mapping[str, str]) -> tuple[str, int]:
    """The task and the run that a child session carries out or merges, as its link says."""
    task, _, run = parent["task"].removeprefix(MERGE).rpartition("~")
    return task, int(run)


class PlanFacts:
    """Applies facts to plans. Each may be applied again."""

    def __init__(self, store: Store, transitions: Transitions) -> None:
        self._store = store
        self._transitions = transitions

    def apply(
        self, child: SessionRef, fields: Mapping[str, str], parent: Mapping[str, str]
    ) -> None:
        """Apply the end, the stop or the resume of a child. Raises SessionUnknown.

        A child that stopped with its parent resumes with it, and changes nothing.
        """
        status = fields.get("status", "deleted")
        reason = json.loads(fields.get("reason") or "null")
        stops = status == SessionStatus.STOPPED
        if status not in _FACTS or (stops and (reason or {}).get("text") == PARENT_DID):
            return
        ref = SessionRef(parent["session"], child.root)
        task, run = task_of(parent)
        arguments: dict[str, JsonValue] = {
            "task": task,
            "run": run,
            "child": child.id,
            "status": status,
            "reason": reason,
            "address": parent["address"],
            "merge": parent["task"].startswith(MERGE) or None,
        }
        answer = self._transitions.run("plan_fact", ref, arguments)
        self._transitions.dispatch(ref, answer)

    def is_unapplied(self, child: SessionRef, parent: Mapping[str, str]) -> bool:
        """Whether the plan still counts the child among those that work."""
        plan = parse_plan(self._store.plan(SessionRef(parent["session"], child.root)))
        task, run = task_of(parent)
        is_merge = parent["task"].startswith(MERGE)
        works = ("merging",) if is_merge else ("starting", "running")
        return plan is not None and any(
            one.id == task and one.run == run and one.state in works for one in plan.tasks
        )
