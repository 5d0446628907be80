"""The declaration of an operation: its path, what it takes and returns, and who may call it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel

from leadhand.contract.bodies import NoQuery

JSON = "application/json"
JSON_LINES = "application/jsonl"
EVENT_STREAM = "text/event-stream"

A = TypeVar("A")
_PARAMETER = re.compile(r"\{(\w+)(?::([^}]*))?\}")


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
