"""Calls functions in this pool process that the operator trusts like the worker itself."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from leadhand.functions import runner
from leadhand.functions.modules import typed_arguments
from workers.processes.output import Captured
from workers.processes.process import ProcessResult
from workers.processes.warm_pool import MOST_BYTES, CallSlot
from workers.registry.inline import IMPORT_S, InlineFunction, InlineFunctions

#: Makes a function's arguments of a context.
Fill = Callable[..., "tuple[tuple[object, ...], dict[str, object]]"]


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


class InlineCalls:
    """Calls inline functions, each written down first for the watchdog in the main process.

    `text` returns what the watchdog has to know: the function's name and the attempts that this
    process holds.
    """

    def __init__(
        self,
        slot: CallSlot,
        *,
        text: Callable[[str], bytes],
        on_handed_back: Callable[[], None],
    ) -> None:
        self._slot = slot
        self._text = text
        #: Called if the watchdog has handed back the other attempts of this process.
        self._on_handed_back = on_handed_back

    def call(
        self,
        functions: InlineFunctions,
        function: InlineFunction,
        context: Mapping[str, JsonValue],
        *,
        timeout_s: float,
        fill: Fill = typed_arguments,
    ) -> CallResult | None:
        """Call the function in this process with arguments from the context; None if it cannot be.

        None if too much is to be written down, so that it is to be called in a process of its own.
        """
        text = self._text(function.name)
        if len(text) > MOST_BYTES:
            return None
        began_ms, printed = time.time_ns() // 1_000_000, io.StringIO()
        known = functions.imported(function)
        self._slot.begin(IMPORT_S if known is None else timeout_s, text)

        def find(_name: str) -> Callable[..., object]:
            if known is not None:
                return known
            found = functions.load(function)
            self._slot.restart(timeout_s)  # the time of the import does not count
            return found

        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                word, value = _called(function.name, context, find, fill)
                answer = runner.as_json(word, value)
        finally:
            if self._slot.end():
                self._on_handed_back()
        shown = printed.getvalue()[-runner.PRINTED :]
        result = ProcessResult(
            exit_code=0,
            signal=None,
            stdout=Captured(shown, len(shown)),
            stderr=Captured(),
            started_ms=began_ms,
            ended_ms=time.time_ns() // 1_000_000,
        )
        return call_result(result, *json.loads(answer))


def _called(
    name: str,
    context: Mapping[str, JsonValue],
    find: Callable[[str], Callable[..., object]],
    fill: Fill,
) -> tuple[str, object]:
    try:
        return runner.call_found(name, context, find=find, fill=fill)
    except SystemExit as error:
        return "raised", {"story": f"{type(error).__name__}: {error}"}
