"""The errors of plans: each is named for the fact."""

from __future__ import annotations

from app.errors import LeadhandError
from leadhand.models.problems import Kind


class NoPlan(LeadhandError):
    """The session has no plan: it is of another kind, or its team lead has not drafted one yet."""

    kind = Kind.NO_PLAN

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, why)
        self.session = session
        self.why = why

    def __str__(self) -> str:
        return f"session {self.session!r} has no plan: {self.why}"


class PlanChanged(LeadhandError):
    """The plan has changed since its caller read it."""

    kind = Kind.PLAN_CHANGED

    def __init__(self, session: str, version: int) -> None:
        super().__init__(session, version)
        self.session = session
        #: The version of the plan as it is now.
        self.version = version

    def __str__(self) -> str:
        return f"the plan of session {self.session!r} is at version {self.version} now"


class PlanRefused(LeadhandError):
    """The plan does not allow this change."""

    kind = Kind.PLAN_REFUSED

    def __init__(self, session: str, what: str, why: str, operation: int | None = None) -> None:
        super().__init__(session, what, why, operation)
        self.session = session
        #: The task or proposal that the change concerns; empty for the whole plan.
        self.what = what
        self.why = why
        #: The number of the operation, from 1.
        self.operation = operation

    def __str__(self) -> str:
        what = f"task {self.what!r}: " if self.what else ""
        return f"the plan of session {self.session!r} does not allow this: {what}{self.why}"


class ReportLate(LeadhandError):
    """The report of a child session came after its task had ended for the plan."""

    kind = Kind.REPORT_LATE

    def __init__(self, session: str, state: str) -> None:
        super().__init__(session, state)
        self.session = session
        self.state = state

    def __str__(self) -> str:
        if self.state == "superseded":
            return f"session {self.session!r} was replaced by another run of its task"
        return f"the task of session {self.session!r} is {self.state} for its plan already"
