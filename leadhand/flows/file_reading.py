"""Reads flow, command and Markdown files, with errors that name the file and the path in it."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from leadhand.flows.documents import FlowDefinition, Message, Messages
from leadhand.flows.faults import Found, all_faults, fault_of
from leadhand.flows.structure import (
    Brought,
    Placed,
    Written,
    faults_of_files,
    faults_of_inputs,
    nest_steps,
)
from leadhand.models.references import names_step

#: The longest file that is read.
LONGEST_FILE = 4 * 1024 * 1024
#: Where commands are: a folder beside that of the flows.
COMMANDS = "commands"
_ANOTHER = "another folder that this flow uses has a different file of that name; rename one"


class FlowInvalid(ValueError):
    """A file is invalid: the file, the path in it, and a message with a fix."""

    def __init__(self, file: str, path: str, message: str) -> None:
        super().__init__(file, path, message)
        self.file = file
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.file}: {self.detail}"

    @property
    def detail(self) -> str:
        """Return the path in the file and the message, without the file name."""
        return f"{self.path}: {self.message}" if self.path else self.message


class _CommandFile(Written):
    """A named list of messages; `items` is what other tools call it."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    description: str = ""
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=100)]


#: A name that no flow can have: it is part of an API route.
RESERVED = "validate"
_STEM = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
#: Some editors begin a UTF-8 file with it.
_MARK = "\N{BYTE ORDER MARK}"
_STRING: TypeAdapter[str] = TypeAdapter(str)


#: The error for a stem that is not allowed.
NO_NAME = f"a flow's name has letters, digits, '.', '_' and '-', and is not {RESERVED!r}"


def is_name(stem: str) -> bool:
    """Whether a file name (without its ending) is a valid name of a flow."""
    return _STEM.match(stem) is not None and stem != RESERVED


def read_flow(file: Path) -> FlowDefinition:
    """Reads and validates a flow file (JSON). Raises FlowInvalid if it is missing or invalid."""
    return flow_in(json_in(file), file.name)


def flow_in(given: JsonValue, file: str) -> FlowDefinition:
    """Validates a JSON value as a flow. Raises FlowInvalid."""
    try:
        return FlowDefinition.model_validate(given)
    except ValidationError as error:
        raise FlowInvalid(file, *fault_of(error, given, FlowDefinition)) from None


def read_command(flows: Path, name: str) -> Messages | None:
    """Reads the prompts of a command file (.md, .json); None if missing. Raises FlowInvalid."""
    folder = flows.parent / COMMANDS
    text, data = folder / f"{name}.md", folder / f"{name}.json"
    if data.is_file():
        return _command_in(json_in(data), f"{COMMANDS}/{data.name}")
    return _said_in(text, f"{COMMANDS}/{text.name}") if text.is_file() else None


def read_markdown(flows: Path, path: str) -> Messages | None:
    """Reads a Markdown file in the flows folder as the prompts of a step; None if missing.

    Raises FlowInvalid, also for one that a link leads out of the folder to.
    """
    file = flows / path
    if not file.is_file():
        return None
    if not file.resolve().is_relative_to(flows.resolve()):
        raise FlowInvalid(
            path, "", "a link leads out of the folder of the flows; replace it with a file"
        )
    return _said_in(file, path)


def _said_in(file: Path, name: str) -> Messages:
    """A file's text as one message; each line that is a reference is an entry of its own."""
    try:
        said = _text(file).strip()
    except FlowInvalid as error:
        raise FlowInvalid(name, error.path, error.message) from None
    if not said:
        raise FlowInvalid(name, "", "it is empty; write the message")
    try:
        return (Message(role="user", content=tuple(_parts(said))),)
    except ValidationError as error:
        raise FlowInvalid(
            name, "", f"it is too long: {error.errors()[0]['msg']}; shorten it"
        ) from None


def _parts(said: str) -> Iterator[str]:
    lines: list[str] = []
    for line in said.splitlines():
        if not names_step(line.strip()):
            lines.append(line)
            continue
        yield from _whole(lines)
        lines = []
        yield line.strip()
    yield from _whole(lines)


def _whole(lines: list[str]) -> Iterator[str]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield text


def _command_in(given: JsonValue, file: str) -> Messages:
    if isinstance(given, dict):
        names = {"Description": "description", "items": "messages"}
        given = {names.get(name, name): value for name, value in given.items()}
    try:
        return _CommandFile.model_validate(given).messages
    except ValidationError as error:
        raise FlowInvalid(file, *fault_of(error, given, _CommandFile)) from None


def json_in(file: Path) -> JsonValue:
    """Reads a JSON file. Raises FlowInvalid, also for an object that has a key twice."""
    text = _text(file)
    try:
        found: JsonValue = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise FlowInvalid(
            file.name, "", f"it is not valid JSON: {error}; correct it there"
        ) from None
    twice = list[str]()
    json.loads(text, object_pairs_hook=partial(_once_each, twice), parse_int=str, parse_float=str)
    if twice:
        message = f"an object has the key {twice[0][:80]!r} twice"
        raise FlowInvalid(file.name, "", f"{message}; give each key once")
    return found


def _once_each(twice: list[str], pairs: Sequence[tuple[str, object]]) -> None:
    """Record the names that an object has more than once."""
    counted = Counter(name for name, _ in pairs)
    twice += (name for name, times in counted.items() if times > 1)


def _text(file: Path) -> str:
    try:
        return _STRING.validate_python(_bytes(file)).removeprefix(_MARK)
    except OSError as error:
        raise FlowInvalid(file.name, "", f"it cannot be read: {error.strerror}") from None
    except ValidationError:
        raise FlowInvalid(file.name, "", "it is not UTF-8; save it as UTF-8") from None


def _bytes(file: Path) -> bytes:
    """The bytes of a regular file; a pipe or a device is an error, as a read may block."""
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as data:
        if not stat.S_ISREG(os.fstat(data.fileno()).st_mode):
            raise FlowInvalid(
                file.name, "", "it is not a regular file; replace it with one, or remove it"
            )
        found = data.read(LONGEST_FILE + 1)
    if len(found) > LONGEST_FILE:
        raise FlowInvalid(file.name, "", f"it is longer than {LONGEST_FILE} bytes; shorten it")
    return found


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
