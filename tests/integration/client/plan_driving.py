"""A plan's session at a served API without workers, of which the test carries out the steps."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.records import Grant
from app.plans import plans
from leadhand.contract.sessions import SessionsWanted
from leadhand.models.plans import PlannedTask
from leadhand.models.views.plan import PlanView, TaskView
from tests.http_world import Served
from tests.waiting import wait_until
from workers.attempt.settle import park


class DrivenPlan:
    """The plan of a session."""

    def __init__(self, api: Served, session: str) -> None:
        self.engine = api.engine
        self.id = session
        self.ref = SessionRef(session, session)
        self._drafts = 0

    @classmethod
    def labelled(cls, api: Served, label: str) -> DrivenPlan:
        """The plan with this label, which a command starts."""
        wanted = SessionsWanted(label=label)
        found = wait_until(lambda: api.engine.queries.sessions(wanted).items, timeout=60)
        return cls(api, found[0].id)

    @property
    def view(self) -> PlanView:
        return plans.show(self.engine, self.id)

    def ids(self) -> list[str]:
        return [task.id for task in self.view.tasks]

    def task(self, task: str) -> TaskView:
        return next(one for one in self.view.tasks if one.id == task)

    def draft(self, tasks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Settle the next draft with these tasks, and ask for its approval.

        Returns the inputs of the draft.
        """
        self._drafts += 1
        at = f"drafting~1[{self._drafts}]"
        work = self.engine.attempts.work(self.ref, self._claim(self.ref, f"{at}/decompose"))
        dumped: list[JsonValue] = [
            PlannedTask.model_validate(one).model_dump(mode="json") for one in tasks
        ]
        outcome = Outcome(word="succeeded", value={"tasks": dumped})
        self.engine.attempts.settle(work, outcome, take=[], worker="w")
        self.park(f"{at}/refine")
        return work.inputs

    def park(self, address: str) -> None:
        grant = self._claim(self.ref, address)
        assert park(self.engine, self.engine.attempts.work(self.ref, grant)) is None

    def begin(self) -> None:
        """Approve the draft and start its tasks."""
        plans.approve(self.engine, self.id, by="ann")
        self.park("execute")

    def doer(self, task: str) -> tuple[SessionRef, Grant]:
        """Claim the doer of a task's child session."""
        session = self.task(task).session
        assert session is not None
        child = SessionRef(session, self.id)
        return child, self._claim(child, "loop~1[1]/do")

    def _claim(self, ref: SessionRef, address: str) -> Grant:
        def claim() -> Sequence[Grant]:
            nonce = uuid.uuid4().hex
            return self.engine.attempts.claim(ref, address, nonce=nonce, worker="w").grants

        return wait_until(claim, timeout=30)[0]
