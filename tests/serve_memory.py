"""The API over an engine in memory, in a process of its own: `serve_memory.py FD THREADS STREAMS`.

Beside the API it answers to POST /test/..., by which a test moves its engine.
"""

from __future__ import annotations

import sys

from flask import Response, request

from api.application import Api, create_app
from api.server import Server
from app.settings import Settings
from tests.memory_engine import MemoryEngine

TOKEN = "the operator's own"


def build(streams: int) -> Api:
    engine = MemoryEngine()
    flask = create_app(Settings(api_token=TOKEN, secret="s"), engine, streams=streams)

    def tell(session: str, count: int) -> Response:
        size = int(request.args.get("size", "0"))
        for n in range(count):
            engine.tell(session, "step.settled", address="do" + "x" * size, n=n)
        return Response(status=204)

    def end(session: str, status: str) -> Response:
        engine.end(session, status)
        return Response(status=204)

    def away(answer: int) -> Response:
        engine.away = bool(answer)
        return Response(status=204)

    flask.add_url_rule("/test/tell/<session>/<int:count>", view_func=tell, methods=["POST"])
    flask.add_url_rule("/test/end/<session>/<status>", view_func=end, methods=["POST"])
    flask.add_url_rule("/test/away/<int:answer>", view_func=away, methods=["POST"])
    return flask


if __name__ == "__main__":
    fd, threads, streams = map(int, sys.argv[1:])
    Server(lambda: build(streams), bind=f"fd://{fd}", threads=threads).run()
