"""Accepts readable code: every function has a docstring, and no line is too long."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path


def complaints(path: Path) -> Iterator[str]:
    """Yield one sentence for each fault."""
    text = path.read_text()
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > 88:
            yield f"{path}:{number}: the line has {len(line)} characters, more than 88"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and not ast.get_docstring(node):
            yield f"{path}:{node.lineno}: function {node.name} has no docstring"


def main(*paths: str) -> int:
    """Print all complaints about the files."""
    found = [complaint for path in paths for complaint in complaints(Path(path))]
    print("\n".join(found) or "tidy")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
