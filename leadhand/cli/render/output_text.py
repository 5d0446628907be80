"""What running bodies write, as lines of text for a terminal or a pipe."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from leadhand.models.text import escape_controls, plain, render_terminal
from leadhand.models.views.step import Event, OutputView

#: Lines of the newest output that a live screen shows.
TAIL = 5
#: Unfinished lines are shown once they are so long.
_LONGEST = 2_000


class OutputLines:
    """Cuts the output of each attempt into lines, each with its step's address before it."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int, str], str] = {}

    def lines(self, event: Event) -> Iterator[str]:
        """Yield the lines that an `output` event completes, and lost output; buffers the rest."""
        fields = event.fields
        address = event.address or ""
        fence, stream = int(str(fields.get("fence", 0))), str(fields.get("stream", ""))
        of = address, fence, stream
        missing = _missing(int(str(fields.get("dropped", 0))), int(str(fields.get("missing", 0))))
        if missing:
            yield from self._flush(of)
            yield f"{_name(address, stream)} {missing}"
        text = self._open.pop(of, "") + str(fields.get("text", ""))
        *ended, rest = text.replace("\r\n", "\n").split("\n")
        for line in ended:
            yield _line(address, stream, line)
        if rest:
            self._open[of] = rest
            if len(rest) > _LONGEST:
                yield from self._flush(of)

    def rest(self) -> Iterator[str]:
        """Yield, and remove from the buffer, the last lines that no newline ended."""
        for of in list(self._open):
            yield from self._flush(of)

    def _flush(self, of: tuple[str, int, str]) -> Iterator[str]:
        text = self._open.pop(of, "")
        if text:
            yield _line(of[0], of[2], text)


@dataclass
class Tail:
    """The newest lines, and when the last of them came."""

    address: str = ""
    at_ms: int | None = None
    _lines: OutputLines = field(default_factory=OutputLines)
    _newest: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))

    def add(self, event: Event) -> None:
        """Add the lines that an `output` event completes; keeps only the newest 5."""
        self.address, self.at_ms = event.address or "", event.at_ms
        self._newest.extend(self._lines.lines(event))

    @property
    def last(self) -> str:
        """Return the newest line, with its step; '' before any."""
        return self._newest[-1] if self._newest else ""

    def shown(self, now_ms: int) -> list[str]:
        """Return lines: the age of the last output and its newest lines; empty before any."""
        if self.at_ms is None:
            return []
        age = max(0, now_ms - self.at_ms) // 1000
        return [f"  last output {age} s ago", *(f"    {line}" for line in self._newest)]


def attempt_lines(view: OutputView) -> Iterator[str]:
    """Formats the stored output of one attempt at a step as lines."""
    lines = OutputLines()
    for part in view.parts:
        fields = {"fence": view.fence, **part.model_dump(mode="json", exclude={"at"})}
        yield from lines.lines(
            Event(id="0-0", type="output", at_ms=0, address=view.address, fields=fields)
        )
    yield from lines.rest()


def _line(address: str, stream: str, line: str) -> str:
    # A progress bar overwrites its line: what is last in it is what a terminal would show.
    shown = render_terminal(line).rstrip("\r")
    return f"{_name(address, stream)} {escape_controls(shown)}"


def _name(address: str, stream: str) -> str:
    mark = "!" if stream == "stderr" else "|"
    return f"{plain(address)} {mark}"


def _missing(dropped: int, parts: int) -> str:
    if dropped >= 1000:
        return f"[{dropped / 1000:.0f} kB dropped]"
    if dropped:
        return f"[{dropped} bytes dropped]"
    return "[older output is no longer kept]" if parts > 0 else ""
