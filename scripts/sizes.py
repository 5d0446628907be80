"""Reports files, functions and folders that are larger than the project allows."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Lines of a file, lines of a function without its decorators, and source files in a folder.
FILE, FUNCTION, FOLDER = 450, 50, 30


def main() -> int:
    """Print each finding with its size; returns 1 if there is any."""
    found = [*findings(ROOT, source_files())]
    print(*found or ["no file, function or folder is too large"], sep="\n")
    return 1 if found else 0


def source_files() -> list[Path]:
    """The Python and Lua files of the repository, new ones included."""
    listing = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.lua")
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in names.stdout.splitlines() if (path := ROOT / name).is_file()]


def findings(root: Path, paths: list[Path]) -> Iterator[str]:
    """Yield a line for each file, function and folder above its limit, relative to the root."""
    for path in paths:
        name, text = path.relative_to(root), path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > FILE:
            yield f"{name}: {lines} lines; a file has at most {FILE}"
        if path.suffix == ".py":
            yield from (f"{name}:{finding}" for finding in _long_functions(text))
    for folder, count in Counter(path.parent for path in paths).items():
        if count > FOLDER:
            yield f"{folder.relative_to(root)}: {count} files; a folder has at most {FOLDER}"


def _long_functions(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION:
                size = f"{lines} lines; a function has at most {FUNCTION}"
                yield f"{node.lineno}: {node.name} has {size}"


if __name__ == "__main__":
    sys.exit(main())
