"""Checks the file of a flow where it lies, with those beside it that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from leadhand.flow_documents import FlowDefinition, Messages
from leadhand.flow_faults import Found, all_faults
from leadhand.flow_files import (
    NO_NAME,
    FlowInvalid,
    is_name,
    json_in,
    read_command,
    read_flow,
    read_markdown,
)
from leadhand.flow_structure import Brought, Placed, arranged, faults_of_files, faults_of_inputs

_ANOTHER = "a flow of another folder that runs with it has another one of that name; rename one"


def faults_in_file(file: Path, others: Sequence[Path] = ()) -> Found:
    """All that is wrong with it. Raises FlowInvalid where it cannot be read at all.

    The flows that it runs lie in its own folder, or in one of the others.
    """
    found = all_faults(FlowDefinition, json_in(file))
    if found.flow is None:
        return found
    beside = _Beside([folder.absolute() for folder in others])
    faults = list(beside.faults_of(found.flow, file.parent.absolute(), (file.stem,), ""))
    said = (
        (fault.path, fault.message)
        for flow in (found.flow, *beside.flows.values())
        for fault in faults_of_files(flow, Brought(beside.commands, beside.markdown))
    )
    given = (
        (f"{where}{fault.path}", fault.message)
        for where, flow in (("", found.flow), *((f"{n}: ", f) for n, f in beside.flows.items()))
        for fault in faults_of_inputs(flow, beside.flows)
    )
    named = [] if is_name(file.stem) else [("", f"{NO_NAME}; rename the file")]
    told = dict.fromkeys([*found.faults, *faults, *said, *given, *named])
    return Found(list(told), found.flow)


class _Beside:
    """The files that a flow names, as they lie beside it, and the flows of other folders."""

    def __init__(self, others: Sequence[Path]) -> None:
        self._others = others
        self.commands: dict[str, Messages] = {}
        self.markdown: dict[str, Messages] = {}
        #: Its subflows, and theirs.
        self.flows: dict[str, FlowDefinition] = {}
        self._files: dict[str, Path] = {}

    def faults_of(
        self, flow: FlowDefinition, folder: Path, path: tuple[str, ...], where: str
    ) -> Iterator[tuple[str, str]]:
        """Read what its steps need; what is wrong with that. `path` are the flows around."""
        for one in _within(arranged(flow.steps)):
            step, at = one.step, f"{where}{one.path}"
            if step.type == "command":
                name, at = step.command_name, f"{at}.commandName"
                missing = f"there is no commands/{name}.json or .md beside the folder; write it"
                read = partial(read_command, folder, name)
                yield from self._take(self.commands, read, name, at, missing)
            elif step.type == "llm" and step.markdown_file is not None:
                name, at = step.markdown_file, f"{at}.markdownFile"
                missing = f"there is no file {name} in the folder of the flow; write it"
                read = partial(read_markdown, folder, name)
                yield from self._take(self.markdown, read, name, at, missing)
            elif step.type == "subflow":
                for name in step.flow_names:
                    yield from self._flow(name, folder, path, f"{at}.flowNames")

    def _take(
        self,
        into: dict[str, Messages],
        read: Callable[[], Messages | None],
        name: str,
        at: str,
        missing: str,
    ) -> Iterator[tuple[str, str]]:
        try:
            found = read()
        except FlowInvalid as error:
            yield at, str(error)
        else:
            if found is None:
                yield at, missing
            elif into.setdefault(name, found) != found:
                yield at, _ANOTHER

    def _flow(
        self, name: str, folder: Path, path: tuple[str, ...], at: str
    ) -> Iterator[tuple[str, str]]:
        if name in path:
            circle = " -> ".join((*path, name))
            yield at, f"flows run each other in a circle: {circle}; break it"
            return
        files = (one / f"{name}.json" for one in (folder, *self._others))
        file = next((file for file in files if file.exists()), None)
        if file is None:
            yield at, f"there is no flow {name!r} beside it; write {name}.json"
        elif self._files.setdefault(name, file) != file:
            yield at, _ANOTHER
        elif name not in self.flows:
            try:
                self.flows[name] = read_flow(file)
            except FlowInvalid as error:
                yield at, f"it is disabled: {error}"
                return
            flow = self.flows[name]
            yield from self.faults_of(flow, file.parent, (*path, name), f"{name}: ")


def _within(placed: tuple[Placed, ...]) -> Iterator[Placed]:
    for one in placed:
        yield one
        yield from _within(one.body)
        yield from _within(one.otherwise)
