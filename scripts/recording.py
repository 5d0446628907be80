"""Runs the demo and writes its output as an animated SVG, docs/recording.svg."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "recording.svg"
DEMO = ("sh", "examples/demo.sh")
#: The demo prints hints on paths and further commands after this line.
LAST_LINE = "demo: done"
LIST = ("leadhand", "ls")
#: One turn of the animation, and how long its last picture stays.
LENGTH_S, HOLD_S = 20.0, 3.0
COLUMNS, ROWS = 104, 26
WIDTH, HEIGHT, EDGE = 8.0, 18, 14
COLOURS = {
    r"^\$ .*": "prompt",
    r"\baccept\b": "good",
    r"\bcompleted\b": "good",
    r"\bretry\b": "again",
    r"^\[\d+:\d+\]": "dim",
}
STYLE = """\
.screen{fill:#11151c}
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6dbe4}
.prompt{fill:#8ab4f8;font-weight:bold} .good{fill:#7fd18b} .again{fill:#f2c14e} .dim{fill:#7d8796}
.row,.rows{animation-duration:%gs;animation-iteration-count:infinite}
.row,.rows{animation-timing-function:step-end}
@media (prefers-reduced-motion:reduce){.row,.rows{animation:none!important}}
"""


class Line(NamedTuple):
    """A line of output and the second at which it was printed."""

    at_s: float
    text: str


def main() -> int:
    """Record the demo, and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder, "examples"))
        lines = list(recorded(Path(folder)))
    PICTURE.write_text(picture(lines))
    print(f"{PICTURE.relative_to(ROOT)} is written: {len(lines)} lines")
    return 0


def recorded(folder: Path) -> Iterator[Line]:
    """Run the demo and then `leadhand ls` in a folder that has the examples; yield the output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "AGENT": "", "LEADHAND_HOME": str(folder / "state")}
    began = time.monotonic()
    for title, command, where in (
        ("make demo", DEMO, folder),
        ("cd leadhand-demo && leadhand ls", LIST, folder / "leadhand-demo"),
    ):
        yield Line(time.monotonic() - began, f"$ {title}")
        with subprocess.Popen(
            command, cwd=where, env=env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            for text in shown(process.stdout or ()):
                yield Line(time.monotonic() - began, text)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}")


#: A line that a step has written, such as `  green~1[1]/check.pytest | 5 passed in 0.1s`.
_LIVE = re.compile(r"^  \S+ [|!] ")


def shown(output: Iterable[str]) -> Iterator[str]:
    """Yield the lines that the picture has: those up to the demo's last one."""
    ended = False
    for line in output:
        if not ended:
            yield line.rstrip("\n")
        ended = ended or line.startswith(LAST_LINE)


def comparable(lines: Iterable[str]) -> list[str]:
    """Return lines without ids, times and the live output of steps, which shows only what takes a
    while; sorted, since steps run in parallel.
    """
    kept = (line for line in lines if not _LIVE.match(line))
    return sorted(map(_without_what_varies, kept))


def _without_what_varies(line: str) -> str:
    line = re.sub(r"^\[\d+:\d+\] ", "[TIME] ", line)
    line = re.sub(r"embedded-\d+/\d+", "WORKER", line)
    line = re.sub(r"\b[0-9a-f]{8}\b", "ID", line)
    line = re.sub(r"; left out: .*", "", line)  # bytecode, where Python writes it
    line = re.sub(r"\d{4}-\d\d-\d\dT[\d:.+]+", "DATE", line)
    line = re.sub(r"\b\d+ (?:s|min) ago", "AGE", line)
    line = re.sub(r"  \[\d+ %.* left\]$", "", line)  # the share of the work, and the estimated rest
    line = re.sub(r" after \d+:\d+(?=:|$)", "", line)  # of a body that took a while
    line = re.sub(r"(pytest: retry: ).*", r"\1FAILURES", line)  # in any order
    line = re.sub(r"[.F]+ \[100%\].*", "PYTEST", line)
    return re.sub(r"  +", "  ", line).rstrip()  # columns are as wide as what they hold


def text_of(svg: str) -> list[str]:
    """Return the lines of a picture, as they were before they were wrapped."""
    lines: list[str] = []
    for row in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):  # noqa: S314
        text = "".join(row.itertext())
        if row.get("data-wrapped"):
            lines[-1] += text
        else:
            lines.append(text)
    return lines


def picture(lines: Sequence[Line]) -> str:
    """Draw the lines as an SVG whose rows appear, and scroll, at their times."""
    scale = (LENGTH_S - HOLD_S) / lines[-1].at_s
    rows = [
        (line.at_s * scale, row, number > 0)
        for line in lines
        for number, row in enumerate(_wrapped(line.text))
    ]
    times = [at for at, _, _ in rows]
    width, height = COLUMNS * WIDTH + 2 * EDGE, ROWS * HEIGHT + 2 * EDGE
    drawn = "\n".join(_row(number, *row) for number, row in enumerate(rows))
    end = max(len(rows) - ROWS, 0) * HEIGHT
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve"
     viewBox="0 0 {width:g} {height}" role="img">
<title>make demo: three phases, each refused once and then accepted</title>
<style>
{STYLE % LENGTH_S}{_keyframes(times)}
</style>
<rect class="screen" width="{width:g}" height="{height}" rx="8"/>
<svg x="{EDGE}" y="{EDGE}" width="{COLUMNS * WIDTH:g}" height="{ROWS * HEIGHT}">
<g class="rows" style="animation-name:scroll;transform:translateY(-{end}px)">
{drawn}
</g>
</svg>
</svg>
"""


def _wrapped(text: str) -> list[str]:
    starts = range(0, max(len(text), 1), COLUMNS)
    return [text[start : start + COLUMNS] for start in starts]


def _row(number: int, _at: float, text: str, wrapped: bool) -> str:
    mark = ' data-wrapped="1"' if wrapped else ""
    length = f' textLength="{len(text) * WIDTH:g}"' if text else ""
    return (
        f'<text class="row" style="animation-name:r{number};white-space:pre" x="0" '
        f'y="{number * HEIGHT + 13}"{length}{mark}>{_coloured(text)}</text>'
    )


def _coloured(text: str) -> str:
    pattern = "|".join(f"(?P<{name}_{n}>{p})" for n, (p, name) in enumerate(COLOURS.items()))
    parts, done = [], 0
    for found in re.finditer(pattern, text):
        name = str(found.lastgroup).partition("_")[0]
        parts += [escape(text[done : found.start()])]
        parts += [f'<tspan class="{name}">{escape(found.group())}</tspan>']
        done = found.end()
    return "".join([*parts, escape(text[done:])])


def _keyframes(times: Sequence[float]) -> str:
    shares = [f"{at / LENGTH_S:.2%}" for at in times]
    rows = [
        f"@keyframes r{number}{{0%{{opacity:0}}{share}{{opacity:1}}100%{{opacity:1}}}}"
        for number, share in enumerate(shares)
    ]
    stops = {share: max(number + 1 - ROWS, 0) * HEIGHT for number, share in enumerate(shares)} | {
        "100%": max(len(times) - ROWS, 0) * HEIGHT
    }
    scroll = "".join(f"{at}{{transform:translateY(-{y}px)}}" for at, y in stops.items())
    return "\n".join([*rows, f"@keyframes scroll{{0%{{transform:none}}{scroll}}}"])


if __name__ == "__main__":
    sys.exit(main())
