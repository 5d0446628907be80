"""Loads flow files from disk and reloads a file when it changes.

There is no file watcher: each call compares the files' stamps, and reads a file again if its stamp
differs. A session copies its flow when it starts, so a file may change at any time. A broken file
does not affect the other flows.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from app.compiler.subflows import faults_in_files, faults_of_subflows
from app.errors import InvalidDocument
from app.security.command_permission import free_commands
from leadhand.errors import FlowDisabled, FlowUnknown
from leadhand.file_stamp import Stamp, stamp_of
from leadhand.flows.documents import (
    CommandStep,
    FlowDefinition,
    FlowDocument,
    LlmStep,
    Messages,
    SubflowStep,
)
from leadhand.flows.file_reading import (
    NO_NAME,
    FlowInvalid,
    is_name,
    read_command,
    read_flow,
    read_markdown,
)
from leadhand.flows.structure import Brought, steps_of
from leadhand.models.json_schema import schema_of
from leadhand.models.views.shared import FlowInput, FlowView

T = TypeVar("T")
_NAME_CLASH = "a flow from another folder has a different one of that name"
_PLAIN = re.compile(r"^[^/\0]{1,200}$")


class CatalogFlow(NamedTuple):
    """One flow file: its definition, or the error that disables it."""

    name: str
    file: Path
    definition: FlowDefinition | None = None
    error: str | None = None
    #: Hash of the flow with everything that it includes from other files; empty for a broken flow.
    hash: str = ""


class Catalog:
    """The flows of some folders; if two have the same name, the one in the first folder is used.

    A flow looks for its subflows in its own folder first.
    """

    def __init__(
        self,
        folders: tuple[Path, ...] = (),
        *,
        flows: _Memory[FlowDefinition] | None = None,
        no_commands: Mapping[Path, str] = MappingProxyType({}),
    ) -> None:
        self.folders = folders
        self._memory = flows or _Memory(read_flow)
        #: Folders whose flows may have no commands, and why.
        self._no_commands = no_commands

    def with_folder(self, folder: Path | None, *, no_commands: str | None = None) -> Catalog:
        """Returns a catalog that searches another folder first; the same catalog for None.

        With `no_commands`, the reason, flows of the folder that have commands are disabled.
        """
        if folder is None:
            return self
        refused = {} if no_commands is None else {folder: no_commands}
        return Catalog((folder, *self.folders), flows=self._memory, no_commands=refused)

    def entries(self) -> list[CatalogFlow]:
        """Returns an entry for each flow file in the folders, sorted by name, broken ones too."""
        names = {file.stem for folder in self.folders for file in _files(folder)}
        return [self.one(name) for name in sorted(names)]

    def flows(self) -> list[FlowView]:
        """Returns all flows as the API lists them, including those with errors."""
        return [_view(flow) for flow in self.entries()]

    def flow(self, name: str) -> FlowView:
        """Returns one flow with its definition, as the API shows it. Raises FlowUnknown."""
        found = self.one(name)
        flow = found.definition
        whole = flow.model_dump(mode="json", exclude_unset=True) if flow is not None else None
        return _view(found).model_copy(update={"definition": whole})

    def one(self, name: str) -> CatalogFlow:
        """Returns a flow's entry: its definition and hash, or its error. Raises FlowUnknown."""
        file = self._file(name)
        try:
            if not is_name(name):
                raise FlowInvalid(file.name, "", NO_NAME)
            definition = self._flows(file)
            whole = self.complete(_document(name, definition), folder=file.parent)
            for fault in faults_of_subflows(whole):
                raise fault
        except FlowInvalid as error:
            return CatalogFlow(name, file, error=str(error))
        except InvalidDocument as error:
            text = f"{file.name}: {error.field}: {error.value!r}: {error.hint}"
            return CatalogFlow(name, file, error=text)
        return CatalogFlow(name, file, definition, hash=hash_of(whole))

    def document(self, name: str) -> FlowDocument:
        """Returns a flow with all files and subflows it needs. Raises FlowUnknown, FlowDisabled."""
        found = self.one(name)
        if found.definition is None:
            raise self._disabled(name, str(found.error))
        return self.complete(_document(name, found.definition), folder=found.file.parent)

    def complete(self, document: FlowDocument, *, folder: Path | None = None) -> FlowDocument:
        """Returns a copy of a flow with all its files and subflows. Raises InvalidDocument.

        A flow from a folder finds its files in that folder. Raises InvalidDocument if a file or
        flow is missing or broken, and if flows include each other in a circle.
        """
        whole, faults = self.gather(document, folder=folder)
        for fault in faults:
            raise fault
        return whole

    def gather(
        self, document: FlowDocument, *, folder: Path | None = None
    ) -> tuple[FlowDocument, list[InvalidDocument]]:
        """Returns a copy of a flow with all files and subflows found, and errors for the rest."""
        collected = _Collector(self, document)
        collected.take(document, (document.name,), "", folder)
        parts = {
            "commands": collected.commands,
            "markdown": collected.markdown,
            "flows": collected.flows,
        }
        brought = Brought(collected.commands, collected.markdown)
        in_files = [
            fault
            for flow in (document, *collected.flows.values())
            for fault in faults_in_files(flow, brought)
        ]
        return document.model_copy(update=parts), [*collected.faults, *in_files]

    def definition(self, name: str, folder: Path | None) -> tuple[FlowDefinition, Path]:
        """Returns a flow's parsed file and its folder, from `folder` or the first that has it.

        Returns the definition and the file's folder. Raises FlowUnknown, FlowInvalid.
        """
        file = self._file(name, folder)
        return self._flows(file), file.parent

    def command(self, name: str, folder: Path | None) -> Messages | None:
        """Returns the messages in a command file of a folder, by default of all; None without one.

        Raises FlowInvalid if a file is broken.
        """
        found = (read_command(one, name) for one in self._search_folders(folder))
        return next((messages for messages in found if messages is not None), None)

    def markdown(self, path: str, folder: Path | None) -> Messages | None:
        """Returns the messages in a folder's Markdown file; without one, of the first that has it.

        Raises FlowInvalid if a file is broken.
        """
        found = (read_markdown(one, path) for one in self._search_folders(folder))
        return next((messages for messages in found if messages is not None), None)

    def _flows(self, file: Path) -> FlowDefinition:
        """Reads a flow. Raises FlowInvalid, also for commands that are not approved."""
        found, why = self._memory(file), self._no_commands.get(file.parent)
        for field in free_commands(found) if why is not None else ():
            raise FlowInvalid(file.name, field, f"needs the scope 'exec:free': {why}")
        return found

    def _disabled(self, name: str, error: str) -> FlowDisabled:
        """The error for a flow; a missing approval, also of a subflow, is its hint."""
        for why in self._no_commands.values():
            if (end := f": {why}") in error:
                return FlowDisabled(name, error.replace(end, ""), why)
        return FlowDisabled(name, error)

    def _search_folders(self, folder: Path | None) -> tuple[Path, ...]:
        """The flow's own folder, or all folders for a flow that was submitted without a file."""
        return self.folders if folder is None else (folder,)

    def _file(self, name: str, first: Path | None = None) -> Path:
        folders = self.folders if first is None else (first, *self.folders)
        # A name that contains a path separator is refused.
        found = (folder / f"{name}.json" for folder in folders if _PLAIN.match(name))
        for file in found:
            if file.exists() or file.is_symlink():
                return file
        known = sorted({file.stem for folder in folders for file in _files(folder)})
        raise FlowUnknown(name, tuple(str(folder) for folder in folders), known)


