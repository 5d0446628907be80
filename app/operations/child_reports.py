"""Reports the end of a child session to the waiting step of its parent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from app.domain.control import PARENT_DID
from app.domain.ids import SessionRef
from app.domain.outcomes import Outcome, deleted_child, outcome_of_child
from app.domain.program import Action, Step
from app.domain.records import StepRecord
from app.domain.states import SessionStatus
from app.history.child_results import result_of_flow
from app.operations.answers import Answers
from app.operations.control import SessionControl
from app.operations.planning.facts import PlanFacts
from app.operations.registry import Registry
from app.store.store import Store
from leadhand.errors import ControlRefused, SessionUnknown

#: The end of a child in one of these statuses settles the step that waits for it.
REPORTED = (
    SessionStatus.COMPLETED,
    SessionStatus.FAILED,
    SessionStatus.EXITED,
    SessionStatus.ABORTED,
)
#: The inputs of steps that want the result of their child: those that call a flow or a session.
CALLED = frozenset({"flow", "session"})


class ChildReports:
    """Reports from child sessions to their parents. Each may be repeated."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        control: SessionControl,
        answers: Answers,
        facts: PlanFacts,
    ) -> None:
        self._store = store
        self._registry = registry
        self._control = control
        self._answers = answers
        self._facts = facts

    def deliver(self, child: SessionRef) -> None:
        """Report a child session's stop or end to its parent: settle its step, or update its plan.

        A task of a plan is no step: its end, and its resume, change the plan.
        """
        fields = self._store.fields(child)
        parent = json.loads(fields.get("parent") or "{}")
        if parent.get("task"):
            with suppress(SessionUnknown):
                self._facts.apply(child, fields, parent)
                above = SessionRef(parent["session"], child.root)
                self._control.poke(above, parent["address"], child=child.id)
        elif parent:
            with suppress(SessionUnknown):  # the parent was deleted
                self._report(child, fields, parent)

    def look_at_child(self, ref: SessionRef, address: str, *, child: str, fence: int) -> None:
        """Report a child session again to its waiting step; settle that if it was deleted."""
        if self._store.fields(SessionRef(child, ref.root)):
            self.deliver(SessionRef(child, ref.root))
        else:
            self._answers.settle(ref, address, deleted_child(child), fence=fence, by=child)

    def outcome_for(
        self, step: Step | None, child: SessionRef, fields: Mapping[str, str]
    ) -> Outcome:
        """Build the outcome of a step whose child session ended."""
        if step is None or not step.inputs.keys() & CALLED or fields.get("status") != "completed":
            return outcome_of_child(child.id, fields)
        program = self._registry.program(fields["program"])
        result = result_of_flow(self._store, child, program)
        outcome = outcome_of_child(child.id, fields, result.value)
        if result.artifact is None:
            return outcome
        return outcome.model_copy(update={"artifacts": (result.artifact,)})

    def parent_of(self, child: SessionRef) -> dict[str, str]:
        """Return the ids of the session and step that started a child session; {} if none."""
        found: dict[str, str] = json.loads(self._store.fields(child).get("parent") or "{}")
        return found

    def is_undelivered(self, child: SessionRef, parent: Mapping[str, str]) -> bool:
        """Whether a child session's end has not been applied to its parent's step or plan."""
        if self._store.errand_score(f"deliver|{child.member}") is not None:
            return True
        if parent.get("task"):
            return self._facts.is_unapplied(child, parent)
        return self._waiting_step(child, parent) is not None

    def report_deletion(self, child: SessionRef, parent: Mapping[str, str]) -> None:
        """Settle the parent's step that waits for a deleted child, or fail its plan's task."""
        if parent.get("task"):
            with suppress(SessionUnknown):
                self._facts.apply(child, {"status": "deleted"}, parent)
            return
        step = self._waiting_step(child, parent)
        if step is not None:
            ref = SessionRef(parent["session"], child.root)
            self.look_at_child(ref, parent["address"], child=child.id, fence=step.fence)

    def _report(
        self, child: SessionRef, fields: Mapping[str, str], parent: Mapping[str, str]
    ) -> None:
        ref, address = SessionRef(parent["session"], child.root), parent["address"]
        if fields.get("status") in REPORTED or self._was_stopped_alone(ref, fields, parent):
            step = self._waiting_step(child, parent)
            if fields["status"] == SessionStatus.EXITED and self._is_of_a_doer(ref, parent):
                with suppress(ControlRefused):  # the attempt that started it has ended
                    self._control.exit_of_child(ref, parent, child.id, fields.get("reason"))
            if step is not None:
                program = self._registry.program(self._registry.facts(ref).program)
                outcome = self.outcome_for(program.step_or_none(address), child, fields)
                self._answers.settle(
                    ref, address, outcome, fence=step.fence, by=child.id, child=child.id
                )
        self._control.poke(ref, address, child=child.id)

    def _was_stopped_alone(
        self, ref: SessionRef, fields: Mapping[str, str], parent: Mapping[str, str]
    ) -> bool:
        """Whether a user stopped the child but not its parent, and the parent can continue.

        A parent that is stopping or stopped takes its child along when it is resumed. A parent
        whose step is critical waits until the child is resumed: it cannot continue without it.
        """
        if fields.get("status") != SessionStatus.STOPPED:
            return False
        reason = json.loads(fields.get("reason") or "{}")
        if reason.get("text") == PARENT_DID:
            return False
        above = self._store.fields(ref)
        if above.get("status") != SessionStatus.ACTIVE:
            return False
        step = self._registry.program(above["program"]).step_or_none(parent["address"])
        return step is not None and not step.critical

    def _is_of_a_doer(self, ref: SessionRef, parent: Mapping[str, str]) -> bool:
        """Whether a body started the child; otherwise a step did, and the child is a subflow."""
        program = self._registry.program(self._registry.facts(ref).program)
        step = program.step_or_none(parent["address"])
        return step is not None and step.action is not Action.CHILD

    def _waiting_step(self, child: SessionRef, parent: Mapping[str, str]) -> StepRecord | None:
        """The step that waits for a child; None if no step does."""
        ref, address = SessionRef(parent["session"], child.root), parent["address"]
        step = self._store.steps(ref, [address]).get(address)
        waits = step is not None and step.parked and step.parked.get("child") == child.id
        return step if waits else None
