"""The flows on disk, read anew where a file has changed; one that is broken disturbs no other.

Nothing is watched: each question looks at the files' times, and reads those that are other files
now. What runs has been taken along at its start, so that a file may change at any time.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from app.errors import FlowDisabled, FlowUnknown, InvalidDocument
from app.frontends.flow_children import faults_in_files, steps_of
from app.views import FlowInput, FlowView
from leadhand.flow_documents import (
    CommandStep,
    FlowDefinition,
    FlowDocument,
    LlmStep,
    Messages,
    SubflowStep,
)
from leadhand.flow_files import FlowInvalid, is_name, read_command, read_flow, read_markdown
from leadhand.flow_structure import Brought

T = TypeVar("T")
_PLAIN = re.compile(r"^[^/\0]{1,200}$")


class CatalogFlow(NamedTuple):
    """One file: what it says, or why it says nothing that can be run."""

    name: str
    file: Path
    definition: FlowDefinition | None = None
    error: str | None = None
    #: Of what it says, with all that it needs of other files; of a broken one, nothing.
    hash: str = ""


class Catalog:
    """The flows of some folders; where two have the same name, the first folder's is meant."""

    def __init__(self, folders: tuple[Path, ...] = ()) -> None:
        self.folders = folders
        self._flows = _Memory(read_flow)

    def listed(self) -> list[CatalogFlow]:
        """All flows by name."""
        names = {file.stem for folder in self.folders for file in _files(folder)}
        return [self.one(name) for name in sorted(names)]

    def flows(self) -> list[FlowView]:
        """All of them as they are shown, the broken ones too."""
        return [_view(flow) for flow in self.listed()]

    def flow(self, name: str) -> FlowView:
        """One of them, with what its file says. Raises FlowUnknown."""
        found = self.one(name)
        said = found.definition
        whole = said.model_dump(mode="json", exclude_unset=True) if said is not None else None
        return _view(found).model_copy(update={"definition": whole})

    def one(self, name: str) -> CatalogFlow:
        """The flow of that name, broken or not. Raises FlowUnknown."""
        file = self._file(name)
        try:
            if not is_name(name):
                raise FlowInvalid(
                    file.name, "", "a flow is called by letters, digits, . _ -, and not 'validate'"
                )
            definition = self._flows(file)
            whole = self.completed(_document(name, definition))
        except FlowInvalid as error:
            return CatalogFlow(name, file, error=str(error))
        except InvalidDocument as error:
            told = f"{file.name}: {error.field}: {error.value!r}: {error.hint}"
            return CatalogFlow(name, file, error=told)
        return CatalogFlow(name, file, definition, hash=hash_of(whole))

    def document(self, name: str) -> FlowDocument:
        """The flow to run, with all that it needs. Raises FlowUnknown, FlowDisabled."""
        found = self.one(name)
        if found.definition is None:
            raise FlowDisabled(name, str(found.error))
        return self.completed(_document(name, found.definition))

    def completed(self, document: FlowDocument) -> FlowDocument:
        """The document with the files and flows that it names and does not bring.

        Raises InvalidDocument for one that is not there or is broken, and for flows in a circle.
        """
        whole, faults = self.gathered(document)
        for fault in faults:
            raise fault
        return whole

    def gathered(self, document: FlowDocument) -> tuple[FlowDocument, list[InvalidDocument]]:
        """As much of it as is there, and all that keeps it from being whole."""
        gathered = _Gathered(self, document)
        gathered.take(document, (document.name,), "")
        parts = {
            "commands": gathered.commands,
            "markdown": gathered.markdown,
            "flows": gathered.flows,
        }
        brought = Brought(gathered.commands, gathered.markdown)
        said = [
            fault
            for flow in (document, *gathered.flows.values())
            for fault in faults_in_files(flow, brought)
        ]
        return document.model_copy(update=parts), [*gathered.faults, *said]

    def definition(self, name: str) -> FlowDefinition:
        """What the flow's own file says. Raises FlowUnknown, FlowInvalid."""
        return self._flows(self._file(name))

    def command(self, name: str) -> Messages | None:
        """A command of the first folder that has it. Raises FlowInvalid."""
        found = (read_command(folder, name) for folder in self.folders)
        return next((messages for messages in found if messages is not None), None)

    def markdown(self, path: str) -> Messages | None:
        """What the first folder's file of that path says. Raises FlowInvalid."""
        found = (read_markdown(folder, path) for folder in self.folders)
        return next((messages for messages in found if messages is not None), None)

    def _file(self, name: str) -> Path:
        # A name with a path in it is no name of a file here.
        found = (folder / f"{name}.json" for folder in self.folders if _PLAIN.match(name))
        for file in found:
            if file.exists() or file.is_symlink():
                return file
        raise FlowUnknown(name, tuple(str(folder) for folder in self.folders))


