"""Parses the fenced blocks of the documentation, and the comments that say how a block is tested.

Every sh, console, python and json block is executed or validated unless a comment before it says
why not. Readers see none of this, so no comment prepares anything: each file and folder that a
block needs is made by what the page shows. README and the pages of the examples are read in a
clone, the others in an empty folder. The comments are on lines of their own above the fence:

    <!-- not run: REASON -->       the block is only shown
    <!-- file: NAME -->            the block is written to this file, which the page names
    <!-- in the background -->     the commands run in another terminal until the page ends
    <!-- exit code: N -->          the block ends with this code (0)
    <!-- prints: WORDS | WORDS --> its output contains each of these texts
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "examples/flows/README.md",
        ROOT / "examples/research/README.md",
        *ROOT.glob("docs/**/*.md"),
    ]
)
#: The languages whose blocks are executed or validated.
EXECUTED = {"sh", "console", "python", "json"}
#: Those that are only shown: output, drawings and files of other programs.
SHOWN = {"text", "toml", "yaml", "markdown"}
DIRECTIVES = {"not run", "file", "in the background", "exit code", "prints"}

_BLOCK = re.compile(
    r"(?P<comments>(?:^ *<!-- [^\n]* -->\n)*)"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_COMMENT = re.compile(r"<!-- (?P<name>[a-z ]+?)(?:: (?P<value>.*))? -->")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    #: The texts of the comments, by the name of the directive.
    directives: dict[str, str]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_executed(self) -> bool:
        return self.language in EXECUTED and "not run" not in self.directives


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page in their order."""
    return parsed(page.read_text(encoding="utf-8"), page)


def parsed(whole: str, page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a text that is the content of this page."""
    for found in _BLOCK.finditer(whole):
        indent = found["indent"]
        lines = found["text"].splitlines(keepends=True)
        yield Block(
            page=str(page.relative_to(ROOT)),
            line=whole.count("\n", 0, found.start("indent")) + 1,
            language=found["language"],
            text="".join(line.removeprefix(indent) for line in lines),
            directives={
                comment["name"]: comment["value"] or ""
                for comment in _COMMENT.finditer(found["comments"])
            },
        )
