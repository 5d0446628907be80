"""The deliverer's threads: they send webhooks beside the sweep, which waits for no receiver."""

from __future__ import annotations

import logging
import threading

from app.engine import Engine
from app.errors import StoreAway
from app.webhooks import Webhooks

log = logging.getLogger(__name__)

#: Seconds between looks at what is due.
EVERY_S = 1.0
#: How many receivers one process waits for side by side.
ROOM = 8


class Deliverer:
    """Delivers until it is stopped; what it leaves undone, another one does."""

    def __init__(self, engine: Engine) -> None:
        self._webhooks = Webhooks(engine)
        self._stop = threading.Event()
        self._again = threading.Event()
        self._under_way: dict[str, threading.Thread] = {}
        self._changing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="deliver", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def stop(self) -> None:
        """End after the tries that are under way."""
        self._stop.set()
        self._again.set()
        self._thread.join(timeout=10)
        for thread in list(self._under_way.values()):
            thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except StoreAway as error:
                log.warning("webhooks wait for the store", extra={"why": str(error)})
            except Exception:  # the next look must come
                log.exception("webhooks were not looked at, goes on")
            self._again.wait(EVERY_S)

    def _look(self) -> None:
        """Begin as many of the due deliveries as there is room for."""
        self._again.clear()
        for line in self._webhooks.due(2 * ROOM):
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
        except Exception:  # its time has moved on; another try will come
            log.exception("a webhook was not delivered, goes on")
        finally:
            with self._changing:
                was_full = len(self._under_way) >= ROOM
                del self._under_way[line]
            if was_full:
                self._again.set()
