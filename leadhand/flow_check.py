"""Checks the file of a flow where it lies, with those beside it that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from leadhand.flow_documents import FlowDefinition, Messages
from leadhand.flow_faults import Found, all_faults
from leadhand.flow_files import FlowInvalid, json_in, read_command, read_flow, read_markdown
from leadhand.flow_structure import Brought, Placed, arranged, faults_of_files


def faults_in_file(file: Path) -> Found:
    """All that is wrong with it. Raises FlowInvalid where it cannot be read at all."""
    found = all_faults(FlowDefinition, json_in(file))
    if found.flow is None:
        return found
    beside = _Beside(file.parent)
    faults = [fault for one in _within(arranged(found.flow.steps)) for fault in beside.take(one)]
    said = faults_of_files(found.flow, Brought(beside.commands, beside.markdown))
    told = [*found.faults, *faults, *((fault.path, fault.message) for fault in said)]
    return Found(list(dict.fromkeys(told)), found.flow)


class _Beside:
    """The files that a flow names, as they lie beside it."""

    def __init__(self, flows: Path) -> None:
        self._flows = flows
        self.commands: dict[str, Messages] = {}
        self.markdown: dict[str, Messages] = {}

    def take(self, one: Placed) -> Iterator[tuple[str, str]]:
        """Read what a step needs; what is wrong with it."""
        step = one.step
        if step.type == "command":
            yield from self._command(step.command_name, f"{one.path}.commandName")
        elif step.type == "llm" and step.markdown_file is not None:
            yield from self._markdown(step.markdown_file, f"{one.path}.markdownFile")
        elif step.type == "subflow":
            for name in step.flow_names:
                yield from self._flow(name, f"{one.path}.flowNames")

    def _command(self, name: str, at: str) -> Iterator[tuple[str, str]]:
        try:
            found = read_command(self._flows, name)
        except FlowInvalid as error:
            yield at, str(error)
        else:
            if found is None:
                yield at, f"there is no commands/{name}.json or .md beside the folder; write it"
            else:
                self.commands[name] = found

    def _markdown(self, path: str, at: str) -> Iterator[tuple[str, str]]:
        try:
            found = read_markdown(self._flows, path)
        except FlowInvalid as error:
            yield at, str(error)
        else:
            if found is None:
                yield at, f"there is no file {path} in the folder of the flow; write it"
            else:
                self.markdown[path] = found

    def _flow(self, name: str, at: str) -> Iterator[tuple[str, str]]:
        file = self._flows / f"{name}.json"
        if not file.exists():
            yield at, f"there is no flow {name!r} beside it; write {file.name}"
            return
        try:
            read_flow(file)
        except FlowInvalid as error:
            yield at, f"it is disabled: {error}"


def _within(placed: tuple[Placed, ...]) -> Iterator[Placed]:
    for one in placed:
        yield one
        yield from _within(one.body)
        yield from _within(one.otherwise)
