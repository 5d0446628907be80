"""The client of one MCP server, a process of its own: `python -P -m leadhand.serve mcp-client`.

It reads its settings from standard input, connects to the server, writes the list of tools into the
server's state file, and again after each change, and carries out calls that come over a Unix
socket: a JSON line each. A call whose caller closes the connection is cancelled at the server. The
process ends with the server; the worker starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError
from mcp.types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolResult,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolListChangedNotification,
)
from pydantic import BaseModel, ConfigDict, ValidationError

from app.truncate import cut
from leadhand.models.validation_messages import error_details, plain_message
from workers.processes import environment
from workers.registry.tool_entry import McpServer, fill
from workers.registry.tool_servers import NAME, ServedTool, ServerState, offered
from workers.tool_servers.egress import guarded_client, public_text
from workers.tool_servers.redaction import without_values

log = logging.getLogger(__name__)

#: The most bytes of a request and of a result.
LINE_BYTES = 8 * 1024 * 1024
RESULT_BYTES = 4 * 1024 * 1024
#: Bytes of a tool's schema; a longer one is not listed, so the server alone checks arguments.
_SCHEMA_BYTES = 16 * 1024
#: Seconds for the connection and the list of tools, and between two looks at the server's process.
_START_S = 60.0
_LOOK_S = 0.2
#: Characters of the server's last error output, which its failure quotes.
_LAST_WORDS = 2_000
#: Seconds without data after which a response over HTTP counts as broken off.
_READ_S = 300.0
#: Seconds beyond a call's time limit, which its caller observes.
_LATE_S = 5.0
#: Seconds before a lost stream of changes is opened again.
_LISTEN_S = 5.0
#: The most pages of a list of tools.
_PAGES = 100


class ClientSettings(BaseModel):
    """What the process reads from standard input."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entry: McpServer
    #: The folder of tools.toml, in which the server's program starts.
    folder: Path
    #: The state file and the socket of this client.
    state: Path
    socket: str
    #: The private hosts that are allowed.
    hosts: tuple[str, ...] = ()


class ServerGone(Exception):
    """The server has ended, or cannot be reached."""


def main() -> int:
    """Serve the calls to one MCP server until it ends; on an error print why and return 1."""
    settings = ClientSettings.model_validate_json(sys.stdin.read(), strict=False)
    words = _LastWords()
    try:
        asyncio.run(_Bridge(settings, words).run())
    except BaseException as error:  # noqa: BLE001 - the reason is all that is left of the process
        why = first_reason(error)
        last = words.text(settings.entry)
        sys.stdout.write(f"{why}: {last}" if last else why)
        sys.stdout.flush()
        return 1
    return 0


def first_reason(error: BaseException) -> str:
    """Returns the text of the first error in nested exception groups.

    >>> first_reason(ExceptionGroup("many", [ValueError("no such program")]))
    'no such program'
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return public_text(error)


class _LastWords:
    """The end of the server's error output; its writing end is given to the server."""

    def __init__(self) -> None:
        reads, writes = os.pipe()
        self.file = os.fdopen(writes, "w")
        self._tail = deque[str](maxlen=20)
        threading.Thread(target=self._read, args=(reads,), daemon=True).start()

    def text(self, entry: McpServer) -> str:
        """The last lines, without the values of the entry's variables."""
        words = " ".join("".join(self._tail).split())
        return cut(without_values(words, entry, environment.inherited()), _LAST_WORDS)

    def _read(self, reads: int) -> None:
        with os.fdopen(reads, errors="replace") as lines:
            while line := lines.readline(4096):
                self._tail.append(line)


