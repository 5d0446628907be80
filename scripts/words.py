"""Reports avoided words in comments, docstrings and Markdown, each with a plain alternative.

It covers the files of FOLDERS: Python comments and docstrings, Lua comments, and Markdown outside
code. It is a small check of a few habits, and no measure of good prose.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Folders and files that are checked; further ones are added when their texts are rewritten.
FOLDERS = (
    *("app", "tasks", "api", "workers", "leadhand", "benchmarks", "scripts", "examples"),
    *("docs", "README.md", "CONTRIBUTING.md"),
    *("tests/unit", "tests/contract", "tests/model", "tests/engine", "tests/chaos"),
)
#: Endings of files that are checked.
ENDINGS = (".py", ".lua", ".md")
HABITS = {
    r"\btold\b": "reported, notified or sent",
    r"\bstands\b": "is, waits or is stored",
    r"\bwhoever\b": "the caller, the worker or the user that",
    r"\bnobody\b": "no user, no worker or no process",
    r"\bof ours\b": "of Leadhand, or built-in",
}
#: Code, quotations and the targets of links.
_CODE = re.compile(r"`[^`]*`|\"[^\"]*\"|\]\([^)]*\)")


def main() -> int:
    """Print each finding as file:line; returns 1 if there is any."""
    found = [line for path in files() for line in findings(path)]
    print(*found or ["no old habits in comments and docs"], sep="\n")
    return 1 if found else 0


def files() -> Iterator[Path]:
    """Yield the files to check, without this one, which has to name the words."""
    for name in FOLDERS:
        top = ROOT / name
        paths = sorted(top.rglob("*")) if top.is_dir() else [top]
        yield from (path for path in paths if path.suffix in ENDINGS and path != Path(__file__))


def findings(path: Path) -> Iterator[str]:
    """Yield a line for each habit in a file: its place, the word and the alternative."""
    text = path.read_text(encoding="utf-8")
    for number, line in _prose(path.suffix, text):
        for habit, plain in HABITS.items():
            for match in re.finditer(habit, _CODE.sub("", line), re.IGNORECASE):
                name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
                yield f"{name}:{number}: {match[0]!r}; write {plain}"


def _prose(suffix: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file's comments, docstrings or Markdown text."""
    if suffix == ".py":
        yield from _python_comments(text)
        yield from _docstrings(text)
    elif suffix == ".lua":
        lines = enumerate(text.splitlines(), 1)
        yield from ((n, line.partition("--")[2]) for n, line in lines if "--" in line)
    else:
        in_code = False
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith(("```", "~~~")):
                in_code = not in_code
            elif not in_code:
                yield number, line


def _python_comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node) is not None and isinstance(first, ast.Expr):
                lines = text.splitlines()[first.lineno - 1 : first.end_lineno]
                yield from enumerate(lines, first.lineno)


if __name__ == "__main__":
    sys.exit(main())
