"""A thread that does one thing again and again beside the work of its process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from app.errors import StoreAway

log = logging.getLogger(__name__)


class Rounds:
    """Goes round until it is stopped; an error costs one round, never the thread."""

    def __init__(self, name: str, every_s: float, go: Callable[[], object]) -> None:
        self._name = name
        self._every_s = every_s
        self._go = go
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first round comes after the first wait."""
        self._thread.start()

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self._go()
            except StoreAway as error:
                log.warning("%s waits for the store", self._name, extra={"why": str(error)})
            except Exception:  # the net below everything must not tear
                log.exception("%s failed, goes on", self._name)
