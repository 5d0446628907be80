"""A scripted model on loopback, with the three dialects that agents use.

`/v1/messages` (Claude Code), `/v1/responses` (Codex) and `/v1/chat/completions`, all streamed.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Say:
    """Answer with a text."""

    text: str
    input_tokens: int = 1000
    output_tokens: int = 100


@dataclass(frozen=True)
class Use:
    """Call the agent's shell with a command."""

    command: str
    input_tokens: int = 1000
    output_tokens: int = 100


@dataclass(frozen=True)
class Call:
    """Call a tool of an MCP server."""

    server: str
    tool: str
    arguments: Mapping[str, Any]
    input_tokens: int = 1000
    output_tokens: int = 100


@dataclass(frozen=True)
class Refuse:
    """Answer with a status, and nothing else."""

    status: int
    retry_after: str | None = None


@dataclass(frozen=True)
class Drop:
    """Begin to answer, and close the connection in the middle of it."""

    text: str = "I was about to"


@dataclass(frozen=True)
class Garble:
    """Begin a response, then send malformed data; may disconnect within it."""

    data: bytes
    breaks_off: bool = False


@dataclass(frozen=True)
class Drip:
    """Answer a word at a time for as long as somebody listens."""

    word: str = "and "


@dataclass(frozen=True)
class Hang:
    """Take the question and never answer."""


Reply = Say | Use | Call | Refuse | Drop | Garble | Drip | Hang


@dataclass(frozen=True)
class Asked:
    """One request, in one form whatever its dialect."""

    path: str
    model: str
    #: Role and text of every message, in order; a tool's result has the role `tool`.
    said: tuple[tuple[str, str], ...]
    tools: tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def results(self) -> tuple[str, ...]:
        """The results of tools since the user's latest message."""
        last = itertools.takewhile(lambda one: one[0] != "user", reversed(self.said))
        return tuple(text for role, text in last if role == "tool")

    def heard(self, text: str) -> bool:
        """Whether a text stands in any of its messages."""
        return any(text in said for _, said in self.said)

    @property
    def prompt(self) -> str:
        """The latest message of the user."""
        return next((text for role, text in reversed(self.said) if role == "user"), "")


