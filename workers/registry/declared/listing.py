"""Describes the entries of tools.toml as the inventory lists tools."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from app.fleet.programs import why_no_program
from app.truncate import cut
from leadhand.models.tool_names import TOOLS_FILE
from leadhand.models.tool_schemas import parameters_of
from leadhand.models.views.fleet import ToolHere
from workers.processes import environment
from workers.registry.declared.book import ToolBook
from workers.registry.declared.entry import DeclaredTool, missing_variable

#: Characters of a description that the inventory shows.
_DESCRIPTION = 200


def declared_tools(book: ToolBook) -> list[ToolHere]:
    """Lists the tools of tools.toml and the errors in it, for the inventory."""
    return [*_tools(book), *_faults(book)]


def _tools(book: ToolBook) -> Iterator[ToolHere]:
    for name, entry in book.entries.items():
        if isinstance(entry, DeclaredTool):
            yield _tool(name, entry)


def _faults(book: ToolBook) -> Iterator[ToolHere]:
    for name, fault in book.broken.items():
        kind: Literal["mcp", "command"] = "mcp" if fault.key.startswith("mcp.") else "command"
        yield ToolHere(name=cut(name, _DESCRIPTION), kind=kind, why_not=fault.public)
    for fault in dict.fromkeys(book.unread):
        yield ToolHere(name=TOOLS_FILE, kind="command", why_not=fault.public)


def _tool(name: str, entry: DeclaredTool) -> ToolHere:
    schema, held = entry.json_schema, environment.inherited()
    return ToolHere(
        name=name,
        kind=entry.kind,
        about=cut(" ".join(entry.description.split()), _DESCRIPTION),
        parameters=parameters_of(schema),
        takes_any=schema["additionalProperties"] is True,
        input_schema=schema,
        why_not=why_unusable(entry, held),
        lacks=_lacks(entry, held),
        program=_searched_program(entry),
        needs_env=[*entry.needs_env],
    )


def _lacks(entry: DeclaredTool, held: Mapping[str, str]) -> Literal["program", "variable"] | None:
    """What the worker's own environment lacks, and that of a session may have."""
    program = _searched_program(entry)
    if program is not None and why_no_command(program, held) is not None:
        return "program"
    return "variable" if missing_variable(entry.needs_env, held) is not None else None


def _searched_program(entry: DeclaredTool) -> str | None:
    """The program of a command if it is searched on the PATH."""
    program = entry.command[0] if entry.command else ""
    return program if program and "/" not in program and "{" not in program else None


def why_unusable(entry: DeclaredTool, held: Mapping[str, str]) -> str | None:
    """Returns why a tool cannot be used on this host, with the fix; None if it can."""
    missing = missing_variable(entry.needs_env, held)
    if missing is not None:
        return f"the variable {missing} is not set; pass it with --env, or set it for the worker"
    if entry.command is None:
        return None
    return why_no_command(entry.command[0], held)


def why_no_command(program: str, held: Mapping[str, str]) -> str | None:
    """Returns why a program cannot be run, with the fix; None if no reason is known."""
    if program.startswith("/"):
        fault = why_no_program(Path(program))
        return f"the program {program!r}: {fault}" if fault else None
    if "/" in program or "{" in program:
        return None
    if shutil.which(program, path=held.get("PATH")) is not None:
        return None
    return (
        f"the program {program!r} is not found; install it on the worker's PATH, or give its path"
    )
