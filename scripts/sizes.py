"""Reports functions that are longer than the project allows, and notes large files."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Lines of a function without its decorators: more is an error. Lines of a file: more is a note.
FUNCTION, FILE = 50, 800


def main() -> int:
    """Print each finding with its size; returns 1 if a function is too long."""
    paths = source_files()
    errors = [*long_functions(ROOT, paths)]
    print(*errors or ["no function is too long"], *large_files(ROOT, paths), sep="\n")
    return 1 if errors else 0


def source_files() -> list[Path]:
    """The Python and Lua files of the repository, new ones included."""
    listing = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.lua")
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in names.stdout.splitlines() if (path := ROOT / name).is_file()]


def large_files(root: Path, paths: list[Path]) -> Iterator[str]:
    """Yield a note for each file that is longer than a reader takes in at one sitting."""
    for path in paths:
        if (lines := path.read_text(encoding="utf-8").count("\n")) > FILE:
            name = path.relative_to(root)
            yield f"note: {name}: {lines} lines; above {FILE}, look for two ideas in it"


def long_functions(root: Path, paths: list[Path]) -> Iterator[str]:
    """Yield an error for each function above the limit."""
    for path in paths:
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION:
                    size = f"{lines} lines; a function has at most {FUNCTION}"
                    yield f"{path.relative_to(root)}:{node.lineno}: {node.name} has {size}"


if __name__ == "__main__":
    sys.exit(main())
