"""The state of a worker's MCP servers: each has a file, which its client process writes.

The worker's processes read the files: the inventory lists the tools, a call finds the socket.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from app.truncate import cut
from leadhand.file_stamp import Stamp, stamp_of
from leadhand.models.tool_schemas import parameters_of
from leadhand.models.views.fleet import ToolHere
from workers.registry.tool_entry import McpServer

log = logging.getLogger(__name__)

#: Characters of a description that the inventory shows.
_DESCRIPTION = 200
#: A tool's name after that of its server; other names cannot be written in a document.
NAME = re.compile(r"^[A-Za-z0-9_./-]{1,128}$")


class ServedTool(BaseModel):
    """One tool of a server, as the server lists it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    description: str = ""
    input_schema: dict[str, JsonValue] = {}
    #: Whether the server says that a second call changes nothing more.
    repeats: bool = False
    #: What is wrong with the server's description of the tool; it may be named by its place.
    why_not: str | None = None


class ServerState(BaseModel):
    """Where a server's client listens, the server's tools, and why it cannot be used."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    socket: str | None = None
    tools: tuple[ServedTool, ...] = ()
    why_not: str | None = None

    def write(self, file: Path) -> None:
        """Write the state of an MCP server to its file, atomically."""
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(self.model_dump_json())
        temporary.replace(file)


class _Known(NamedTuple):
    stamp: Stamp
    state: ServerState


class ServedTools:
    """The states of the servers in one folder; a file is parsed again after it has changed."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._own: Path | None = None
        self._owns: Callable[[str], bool] = lambda _name: False
        self._known: dict[str, _Known] = {}

    def add_folder(self, folder: Path, *, owns: Callable[[str], bool]) -> None:
        """Set a second folder, from which the states of servers that `owns` selects are read."""
        self._own, self._owns = folder, owns

    def has_state(self, server: str) -> bool:
        """Whether the client of an MCP server has listed its tools, or failed."""
        file = self._file(server)
        return file is not None and file.exists()

    def _file(self, server: str) -> Path | None:
        folder = self._own if self._own is not None and self._owns(server) else self._folder
        return None if folder is None else folder / f"{server}.json"

    def state(self, server: str) -> ServerState:
        """Read the last state of an MCP server from its file; empty if it has none yet."""
        file = self._file(server)
        if file is None:
            return ServerState(why_not="no worker process runs its servers here")
        stamp, known = stamp_of(file), self._known.get(server)
        if known is None or known.stamp != stamp:
            known = self._known[server] = _Known(stamp, _read(file))
        return known.state

    def tools(self, servers: Sequence[str]) -> Iterator[ToolHere]:
        """Yields the tools of these MCP servers, and an entry for each unusable server."""
        for server in servers:
            state = self.state(server)
            if state.why_not is not None:
                yield ToolHere(name=server, kind="mcp", why_not=state.why_not)
            for tool in state.tools:
                yield _tool(server, tool, state.why_not or tool.why_not)


def offered(entry: McpServer, tools: Sequence[ServedTool]) -> tuple[ServedTool, ...]:
    """Returns the MCP server's tools that its entry allows and whose names documents can use.

    Malformed ones without such a name are returned, too: one may be what the entry allows.
    """
    return tuple(
        tool
        for tool in tools
        if (NAME.match(tool.name) and (entry.tools is None or tool.name in entry.tools))
        or (tool.why_not is not None and not NAME.match(tool.name))
    )


def _tool(server: str, tool: ServedTool, why_not: str | None) -> ToolHere:
    schema = tool.input_schema
    return ToolHere(
        name=f"{server}.{tool.name}",
        kind="mcp",
        about=cut(" ".join(tool.description.split()), _DESCRIPTION),
        parameters=parameters_of(schema),
        takes_any=schema.get("additionalProperties") is True or not schema.get("properties"),
        input_schema=schema,
        why_not=why_not,
    )


def _read(file: Path) -> ServerState:
    try:
        return ServerState.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return ServerState(why_not="its client is being started")
    except (OSError, ValidationError) as error:
        log.warning("state of a server cannot be read: %s: %s", file, error)
        return ServerState(why_not="the state of its client cannot be read")
