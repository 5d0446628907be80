"""Reads the events that decide the phase of a session with a role, from its records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from app.domain.ids import SessionRef
from app.domain.phases import Event, Role, can_exit, phase_after
from app.domain.plans import PlanRecord, TaskLink, TaskRecord, parse_link, parse_plan
from app.domain.states import SessionStatus
from app.store.store import Store
from leadhand.models.views.session import RoleView, SessionView

#: The statuses of a session that ended without what was wanted.
_BAD = frozenset({SessionStatus.FAILED, SessionStatus.EXITED, SessionStatus.ABORTED})
#: The most steps in progress, and iterations, that are looked at.
_STEPS, _ITERATIONS = 20, 100


class Phases:
    """Derives phases; reads each plan once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._plans: dict[SessionRef, PlanRecord | None] = {}

    def view(self, ref: SessionRef, fields: Mapping[str, str]) -> RoleView | None:
        """Returns a session's role, phase and whether it may end; None without plan and parent."""
        parent: Mapping[str, str] = json.loads(fields.get("parent") or "{}")
        link = parse_link(parent["task"]) if parent.get("task") else None
        word = None
        if fields["kind"] == "plan":
            role, events = Role.LEAD, self._of_lead(ref, fields)
        elif link is not None and not link.kind:
            task = self._task(SessionRef(parent["session"], ref.root), link)
            word = task.word if task is not None else None
            role, events = Role.DEV, self._of_dev(ref, fields, task)
        elif parent:
            role, events = Role.WORKER, self._of_worker(ref, fields)
        else:
            return None
        phase = phase_after(role, events)
        found = can_exit(role, phase, word)
        return RoleView(
            role=role.value, phase=phase.name, children=sorted(phase.children), round=phase.round,
            may_end=found.verdict, text=found.text,
        )  # fmt: skip

    def _of_lead(self, ref: SessionRef, fields: Mapping[str, str]) -> Iterator[Event]:
        plan = self._plan(ref)
        if plan is not None and plan.state != "refining":
            yield Event("plan_began")
            yield from (Event("child_spawned", task.id) for task in plan.tasks if task.run)
            merging = [task.id for task in plan.tasks if task.state == "merging"]
            working = [task.id for task in plan.tasks if task.state in ("starting", "running")]
            if merging and not working:
                yield Event("merge_began")
            for task in plan.tasks:
                if task.run and task.id not in (*merging, *working):
                    yield Event("child_ended", task.id)
            if any(task.state == "waiting" for task in plan.tasks) and not (merging or working):
                yield Event("tasks_left")
        yield from _end(fields)

    def _task(self, above: SessionRef, link: TaskLink) -> TaskRecord | None:
        """The record of the task that a session carries out; None if it has a newer run."""
        plan = self._plan(above)
        task = next((one for one in plan.tasks if one.id == link.task), None) if plan else None
        return task if task is not None and task.run == link.run else None

    def _of_dev(
        self, ref: SessionRef, fields: Mapping[str, str], task: TaskRecord | None
    ) -> Iterator[Event]:
        yield from self._began(ref, fields)
        if task is not None and task.pr_url is not None:
            yield Event("pr_filed")
            yield from self._reviews(ref)
        if task is not None and task.state == "merging":
            return  # its session has ended, and its work is not merged yet
        yield from _end(fields)

    def _reviews(self, ref: SessionRef) -> Iterator[Event]:
        """The rounds of its checkers, one in each iteration of its loop."""
        for line in self._store.lines(ref, "ledger", 0, _ITERATIONS - 1):
            accepted = json.loads(line).get("verdict") == "accept"
            yield Event("review_began")
            yield Event("review_accepted" if accepted else "review_refused")
        live = self._store.members(ref, "live", _STEPS)
        if any("/check." in address for address in live):
            yield Event("review_began")

    def _of_worker(self, ref: SessionRef, fields: Mapping[str, str]) -> Iterator[Event]:
        yield from self._began(ref, fields)
        yield from _end(fields)

    def _began(self, ref: SessionRef, fields: Mapping[str, str]) -> Iterator[Event]:
        """Whether a step of the session has run, or runs."""
        if int(fields.get("steps", 0)) > 0:
            yield Event("began")
            return
        steps = self._store.steps(ref, self._store.members(ref, "live", _STEPS))
        if any(step.attempt or step.state in ("running", "parked") for step in steps.values()):
            yield Event("began")

    def _plan(self, ref: SessionRef) -> PlanRecord | None:
        if ref not in self._plans:
            self._plans[ref] = parse_plan(self._store.plan(ref))
        return self._plans[ref]


def _end(fields: Mapping[str, str]) -> Iterator[Event]:
    if fields["status"] == SessionStatus.COMPLETED:
        yield Event("ended_well")
    elif fields["status"] in _BAD:
        yield Event("ended_badly")


def with_phase(
    store: Store, ref: SessionRef, fields: Mapping[str, str], view: SessionView
) -> SessionView:
    """Returns a copy of a session's view with its role and phase, read from the store."""
    return view.model_copy(update={"phase": Phases(store).view(ref, fields)})
