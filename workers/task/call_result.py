"""The result of a call of a user's function, in whatever process it ran."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from workers.processes.process import ProcessResult


@dataclass(frozen=True)
class CallResult:
    """The result of a call: the value that it returned, or why there is none."""

    result: ProcessResult
    value: JsonValue = None
    #: The traceback of what it raised.
    raised: str | None = None
    #: The names of the classes of what it raised, and of an HTTP status.
    errors: tuple[str, ...] = ()
    #: Those of each member, if it raised an exception group.
    members: tuple[tuple[str, ...], ...] = ()
    #: Why the function was not found.
    missing: str | None = None
    #: Why a tool does not accept the arguments.
    refused: str | None = None
    #: Whether the process ended before the function did.
    unfinished: bool = False


def call_result(result: ProcessResult, word: str, value: JsonValue) -> CallResult:
    """Converts a function call's end (`missing`, `refused`, `raised`) and value to a result."""
    if word == "missing":
        return CallResult(result, missing=str(value))
    if word == "refused":
        return CallResult(result, refused=str(value))
    if word == "raised":
        told = value if isinstance(value, dict) else {"story": value}
        members = told.get("members")
        return CallResult(
            result,
            raised=str(told.get("story")),
            errors=_names(told.get("errors")),
            members=tuple(map(_names, members)) if isinstance(members, list) else (),
        )
    return CallResult(result, value=value)


def _names(value: JsonValue) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
