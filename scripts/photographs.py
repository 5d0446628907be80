"""Compares what users see (API, commands, states, problems, clients, MCP tools) with a revision.

The surfaces are files of the repository, descriptions aside. `make docs` writes those of the
clients and the MCP tools, and `make check` compares all with the code.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from leadhand import AsyncClient, Client
from leadhand.mcp.stack_tools import STACK_TOOLS
from leadhand.mcp.tools import TOOLS

ROOT = Path(__file__).resolve().parent.parent
#: What is for readers only, unless it is the name of a field or of another thing.
_PROSE = {"description", "summary", "title"}
_NAMED = {"properties", "patternProperties", "schemas", "parameters", "responses", "paths", "$defs"}


def main() -> int:
    """Print what differs from the revision; returns 1 if anything does."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("revision", nargs="?", default="HEAD", help="what to compare with (HEAD)")
    revision = options.parse_args().revision
    found = list(differences(revision))
    print(*found or [f"what users see is as in {revision}"], sep="\n")
    return 1 if found else 0


def differences(revision: str) -> Iterator[str]:
    """Yield a line for each difference of the working tree from a revision."""
    for name, read in SURFACES.items():
        shown = ("git", "show", f"{revision}:{name}")
        before = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=False)
        if before.returncode:
            yield f"{name}: cannot be compared: {before.stderr.strip()}"
        else:
            now = (ROOT / name).read_text(encoding="utf-8")
            yield from (f"{name}: {one}" for one in compare(read(before.stdout), read(now)))


def compare(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield what is gone, new or changed."""
    for name in sorted({*before, *now}):
        if name not in now:
            yield f"{name}: is gone" + (f" (was {before[name]})" if before[name] else "")
        elif name not in before:
            yield f"{name}: is new" + (f" ({now[name]})" if now[name] else "")
        elif before[name] != now[name]:
            yield f"{name}: was {before[name]}, is {now[name]}"


def facts(text: str) -> dict[str, str]:
    """Return the leaves of a JSON text by their paths."""
    return dict(_leaves(json.loads(text), "", prose=set()))


def schema(text: str) -> dict[str, str]:
    """Return the leaves of a JSON text by their paths, without descriptions."""
    return dict(_leaves(json.loads(text), "", prose=_PROSE))


def _leaves(value: Any, at: str, prose: set[str]) -> Iterator[tuple[str, str]]:
    if isinstance(value, list) and any(isinstance(one, dict | list) for one in value):
        value = {_name(one, index): one for index, one in enumerate(value)}
    if isinstance(value, dict) and value:
        is_names = at.rpartition("/")[2] in _NAMED
        for name, one in value.items():
            if is_names or name not in prose:
                yield from _leaves(one, f"{at}/{name}", prose)
    elif isinstance(value, list):  # enumerations and required fields have no order
        yield at, json.dumps(sorted(value, key=str))
    else:
        yield at, json.dumps(value)


def _name(one: Any, index: int) -> str:
    return str(one.get("name", index)) if isinstance(one, dict) else str(index)


def commands(text: str) -> dict[str, str]:
    """Return the usage and the options of each command of docs/cli.md."""
    found: dict[str, str] = {}
    command = at = "leadhand"
    is_options = False
    for line in text.splitlines():
        if heading := re.fullmatch(r"##+ (leadhand .*)", line):
            command = at = heading[1]
        elif line.startswith("Usage: "):
            found[command] = line
        elif line and not line.startswith(" "):
            is_options = line == "Options:"
        elif is_options and (option := re.match(r"  (-.*?)(?:  |$)", line)):
            at = f"{command} {option[1]}"
            found[at] = ""
        if is_options and at in found and (fact := re.search(r"\[[^\]]*\]$", line)):
            found[at] = fact[0]
    return found


def states(text: str) -> dict[str, str]:
    """Return what may follow each state, by the tables of docs/states.md."""
    found, table = {}, ""
    for line in text.splitlines():
        table = line.removeprefix("## ") if line.startswith("## ") else table
        if line.startswith("| `"):
            state, *_, following = line.strip("| ").split(" | ")
            found[f"{table} {state}"] = following
    return found


def client_signatures() -> str:
    """Return the signatures of the public methods and properties of both clients as JSON."""
    found = {one.__name__: dict(_signatures(one)) for one in (Client, AsyncClient)}
    return json.dumps(found, indent=1) + "\n"


def _signatures(client: type) -> Iterator[tuple[str, str]]:
    yield "__init__", _signature(client.__init__)  # type: ignore[misc]
    for name, member in inspect.getmembers(client):
        if not name.startswith("_"):
            is_property = isinstance(member, property)
            yield name, _signature(member.fget if is_property else member, is_property=is_property)


def _signature(method: Any, *, is_property: bool = False) -> str:
    """Return a signature with the annotations as they are written, without their modules."""
    found = inspect.signature(method)
    _, *own = found.parameters.values()
    each = [one.replace(annotation=_Written(one.annotation)) for one in own]
    text = str(found.replace(parameters=each, return_annotation=_Written(found.return_annotation)))
    kind = "property " if is_property else "async " if inspect.iscoroutinefunction(method) else ""
    return kind + text


class _Written:
    """An annotation whose `repr` is its text."""

    def __init__(self, annotation: object) -> None:
        self._annotation = annotation

    def __repr__(self) -> str:
        return re.sub(r"\b(?:[A-Za-z_]\w*\.)+", "", str(self._annotation))


def mcp_tools() -> str:
    """Return the MCP tools with the schemas of their arguments as JSON."""
    tools = {**TOOLS, **STACK_TOOLS}
    found = {
        name: {
            "description": tool.description,
            "reads": tool.reads,
            "arguments": tool.arguments.model_json_schema(),
        }
        for name, tool in tools.items()
    }
    return json.dumps(found, indent=1) + "\n"


#: The files, and how to read what users see from one.
SURFACES: dict[str, Callable[[str], dict[str, str]]] = {
    "docs/openapi.json": schema,
    "docs/cli.md": commands,
    "docs/states.md": states,
    "tests/contract/problems.json": facts,
    "tests/contract/client.json": facts,
    "tests/contract/mcp_tools.json": schema,
}

if __name__ == "__main__":
    sys.exit(main())
