"""Calls tools of a tools.toml in this process, and serves HTTP on loopback for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from app.core.outcomes import Outcome
from app.core.program import Action
from workers.attempt.actions import run_body
from workers.registry.agents import AgentBook
from workers.registry.tool_book import ToolFiles
from workers.registry.tools import ToolCatalogue
from workers.task import BodyTask


class ToolWorld:
    """A folder with a tools.toml, and calls of its tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "tools.toml"
        (folder / "work").mkdir()
        self.shelf = ToolCatalogue(declared=ToolFiles([folder / "agents.toml"]))

    def write(self, text: str) -> None:
        """Replace the tools.toml."""
        self.file.write_text(text)

    def call(
        self,
        tool: str,
        *,
        cancel: threading.Event | None = None,
        timeout_s: float = 60.0,
        attempt: int = 1,
        retries: int = 0,
        hosts: tuple[str, ...] = (),
        expect: str | None = None,
        **arguments: Any,
    ) -> Outcome:
        """Call a tool as a step does."""
        inputs: dict[str, Any] = {"tool": tool, "arguments": arguments, "expect": expect}
        task = BodyTask(
            session="ab12cd34", address="call", action=Action.TOOL, iteration=1, attempt=attempt,
            inputs=inputs, cwd=self.folder / "work", spill=self.folder / "spill" / "call",
            timeout_s=timeout_s, url="http://127.0.0.1:1", mint=str, agents=AgentBook(),
            default_agent=None, shelf=self.shelf, retries=retries, tool_hosts=hosts,
        )  # fmt: skip
        return run_body(task, cancel or threading.Event())


def why(outcome: Outcome) -> str:
    """The reason of a failed outcome."""
    assert outcome.word == "failed", outcome
    assert outcome.reason is not None
    return outcome.reason.text


#: The status, text and type of the responses of some paths.
_FIXED = {
    "/busy": (503, "the shop is full", "text/plain"),
    "/missing": (404, "no such thing", "text/plain"),
    "/text": (200, "plain words", "text/plain"),
    "/broken": (200, "{", "application/json"),
    "/declined": (200, '{"success": false, "error": "the shop is closed"}', "application/json"),
}


class Web(BaseHTTPRequestHandler):
    """Answers by path; keeps the requests."""

    seen: list[tuple[str, str, dict[str, str], bytes]] = []  # noqa: RUF012
    release = threading.Event()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.seen.append((self.command, self.path, dict(self.headers), body))
        path = self.path.partition("?")[0]
        if path == "/hang":
            self.release.wait(30)
        if path == "/moved":
            return self._send(302, "", Location="http://127.0.0.1:1/elsewhere")
        if path == "/large":
            return self._send(200, "x" * (5 * 1024 * 1024))
        if path in _FIXED:
            status, text, kind = _FIXED[path]
            return self._send(status, text, kind=kind)
        return self._send(200, '{"found": [1, 2]}', kind="application/json")

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def _send(self, status: int, text: str, *, kind: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        try:
            self.wfile.write(text.encode())
        except OSError:
            return  # the client had enough

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def web() -> Iterator[str]:
    """A server on loopback: its host and port."""
    Web.seen.clear()
    Web.release.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        Web.release.set()
        server.shutdown()
        server.server_close()
        thread.join()