class _Collector:
    """Collects the files and subflows that a flow's steps name."""

    def __init__(self, catalog: Catalog, document: FlowDocument) -> None:
        self._catalog = catalog
        self._brought = document
        self.commands = dict(document.commands)
        self.markdown = dict(document.markdown)
        self.flows = dict(document.flows)
        self.faults = list[InvalidDocument]()
        #: Flows whose steps were visited, and the folder of each flow that was loaded.
        self._taken = set[str]()
        self._folders = dict[str, Path]()

    def take(
        self, flow: FlowDefinition, path: tuple[str, ...], where: str, folder: Path | None
    ) -> None:
        """Load the files and subflows of all steps, from the flow's own folder first."""
        for one in steps_of(flow):
            at = f"{where}{one.path}"
            if isinstance(one.step, CommandStep):
                self._command(one.step.command_name, f"{at}.commandName", folder)
            if isinstance(one.step, LlmStep) and one.step.markdown_file is not None:
                self._markdown(one.step.markdown_file, f"{at}.markdownFile", folder)
            if isinstance(one.step, SubflowStep):
                for name in one.step.flow_names:
                    self._subflow(name, path, f"{at}.flowNames", folder)

    def _command(self, name: str, at: str, folder: Path | None) -> None:
        if name in self._brought.commands:
            return
        absent = f"there is no such command; write commands/{name}.json or .md beside the flows"
        found = self._load(partial(self._catalog.command, name, folder), name, at, absent)
        self._keep(self.commands, name, found, at)

    def _markdown(self, path: str, at: str, folder: Path | None) -> None:
        if path in self._brought.markdown:
            return
        absent = "there is no such file; write it beneath the folder of the flows"
        found = self._load(partial(self._catalog.markdown, path, folder), path, at, absent)
        self._keep(self.markdown, path, found, at)

    def _load(
        self, read: Callable[[], Messages | None], name: str, at: str, absent: str
    ) -> Messages | None:
        try:
            found = read()
        except FlowInvalid as error:
            self.faults.append(InvalidDocument(at, name, str(error)))
            return None
        if found is None:
            self.faults.append(InvalidDocument(at, name, absent))
        return found

    def _keep(self, kept: dict[str, Messages], name: str, found: Messages | None, at: str) -> None:
        """Add a file; a run holds one file of each name, so a second one is an error."""
        if found is not None and kept.setdefault(name, found) != found:
            self.faults.append(InvalidDocument(at, name, f"{_NAME_CLASH}; rename one of both"))

    def _subflow(self, name: str, path: tuple[str, ...], at: str, folder: Path | None) -> None:
        if name in path:
            circle = " -> ".join((*path, name))
            hint = f"the flows call each other in a circle: {circle}; remove one call"
            self.faults.append(InvalidDocument(at, name, hint))
            return
        if name not in self._brought.flows:
            try:
                found, its_folder = self._read(name, at, folder)
            except InvalidDocument as error:
                self.faults.append(error)
                return
            if self._folders.setdefault(name, its_folder) != its_folder:
                self.faults.append(InvalidDocument(at, name, f"{_NAME_CLASH}; rename one of both"))
                return
            self.flows[name] = found
        if name not in self._taken:
            self.take(self.flows[name], (*path, name), f"{name}: ", self._folders.get(name))
            self._taken.add(name)

    def _read(self, name: str, at: str, folder: Path | None) -> tuple[FlowDefinition, Path]:
        try:
            return self._catalog.definition(name, folder)
        except FlowUnknown as error:
            raise InvalidDocument(at, name, f"it {error.why}") from None
        except FlowInvalid as error:
            raise InvalidDocument(at, name, f"it is disabled: {error}") from None


