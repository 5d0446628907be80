"""Declares the MCP tools: each is a function, whose parameters are the arguments of the tool."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from leadhand.client.client import AsyncClient
from leadhand.contract.calls import Op
from leadhand.models.views.shared import LockGrant

#: What a tool returns; it becomes one JSON object.
Result = BaseModel | Mapping[str, Any]
Session = Annotated[
    str | None, Field(description="The id of a session; by default the own one.", min_length=1)
]

_FROM_OUTSIDE = "`leadhand --help` lists the commands that work from outside"


class ToolRefused(Exception):
    """A tool cannot do what it was asked; the message says why and what to do instead."""


class Arguments(BaseModel):
    """Frozen; an unknown argument is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class Tool(NamedTuple):
    """A tool: the model of its arguments, and what it does with them."""

    description: str
    arguments: type[Arguments]
    call: Callable[[Calls, Any], Awaitable[Result]]
    #: Whether it changes nothing.
    reads: bool = False


class Calls:
    """The calls of one server.

    Args:
        client: Has the token of a body or of a user.
        session: The session of the body that this server belongs to; None outside a body.
    """

    def __init__(self, client: AsyncClient, session: str | None) -> None:
        self.client = client
        self._session = session
        #: The grants of this server's locks, by session and name.
        self.grants: dict[tuple[str, str], LockGrant] = {}

    def own(self, what: str, instead: str) -> str:
        """Return the session of this server. Raises ToolRefused outside a body."""
        if self._session is None:
            raise ToolRefused(
                f"{what} belongs to a doer or checker inside a session, and LEADHAND_SESSION is"
                f" not set here; {instead}"
            )
        return self._session

    def named(self, tool: str, session: str | None) -> str:
        """Return the session that a call of a tool names, or that of this server."""
        return session or self.own(f"{tool} without a session", "name one in session")


#: Carries out a tool: it is given the calls, and the arguments by name.
Function: TypeAlias = Callable[..., Awaitable[Result]]


def tool_of(function: Function, *, reads: bool = False) -> Tool:
    """Makes a tool of a function: its docstring describes it to agents."""
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = inspect.signature(function).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}

    async def call(calls: Calls, given: Arguments) -> Result:
        return await function(calls, **{one.name: getattr(given, one.name) for one in parameters})

    arguments = _model(function, {one.name: hints[one.name] for one in parameters}, defaults)
    return Tool(description_of(function), arguments, call, reads)


def description_of(function: Callable[..., object]) -> str:
    """Returns the docstring of a function as one line."""
    return " ".join((function.__doc__ or "").split())


def derived_tools() -> Iterator[tuple[str, Tool]]:
    """Yields the tools that are no more than an operation, by the names in their declarations."""
    for noun in AsyncClient.__mro__:
        for name, one in vars(noun).items():
            if isinstance(one, Op) and one.operation is not None and one.operation.mcp:
                yield one.operation.mcp, _derived(one.operation.mcp, name, one)


def _derived(tool: str, name: str, op: Op[Any, Any]) -> Tool:
    """The tool of an operation: `session` is by default that of the caller, or always.

    It always is where a body may call the operation for its own session alone.
    """
    method, operation = getattr(AsyncClient, name), op.operation
    assert operation is not None
    model: Any = operation.body or operation.query
    hints: dict[str, Any] = get_type_hints(method)
    parameters = dict(inspect.signature(method).parameters)
    is_own = operation.body_right is not None and operation.body_right.reach == "own"
    left_out = {"self", "seen", "idempotency_key", "session" if is_own else ""}
    names = [one for one in parameters if one not in left_out]
    fields = {one: model.model_fields[one] for one in names if one in model.model_fields}
    types = {one: fields[one].annotation if one in fields else hints[one] for one in names}

    async def call(calls: Calls, given: Arguments) -> Result:
        values = {one: getattr(given, one) for one in names}
        if is_own:
            values["session"] = calls.own(tool, _FROM_OUTSIDE)
        elif "session" in values:
            values["session"] = calls.named(tool, values["session"])
        found: Result = await method(calls.client, **values)
        return found

    if "session" in names:
        types["session"], fields["session"] = Session, None
    description = description_of(method).partition(" Raises ")[0]
    return Tool(description, _model(method, types, fields), call, operation.method == "GET")


def _model(
    function: Callable[..., object], types: Mapping[str, Any], defaults: Mapping[str, Any]
) -> type[Arguments]:
    """The model of a tool's arguments."""
    fields: dict[str, Any] = {name: (one, defaults.get(name, ...)) for name, one in types.items()}
    return create_model(function.__name__, __base__=Arguments, **fields)