class _Gathered:
    """What a flow needs of other files, found step by step."""

    def __init__(self, catalog: Catalog, document: FlowDocument) -> None:
        self._catalog = catalog
        self.commands = dict(document.commands)
        self.markdown = dict(document.markdown)
        self.flows = dict(document.flows)
        self.faults = list[InvalidDocument]()
        self._taken = set[str]()

    def take(self, flow: FlowDefinition, path: tuple[str, ...], where: str) -> None:
        for one in steps_of(flow):
            at = f"{where}{one.path}"
            if isinstance(one.step, CommandStep):
                self._command(one.step.command_name, f"{at}.commandName")
            if isinstance(one.step, LlmStep) and one.step.markdown_file is not None:
                self._markdown(one.step.markdown_file, f"{at}.markdownFile")
            if isinstance(one.step, SubflowStep):
                for name in one.step.flow_names:
                    self._subflow(name, path, f"{at}.flowNames")

    def _command(self, name: str, at: str) -> None:
        if name in self.commands:
            return
        try:
            found = self._catalog.command(name)
        except FlowInvalid as error:
            self.faults.append(InvalidDocument(at, name, str(error)))
            return
        if found is None:
            hint = f"there is no such command; write commands/{name}.json or .md beside the flows"
            self.faults.append(InvalidDocument(at, name, hint))
            return
        self.commands[name] = found

    def _markdown(self, path: str, at: str) -> None:
        if path in self.markdown:
            return
        try:
            found = self._catalog.markdown(path)
        except FlowInvalid as error:
            self.faults.append(InvalidDocument(at, path, str(error)))
            return
        if found is None:
            hint = "there is no such file; write it beneath the folder of the flows"
            self.faults.append(InvalidDocument(at, path, hint))
            return
        self.markdown[path] = found

    def _subflow(self, name: str, path: tuple[str, ...], at: str) -> None:
        if name in path:
            circle = " -> ".join((*path, name))
            hint = f"flows run each other in a circle: {circle}; break it"
            self.faults.append(InvalidDocument(at, name, hint))
            return
        if name not in self.flows:
            try:
                self.flows[name] = self._read(name, at)
            except InvalidDocument as error:
                self.faults.append(error)
                return
        if name not in self._taken:
            self.take(self.flows[name], (*path, name), f"{name}: ")
            self._taken.add(name)

    def _read(self, name: str, at: str) -> FlowDefinition:
        try:
            return self._catalog.definition(name)
        except FlowUnknown:
            hint = "there is no such flow; `leadhand flows` lists those that are"
            raise InvalidDocument(at, name, hint) from None
        except FlowInvalid as error:
            raise InvalidDocument(at, name, f"it is disabled: {error}") from None


class _Memory(Generic[T]):
    """What files were read as, until they are other files."""

    def __init__(self, read: Callable[[Path], T]) -> None:
        self._read = read
        self._known: dict[Path, tuple[object, T | FlowInvalid]] = {}
        self._lock = threading.Lock()

    def __call__(self, file: Path) -> T:
        """Raises FlowInvalid."""
        seen = _seen(file)
        with self._lock:
            known = self._known.get(file)
        if known is None or known[0] != seen:
            known = (seen, self._attempt(file))
            with self._lock:
                self._known[file] = known
        if isinstance(known[1], FlowInvalid):
            raise known[1]
        return known[1]

    def _attempt(self, file: Path) -> T | FlowInvalid:
        try:
            return self._read(file)
        except FlowInvalid as error:
            return error


def hash_of(document: FlowDocument) -> str:
    """What a flow and all that it needs say, in 16 hex characters."""
    parts = {"description": True, "steps": True, "agents": True, "inputs": True, "attempts": True,
             "commands": True, "flows": True}  # fmt: skip
    # What came later is part of it only where it is used: else the hashes that sessions keep hold.
    if document.budget.model_fields_set:
        parts["budget"] = True
    if document.markdown:
        parts["markdown"] = True
    text = document.model_dump_json(include=parts, exclude_none=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _view(flow: CatalogFlow) -> FlowView:
    said = flow.definition
    given = said.inputs.items() if said is not None else ()
    return FlowView(
        name=flow.name,
        description=said.description if said is not None else "",
        disabled=said is None,
        error=flow.error,
        inputs=[FlowInput(name=name, default=default) for name, default in given],
        hash=flow.hash,
    )


def _document(name: str, definition: FlowDefinition) -> FlowDocument:
    said = {field: getattr(definition, field) for field in definition.model_fields_set}
    return FlowDocument.model_construct(**said, name=name)


def _files(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(file for file in folder.iterdir() if file.suffix == ".json")
    except OSError:
        return  # no folder, no flows


def _seen(file: Path) -> object:
    """What tells a file from what it was before."""
    try:
        stat = file.stat()
    except OSError as error:
        return error.errno
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
