"""The phases of sessions that have a role in a plan: a state machine for each role (pure).

A phase is not stored: it follows from what the records of the plan and of the session say, by the
events in their order. So it is never out of date, has no key of its own, and goes with its session.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

from app.core.addresses import SessionRef
from app.core.states import SessionStatus
from app.plans.tasks import PlanRecord, TaskLink, TaskRecord, parse_link, parse_plan
from app.store.store import Store
from leadhand.models.views.session import RoleView, SessionView

_log = logging.getLogger(__name__)
#: The statuses of a session that ended without what was wanted.
_BAD = frozenset({SessionStatus.FAILED, SessionStatus.EXITED, SessionStatus.ABORTED})
#: The most steps in progress, and iterations, that are looked at.
_STEPS, _ITERATIONS = 20, 100


class Role(StrEnum):
    #: A team lead: the session of a plan.
    LEAD = "tl"
    #: Carries out a task of a plan.
    DEV = "dev"
    #: Any other child session: one that a body started, a merge, a question to the team lead.
    WORKER = "worker"


class Event(NamedTuple):
    """An event that may change a phase."""

    name: str
    #: The task whose child it is about.
    child: str = ""


class Phase(NamedTuple):
    """The phase of a session."""

    name: str
    #: Of a waiting or merging team lead: the tasks whose children it waits for.
    children: frozenset[str] = frozenset()
    #: Of a dev under review: the number of the review, from 1.
    round: int = 0

    def __str__(self) -> str:
        if self.children:
            return f"{self.name} ({', '.join(sorted(self.children))})"
        return f"{self.name} (round {self.round})" if self.round else self.name


class Exit(NamedTuple):
    """Whether a session may end in its phase, and what is said about it."""

    verdict: Literal["clean", "nudge", "block"]
    text: str = ""


#: The phases in which a session of a role begins.
FIRST = {Role.LEAD: "planning", Role.DEV: "spawned", Role.WORKER: "spawned"}
#: Phases that nothing follows.
LAST = frozenset({"done", "failed"})
#: What each event makes of a phase; `*` is every phase that is not the last one.
_COMMON: Mapping[tuple[str, str], str] = {
    ("*", "ended_well"): "done",
    ("*", "ended_badly"): "failed",
}
_TABLES: Mapping[Role, Mapping[tuple[str, str], str]] = {
    Role.LEAD: {
        **_COMMON,
        ("planning", "plan_began"): "dispatching",
        ("dispatching", "child_spawned"): "waiting",
        ("waiting", "child_spawned"): "waiting",
        ("merging", "child_spawned"): "waiting",
        ("all_merged", "child_spawned"): "waiting",
        ("waiting", "child_ended"): "waiting",
        ("merging", "child_ended"): "merging",
        ("waiting", "merge_began"): "merging",
        ("all_merged", "tasks_left"): "dispatching",
        ("all_merged", "pr_filed"): "pr_filed",
    },
    Role.DEV: {
        **_COMMON,
        ("spawned", "began"): "working",
        ("spawned", "pr_filed"): "pr_filed",
        ("working", "pr_filed"): "pr_filed",
        ("changes_requested", "pr_filed"): "under_review",
        ("pr_filed", "review_began"): "under_review",
        ("under_review", "review_began"): "under_review",
        ("changes_requested", "review_began"): "under_review",
        ("under_review", "review_refused"): "changes_requested",
        ("under_review", "review_accepted"): "approved",
    },
    Role.WORKER: {**_COMMON, ("spawned", "began"): "working"},
}
#: The reports of a task by which its dev gives up.
_GIVEN_UP = frozenset({"blocked", "failed"})
_EXITS: Mapping[tuple[Role, str], Exit] = {
    (Role.LEAD, "waiting"): Exit("nudge", "child sessions still work for the plan"),
    (Role.LEAD, "merging"): Exit("nudge", "accepted work is still being merged"),
    (Role.LEAD, "dispatching"): Exit("nudge", "tasks of the plan have not started yet"),
    (Role.LEAD, "pr_filed"): Exit("block", "its pull request is not merged yet"),
    (Role.DEV, "working"): Exit("nudge", "it has not reported; report with `leadhand report`"),
    (Role.DEV, "under_review"): Exit("nudge", "its work is being reviewed"),
    (Role.DEV, "changes_requested"): Exit(
        "block",
        "changes of its work are requested; make them, or report `blocked` or `failed` first",
    ),
}


def transition(role: Role, phase: Phase, event: Event) -> Phase:
    """Returns the phase after an event; one that does not apply is logged and changes nothing.

    >>> str(transition(Role.LEAD, Phase("waiting", frozenset("ab")), Event("child_ended", "a")))
    'waiting (b)'
    >>> str(transition(Role.LEAD, Phase("waiting", frozenset("b")), Event("child_ended", "b")))
    'all_merged'
    """
    table = _TABLES[role]
    name = table.get((phase.name, event.name)) or table.get(("*", event.name))
    if name is None or phase.name in LAST:
        _log.info("a %s in phase %s ignores the event %s", role, phase.name, event.name)
        return phase
    if name in LAST:
        return Phase(name)
    children = phase.children
    if event.name == "child_spawned":
        children |= {event.child}
    elif event.name == "child_ended":
        children -= {event.child}
        name = name if children else "all_merged"
    round_ = phase.round + (event.name == "review_began")
    return Phase(name, children, round_)


def can_exit(role: Role, phase: Phase, word: str | None = None) -> Exit:
    """Returns whether a session may end in this role and phase; `word` is its last status report.

    A dev that has reported that it cannot continue may end with changes requested.

    >>> can_exit(Role.DEV, Phase("changes_requested")).verdict
    'block'
    >>> can_exit(Role.WORKER, Phase("working")).verdict
    'clean'
    >>> can_exit(Role.DEV, Phase("changes_requested"), word="blocked").verdict
    'clean'
    """
    found = _EXITS.get((role, phase.name), Exit("clean"))
    reported = word in _GIVEN_UP or (word == "completed" and phase.name == "working")
    return Exit("clean") if role is Role.DEV and reported else found


def phase_after(role: Role, events: Iterable[Event]) -> Phase:
    """Computes the phase that a role's session in a plan is in, from phase events in order."""
    phase = Phase(FIRST[role])
    for event in events:
        phase = transition(role, phase, event)
    return phase


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
