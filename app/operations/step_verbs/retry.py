"""Runs a step of a stopped or failed session again, and all that depends on it."""

from __future__ import annotations

from app.compiler.plan import EXECUTE
from app.domain.control import Seen
from app.domain.ids import SessionRef
from app.domain.states import SessionStatus
from app.errors import PositionRefused
from app.history.snapshot import Snapshot
from app.operations.control import SessionControl
from app.operations.registry import Registry
from app.resume.plan import rewind_before
from app.resume.rewind import ResumePlan
from app.security.step_tokens import Caller
from app.store.store import Store
from leadhand.errors import ControlRefused
from leadhand.models.views.session import SessionView


class Retry:
    """Resumes sessions at the point before a step."""

    def __init__(self, store: Store, registry: Registry, control: SessionControl) -> None:
        self._store = store
        self._registry = registry
        self._control = control

    def retry(
        self,
        session: str,
        step: str,
        *,
        by: Caller | None = None,
        seen: Seen | None = None,
        free: bool = True,
    ) -> SessionView:
        """Resume a session so that a step, and what depends on it, runs again.

        Raises ControlRefused unless it is stopped or failed, PositionRefused for a step that has
        not run, and the errors of a resume.
        """
        return self._control.apply(
            session, "resume", after=step, by=by, seen=seen, planner=self._plan, free=free
        )

    def _plan(self, ref: SessionRef, step: str | None) -> ResumePlan:
        assert step is not None
        fields = self._store.fields(ref)
        status = fields.get("status", "")
        if status not in (SessionStatus.STOPPED, SessionStatus.FAILED):
            raise ControlRefused(ref.id, "retry a step of", status, _hint(ref.id, status))
        if fields["kind"] == "plan" and self._store.steps(ref, [EXECUTE]):
            hint = "the tasks of this plan have begun; retry one with `leadhand plan retry`"
            raise PositionRefused("step", step, hint)
        program = self._registry.program(fields["program"])
        failed = status == SessionStatus.FAILED
        try:
            rewind = rewind_before(program, step, Snapshot(self._store, ref), failed=failed)
        except PositionRefused as error:
            raise PositionRefused("step", error.value, error.hint) from None
        return ResumePlan(rewind=rewind, as_of=fields["updated"])


def _hint(session: str, status: str) -> str:
    if status in (SessionStatus.COMPLETED, SessionStatus.EXITED, SessionStatus.ABORTED):
        return f"it has ended for good; fork it: leadhand fork {session} --after STEP"
    return f"stop it first: leadhand stop {session}"
