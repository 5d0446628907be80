"""Prints what each layer costs per step and per submit: ``python -P -m benchmarks.profile``.

Steps are carried out in this process, without Celery, and submits go through the WSGI application,
without sockets. yappi measures the CPU time of each function without its callees, of all threads; a
profiled call costs more than another one, so the shares are worth more than the sums. The row of a
library is its own code; `redis` includes the system calls of its sockets.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from redis import Redis

from api.application import create_app
from app.settings import Settings
from benchmarks import programs
from benchmarks.stretch import stretch
from leadhand.local.redis_server import RedisServer
from tasks.bootstrap import make_engine

ROOT = str(Path(__file__).parents[1])
TOKEN = "of-the-benchmark-" + "x" * 16
#: Rows that cost less than this are summed up.
LEAST_US = 2.0


def layer_of(file: str, name: str) -> str:
    """Returns the layer that a function belongs to: a package of Leadhand, or a library.

    >>> layer_of(f"{ROOT}/app/store/store.py", "run"), layer_of("/x/site-packages/redis/a.py", "f")
    ('app.store', 'redis')
    >>> layer_of("", "<method 'recv' of '_socket.socket' objects>"), layer_of("/lib/json/x.py", "f")
    ('sockets', 'Python')
    """
    if "_socket" in name:
        return "sockets"
    if "pydantic" in name:
        return "pydantic"
    _, site, rest = file.rpartition("site-packages/")
    if site:
        return rest.split("/")[0].removesuffix(".py")
    if file.startswith(ROOT):
        parts = Path(file).relative_to(ROOT).parts
        return ".".join(parts[: min(2, len(parts) - 1)])
    return "Python"


def table(title: str, times: Mapping[str, float], unit: str) -> str:
    """The layers by their cost, as a Markdown table."""
    whole = sum(times.values()) or 1.0
    rows = sorted(((us, layer) for layer, us in times.items() if us >= LEAST_US), reverse=True)
    rest = whole - sum(us for us, _ in rows)
    lines = [f"### {title}", "", f"| layer | ms {unit} | share |", "|---|--:|--:|"]
    lines += [f"| {layer} | {us / 1000:.3f} | {us / whole:.0%} |" for us, layer in rows]
    lines += [f"| all others | {rest / 1000:.3f} | {rest / whole:.0%} |"]
    lines += [f"| sum | {whole / 1000:.3f} | |"]
    return "\n".join([*lines, ""])


def profile(work: Callable[[], object], count: int) -> dict[str, float]:
    """Profile some work, and return the microseconds of each layer for one of `count`."""
    yappi: Any = importlib.import_module("yappi")
    yappi.set_clock_type("cpu")
    yappi.start()
    work()
    yappi.stop()
    stats: Iterable[Any] = yappi.get_func_stats()
    times: dict[str, float] = defaultdict(float)
    for one in stats:
        times[layer_of(str(one.module), str(one.name))] += one.tsub * 1e6 / count
    yappi.clear_stats()
    return {layer: us for layer, us in times.items() if layer != "benchmarks"}


def profile_steps(url: str, folder: Path, sessions: int) -> None:
    """Profile the steps of W1 and W2, with their submits."""
    (folder / "checks.py").write_text(programs.CHECKS, encoding="utf-8")
    for title, program, steps in (
        ("W1: ten steps in a row", programs.sequence(10, quick=True), 10),
        ("W2: loops with three checks", programs.loop(quick=True), 15),
    ):
        stretch(url, folder, sessions=2, program=program)

        def work() -> None:
            stretch(url, folder, sessions=sessions, program=program)  # noqa: B023 - called here

        print(table(title, profile(work, sessions * steps), "a step"), flush=True)


def profile_submits(url: str, folder: Path, submits: int) -> None:
    """Profile `POST /v1/sessions` within the API, without its HTTP server."""
    names = {"REDIS_URL": url, "SECRET": "s", "API_TOKEN": TOKEN, "STATE_DIR": str(folder / "s")}
    settings = Settings.from_env({f"LEADHAND_{name}": value for name, value in names.items()})
    app = create_app(settings, make_engine(settings)[0])
    fields = {"kind": "loop", "task": "t", "checkers": ["true"], "cwd": str(folder)}
    body = json.dumps({**fields, "doer": {"command": "true"}}).encode()

    def submit() -> None:
        answered: list[str] = []
        b"".join(app(_request(body), lambda status, *_: answered.append(status)))
        assert answered[0].startswith("202"), answered

    def work(count: int) -> None:
        for _ in range(count):
            submit()

    work(20)
    title = "POST /v1/sessions, without sockets"
    print(table(title, profile(lambda: work(submits), submits), "a submit"), flush=True)


def _request(body: bytes) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "POST", "PATH_INFO": "/v1/sessions", "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "127.0.0.1", "HTTP_AUTHORIZATION": f"Bearer {TOKEN}",
        "REMOTE_ADDR": "127.0.0.1", "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr, "wsgi.url_scheme": "http", "wsgi.version": (1, 0),
        "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
    }  # fmt: skip


def main(arguments: list[str]) -> None:
    """Profile steps and submits, and print what each layer costs."""
    parser = argparse.ArgumentParser(prog="benchmarks.profile", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--submits", type=int, default=200)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name, ".leadhand")) as server:
        profile_steps(server.url, Path(name), asked.sessions)
        Redis.from_url(server.url).flushall()
        profile_submits(server.url, Path(name), asked.submits)


if __name__ == "__main__":
    main(sys.argv[1:])
