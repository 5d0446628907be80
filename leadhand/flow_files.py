"""Reads flows and commands from their files, and says of a bad one where it is wrong."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from leadhand.flow_documents import FlowDefinition, Message, Messages, Written
from leadhand.flow_faults import fault_of
from leadhand.flow_structure import STEP_REFERENCE

#: The longest file that is read.
LONGEST_FILE = 4 * 1024 * 1024
#: Where commands are: a folder beside that of the flows.
COMMANDS = "commands"


class FlowInvalid(ValueError):
    """A file says what cannot be run: the file, the path in it, the way out."""

    def __init__(self, file: str, path: str, message: str) -> None:
        super().__init__(file, path, message)
        self.file = file
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.file}: {self.told}"

    @property
    def told(self) -> str:
        """The same without the file."""
        return f"{self.path}: {self.message}" if self.path else self.message


class _CommandFile(Written):
    """A named list of messages; `items` is what other tools call it."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    description: str = ""
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=100)]


#: What no flow can be called: it is a word of the API.
RESERVED = "validate"
_STEM = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
#: What some editors begin a file with, to say that it is UTF-8.
_MARK = "\N{BYTE ORDER MARK}"
_STRING: TypeAdapter[str] = TypeAdapter(str)


#: What to say of one that cannot.
NO_NAME = f"a flow is called by letters, digits, . _ -, and not {RESERVED!r}"


def is_name(stem: str) -> bool:
    """Whether a file of this stem can be a flow."""
    return _STEM.match(stem) is not None and stem != RESERVED


def read_flow(file: Path) -> FlowDefinition:
    """The flow that a file holds. Raises FlowInvalid."""
    return flow_in(json_in(file), file.name)


def flow_in(given: JsonValue, file: str) -> FlowDefinition:
    """The flow that a value is. Raises FlowInvalid."""
    try:
        return FlowDefinition.model_validate(given)
    except ValidationError as error:
        raise _invalid(error, given, file) from None


def read_command(flows: Path, name: str) -> Messages | None:
    """A command's messages; None where there is no such file. Raises FlowInvalid."""
    folder = flows.parent / COMMANDS
    text, data = folder / f"{name}.md", folder / f"{name}.json"
    if data.is_file():
        return _command_in(json_in(data), f"{COMMANDS}/{data.name}")
    return _said_in(text, f"{COMMANDS}/{text.name}") if text.is_file() else None


def read_markdown(flows: Path, path: str) -> Messages | None:
    """What a file beneath the folder of the flows says; None where there is none of that path.

    Raises FlowInvalid, also for one that a link leads out of the folder to.
    """
    file = flows / path
    if not file.is_file():
        return None
    if not file.resolve().is_relative_to(flows.resolve()):
        raise FlowInvalid(path, "", "a link leads out of the folder of the flows; put a file there")
    return _said_in(file, path)


def _said_in(file: Path, name: str) -> Messages:
    """A file's text as one message; its lines that are references stand alone."""
    try:
        said = _text(file).strip()
    except FlowInvalid as error:
        raise FlowInvalid(name, error.path, error.message) from None
    if not said:
        raise FlowInvalid(name, "", "it is empty; write what is to be said")
    try:
        return (Message(role="user", content=tuple(_parts(said))),)
    except ValidationError as error:
        raise FlowInvalid(name, "", f"it is too long: {error.errors()[0]['msg']}; cut it") from None


def _parts(said: str) -> Iterator[str]:
    lines: list[str] = []
    for line in said.splitlines():
        if STEP_REFERENCE.match(line.strip()) is None:
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
        raise _invalid(error, given, file) from None


def _invalid(error: ValidationError, given: JsonValue, file: str) -> FlowInvalid:
    path, message = fault_of(error, given)
    return FlowInvalid(file, path, message)


def json_in(file: Path) -> JsonValue:
    """What a file holds. Raises FlowInvalid."""
    text = _text(file)
    try:
        found: JsonValue = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise FlowInvalid(file.name, "", f"it is no JSON: {error}; mend it there") from None
    twice = list[str]()
    json.loads(text, object_pairs_hook=partial(_once_each, twice), parse_int=str, parse_float=str)
    if twice:
        message = f"one object gives {twice[0][:80]!r} twice, and one of both would be lost"
        raise FlowInvalid(file.name, "", f"{message}; give each name once")
    return found


def _once_each(twice: list[str], pairs: Sequence[tuple[str, object]]) -> None:
    """Note the names that an object gives again: nobody can tell which one was meant."""
    counted = Counter(name for name, _ in pairs)
    twice += (name for name, times in counted.items() if times > 1)


def _text(file: Path) -> str:
    try:
        return _STRING.validate_python(_bytes(file)).removeprefix(_MARK)
    except OSError as error:
        raise FlowInvalid(file.name, "", f"it cannot be read: {error.strerror}") from None
    except ValidationError:
        raise FlowInvalid(file.name, "", "it is no UTF-8; save it as UTF-8") from None


def _bytes(file: Path) -> bytes:
    """What is in the file, which nobody is waited for: a pipe or a device is not read."""
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as data:
        if not stat.S_ISREG(os.fstat(data.fileno()).st_mode):
            raise FlowInvalid(
                file.name, "", "it is no regular file; put one there, or take it away"
            )
        found = data.read(LONGEST_FILE + 1)
    if len(found) > LONGEST_FILE:
        raise FlowInvalid(file.name, "", f"it is longer than {LONGEST_FILE} bytes; cut it")
    return found
