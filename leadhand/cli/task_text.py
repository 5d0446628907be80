"""Reads a session's task or request: from the command line, a file or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

import click

#: As the TASK: read it from standard input.
STDIN = "-"


def read_task(
    task: str | None, file: Path | None, *, name: str = "TASK", option: str = "--task-file"
) -> str:
    """Returns a task's text from an argument, a file, or with `-` stdin. Raises UsageError."""
    if file is not None:
        if task is not None:
            raise click.UsageError(f"give {name} or {option}, not both")
        return _decoded(file.read_bytes(), str(file), name)
    if task is None:
        raise click.UsageError(
            f"Missing argument {name!r}; give it, - for standard input, or {option}"
        )
    if task == STDIN:
        return _decoded(sys.stdin.buffer.read(), "standard input", name)
    return task


def _decoded(data: bytes, source: str, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise click.ClickException(f"{source} is not UTF-8 text; save it as UTF-8") from None
    if not text.strip():
        raise click.ClickException(f"{source} is empty; write the {name.lower()}")
    return text
