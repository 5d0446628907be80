"""A background thread that calls a function periodically."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from app.engine import Engine
from app.errors import StoreAway
from app.sweep import sweep

log = logging.getLogger(__name__)


class PeriodicThread:
    """Calls a function at an interval until stopped; an error ends one call, not the thread."""

    def __init__(self, name: str, every_s: float, go: Callable[[], object]) -> None:
        self._name = name
        self._every_s = every_s
        self._go = go
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread that calls its function periodically, first after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its current call, and wait up to 10 s for that."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self._go()
            except StoreAway as error:
                log.warning("%s waits for the store", self._name, extra={"why": str(error)})
            except Exception:  # the thread must survive every error
                log.exception("%s failed, continuing", self._name)


#: Seconds between one process's calls; app.sweep.EVERY_MS limits those of all processes together.
EVERY_S = 1.0


class Sweeper(PeriodicThread):
    """Runs the sweep periodically."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("sweep", EVERY_S, partial(sweep, engine))
