"""Serves the texts of the papers on loopback; one of them is always broken.

`python server.py FILE [PORT]` appends a line to FILE for each request: the paper, the idempotency
key, and whether the response was stored before. A repeated key gets the stored response.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

PAPERS = {one["id"]: one for one in json.loads(Path(__file__).with_name("papers.json").read_text())}
BROKEN = "p3"


class Handler(BaseHTTPRequestHandler):
    stored: ClassVar[dict[str, bytes]] = {}
    log: ClassVar[Path]

    def do_GET(self) -> None:
        paper, key = self.path.rpartition("/")[2], self.headers.get("Idempotency-Key", "")
        known = self.stored.get(key)
        with self.log.open("a") as log:
            log.write(f"{paper} {key} {'stored' if known else 'new'}\n")
        if paper == BROKEN or paper not in PAPERS:
            self.send_error(500 if paper == BROKEN else 404)
            return
        body = known or json.dumps(PAPERS[paper]).encode()
        self.stored[key] = body
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


def main(file: str, port: str = "8901") -> None:
    Handler.log = Path(file)
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
