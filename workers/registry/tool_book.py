"""Loads the entries of tools.toml; a fault in an entry costs only that entry.

See decisions: functions.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from app.fleet.inventory import why_no_program
from app.truncate import cut
from leadhand.file_stamp import Stamp
from leadhand.models.approvals import LIMITED, NONE_NEEDED, Approvals
from leadhand.models.folder_settings import TomlUnreadable, line_of
from leadhand.models.patterns import form_of
from leadhand.models.suggestions import nearest
from leadhand.models.tool_schemas import BUILT_IN_TOOLS, RESERVED_SERVERS, TOOLS_FILE, parameters_of
from leadhand.models.validation_messages import plain_message
from leadhand.models.views.fleet import ToolHere
from workers.processes import environment
from workers.registry.agents import SECRET
from workers.registry.errors import ToolsFileInvalid
from workers.registry.sources import ON_DISK, Sources
from workers.registry.tool_entry import Argument, DeclaredTool, McpServer, ToolId, missing_variable

log = logging.getLogger(__name__)
_HEADER = re.compile(
    r"""^[ \t]*\[(?:tools|mcp)\.(?:["']([^"'\n]+)["']|([\w-]+))[\].]""", re.MULTILINE
)
Section: TypeAlias = Literal["tools", "mcp"]
Declared: TypeAlias = DeclaredTool | McpServer
#: Characters of a description that the inventory shows.
_DESCRIPTION = 200


class _Tools(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    tools: dict[ToolId, DeclaredTool] = {}
    mcp: dict[ToolId, McpServer] = {}


class ToolBook(NamedTuple):
    """The entries of all files by name, and their errors."""

    entries: Mapping[str, Declared] = {}
    #: The folder of the file that has the entry.
    folders: Mapping[str, Path] = {}
    #: The error of each invalid entry. It replaces an entry of this name in an earlier file.
    broken: Mapping[str, ToolsFileInvalid] = {}
    #: The errors of files that cannot be parsed, and of what is no entry.
    unread: tuple[ToolsFileInvalid, ...] = ()
    #: The last valid versions of entries that are now invalid; running sessions keep using them,
    #: unless their approval was withdrawn.
    kept: Mapping[str, Declared] = {}

    @property
    def faults(self) -> tuple[ToolsFileInvalid, ...]:
        """Return all errors in the tools files."""
        return tuple(dict.fromkeys((*self.unread, *self.broken.values())))

    @property
    def secret_names(self) -> frozenset[str]:
        """Return the names of tools' secret variables: needed ones, and those that look secret."""
        entries = [*self.entries.values(), *self.kept.values()]
        named = {name for one in entries for name in one.env if SECRET.search(name)}
        return frozenset(named | {name for one in entries for name in one.needs_env})

    @property
    def servers(self) -> dict[str, McpServer]:
        """Return the declared MCP servers by name."""
        return {n: one for n, one in self.entries.items() if isinstance(one, McpServer)}

    def entry(self, name: str) -> Declared | None:
        """Return the tool of that name, or its last valid version; None if there is neither."""
        return self.entries.get(name) or self.kept.get(name)


def load(
    files: Sequence[Path],
    before: ToolBook,
    approvals: Approvals = NONE_NEEDED,
    tool_folders: Collection[Path] = (),
    sources: Sources = ON_DISK,
) -> ToolBook:
    """Reads tools.toml files; later entries replace earlier ones, broken ones keep an old version.

    A server, and an entry that would replace another one, is an error without an approval. Only a
    file in a tool folder has entries of functions, which `workers.registry.inline` reads.
    """
    entries, folders = dict[str, Declared](), dict[str, Path]()
    broken, unread = dict[str, ToolsFileInvalid](), list[ToolsFileInvalid]()
    withdrawn = set[str]()
    for file in files:
        found = _read(file, sources, has_functions=file.absolute().parent in tool_folders)
        if approvals.lack(file, found.text):
            found = _unapproved(found, entries, file, approvals)
            withdrawn |= found.broken.keys() if approvals.is_withdrawn(file) else set()
        entries = {n: e for n, e in {**entries, **found.entries}.items() if n not in found.broken}
        broken = {n: f for n, f in {**broken, **found.broken}.items() if n not in found.entries}
        folders |= dict.fromkeys(found.entries, file.absolute().parent)
        unread += found.faults
    known = {**before.kept, **before.entries}
    lost = known.keys() - entries.keys() if unread else known.keys() & broken.keys()
    kept = {name: known[name] for name in lost - withdrawn}
    return ToolBook(entries, {**before.folders, **folders}, broken, tuple(unread), kept)


class ToolFiles:
    """The files with the name tools.toml beside a worker's agents files, read after each change."""

    def __init__(
        self,
        agents_files: Sequence[Path] = (),
        approvals: Approvals = NONE_NEEDED,
        *,
        tool_folders: Collection[Path] = (),
        sources: Sources = ON_DISK,
        logs_faults: bool = False,
    ) -> None:
        self._sources = sources
        self._approvals = approvals
        self._tool_folders = frozenset(folder.absolute() for folder in tool_folders)
        self._files = tuple(dict.fromkeys(file.with_name(TOOLS_FILE) for file in agents_files))
        self._logs_faults = logs_faults
        self._seen: list[Stamp] | None = None
        self._book = ToolBook()

    def current(self) -> ToolBook:
        """Return the entries of the tools.toml files; reads all again first if one has changed."""
        # Taken before the files are read, so that a change during the read is noticed.
        seen = [*map(self._sources.stamp, self._files), self._approvals.stamp()]
        if seen != self._seen:
            self._book = load(
                self._files, self._book, self._approvals, self._tool_folders, self._sources
            )
            self._seen = seen
            for fault in self._book.faults if self._logs_faults else ():
                log.warning("tools file has a fault", extra={"fault": fault.public})
        return self._book


