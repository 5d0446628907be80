"""Finds the functions that run in the worker's own pool processes, and imports them there.

The operator names them in a `tools.toml` in a folder of LEADHAND_TOOLS:

    [functions."texts:count"]
    inline = true
    timeout_s = 5

They are code that the operator trusts like the worker itself. The folder of a session has none.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError
from pydantic_core import ErrorDetails

from leadhand.file_stamp import Stamp, stamp_of
from leadhand.models.folder_settings import TomlUnreadable, line_of, read_toml
from leadhand.models.tool_schemas import TOOLS_FILE
from leadhand.models.validation_messages import plain_message
from workers.registry.errors import ToolsFileInvalid
from workers.registry.tool_book import fault_of, unknown_key_hint

log = logging.getLogger(__name__)

_HEADER = re.compile(r"""^[ \t]*\[functions\.["']([^"'\n]+)["']\]""", re.MULTILINE)
#: Seconds that the first call of a module in a process may take to import it.
IMPORT_S = 60.0


class FunctionEntry(BaseModel):
    """What tools.toml says of a function."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    inline: StrictBool = False
    #: The most seconds that an inline call may take; the step's own timeout counts if it is less.
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0


class InlineFunction(NamedTuple):
    """A function that runs in the worker's own processes."""

    name: str
    file: Path
    timeout_s: float


class _Functions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    functions: dict[str, FunctionEntry] = {}


class InlineFunctions:
    """The inline functions of the tool folders; each file is read again after it has changed."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._files = tuple(folder.absolute() / TOOLS_FILE for folder in folders)
        self._seen: list[Stamp] | None = None
        self._entries: Mapping[str, InlineFunction] = {}
        self._faults: Mapping[str, ToolsFileInvalid] = {}
        self._modules: dict[Path, tuple[Stamp, ModuleType]] = {}
        self._numbers = itertools.count(1)

    def find(self, name: str) -> InlineFunction | None:
        """Return the function of that name to run in the worker's process; None without one."""
        self._read_changes()
        return self._entries.get(name)

    def fault(self, name: str) -> str | None:
        """Return the error of the function's entry in tools.toml; None if it has none."""
        self._read_changes()
        found = self._faults.get(name)
        return None if found is None else found.public

    def imported(self, function: InlineFunction) -> Callable[..., Any] | None:
        """Return the function if this process has imported its file as it is now, else None."""
        known = self._modules.get(function.file)
        if known is None or known[0] != stamp_of(function.file):
            return None
        try:
            return _function_of(known[1], function)
        except AttributeError:
            return None  # `load` raises it where the call reports it

    def load(self, function: InlineFunction) -> Callable[..., Any]:
        """Import the function's file under a private module name, and return the function.

        Raises what the import raises, and AttributeError.
        """
        return _function_of(self._import(function.file), function)

    def _import(self, file: Path) -> ModuleType:
        stamp = stamp_of(file)
        name = f"_leadhand_inline_{next(self._numbers)}_{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickle look a module up by its name
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        before = self._modules.get(file)
        self._modules[file] = stamp, module
        if before is not None:
            sys.modules.pop(before[1].__name__, None)
        return module

    def _read_changes(self) -> None:
        seen = [stamp_of(file) for file in self._files]
        if seen == self._seen:
            return
        entries, faults = dict[str, InlineFunction](), dict[str, ToolsFileInvalid]()
        for file in reversed(self._files):  # of two modules of one name the first folder's counts
            found = _read(file)
            hidden = {module.stem for module in file.parent.glob("*.py")}
            entries = {n: e for n, e in entries.items() if n.partition(":")[0] not in hidden}
            entries |= found[0]
            faults |= found[1]
        self._entries, self._faults, self._seen = entries, faults, seen
        for fault in faults.values():
            log.warning("tools file has a fault", extra={"fault": fault.public})


def _function_of(module: ModuleType, function: InlineFunction) -> Callable[..., Any]:
    found: Any = module
    for part in function.name.partition(":")[2].split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _read(file: Path) -> tuple[Mapping[str, InlineFunction], Mapping[str, ToolsFileInvalid]]:
    folder = file.parent
    try:
        text, raw = read_toml(file)
    except TomlUnreadable as error:
        fault = ToolsFileInvalid(str(file), "", None, error.why, error.line)
        return {}, dict.fromkeys(_HEADER.findall(error.text), fault)
    given = raw.get("functions")
    entries, faults = dict[str, InlineFunction](), dict[str, ToolsFileInvalid]()
    for name, fields in given.items() if isinstance(given, dict) else ():
        try:
            one = _Functions.model_validate({"functions": {name: fields}}).functions[name]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            faults[name] = fault_of(first, file, text, partial(_hint, first))
            continue
        module, _, function = name.partition(":")
        source = folder / f"{module}.py"
        if not function or not source.is_file():
            why = f"is not module:function with a module of {folder}; write its name as it is there"
            line = line_of(text, ["functions", name])
            faults[name] = ToolsFileInvalid(str(file), f"functions.{name}", None, why, line)
        elif one.inline:
            entries[name] = InlineFunction(name, source, one.timeout_s)
    return entries, faults


def _hint(first: ErrorDetails, place: Sequence[str]) -> str:
    if first["type"] == "extra_forbidden":
        return unknown_key_hint(place[-1], FunctionEntry)
    if first["type"].startswith("model_"):
        return 'write a table: [functions."module:function"]'
    return plain_message(first["msg"])
