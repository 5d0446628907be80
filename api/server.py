"""Serves the API with gunicorn's threads; what it needs is in here, no file is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FrameType

from gunicorn.app.base import BaseApplication
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import ThreadWorker

from api.application import Api
from app.parent import die_with

THREADS = 64
#: Threads that event streams never take, so that calls are answered whoever watches.
SPARE_THREADS = 16
#: How long a process that goes down waits for the calls that it is answering.
GRACE_S = 10
#: The fastest place for the files by which gunicorn sees that its children live.
_MEMORY = Path("/dev/shm")  # noqa: S108 - gunicorn makes its own, private files there


class Server(BaseApplication):  # type: ignore[misc]
    """gunicorn around an application that each of its processes builds for itself."""

    def __init__(
        self, build: Callable[[], Api], *, bind: str, threads: int = THREADS, processes: int = 1
    ) -> None:
        self._build = build
        self._settings = {
            "bind": bind,
            "workers": processes,
            "threads": threads,
            "worker_class": StreamingWorker,
            "worker_tmp_dir": str(_MEMORY) if _MEMORY.is_dir() else None,
            "proc_name": "leadhand-api",
            "timeout": 60,
            "graceful_timeout": GRACE_S,
            "keepalive": 15,
            "accesslog": None,
            "logger_class": OurLog,
            "loglevel": "warning",
            "control_socket_disable": True,
        }
        super().__init__()

    def load_config(self) -> None:
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> Api:
        return self._build()


class OurLog(Logger):  # type: ignore[misc]
    """gunicorn's own lines, written as all others are."""

    def setup(self, cfg: Config) -> None:
        super().setup(cfg)
        self.error_log.handlers = []
        self.error_log.propagate = True


class StreamingWorker(ThreadWorker):  # type: ignore[misc]
    """A worker that ends its event streams when it is asked to go, so that it can.

    It dies with its parent: else it would keep the address from the one that is started next.
    """

    wsgi: Api

    def init_process(self) -> None:
        die_with(self.ppid)
        super().init_process()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if hasattr(self, "wsgi"):  # it may be asked to go before it has an application
            self.wsgi.fanout.close()