class _Memory(Generic[T]):
    """Caches parsed files, and parse errors, until a file's stamp changes."""

    def __init__(self, read: Callable[[Path], T]) -> None:
        self._read = read
        self._known: dict[Path, tuple[Stamp, T | FlowInvalid]] = {}
        self._lock = threading.Lock()

    def __call__(self, file: Path) -> T:
        """Return the parsed file. Raises FlowInvalid."""
        seen = stamp_of(file)
        with self._lock:
            known = self._known.get(file)
        if known is None or known[0] != seen:
            known = (seen, self._read_or_error(file))
            with self._lock:
                self._known[file] = known
        if isinstance(known[1], FlowInvalid):
            raise known[1]
        return known[1]

    def _read_or_error(self, file: Path) -> T | FlowInvalid:
        try:
            return self._read(file)
        except FlowInvalid as error:
            return error


def hash_of(document: FlowDocument) -> str:
    """Returns the hash of a flow and everything that it includes: 16 hex characters."""
    parts = {"description": True, "steps": True, "agents": True, "inputs": True, "attempts": True,
             "commands": True, "flows": True}  # fmt: skip
    # Fields that were added later count only if they are set, so that stored hashes stay valid.
    if document.budget.model_fields_set:
        parts["budget"] = True
    if document.markdown:
        parts["markdown"] = True
    if document.input_schema is not None:
        parts["input_schema"] = True
    text = document.model_dump_json(include=parts, exclude_none=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _view(flow: CatalogFlow) -> FlowView:
    definition = flow.definition
    inputs = definition.inputs.items() if definition is not None else ()
    return FlowView(
        name=flow.name,
        description=definition.description if definition is not None else "",
        disabled=definition is None,
        error=flow.error,
        inputs=[
            FlowInput(
                name=name,
                default=default,
                json_schema=schema_of(definition.input_schema, name) or None
                if definition is not None
                else None,
            )
            for name, default in inputs
        ],
        hash=flow.hash,
    )


def _document(name: str, definition: FlowDefinition) -> FlowDocument:
    fields = {field: getattr(definition, field) for field in definition.model_fields_set}
    return FlowDocument.model_construct(**fields, name=name)


def _files(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(file for file in folder.iterdir() if file.suffix == ".json")
    except OSError:
        return  # no folder, no flows