class _Found(NamedTuple):
    """The entries of one file, and its errors."""

    entries: Mapping[str, Declared]
    broken: Mapping[str, ToolsFileInvalid]
    faults: Sequence[ToolsFileInvalid]
    text: str


def _unapproved(
    found: _Found, entries: Mapping[str, Declared], file: Path, approvals: Approvals
) -> _Found:
    """The entries of a file that is not approved: what starts by itself or replaces is broken.

    With strict approvals, all are.
    """
    broken = dict(found.broken)
    for name, entry in found.entries.items():
        section: Section = "mcp" if isinstance(entry, McpServer) else "tools"
        if section == "tools" and name not in entries and not approvals.strict:
            continue
        what = "a server starts by itself" if section == "mcp" else "a tool has this name"
        what += ", and this file is not approved as it is"
        why = f"{f'this file {LIMITED}' if approvals.strict else what}; {approvals.hint}`"
        line = line_of(found.text, [section, name])
        broken[name] = ToolsFileInvalid(str(file), f"{section}.{name}", None, why, line)
    kept = {name: entry for name, entry in found.entries.items() if name not in broken}
    return found._replace(entries=kept, broken=broken)


def _read(file: Path, sources: Sources, *, has_functions: bool) -> _Found:
    try:
        text, raw = sources.read(file)
    except TomlUnreadable as error:
        fault = ToolsFileInvalid(str(file), "", None, error.why, error.line)
        # Names that the file seems to define must not fall back to an entry of another file.
        names = {quoted or bare for quoted, bare in _HEADER.findall(error.text)}
        return _Found({}, dict.fromkeys(names, fault), [fault], error.text)
    entries, broken = dict[str, Declared](), dict[str, ToolsFileInvalid]()
    rest = dict(raw)
    if has_functions:
        rest.pop("functions", None)
    for section in ("tools", "mcp"):
        named = raw.get(section)
        if not isinstance(named, dict):
            continue
        rest[section] = {}
        for name, entry in named.items():
            try:
                one = _Tools.model_validate({section: {name: entry}})
            except ValidationError as error:
                broken[name] = _fault(error.errors(include_url=False)[0], file, text)
                continue
            why = _taken(name, section, entries)
            if why is not None:
                line = line_of(text, [section, name])
                broken[name] = ToolsFileInvalid(str(file), f"{section}.{name}", None, why, line)
                entries.pop(name, None)
                continue
            entries |= {**one.tools, **one.mcp}
    faults = [_fault(error, file, text) for error in _errors(rest)]
    return _Found(entries, broken, faults, text)


def _taken(name: str, section: str, entries: Mapping[str, Declared]) -> str | None:
    """Why an entry cannot have the name; None if it can."""
    if name in BUILT_IN_TOOLS:
        return "every worker has a tool of this name; rename it"
    if section == "mcp" and name in RESERVED_SERVERS:
        return "tools of Leadhand begin with this name; rename it"
    return "a tool and a server have this name; rename one" if name in entries else None


def _errors(raw: Mapping[str, object]) -> Sequence[ErrorDetails]:
    try:
        _Tools.model_validate(raw)
    except ValidationError as error:
        return error.errors(include_url=False)
    return ()


_HINTS: Mapping[str, str] = {
    "tuple_type": 'write a list: ["program", "argument"]',
    "too_short": 'write a program and its arguments: ["program", "argument"]',
    "dict_type": "write a table: {NAME = VALUE}",
}


def _fault(first: ErrorDetails, file: Path, text: str) -> ToolsFileInvalid:
    return fault_of(first, file, text, lambda place: _hint(first, place))


def fault_of(
    first: ErrorDetails, file: Path, text: str, hint_for: Callable[[Sequence[str]], str]
) -> ToolsFileInvalid:
    """Builds the error for an invalid entry of tools.toml, with its line and a hint."""
    place = [str(part) for part in first["loc"] if part != "[key]"]
    value = first["input"]
    shown = None if first["type"] == "missing" or isinstance(value, dict | list) else value
    hint = hint_for(place)
    return ToolsFileInvalid(str(file), ".".join(place), shown, hint, line_of(text, place))


def _hint(first: ErrorDetails, place: Sequence[str]) -> str:
    kind = first["type"]
    if kind.startswith("model_") and len(place) == 2:
        return f"write a table: [{'.'.join(place)}]"
    if place == ["functions"]:
        return "write it into tools.toml in a folder of LEADHAND_TOOLS"
    if kind == "extra_forbidden" and len(place) == 1:
        return "write it as [tools.NAME] or [mcp.NAME]"
    if kind == "extra_forbidden":
        model = McpServer if place[0] == "mcp" else DeclaredTool if len(place) == 3 else Argument
        return unknown_key_hint(place[-1], model)
    if kind == "string_pattern_mismatch":
        form = form_of(first["ctx"]["pattern"])
        return f"write {form}" if form is not None else str(first["msg"])
    return _HINTS.get(kind, plain_message(first["msg"].removeprefix("Value error, ")))


def unknown_key_hint(key: str, model: type[BaseModel]) -> str:
    """Returns a hint for an unknown key: the keys that the model has, and the nearest one."""
    near = nearest(key, model.model_fields)
    meant = f"; did you mean {near!r}?" if near is not None else ""
    return f"is not a key here; use {', '.join(model.model_fields)}{meant}"


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
