"""Threads that deliver webhooks, so that the sweep does not wait for receivers."""

from __future__ import annotations

import logging
import threading

from app.engine import Engine
from app.webhooks import Webhooks
from leadhand.errors import StoreAway
from tasks.periodic import STEADY, Pace

log = logging.getLogger(__name__)

#: Seconds between checks for due deliveries.
EVERY_S = 1.0
#: Maximum parallel deliveries of a process.
ROOM = 8


class Deliverer:
    """Delivers due webhooks until stopped; another process continues with the rest."""

    def __init__(self, engine: Engine, *, pace: Pace = STEADY) -> None:
        self._pace = pace
        self._guard = engine.guard
        self._webhooks = Webhooks(engine)
        self._stop = threading.Event()
        self._again = threading.Event()
        self._under_way: dict[str, threading.Thread] = {}
        self._changing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="deliver", daemon=True)

    def start(self) -> None:
        """Start the thread that delivers webhooks."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the running deliveries, and wait up to 10 s for each."""
        self._stop.set()
        self._again.set()
        self._pace.touch()
        self._thread.join(timeout=10)
        for thread in list(self._under_way.values()):
            thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except StoreAway as error:
                log.warning("webhooks wait for the store", extra={"why": str(error)})
            except Exception:  # the thread must survive every error
                log.exception("checking webhooks failed, continuing")
            self._pace.wait(self._again, EVERY_S)

    def _look(self) -> None:
        """Start due deliveries, up to ROOM."""
        self._again.clear()
        self._guard.require()
        for line in self._webhooks.due(2 * ROOM):
            self._pace.touch()
            with self._changing:
                if self._stop.is_set() or len(self._under_way) >= ROOM:
                    return
                if line not in self._under_way:
                    name = f"deliver {line}"
                    thread = threading.Thread(
                        target=self._deliver, args=(line,), name=name, daemon=True
                    )
                    self._under_way[line] = thread
                    thread.start()

    def _deliver(self, line: str) -> None:
        was_full = False
        try:
            self._webhooks.deliver(line)
        except StoreAway as error:
            log.warning("a webhook waits for the store", extra={"why": str(error)})
        except Exception:  # it will be tried again
            log.exception("a webhook was not delivered, continuing")
        finally:
            with self._changing:
                was_full = len(self._under_way) >= ROOM
                del self._under_way[line]
            if was_full:
                self._again.set()
