"""A small real API and a worker with a family, in place of ours where only their life matters.

Both stand in the state folder: a file `worker` names the worker that is up, `live` is a session.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from leadhand.models.api_proof import proof_of


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/readyz":
            self.answer(200, {})
        elif self.path == "/healthz":
            self.answer(200, {}, proof=self.headers["Leadhand-Nonce"])
        elif self.headers["Authorization"] != f"Bearer {os.environ['LEADHAND_API_TOKEN']}":
            self.answer(401, {})
        elif self.path == "/v1/workers":
            names = Path("worker").read_text().split() if Path("worker").exists() else []
            self.answer(200, {"items": [{"name": name} for name in names], "next": None})
        elif "status=waiting" in self.path:
            self.answer(200, {"items": [{}] if Path("live").exists() else [], "next": None})
        else:
            self.answer(200, {"items": [], "next": None})

    def answer(self, status: int, fields: dict[str, object], *, proof: str = "") -> None:
        self.send_response(status)
        if proof:
            key = os.environ["LEADHAND_PROOF_KEY"]
            port = os.environ["LEADHAND_API_BIND"].rpartition(":")[2]
            self.send_header("Leadhand-Proof", proof_of(key, int(port), proof))
        self.end_headers()
        self.wfile.write(json.dumps(fields).encode())


def api() -> None:
    host, _, port = os.environ["LEADHAND_API_BIND"].rpartition(":")
    ThreadingHTTPServer((host, int(port)), Api).serve_forever()


def worker() -> None:
    """Has a child that ignores TERM in a session of its own, and a grandchild that nobody owns."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-I", "-c", stubborn], start_new_session=True)
    subprocess.run(["sh", "-c", "setsid sleep 600 &"], check=True)
    Path("environment.json").write_text(json.dumps(dict(os.environ)))
    Path("worker").write_text(os.environ["LEADHAND_WORKER_NAME"])
    signal.pause()


def slow_worker() -> None:
    time.sleep(1)
    worker()


def stubborn() -> None:
    """A worker that takes its time to end, as one with steps at work."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker()
    time.sleep(600)


def absent() -> None:
    """A worker that is never up."""
    signal.pause()


def broken() -> None:
    sys.exit("the stand-in is broken")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
