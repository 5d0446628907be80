"""Shows an agent's activity while it runs, and records its tool calls for the outcome."""

from __future__ import annotations

from leadhand.models.views.step import ToolCallView
from workers.agents.activity import Activity, AgentText, Notice, ToolEnded, ToolStarted
from workers.task.excerpt import READ_CHARACTERS
from workers.task.live_output import LiveOutput

#: Tool calls of one attempt that are recorded; later ones are counted.
CALLS = 100
#: Characters of the name of a tool, and of the id of a call.
_NAME_LIMIT = 100
_ID_LIMIT = 200
#: Calls without a result that are remembered.
_OPEN_CALLS = 1_000
#: Characters of an input or result in the live output.
_SHOWN = 200


class _OpenCall:
    """A call without a result: its name, and its place among the recorded calls."""

    def __init__(self, name: str, index: int | None) -> None:
        self.name = name
        self.index = index


class ActivityLog:
    """The activity of one run."""

    def __init__(self, live: LiveOutput | None = None) -> None:
        self._live = live
        self._calls: list[ToolCallView] = []
        self._open: dict[str, _OpenCall] = {}
        self._started = 0
        self._failed = 0

    def take(self, activity: Activity) -> None:
        """Record an activity of the agent and write it to the live output."""
        match activity:
            case AgentText():
                self._show(activity.text)
            case ToolStarted():
                self._start(activity)
            case ToolEnded():
                self._end(activity)
            case Notice():
                self._show(f"! {activity.kind}: ", activity.text)

    @property
    def calls(self) -> tuple[ToolCallView, ...] | None:
        """Return the agent's first tool calls, not redacted; None if there was none."""
        return tuple(self._calls) or None

    @property
    def tools_failed(self) -> int | None:
        """Return the number of tool calls if all of them failed, else None."""
        return self._failed if 0 < self._failed == self._started else None

    def _start(self, call: ToolStarted) -> str:
        """Record the call under its id, or a number of its own; return that key."""
        key = f"#{self._started}" if call.id is None else call.id[:_ID_LIMIT]
        name = call.name[:_NAME_LIMIT]
        if key in self._open:
            return key
        self._started += 1
        index = None
        if len(self._calls) < CALLS:
            index = len(self._calls)
            self._calls.append(ToolCallView(name=name, input=_start_of(call.input)))
        if len(self._open) < _OPEN_CALLS:
            self._open[key] = _OpenCall(name, index)
        self._show(f"> {name}: ", call.input)
        return key

    def _end(self, result: ToolEnded) -> None:
        call = self._open.pop(self._key_of(result), None)
        self._failed += result.failed
        name = f"{call.name}: " if call is not None else ""
        self._show(f"< {'failed: ' if result.failed else ''}{name}", result.result or "no output")
        if call is not None and call.index is not None:
            ended = {"result": _start_of(result.result), "failed": result.failed}
            self._calls[call.index] = self._calls[call.index].model_copy(update=ended)

    def _key_of(self, result: ToolEnded) -> str:
        """The key of the result's call, which is started if it was not reported before."""
        if result.call is not None:
            return self._start(result.call)
        if result.id is not None:
            return result.id[:_ID_LIMIT]
        return next(iter(self._open), "")

    def _show(self, head: str, text: str | None = None) -> None:
        if self._live is None:
            return
        if text is None:
            self._live.write_text(head)
        else:
            self._live.write_line(head, text, limit=_SHOWN)


def _start_of(text: str) -> str:
    """So much of a text as its redaction reads."""
    return text[: READ_CHARACTERS + 1]
