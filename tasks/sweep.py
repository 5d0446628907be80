"""The sweep's thread: one in every worker host and API process, none of which is the leader."""

from __future__ import annotations

import logging
import threading

from app.engine import Engine
from app.errors import StoreAway
from app.sweeping import sweep

log = logging.getLogger(__name__)

#: Seconds between looks; the store lets only one of all sweepers look at a time.
EVERY_S = 1.0


class Sweeper:
    """Sweeps until it is stopped; an error costs one round, never the thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweep", daemon=True)

    def start(self) -> None:
        """Begin to sweep."""
        self._thread.start()

    def stop(self) -> None:
        """End after the round that is under way."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                sweep(self._engine)
            except StoreAway as error:
                log.warning("sweep waits for the store", extra={"why": str(error)})
            except Exception:  # the net below everything must not tear
                log.exception("sweep failed, goes on")
