"""Problem details (RFC 9457): the format of the API's errors, shared by server and client."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, JsonValue

MEDIA_TYPE = "application/problem+json"
#: The most characters of a field's path or of a sentence about it, as both may quote the input.
LONGEST = 1_000
#: The type of a problem that has none of its own.
BLANK = "about:blank"


class Kind(NamedTuple):
    """A type of problem, as a class of leadhand.errors declares it.

    >>> Kind("session-unknown", 404, "No such session").uri
    'urn:leadhand:problem:session-unknown'
    """

    code: str
    #: The HTTP status.
    status: int
    title: str
    #: The default hint to fix it.
    hint: str | None = None

    @property
    def uri(self) -> str:
        """Return the URI in the problem's field `type`; only the status describes a blank one."""
        return BLANK if self.code == BLANK else f"urn:leadhand:problem:{self.code}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


Sentence = Annotated[str, AfterValidator(_cut)]


class FieldProblem(BaseModel):
    """The error of one field, with a hint to fix it."""

    model_config = ConfigDict(frozen=True)

    #: The field's path, such as `phases.0.checkers.1.timeout_s`.
    field: Sentence
    #: The value, shortened; absent if there is none to show.
    value: Sentence | None = None
    message: Sentence
    hint: Sentence | None = None
    place: Literal["body", "query", "header"] = "body"


class Problem(BaseModel):
    """An error response; the first of several invalid fields is also at the top level."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str = BLANK
    title: str
    status: int
    detail: str = ""
    field: str | None = None
    value: str | None = None
    hint: str | None = None
    errors: tuple[FieldProblem, ...] = ()
    #: The session's status when the request was refused.
    session_status: str | None = None
    #: The plan as it is now, if it has changed since the client read it.
    plan: dict[str, JsonValue] | None = None
    request_id: str | None = None

    def __str__(self) -> str:
        """
        >>> str(Problem(title="Not valid", status=422, detail="task is missing", hint="add it"))
        'task is missing; add it'
        """
        text = self.detail or self.title
        has_hint = self.hint is None or self.hint.removeprefix("give ") in text
        return text if has_hint else f"{text}; {self.hint}"
