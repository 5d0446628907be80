"""Art for terminals in a body's output is shown as text and never controls the terminal."""

from __future__ import annotations

import re
import time
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from pydantic import JsonValue
from rich.cells import cell_len
from rich.console import Console

from leadhand.cli.render.live import LiveScreen
from leadhand.cli.render.live_text import sentence
from leadhand.cli.render.output_text import attempt_lines
from leadhand.cli.render.progress import Picture, apply_event
from leadhand.cli.render.terminal import EscapingStream
from leadhand.cli.watch import _shown
from leadhand.models.text import without_ansi
from leadhand.models.views.step import Event, OutputPart, OutputView, TranscriptEntry
from tests.scripted_api import AT
from workers.live_output import LineRedactor

ART = {
    "cursor movements": ("\x1b[2J\x1b[H\x1b[3;7Hx\x1b[1A\x1b[K\x1b7y\x1b8\x1b[?25lz", "xyz"),
    "colours": ("\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mtrue\x1b[m", "red true"),
    "256 colours": ("".join(f"\x1b[48;5;{n}m▀\x1b[0m" for n in range(256)), "▀" * 256),
    "box drawing": ("╔══╗║▓▒░║╚══╝", "╔══╗║▓▒░║╚══╝"),
    "box drawing of the VT100": ("\x1b(0lqqk\x1b(B", "lqqk"),
    "wide characters": ("表の幅 ｶﾅ 👩\u200d💻 한글", "表の幅 ｶﾅ 👩\u200d💻 한글"),
    "combining marks": ("Z̸̢͠a̵͝l̷̛ǵ̶o e\u0301", "Z̸̢͠a̵͝l̷̛ǵ̶o e\u0301"),
    "a title and a link": ("\x1b]0;t\x07\x1b]8;;https://a.b\x1b\\here\x1b]8;;\x1b\\", "here"),
    "a picture": ("\x1bPq#0;2;0;0;0#0~~@@vv\x1b\\end", "end"),
    "a progress bar": ("10 %\r50 %\r\x1b[2K100 %\r", "100 %"),
}  # fmt: skip
#: Of 8 bits, cut off, or unknown: shown as escapes or spaces.
BROKEN = [
    "\x9b31mred",
    "red\x1b[31",
    "\x1b",
    "\x1b]0;never ended",
    "\x07\x08\x0e\x1b\x1b[m",
    "\u202eback",
]
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def published(text: str) -> OutputView:
    """What a worker publishes of an output that it reads byte by byte."""
    redactor = LineRedactor()
    shown = "".join(redactor.feed(bytes([one]), now=0.0) for one in f"{text}\n".encode())
    shown += redactor.feed(b"", now=0.0, final=True)
    part = OutputPart(seq=1, stream="stdout", text=shown, at=AT)
    return OutputView(address="loop~1[1]/do", fence=1, running=True, last_at=AT, parts=[part])


def on_terminal(lines: list[str]) -> str:
    """What a command writes to its terminal for these lines."""
    into = BytesIO()
    stream = EscapingStream(TextIOWrapper(into, encoding="utf-8", write_through=True))
    stream.write("\n".join(lines))
    stream.flush()
    return into.getvalue().decode()


@pytest.mark.parametrize("name", ART)
def test_output_shows_what_is_drawn(name: str) -> None:
    drawn, shown = ART[name]
    (line,) = attempt_lines(published(drawn))
    assert line == f"loop~1[1]/do | {shown}"
    assert on_terminal([line]) == line


@pytest.mark.parametrize("text", [*(drawn for drawn, _ in ART.values()), *BROKEN])
def test_no_text_controls_the_terminal(text: str) -> None:
    entry = TranscriptEntry(
        seq=1, at=AT, address="loop~1[1]/do", label="do", role="assistant", text=text, raw=text
    )
    fields: dict[str, JsonValue] = {"word": "failed", "text": text, "label": text, "why": text}
    event = Event(id="1-0", type="step.settled", at_ms=0, address="loop~1[1]/do", fields=fields)
    lines = [
        *attempt_lines(published(text)),
        *_shown(entry),
        sentence(apply_event(Picture(session="0000000a"), event), event) or "",
    ]
    assert CONTROL.search(on_terminal(lines)) is None


@pytest.mark.parametrize("text", [*(drawn for drawn, _ in ART.values()), *BROKEN])
def test_live_view_keeps_to_its_width(text: str) -> None:
    console = Console(file=StringIO(), width=40, height=20, force_terminal=True)
    live = LiveScreen(console, clock=lambda: 0.0)
    fields: dict[str, JsonValue] = {"fence": 1, "stream": "stdout", "text": f"{text}\n" * 3}
    live.show(Event(id="1-0", type="output", at_ms=0, address="loop~1[1]/do", fields=fields))
    with console.capture() as captured:
        console.print(live._render())
    drawn = without_ansi(captured.get())  # the view's own colours
    assert CONTROL.search(drawn) is None
    lines = drawn.splitlines()
    assert any("loop~1[1]/do |" in line for line in lines)
    assert all(cell_len(line) <= 40 for line in lines)


def test_the_time_grows_no_faster_than_the_text() -> None:
    for piece in ("\x1b[", "\x1b]", "\x1b[1;", "\x1bP\x1b]a", "\x1b(("):
        begin = time.process_time()
        without_ansi(piece * (1_000_000 // len(piece)))
        assert time.process_time() - begin < 10, piece