class _Bridge:
    """Connects callers to the server."""

    def __init__(self, settings: ClientSettings, words: _LastWords) -> None:
        self._settings = settings
        self._words = words
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Connect, list the tools and serve calls until the server ends. Raises ServerGone."""
        async with asyncio.timeout(_START_S) as limit, self._connected() as client:
            tools = await self._list(client)
            limit.reschedule(None)
            gone = asyncio.Event()
            server = await asyncio.start_unix_server(
                lambda reads, writes: self._serve(client, reads, writes, gone),
                self._settings.socket,
                limit=LINE_BYTES,
            )
            try:
                self._publish(tools)
                await self._watch(client, gone)
            finally:
                server.close()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        entry, held = self._settings.entry, dict(environment.inherited())
        if entry.command is not None:
            start = StdioServerParameters(
                command=entry.command, args=[*entry.args], env=held, cwd=self._settings.folder
            )
            transport = stdio_client(start, errlog=self._words.file)
            async with Client(transport, message_handler=self._on_message, cache=None) as client:
                yield client
            return
        assert entry.url is not None
        headers = {
            name: fill(text, lambda variable: held.get(variable, "").strip())
            for name, text in entry.headers.items()
        }
        async with (
            guarded_client(self._settings.hosts, headers=headers, timeout_s=_READ_S) as http,
            Client(
                streamable_http_client(entry.url, http_client=http),
                message_handler=self._on_message,
                cache=None,
            ) as client,
        ):
            yield client

    async def _on_message(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._changed.set()

    async def _list(self, client: Client) -> tuple[ServedTool, ...]:
        """The server's tools, page by page."""
        found, cursor = list[ServedTool](), None
        for _ in range(_PAGES):
            tools, cursor = await _page(client, cursor, before=len(found))
            found += tools
            if cursor is None:
                break
        return offered(self._settings.entry, found)

    def _publish(self, tools: tuple[ServedTool, ...]) -> None:
        ServerState(socket=self._settings.socket, tools=tools).write(self._settings.state)

    async def _watch(self, client: Client, gone: asyncio.Event) -> None:
        """Publish the list after each change, until the server is gone. Raises ServerGone."""
        processes = psutil.Process().children()
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(self._listen(client))
            try:
                while not gone.is_set() and all(map(_lives, processes)):
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), _LOOK_S)
                        self._changed.clear()
                        self._publish(await self._list(client))
            finally:
                listening.cancel()
        raise ServerGone("the server ended")

    async def _listen(self, client: Client) -> None:
        """Wait for changes that a server of the newest protocol reports on a stream of its own."""
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    self._changed.set()  # for changes before this
                    async for _ in changes:
                        self._changed.set()
            except ListenNotSupportedError:
                return  # an older server sends notifications
            except Exception as error:  # noqa: BLE001 - a lost stream does not end the client
                log.info("changes of the list are not followed: %s", first_reason(error))
            await asyncio.sleep(_LISTEN_S)

    async def _serve(
        self,
        client: Client,
        reads: asyncio.StreamReader,
        writes: asyncio.StreamWriter,
        gone: asyncio.Event,
    ) -> None:
        """Carry out one call; cancel it if the caller closes the connection first."""
        try:
            request = json.loads(await reads.readline())
            call = asyncio.ensure_future(self._answer(client, request, gone))
            left = asyncio.ensure_future(reads.read(1))
            await asyncio.wait((call, left), return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                writes.write(json.dumps(call.result()).encode() + b"\n")
                await writes.drain()
            call.cancel()
            left.cancel()
        except (OSError, ValueError):
            pass  # the caller is gone, or is another program
        finally:
            writes.close()

    async def _answer(
        self, client: Client, request: dict[str, Any], gone: asyncio.Event
    ) -> dict[str, Any]:
        if gone.is_set():  # this process is about to end, and the call was not sent
            return {"failed": "the server ended", "is_away": True}
        try:
            result = await client.call_tool(
                request["tool"], request["arguments"], request["timeout_s"] + _LATE_S
            )
            return _answer_of(result)
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                return {"failed": error.message, "is_late": True}
            is_closed = error.code == CONNECTION_CLOSED
            if is_closed:
                gone.set()
            return {"failed": f"{error.message} ({error.code})", "is_closed": is_closed}
        except (ValidationError, ValueError, RuntimeError) as error:
            return {"failed": first_reason(error)}
        except Exception as error:  # noqa: BLE001 - transports raise errors of their own
            gone.set()
            return {"failed": first_reason(error), "is_closed": True}


def _answer_of(result: CallToolResult) -> dict[str, Any]:
    texts = [one.text for one in result.content if isinstance(one, TextContent)]
    answer: dict[str, Any] = {"text": "\n".join(texts), "is_error": result.is_error}
    if result.structured_content is not None:
        answer["value"] = result.structured_content
    elif len(texts) < len(result.content):
        blocks = [one.model_dump(mode="json", exclude_none=True) for one in result.content]
        answer["value"] = {"content": blocks}
    if len(json.dumps(answer)) > RESULT_BYTES:
        return {"failed": f"the result has more than {RESULT_BYTES:,} bytes"}
    return answer


async def _page(
    client: Client, cursor: str | None, *, before: int
) -> tuple[list[ServedTool], str | None]:
    """One page of the server's tools, of which `before` were on earlier pages, and the next cursor.

    A malformed tool is listed by its place with what is wrong. Raises ValidationError if the page
    is no list of tools.
    """
    try:
        page = await client.list_tools(cursor=cursor)
        return [_served(tool) for tool in page.tools], page.next_cursor
    except ValidationError:  # the library refuses the whole page for one tool
        raw = await _raw_page(client, cursor)
        if not isinstance(raw.get("tools"), list):
            raise
    following = raw.get("nextCursor")
    tools = [_served_or_why(before + number, tool) for number, tool in enumerate(raw["tools"])]
    return tools, following if isinstance(following, str) else None


async def _raw_page(client: Client, cursor: str | None) -> dict[str, Any]:
    """A page as the server sent it; the library has no public way to get one."""
    request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
    data = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    session: Any = client.session
    options = dict[str, Any]()
    session._stamp(data, options)
    raw = await session._dispatcher.send_raw_request(data["method"], data.get("params"), options)
    found: dict[str, Any] = raw if isinstance(raw, dict) else {}
    listed = found.get("tools")
    # A call lists the tools that are not known to it, which would fail again.
    known = [tool for tool in map(_valid, listed if isinstance(listed, list) else ()) if tool]
    session._absorb_tool_listing(ListToolsResult(tools=known), complete=False)
    return found


def _valid(raw: object) -> Tool | None:
    try:
        return Tool.model_validate(raw, by_name=False)
    except ValidationError:
        return None


def _served_or_why(number: int, raw: object) -> ServedTool:
    try:
        return _served(Tool.model_validate(raw, by_name=False))
    except ValidationError as error:
        first, place = error_details(error)[0], f"tools[{number}]"
        where = "".join(f".{part}" for part in first["loc"])
        name = raw.get("name") if isinstance(raw, dict) else None
        why = f"the server lists it malformed: {place}{where}: {plain_message(first['msg'])}"
        return ServedTool(
            name=name if isinstance(name, str) and NAME.match(name) else place, why_not=why
        )


def _served(tool: Any) -> ServedTool:
    schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
    hints = tool.annotations
    repeats = hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
    return ServedTool(
        name=tool.name,
        description=tool.description or "",
        input_schema=schema if len(json.dumps(schema)) <= _SCHEMA_BYTES else {},
        repeats=repeats,
    )


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


if __name__ == "__main__":
    sys.exit(main())
