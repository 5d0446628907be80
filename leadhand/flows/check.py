"""Validates a flow file together with the files beside it that it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from leadhand.flows.documents import FlowDefinition, Messages
from leadhand.flows.faults import Found, all_faults
from leadhand.flows.file_reading import (
    NO_NAME,
    FlowInvalid,
    is_name,
    json_in,
    read_command,
    read_flow,
    read_markdown,
)
from leadhand.flows.structure import Brought, Placed, faults_of_files, faults_of_inputs, nest_steps

_ANOTHER = "another folder that this flow uses has a different file of that name; rename one"


def faults_in_file(file: Path, others: Sequence[Path] = ()) -> Found:
    """Returns the errors of a flow file and of the files that it uses, and the flow itself.

    Raises FlowInvalid if the file cannot be parsed.
    Its subflows are in its own folder or in one of the others.
    """
    found = all_faults(FlowDefinition, json_in(file))
    if found.flow is None:
        return found
    beside = _Beside([folder.absolute() for folder in others])
    faults = list(beside.faults_of(found.flow, file.parent.absolute(), (file.stem,), ""))
    of_files = (
        (fault.path, fault.message)
        for flow in (found.flow, *beside.flows.values())
        for fault in faults_of_files(flow, Brought(beside.commands, beside.markdown))
    )
    of_inputs = (
        (f"{where}{fault.path}", fault.message)
        for where, flow in (("", found.flow), *((f"{n}: ", f) for n, f in beside.flows.items()))
        for fault in faults_of_inputs(flow, beside.flows)
    )
    named = [] if is_name(file.stem) else [("", f"{NO_NAME}; rename the file")]
    everything = dict.fromkeys([*found.faults, *faults, *of_files, *of_inputs, *named])
    return Found(list(everything), found.flow)


class _Beside:
    """The files that a flow uses: commands, Markdown files and subflows."""

    def __init__(self, others: Sequence[Path]) -> None:
        self._others = others
        self.commands: dict[str, Messages] = {}
        self.markdown: dict[str, Messages] = {}
        #: All subflows, including nested ones.
        self.flows: dict[str, FlowDefinition] = {}
        self._files: dict[str, Path] = {}

    def faults_of(
        self, flow: FlowDefinition, folder: Path, path: tuple[str, ...], where: str
    ) -> Iterator[tuple[str, str]]:
        """Read the files of the steps and yield their errors. `path` has the enclosing flows."""
        for one in _within(nest_steps(flow.steps)):
            step, at = one.step, f"{where}{one.path}"
            if step.type == "command":
                name, at = step.command_name, f"{at}.commandName"
                missing = f"commands/{name}.json or .md is missing beside the folder; create it"
                read = partial(read_command, folder, name)
                yield from self._take(self.commands, read, name, at, missing)
            elif step.type == "llm" and step.markdown_file is not None:
                name, at = step.markdown_file, f"{at}.markdownFile"
                missing = f"{name} is missing in the folder of the flow; create it"
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
            yield at, f"the flows call each other in a circle: {circle}; remove one call"
            return
        files = (one / f"{name}.json" for one in (folder, *self._others))
        file = next((file for file in files if file.exists()), None)
        if file is None:
            yield at, f"the flow {name!r} is missing; create {name}.json"
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
        for inner in one.lists:
            yield from _within(inner)
