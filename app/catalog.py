"""The flows on disk, read anew where a file has changed; one that is broken disturbs no other.

Nothing is watched: each question looks at the files' times, and reads those that are other files
now. What runs has been taken along at its start, so that a file may change at any time.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from app.errors import FlowDisabled, FlowUnknown, InvalidDocument
from app.frontends.flow_children import faults_in_files, faults_of_subflows, steps_of
from app.views import FlowInput, FlowView
from leadhand.flow_documents import (
    CommandStep,
    FlowDefinition,
    FlowDocument,
    LlmStep,
    Messages,
    SubflowStep,
)
from leadhand.flow_files import (
    NO_NAME,
    FlowInvalid,
    is_name,
    read_command,
    read_flow,
    read_markdown,
)
from leadhand.flow_structure import Brought

T = TypeVar("T")
_ANOTHER = "a flow of another folder that runs with it has another one of that name"
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
    """The flows of some folders; where two have the same name, the first folder's is meant.

    A flow that runs others means those of its own folder first.
    """

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
                raise FlowInvalid(file.name, "", NO_NAME)
            definition = self._flows(file)
            whole = self.completed(_document(name, definition), folder=file.parent)
            for fault in faults_of_subflows(whole):
                raise fault
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
        return self.completed(_document(name, found.definition), folder=found.file.parent)

    def completed(self, document: FlowDocument, *, folder: Path | None = None) -> FlowDocument:
        """The document with the files and flows that it names and does not bring.

        The files that a flow of a folder names lie with it. Raises InvalidDocument for what is not
        there or is broken, and for flows in a circle.
        """
        whole, faults = self.gathered(document, folder=folder)
        for fault in faults:
            raise fault
        return whole

    def gathered(
        self, document: FlowDocument, *, folder: Path | None = None
    ) -> tuple[FlowDocument, list[InvalidDocument]]:
        """As much of it as is there, and all that keeps it from being whole."""
        gathered = _Gathered(self, document)
        gathered.take(document, (document.name,), "", folder)
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

    def definition(self, name: str, folder: Path | None) -> tuple[FlowDefinition, Path]:
        """What the flow's file says, and where it lies: in that folder, else in the first.

        Raises FlowUnknown, FlowInvalid.
        """
        file = self._file(name, folder)
        return self._flows(file), file.parent

    def command(self, name: str, folder: Path | None) -> Messages | None:
        """A command beside that folder, else of the first one that has it. Raises FlowInvalid."""
        found = (read_command(one, name) for one in self._looked_in(folder))
        return next((messages for messages in found if messages is not None), None)

    def markdown(self, path: str, folder: Path | None) -> Messages | None:
        """What that folder's file of that path says, or the first folder's. Raises FlowInvalid."""
        found = (read_markdown(one, path) for one in self._looked_in(folder))
        return next((messages for messages in found if messages is not None), None)

    def _looked_in(self, folder: Path | None) -> tuple[Path, ...]:
        """Where files of a flow are looked for: with it; of a flow on no disk, everywhere."""
        return self.folders if folder is None else (folder,)

    def _file(self, name: str, first: Path | None = None) -> Path:
        folders = self.folders if first is None else (first, *self.folders)
        # A name with a path in it is no name of a file here.
        found = (folder / f"{name}.json" for folder in folders if _PLAIN.match(name))
        for file in found:
            if file.exists() or file.is_symlink():
                return file
        raise FlowUnknown(name, tuple(str(folder) for folder in self.folders))


class _Gathered:
    """What a flow needs of other files, found step by step."""

    def __init__(self, catalog: Catalog, document: FlowDocument) -> None:
        self._catalog = catalog
        self._brought = document
        self.commands = dict(document.commands)
        self.markdown = dict(document.markdown)
        self.flows = dict(document.flows)
        self.faults = list[InvalidDocument]()
        #: Whose steps have been looked at, and where what was found of each lies.
        self._taken = set[str]()
        self._folders = dict[str, Path]()

    def take(
        self, flow: FlowDefinition, path: tuple[str, ...], where: str, folder: Path | None
    ) -> None:
        """Find what the steps need, with the flow's own folder first."""
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
        found = self._found(partial(self._catalog.command, name, folder), name, at, absent)
        self._keep(self.commands, name, found, at)

    def _markdown(self, path: str, at: str, folder: Path | None) -> None:
        if path in self._brought.markdown:
            return
        absent = "there is no such file; write it beneath the folder of the flows"
        found = self._found(partial(self._catalog.markdown, path, folder), path, at, absent)
        self._keep(self.markdown, path, found, at)

    def _found(
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
        """Flows of one run have one file of each name: another one of it would not be told."""
        if found is not None and kept.setdefault(name, found) != found:
            self.faults.append(InvalidDocument(at, name, f"{_ANOTHER}; rename one of both"))

    def _subflow(self, name: str, path: tuple[str, ...], at: str, folder: Path | None) -> None:
        if name in path:
            circle = " -> ".join((*path, name))
            hint = f"flows run each other in a circle: {circle}; break it"
            self.faults.append(InvalidDocument(at, name, hint))
            return
        if name not in self._brought.flows:
            try:
                found, lies_in = self._read(name, at, folder)
            except InvalidDocument as error:
                self.faults.append(error)
                return
            if self._folders.setdefault(name, lies_in) != lies_in:
                self.faults.append(InvalidDocument(at, name, f"{_ANOTHER}; rename one of both"))
                return
            self.flows[name] = found
        if name not in self._taken:
            self.take(self.flows[name], (*path, name), f"{name}: ", self._folders.get(name))
            self._taken.add(name)

    def _read(self, name: str, at: str, folder: Path | None) -> tuple[FlowDefinition, Path]:
        try:
            return self._catalog.definition(name, folder)
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