class ModelServer:
    """Answers requests with the test's function, and records them."""

    def __init__(self, answer: Callable[[Asked], Reply]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        #: Set when the client of a slow or a hanging response has disconnected.
        self.left = threading.Event()
        self.closing = threading.Event()
        self._http = _Http(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(timeout=10)


@contextmanager
def model_server(answer: Callable[[Asked], Reply]) -> Iterator[ModelServer]:
    server = ModelServer(answer)
    server.start()
    try:
        yield server
    finally:
        server.stop()


_numbers = itertools.count(1)


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test's output clean."""

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_GET(self) -> None:
        self._json(200, {"data": [], "object": "list"})

    def do_POST(self) -> None:
        raw = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            return self._json(200, {"input_tokens": 1})
        if path not in _DIALECTS:
            return self._json(404, {"error": {"message": f"no {path}"}})
        read, write = _DIALECTS[path]
        asked = read(path, raw)
        self.server.model.asked.append(asked)
        return self._reply(self.server.model.answer(asked), asked, write)

    def _reply(self, reply: Reply, asked: Asked, write: _Writer) -> None:
        if isinstance(reply, Refuse):
            told = {} if reply.retry_after is None else {"Retry-After": reply.retry_after}
            error = {"type": "rate_limit_error", "message": f"scripted {reply.status}"}
            return self._json(reply.status, {"type": "error", "error": error}, told)
        if isinstance(reply, Hang):
            return self._wait()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        if isinstance(reply, Garble) and reply.breaks_off:
            self.send_header("Content-Length", "100000")
        self.end_headers()
        try:
            self._stream(reply, asked, write)
        except (BrokenPipeError, ConnectionResetError):
            self.server.model.left.set()
        return None

    def _stream(
        self, reply: Say | Use | Call | Drop | Garble | Drip, asked: Asked, write: _Writer
    ) -> None:
        if isinstance(reply, Say | Use | Call):
            self._send(list(write(reply, asked)))
            if asked.path == "/v1/chat/completions":
                self.wfile.write(b"data: [DONE]\n\n")
            return
        text = reply.word if isinstance(reply, Drip) else "I was about to"
        text = reply.text if isinstance(reply, Drop) else text
        begun = list(write(Say(text), asked))[: _TEXT_AT[asked.path]]
        self._send(begun)
        if isinstance(reply, Garble):
            self.wfile.write(b"data: " + reply.data + b"\n\n")
        while isinstance(reply, Drip) and not self.server.model.closing.wait(0.05):
            self._send(begun[-1:])

    def _send(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        self.wfile.flush()

    def _wait(self) -> None:
        self.connection.settimeout(0.1)
        while not self.server.model.closing.is_set():
            try:
                if not self.connection.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.server.model.left.set()
        self.close_connection = True

    def _json(
        self, status: int, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        body = json.dumps(fields).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, model: ModelServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(p.get("text", "")) for p in parts if isinstance(p, dict))


def _read_messages(path: str, raw: dict[str, Any]) -> Asked:
    said = list[tuple[str, str]]()
    for message in raw["messages"]:
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        for block in blocks:
            if block["type"] == "text":
                said.append((message["role"], block["text"]))
            elif block["type"] == "tool_result":
                said.append(("tool", _text_of(block.get("content", ""))))
    tools = tuple(tool["name"] for tool in raw.get("tools", ()))
    return Asked(path, raw["model"], tuple(said), tools, raw)


def _write_messages(reply: Say | Use | Call, asked: Asked) -> Iterator[dict[str, Any]]:
    number = next(_numbers)
    usage = {
        "input_tokens": reply.input_tokens,
        "output_tokens": 1,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    message: dict[str, Any] = {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": asked.model,
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    yield {"type": "message_start", "message": message}
    if isinstance(reply, Say):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": reply.text}
    else:
        if isinstance(reply, Call):
            tool, given = f"mcp__{reply.server}__{reply.tool}", dict(reply.arguments)
        else:
            tool, given = "Bash", {"command": reply.command, "description": "do it"}
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = "end_turn" if isinstance(reply, Say) else "tool_use"
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": reply.output_tokens},
    }
    yield {"type": "message_stop"}


def _read_responses(path: str, raw: dict[str, Any]) -> Asked:
    said = list[tuple[str, str]]()
    for item in raw["input"]:
        if item.get("type", "message") == "message":
            said.append((item["role"], _text_of(item["content"])))
        elif item["type"] == "function_call_output":
            said.append(("tool", json.dumps(item["output"])))
    tools = tuple(str(tool.get("name", "")) for tool in raw.get("tools", ()))
    return Asked(path, raw["model"], tuple(said), tools, raw)


def _write_responses(reply: Say | Use | Call, asked: Asked) -> Iterator[dict[str, Any]]:
    number = next(_numbers)
    yield {"type": "response.created", "response": {"id": f"resp_{number}"}}
    if isinstance(reply, Say):
        item = {
            "type": "message", "role": "assistant", "id": f"msg_{number}",
            "content": [{"type": "output_text", "text": reply.text}],
        }  # fmt: skip
    else:
        more = {}
        if isinstance(reply, Call):
            name, given = reply.tool, dict(reply.arguments)
            more = {"namespace": f"mcp__{reply.server}"}
        else:
            name = next(name for name in asked.tools if name in _SHELLS)
            given = _SHELLS[name](reply.command)
        item = {
            "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}",
            "name": name, "arguments": json.dumps(given), **more,
        }  # fmt: skip
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
    yield {
        "type": "response.completed",
        "response": {"id": f"resp_{number}", "usage": usage, "output": []},
    }


#: The shell tools of Codex, by name, and the arguments that carry a command.
_SHELLS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command},
    "shell": lambda command: {"command": ["bash", "-c", command]},
}


def _read_chat(path: str, raw: dict[str, Any]) -> Asked:
    said = tuple((one["role"], _text_of(one["content"])) for one in raw["messages"])
    return Asked(path, raw["model"], said, (), raw)


def _write_chat(reply: Say | Use | Call, asked: Asked) -> Iterator[dict[str, Any]]:
    assert isinstance(reply, Say), "a chat model has no shell"
    head = {
        "id": f"chatcmpl-{next(_numbers)}", "object": "chat.completion.chunk", "created": 1,
        "model": asked.model,
    }  # fmt: skip
    delta = {"role": "assistant", "content": reply.text}
    yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }
    yield {**head, "choices": [], "usage": usage}


_Reader = Callable[[str, dict[str, Any]], Asked]
_Writer = Callable[[Say | Use | Call, Asked], Iterator[dict[str, Any]]]
_DIALECTS: Mapping[str, tuple[_Reader, _Writer]] = {
    "/v1/messages": (_read_messages, _write_messages),
    "/v1/responses": (_read_responses, _write_responses),
    "/v1/chat/completions": (_read_chat, _write_chat),
}
#: How many of a reply's events are out once some of its text is.
_TEXT_AT = {"/v1/messages": 3, "/v1/responses": 1, "/v1/chat/completions": 1}
