"""The declaration of an operation: its path, what it takes and returns, and who may call it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

JSON = "application/json"
JSON_LINES = "application/jsonl"
EVENT_STREAM = "text/event-stream"
A = TypeVar("A")
_PARAMETER = re.compile(r"\{(\w+)(?::([^}]*))?\}")


def _whole_number(value: object) -> object:
    """Refuse numbers in a query that are not plain digits."""
    if isinstance(value, str) and not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", value):
        raise ValueError("it should be a whole number; give a whole number")
    return value


def _day(value: object) -> object:
    """Refuse what pydantic takes for a date too, such as a number of seconds."""
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("it should be a valid date; give a day such as 2026-11-01")
    return value


def _yes_or_no(value: object) -> object:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("it should be true or false; give one of them")
    return value


#: For whole numbers of a query. Limits are before it, or the description does not have them.
DIGITS = BeforeValidator(_whole_number)
Limit = Annotated[int, Field(ge=1, le=500), DIGITS]
Whole = Annotated[int, Field(ge=0, le=999_999_999), DIGITS]
Day = Annotated[date, BeforeValidator(_day)]
YesOrNo = Annotated[bool, BeforeValidator(_yes_or_no)]


#: The forms of an idempotency key, which is printable ASCII, and of the id of an event.
KEY_FORM = r"[\x20-\x7e]{1,200}"
EVENT_ID_FORM = r"[0-9]{1,19}-[0-9]{1,19}"


class Query(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NoQuery(Query):
    """The query of a route without parameters."""


class PageQuery(Query):
    """The page of a list."""

    #: Maximum number of items.
    limit: Limit = 50
    #: The `next` of the previous page.
    cursor: Annotated[str, Field(min_length=1, max_length=500, pattern="^[!-~]+$")] | None = None


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class NoBody(Body):
    """The body of a call without parameters: absent, or an empty object."""


def _drop_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


#: A field that may be left out, and is never null.
WITHOUT_DEFAULT = Field(json_schema_extra=_drop_default)


def not_null(value: object) -> object:
    """Refuses null for a field that may be left out: a point that was not found is no default."""
    if value is None:
        raise ValueError("it is null; leave it out to continue where the session was")
    return value


class Scope(StrEnum):
    #: Read sessions, events, workers, queues and limits.
    READ = "read"
    #: Start sessions of named agents.
    SUBMIT = "submit"
    #: Stop, resume, exit, abort, move and delete sessions.
    CONTROL = "control"
    #: Submit commands and callables: the right to run anything on a worker.
    EXEC_FREE = "exec:free"
    #: Create and revoke tokens and set limits; includes all other scopes.
    ADMIN = "admin"


class BodyRight(NamedTuple):
    """What a body may do at an operation: the scope of its step token, and for which sessions."""

    scope: str
    #: Its own session, those that it started and all below them, both, or a call that is about
    #: no session.
    reach: Literal["own", "below", "tree", "any"] = "tree"


#: Rights that several operations give.
READS = BodyRight("read")
CONTROLS = BodyRight("spawn", "below")
SHARES = BodyRight("share", "own")


class ApiResponse(NamedTuple):
    """A response: its status, description, body by media type, and headers."""

    status: int
    what: str
    body: Mapping[str, object] = {}
    headers: tuple[str, ...] = ()


def replies(
    model: object, what: str, status: int = 200, *, headers: tuple[str, ...] = ()
) -> ApiResponse:
    """Declares a JSON response of an operation: its status, description and model."""
    return ApiResponse(status, what, {JSON: model}, headers)


GONE = ApiResponse(204, "Done.")


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[A]):
    """An operation of the API; `A` is what its handler is given: the body, or else the query."""

    #: Its name, `NOUN.VERB`: the id in the OpenAPI document.
    name: str
    method: str
    #: With parameters such as `{session}` or `{lock:path}`, whose value may contain slashes.
    path: str
    summary: str
    responses: tuple[ApiResponse, ...]
    #: What a token needs; None for an operation that is open to all.
    scope: Scope | None
    #: What the token of a body needs; without it a body may not call the operation.
    body_right: BodyRight | None = None
    #: The parameter of the query that names the session which a body's right is about.
    session_in_query: str = ""
    query: type[BaseModel] | None = NoQuery
    #: The type of the request body; None if it is not read.
    body: Any = None
    body_required: bool = False
    headers: tuple[str, ...] = ()
    #: Problem statuses in addition to those implied by its parameters and body.
    refuses: tuple[int, ...] = ()
    #: The path parameter of other operations that takes the `id` of its response.
    makes: str | None = None
    #: The MCP tool that is no more than the operation.
    mcp: str = ""

    @property
    def parameters(self) -> Mapping[str, str]:
        """Returns the parameters of the path, with their kind (`path`, `any(...)`) or ''."""
        return dict(_PARAMETER.findall(self.path))

    def path_with(self, form: Callable[[str, str], str]) -> str:
        """Returns the path, with a text that `form` makes of name and kind for each parameter."""
        return _PARAMETER.sub(lambda found: form(found[1], found[2] or ""), self.path)
