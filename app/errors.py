"""The errors that only the server tells apart: narrow forms of refusals, and errors inside it."""

from __future__ import annotations

from collections.abc import Sequence

from app.redaction import shortened
from leadhand.errors import ControlRefused, LeadhandError, Refused, RequestInvalid, TokenRefused
from leadhand.models.forms import Unfit
from leadhand.models.problems import FieldProblem
from leadhand.models.validation_messages import NAMED


class InvalidDocument(RequestInvalid, narrow=True):
    """A field has a value that cannot be run."""

    def __init__(self, field: str, value: object, hint: str) -> None:
        shown = shortened(value, field=field)
        problem = FieldProblem(field=field, value=shown, message=hint, hint=hint)
        super().__init__(hint)
        self._name((problem,))
        self.field = field
        self.value = value
        self.hint = hint

    @property
    def all(self) -> tuple[InvalidDocument, ...]:
        """Return a tuple with this error alone; SeveralInvalid returns one error per field."""
        return (self,)

    def __str__(self) -> str:
        return f"{self.field} is {self.value!r}: {self.hint}"


class SeveralInvalid(InvalidDocument, narrow=True):
    """Several fields have values that cannot be run; the first one is that of the error itself."""

    def __init__(self, errors: Sequence[InvalidDocument]) -> None:
        super().__init__(errors[0].field, errors[0].value, errors[0].hint)
        self._name([one for error in errors[:NAMED] for one in error.problem.errors])
        self._errors = tuple(errors)

    @property
    def all(self) -> tuple[InvalidDocument, ...]:
        """Return the tuple of InvalidDocument errors that this error combines."""
        return self._errors

    def __str__(self) -> str:
        return "; ".join(map(str, self._errors))


class PositionRefused(InvalidDocument, narrow=True):
    """A session cannot be resumed from this point."""


class AnswerUnfit(RequestInvalid, narrow=True):
    """An answer does not fit what the question accepts; the step keeps waiting."""

    def __init__(self, session: str, address: str, unfit: Sequence[Unfit]) -> None:
        parts = "; ".join(f"{one.field}: {one.message}, {one.hint}" for one in unfit)
        self._text = f"the answer to step {address!r} of session {session!r} does not fit: {parts}"
        super().__init__(self._text)
        self._name([_problem_of(one) for one in unfit[:NAMED]])

    def __str__(self) -> str:
        return self._text


def _problem_of(one: Unfit) -> FieldProblem:
    value = None if one.value is None else shortened(one.value, field=one.field)
    return FieldProblem(field=one.field, value=value, message=one.message, hint=one.hint)


class ReferenceUnresolved(RequestInvalid, narrow=True):
    """A `${reference}` names nothing."""

    def __init__(self, reference: str, address: str) -> None:
        message = "it names no node that is visible from there"
        super().__init__(message)
        self._name([FieldProblem(field=address, value=reference, message=message)])
        self.reference = reference
        self.address = address

    def __str__(self) -> str:
        return f"{self.reference!r} in {self.address!r} names no node that is visible from there"


class ValueMissing(ReferenceUnresolved, narrow=True):
    """A `${reference}` names a value that is not there."""

    def __init__(self, reference: str, address: str, why: str) -> None:
        super().__init__(reference, address)
        self.why = why

    def __str__(self) -> str:
        return f"{self.reference} has no value: {self.why}"


class ParentRests(ControlRefused, narrow=True):
    """The step that starts a child session no longer runs, or its session starts no steps now."""

    def __init__(self) -> None:
        Refused.__init__(self, "the attempt that starts this child has ended, or its session stops")


class CapabilityRefused(TokenRefused, narrow=True):
    """The token does not grant this."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the token does not grant this: {why}")
        self.why = why


class SpecForeign(LeadhandError):
    """The session's program was not signed with this process' secret."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, why)
        self.session = session
        self.why = why

    def __str__(self) -> str:
        return f"session {self.session!r} cannot run here: {self.why}"


class EnvironmentSealed(SpecForeign):
    """The environment of a session was changed, or another LEADHAND_SECRET encrypted it."""

    def __init__(
        self, session: str, why: str = "its environment cannot be read; submit --env again"
    ) -> None:
        super().__init__(session, why)


class ExportOwed(LeadhandError):
    """A session is kept past its retention time because its export could not be written."""

    def __init__(self, session: str, why: str) -> None:
        super().__init__(session, why)
        self.session = session
        self.why = why

    def __str__(self) -> str:
        return f"session {self.session!r} is kept until its export is written: {self.why}"


class WorkerNameTaken(LeadhandError):
    """Another worker uses this name."""

    def __init__(self, name: str, host: str, pid: int) -> None:
        super().__init__(name, host, pid)
        self.name = name
        self.host = host
        self.pid = pid

    def __str__(self) -> str:
        return (
            f"LEADHAND_WORKER_NAME is {self.name!r}: a worker of that name is running on "
            f"{self.host} (process {self.pid}); give this one another name, or stop that one"
        )


class ProgramStale(LeadhandError):
    """The session has adopted another program than the cached one."""
