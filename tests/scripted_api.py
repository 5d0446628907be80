"""A real HTTP server with Leadhand's API, whose responses a test scripts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "token of the script"
AT = "2026-11-21T12:00:00Z"
_LIVE = ("active", "stopping")
_LEADS_TO = {"stop": "stopped", "resume": "active", "exit": "exited", "abort": "aborted"}

AGENTS: list[dict[str, Any]] = [
    {"name": "claude", "kind": "command", "command": "claude -p", "usable_at": [],
     "why_not": {"local": "the program 'claude' is not\x1b[2J found"}},
    {"name": "small", "kind": "model", "command": "small-1 at https://m.example/v1",
     "default": True, "usable_at": ["local"]},
]  # fmt: skip

#: A worker at one step, and a queue that is too long for it.
FLEET: dict[str, Any] = {
    "at": "2026-11-21T12:00:10+00:00",
    "sessions": {"active": 2, "failed": 1, "stopped": 0},
    "queues": [
        {"queue": "agents@local", "depth": 3, "ready": 2, "oldest_ready_s": 75.5,
         "running": 1, "consumers": 1, "slots": 4},
        {"queue": "gpu", "depth": 1, "ready": 1, "oldest_ready_s": 5},
    ],
    "workers": [
        {"name": "w1", "place": "local", "host": "h1", "concurrency": 4, "seen_at": AT,
         "running": [{"session": "0000000a", "address": "loop~1[1]/do", "action": "agent",
                      "label": "a\x1b[2J label", "queue": "agents@local", "attempt": 2,
                      "process": "w1/7", "since": AT}]},
    ],
    "leases": {"count": 2, "oldest_s": 90.5, "entries": 3},
    "ready": {"count": 0},
}  # fmt: skip
LISTS = {
    "workers": [{"name": "w1", "place": "local"}], "agents": AGENTS, "queues": FLEET["queues"],
}  # fmt: skip


class Script:
    """The responses of one server, and the requests that it received."""

    def __init__(self) -> None:
        self.submitted: list[dict[str, Any]] = []
        self.controls: list[tuple[str, str, dict[str, Any]]] = []
        #: What the next submitted session comes to; one without an end runs until it is stopped.
        self.result: dict[str, Any] = {}
        #: Fields of the views of submitted sessions.
        self.about: dict[str, Any] = {}
        self.events: Sequence[tuple[str, str | None, dict[str, Any]]] = ()
        self.ends = True
        #: Whether a stop is carried out at once, or hangs.
        self.stops = True
        self._changed = threading.Condition()
        self._sessions: dict[str, dict[str, Any]] = {}

    def add(self, session: str, status: str, **result: Any) -> None:
        """A session that is there already."""
        kind = result.get("kind", "loop")
        view = {
            "id": session, "kind": kind, "name": result.pop("name", kind), "status": status,
            "root": session, "created_at": AT, "updated_at": AT,
            "warnings": result.get("warnings", []), **result.pop("about", {}),
        }  # fmt: skip
        with self._changed:
            self._sessions[session] = {"view": view, "result": result, "events": []}
            self._changed.notify_all()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """The status and the body of the answer."""
        match method, path.partition("?")[0].strip("/").split("/")[1:]:
            case "POST", ["sessions"]:
                return 202, self._create(body)
            case "GET", ["sessions"]:
                return 200, {"items": [known["view"] for known in self._sessions.values()]}
            case "GET", [listed] if listed in LISTS:
                return 200, {"items": LISTS[listed]}
            case "GET", ["fleet"]:
                return 200, FLEET
            case _, ["sessions", session, *rest] if session in self._sessions:
                return self._of_session(method, session, rest, body)
            case _, ["sessions", session, *_]:
                kind = "urn:leadhand:problem:session-unknown"
                detail = f"session {session!r} is not found; `leadhand ls` lists the sessions"
                return 404, {"type": kind, "title": "Unknown", "status": 404, "detail": detail}
            case _:
                return 200, {}

    def told(self, session: str) -> Iterator[dict[str, Any]]:
        """The session's events, until it has ended."""
        known = self._sessions[session]
        yield from known["events"]
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended(session), timeout=20)
        status = known["view"]["status"]
        fields = {"status": status}
        at = len(known["events"]) + 1
        yield {"id": f"{at}-0", "type": "session.ended", "at_ms": at * 1000, "fields": fields}

    def _create(self, document: dict[str, Any]) -> dict[str, Any]:
        session = f"{len(self._sessions):08x}"
        name = document.get("name") or "loop"
        status = self.result.get("status", "completed") if self.ends else "active"
        self.submitted.append(document)
        result = {"name": name, **self.result, "kind": document["kind"]}
        result.pop("status", None)
        self.add(session, status, **result)
        self._sessions[session]["view"] |= self.about
        self._sessions[session]["events"] = [
            {"id": f"{n}-0", "type": kind, "at_ms": n * 1000, "address": address, "fields": fields}
            for n, (kind, address, fields) in enumerate(self.events, start=1)
        ]
        return dict(self._sessions[session]["view"])

    def _of_session(
        self, method: str, session: str, rest: list[str], body: Any
    ) -> tuple[int, dict[str, Any] | None]:
        known = self._sessions[session]
        match method, rest:
            case "GET", ["result"]:
                return 200, self._result(session)
            case "GET", ["receipt"]:
                met = {"session": session, "address": "loop~1[1]/do", "worker": "one/7"}
                items = [{**met, "became": "released"}]
                return 200, {"session": session, "status": known["view"]["status"], "items": items}
            case "GET", ["ledger"]:
                return 200, {"items": known["result"].get("history", [])}
            case "GET", ["transcript"]:
                return 200, {"items": []}
            case "GET", ["steps"]:
                return 200, {"items": known["result"].get("steps", [])}
            case "POST", [verb]:
                with self._changed:
                    self.controls.append((session, verb, body))
                    hangs = verb == "stop" and not self.stops
                    known["view"]["status"] = "stopping" if hangs else _LEADS_TO[verb]
                    self._changed.notify_all()
                return 202, known["view"]
            case "DELETE", []:
                del self._sessions[session]
                return 204, None
            case _:
                return 200, known["view"]

    def _result(self, session: str) -> dict[str, Any]:
        known = self._sessions[session]
        status = known["view"]["status"]
        verdict = "accept" if status == "completed" else None
        told = {"verdict": verdict, "iterations": 1, "result_text": "the work", **known["result"]}
        return {**told, "session_id": session, "kind": known["view"]["kind"], "status": status}

    def _has_ended(self, session: str) -> bool:
        return bool(self._sessions[session]["view"]["status"] not in _LIVE)


@contextmanager
def scripted_api() -> Iterator[tuple[str, Script]]:
    """A server on loopback for as long as the block runs: its address, and its script."""
    script = Script()
    server = _Server(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/events") and "event-stream" in self.headers["Accept"]:
            self._stream(path.split("/")[-2])
        else:
            self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        status, answer = self.server.script.answer(method, self.path, body)
        content = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        kind = "application/problem+json" if status >= 400 else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, session: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for event in self.server.script.told(session):
                lines = f"id: {event['id']}\nevent: {event['type']}\n"
                self.wfile.write(f"{lines}data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            self.wfile.write(b"event: end\ndata: {}\n\n")
        except OSError:
            pass  # The reader has gone.

    def log_message(self, *_args: object) -> None:
        """Tests are quiet."""
