"""Calls functions in this pool process that the operator trusts like the worker itself."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from leadhand.functions import runner
from leadhand.functions.arguments import typed_arguments
from workers.processes.call_slots import MOST_BYTES, CallSlot
from workers.processes.output import Captured
from workers.processes.process import ProcessResult
from workers.registry.inline import IMPORT_S, InlineFunction, InlineFunctions
from workers.task.call_result import CallResult, call_result

#: Makes a function's arguments of a context.
Fill = Callable[..., "tuple[tuple[object, ...], dict[str, object]]"]


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
