"""Runs gunicorn with threads around the application, without a configuration file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FrameType

from gunicorn.app.base import BaseApplication
from gunicorn.config import Config
from gunicorn.glogging import Logger

from api.serving import Api
from api.wire.buffering_worker import BufferingWorker
from leadhand.process_guard import end_with_parent

THREADS = 64
#: Threads that event streams never take, so that other calls are always served.
SPARE_THREADS = 16
#: Connections that one process keeps beside those that its threads work at. The number leaves
#: descriptors for Redis where a process may open 1024 files.
PARKED = 512
#: Bytes of a request line: a path of a folder in a query, which may have 4,096, fits.
LINE_BYTES = 8190
#: How long a stopping process waits for running calls.
GRACE_S = 10
#: The fastest place for the heartbeat files of gunicorn's workers.
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
            "limit_request_line": LINE_BYTES,
            # By default a client on this machine may name a SCRIPT_NAME, which no path begins with.
            "forwarder_headers": "",
            "threads": threads,
            "worker_connections": threads + PARKED,
            "worker_class": StreamingWorker,
            "worker_tmp_dir": str(_MEMORY) if _MEMORY.is_dir() else None,
            "proc_name": "leadhand-api",
            "timeout": 60,
            "graceful_timeout": GRACE_S,
            "keepalive": 15,
            "accesslog": None,
            "logger_class": RootLog,
            "loglevel": "warning",
            "control_socket_disable": True,
        }
        super().__init__()

    def load_config(self) -> None:
        """Apply the settings to gunicorn, which calls this."""
        for name, value in self._settings.items():
            self.cfg.set(name, value)

    def load(self) -> Api:
        """Build the application in a worker process; gunicorn calls this."""
        return self._build()


class RootLog(Logger):  # type: ignore[misc]
    """Passes gunicorn's log lines to the root logger."""

    def setup(self, cfg: Config) -> None:
        """Send the log of gunicorn to the root logger."""
        super().setup(cfg)
        self.error_log.handlers = []
        self.error_log.propagate = True


class StreamingWorker(BufferingWorker):
    """A worker that ends its event streams when it is asked to stop.

    It dies with its parent, because it would otherwise keep the port of the next server.
    """

    wsgi: Api

    def init_process(self) -> None:
        """Prepare a worker that ends with its parent process; gunicorn calls this."""
        end_with_parent(self.ppid)
        super().init_process()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the event streams, then the worker, on SIGTERM."""
        super().handle_exit(sig, frame)
        if hasattr(self, "wsgi"):  # it may be stopped before it has an application
            self.wsgi.end_streams()
