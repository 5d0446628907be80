"""The bodies of calls that make a session from another one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from api.requests import WITHOUT_DEFAULT, Body, not_null
from leadhand.models.documents import Checker, Name, Text
from leadhand.models.session_environment import WithEnvironment

_Position = Annotated[str, Field(min_length=1, max_length=1000)]
_Inputs = Annotated[dict[Name, JsonValue], Field(default_factory=dict, max_length=1000)]
_Tools = Annotated[dict[Name, Name], Field(default_factory=dict, max_length=1000)]

#: A list in JSON, which a strict model would not take for a tuple.
_Checkers = Annotated[tuple[Checker, ...], Field(min_length=1, max_length=100, strict=False)]


class Fork(Body, WithEnvironment):
    """Where a fork continues, and what is different in it."""

    #: The last point of the session that counts as done, as for a resume; without it the fork
    #: continues where the session had come to.
    after: Annotated[
        _Position | SkipJsonSchema[None], BeforeValidator(not_null), WITHOUT_DEFAULT
    ] = None
    #: New values of inputs; all that refers to them runs again.
    inputs: _Inputs
    #: Of a graph or flow: another tool for a step or in place of a tool, in the steps that run.
    tools: _Tools
    #: The agent that does the work from here on.
    agent: Name | None = None
    #: as-is: it works in the session's folder as that is now, and in no worktree of its own.
    folder: Literal["as-is"] | None = None
    label: Name | None = None


class Rerun(Body, WithEnvironment):
    """What is different in the new session."""

    #: Another task of a loop, or request of a plan.
    task: Text | None = None
    checkers: _Checkers | None = None
    #: The agent that does the work.
    agent: Name | None = None
    #: New values of inputs of a flow or graph.
    inputs: _Inputs
    label: Name | None = None
