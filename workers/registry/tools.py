"""Lists a worker's tools: functions in its tool folders, and the entries of tools.toml.

The Python files are parsed and never imported: their code runs only in a process of its own, when a
step uses a tool.
"""

from __future__ import annotations

import ast
import errno
import inspect
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue

from app.truncate import cut
from leadhand.file_stamp import Stamp, stamp_of
from leadhand.functions.modules import TAKEN
from leadhand.models.approvals import NONE_NEEDED, Approvals
from leadhand.models.tool_schemas import BUILT_IN_TOOLS, RESERVED_MODULES, owner_of
from leadhand.models.views.fleet import ToolHere, ToolParameter
from workers.registry.inline import InlineFunctions
from workers.registry.tool_book import ToolBook, ToolFiles, declared_tools
from workers.registry.tool_schema import Function, Parameter, input_schema, parameters_of
from workers.registry.tool_servers import ServedTools

log = logging.getLogger(__name__)

#: Characters of a tool's description, and of one annotation, that the inventory shows.
_DESCRIPTION = 200
_ANNOTATION = 80


class ToolCatalogue:
    """The tools in the tool folders; a file is parsed again after it has changed."""

    def __init__(
        self,
        folders: Sequence[Path] = (),
        declared: ToolFiles | None = None,
        served: ServedTools | None = None,
        inline: InlineFunctions | None = None,
        approvals: Approvals = NONE_NEEDED,
    ) -> None:
        self._folders = tuple(folder.absolute() for folder in folders)
        self._approvals = approvals
        self._declared = declared or ToolFiles()
        #: The tools of the MCP servers.
        self.served = served or ServedTools()
        #: The functions that run in the worker's own processes.
        self.inline = inline or InlineFunctions()
        self._read: dict[Path, tuple[Stamp, tuple[ToolHere, ...]]] = {}

    @property
    def folders(self) -> tuple[Path, ...]:
        """Return the folders whose functions may be called now, in the order of the search."""
        return tuple(one for one in self._folders if self._approvals.why_not(one) is None)

    def tools(self) -> tuple[ToolHere, ...]:
        """Return all tools of the worker, sorted by name; of files of one name, the first."""
        files: dict[str, Path] = {}
        why = {folder: self._approvals.why_not(folder) for folder in self._folders}
        for folder in self._folders:
            files |= {file.stem: file for file in _files(folder) if file.stem not in files}
        self._read = {file: self._known(file, why[file.parent]) for file in files.values()}
        found = [self._as_inline(tool) for _, tools in self._read.values() for tool in tools]
        book = self.book
        found += [*declared_tools(book), *self.served.tools([*book.servers])]
        return tuple(sorted(found, key=lambda tool: tool.name))

    @property
    def book(self) -> ToolBook:
        """Return the entries of tools.toml."""
        return self._declared.current()

    def tool(self, name: str) -> ToolHere | None:
        """Return the tool of that name, or the error of its file; None if there is neither."""
        module = owner_of(name)
        here = {tool.name: tool for tool in self.tools()}
        return here.get(name) or here.get(module)

    def unusable_text(self, name: str) -> str:
        """Return the error text for a tool that is unusable or unknown here, with the reason."""
        found = self.tool(name)
        if found is not None:
            return f"ToolNotFound: tool {name!r} is not known here: {found.why_not}"
        known = ", ".join(sorted({*BUILT_IN_TOOLS, *(tool.name for tool in self.tools())}))
        return f"ToolNotFound: tool {name!r} is not known here; known are {known}"

    def _as_inline(self, tool: ToolHere) -> ToolHere:
        """A function with its entry of tools.toml."""
        entry, fault = self.inline.find(tool.name), self.inline.fault(tool.name)
        if fault is not None:
            return tool.model_copy(update={"why_not": fault})
        return tool if entry is None else tool.model_copy(update={"inline_s": entry.timeout_s})

    def _known(self, file: Path, why_not: str | None) -> tuple[Stamp, tuple[ToolHere, ...]]:
        if why_not is not None:
            return (), _unusable(file, why_not)
        seen, known = stamp_of(file), self._read.get(file)
        return known if known is not None and known[0] == seen else (seen, _tools_in(file))


def _files(folder: Path) -> Iterator[Path]:
    try:
        files = sorted(folder.glob("*.py"))
    except OSError:
        return
    yield from (file for file in files if file.stem.isidentifier() and file.stem[0] != "_")


def _tools_in(file: Path) -> tuple[ToolHere, ...]:
    if file.stem in RESERVED_MODULES:
        why = f"{file} would give its functions the names of {file.stem}s as tools"
        return _unusable(file, f"{why}; rename it")
    if file.stem in TAKEN:
        why = f"{file} has the name of a module that Python or Leadhand imports itself"
        return _unusable(file, f"{why}; rename it")
    try:
        return _functions_in(file)
    except OSError as error:
        return _unusable(file, f"{file} cannot be read: {error.strerror}")
    except (RecursionError, MemoryError):  # Python's own parser gives up in these two ways
        return _unusable(file, f"{file} is nested too deep, or too large, to be read; simplify it")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{file}, line {line}" if line else str(file)
        text = getattr(error, "msg", None) or str(error)
        return _unusable(file, f"{where} is not valid Python: {text}; fix it")


def _unusable(file: Path, why_not: str) -> tuple[ToolHere, ...]:
    return (ToolHere(name=file.stem, why_not=why_not),)


def _functions_in(file: Path) -> tuple[ToolHere, ...]:
    if file.exists() and not file.is_file():  # reading a pipe would block for ever
        raise OSError(errno.EINVAL, "it is not a regular file")
    tree = ast.parse(file.read_bytes())
    found = {node.name: node for node in tree.body if isinstance(node, Function)}
    return tuple(_tool(file, one) for name, one in found.items() if name[0] != "_")


def _tool(file: Path, function: Function) -> ToolHere:
    about = inspect.cleandoc(ast.get_docstring(function) or "").partition("\n\n")[0]
    about = about.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent
    return ToolHere(
        name=f"{file.stem}:{function.name}",
        about=cut(" ".join(about.split()), _DESCRIPTION),
        parameters=[_parameter(one) for one in parameters_of(function.args)],
        takes_any=function.args.kwarg is not None,
        input_schema=_schema_of(file, function),
    )


def _schema_of(file: Path, function: Function) -> dict[str, JsonValue]:
    """The schema of a tool's arguments; empty, which any value fits, if none can be derived."""
    try:
        schema = input_schema(function)
        json.dumps(schema, ensure_ascii=False).encode()  # a lone surrogate cannot be sent
    except Exception as error:  # noqa: BLE001 - one function must not take the others away
        log.warning("%s:%s has no schema: %r", file, function.name, error)
        return {}
    return schema


def _parameter(one: Parameter) -> ToolParameter:
    text = ast.unparse(one.annotation) if one.annotation is not None else None
    return ToolParameter(
        name=one.name, annotation=text and cut(text, _ANNOTATION), required=one.required
    )
