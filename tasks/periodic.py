"""Background threads that sweep, probe, examine and renew periodically."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from app.engine import Engine
from app.fleet.store_guard import renew_secrets
from app.sessions.artifacts import sweep_artifacts
from app.sweep import Swept, sweep
from leadhand.errors import StoreAway
from tasks.bootstrap import examine

log = logging.getLogger(__name__)
#: Seconds without work after which the threads of a process rest, and between two rounds then.
QUIET_S = 10.0
REST_S = 10.0
#: Seconds between two checks.
PROBE_EVERY_S = 5.0
#: Seconds between two examinations of Redis: its settings and rights change seldom.
EXAMINED_EVERY_S = 60.0
#: Renewals per validity period.
TIMES = 4.5
#: Seconds between two sweeps; only artifacts that are a day old are removed.
SWEEP_EVERY_S = 600.0


class Pace:
    """How often the threads of a process look for work: seldom while there is none.

    Only processes with `may_rest` ever rest: those of a user's own services, where all work comes
    by a message or a request to them (decisions: services). `is_busy` says whether they have some
    now.
    """

    def __init__(
        self,
        *,
        may_rest: bool = False,
        is_busy: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._may_rest = may_rest
        self._is_busy = is_busy
        self._clock = clock
        self._worked_at = clock()
        self._changed = threading.Condition()

    def touch(self) -> None:
        """Note that there is work, or that a thread is to stop; wakes the threads that rest."""
        with self._changed:
            self._worked_at = self._clock()
            self._changed.notify_all()

    def rests(self) -> bool:
        """Whether there has been no work for a while."""
        if self._is_busy():
            self._worked_at = self._clock()
        return self._may_rest and self._clock() - self._worked_at >= QUIET_S

    def wait(self, stop: threading.Event, every_s: float, rest_s: float = REST_S) -> bool:
        """Wait for the next round: `every_s`, while resting up to `rest_s`; True once stopped."""
        if not self.rests():
            return stop.wait(every_s)
        with self._changed:
            self._changed.wait_for(lambda: stop.is_set() or not self.rests(), max(every_s, rest_s))
        return stop.is_set()


#: The pace of threads that never rest.
STEADY = Pace()


class PeriodicThread:
    """Calls a function at an interval until stopped; an error ends one call, not the thread."""

    def __init__(
        self, name: str, every_s: float, go: Callable[[], object], *, pace: Pace = STEADY
    ) -> None:
        self._name = name
        self._every_s = every_s
        self._go = go
        self._pace = pace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread that calls its function periodically, first after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its current call, and wait up to 10 s for that."""
        self._stop.set()
        self._pace.touch()
        self._thread.join(timeout=10)

    def rest_s(self) -> float:
        """The most seconds between two calls while the process rests."""
        return REST_S

    def _run(self) -> None:
        while not self._pace.wait(self._stop, self._every_s, self.rest_s()):
            try:
                self._go()
            except StoreAway as error:
                log.warning("%s waits for the store", self._name, extra={"why": str(error)})
            except Exception:  # the thread must survive every error
                log.exception("%s failed, continuing", self._name)


#: Seconds between one process's calls; app.sweep.EVERY_MS limits those of all processes together.
EVERY_S = 1.0


class Sweeper(PeriodicThread):
    """Runs the sweep periodically; while the process rests, not before something is due."""

    def __init__(self, engine: Engine, *, pace: Pace = STEADY) -> None:
        super().__init__("sweep", EVERY_S, self.sweep, pace=pace)
        self._engine = engine
        self._due_s = 0.0

    def sweep(self) -> None:
        """Sweep once; while the process rests, note when the next entry is due."""
        if sweep(self._engine) != Swept():
            self._pace.touch()
        if self._pace.rests():
            next_ms = self._engine.store.next_due_ms()
            due_s = REST_S if next_ms is None else (next_ms - self._engine.store.now_ms()) / 1000
            self._due_s = due_s

    def rest_s(self) -> float:
        """The seconds until something is due, from 1 to 5."""
        return min(max(self._due_s, EVERY_S), REST_S)


class Prober(PeriodicThread):
    """Checks the folders at the start and then periodically.

    `on_spill` is called after each check with the trouble of the spill folder, None without one. A
    worker gives it; the API does not need that folder.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        on_spill: Callable[[str | None], None] | None = None,
        pace: Pace = STEADY,
    ) -> None:
        super().__init__("probe of folders", PROBE_EVERY_S, self._look, pace=pace)
        self._engine = engine
        self._on_spill = on_spill

    def start(self) -> None:
        """Check now whether this process can write to its folders, then repeat it in a thread."""
        self._look()
        super().start()

    def _look(self) -> None:
        spill, memory = Path(self._engine.settings.spill), self._engine.guard.file
        folders = [spill, *([Path(memory).parent] if memory else [])]
        if self._on_spill is None:
            self._engine.troubles.check_folders(folders)
        else:
            self._on_spill(self._engine.troubles.check_folders(folders, needed=spill))


class Examiner(PeriodicThread):
    """Examines Redis and the broker periodically: their settings and rights may change."""

    def __init__(self, engine: Engine, *, scans: bool = False) -> None:
        super().__init__("examination of Redis", EXAMINED_EVERY_S, self._look)
        self._engine = engine
        self._scans = scans

    def _look(self) -> None:
        troubles = self._engine.troubles
        try:
            examine(self._engine, scans=self._scans)
        except StoreAway as error:
            troubles.redis_examined(str(error), troubles.warnings)


class SecretRenewal(PeriodicThread):
    """Renews the record periodically, unless the store is unknown."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        super().__init__("secret renewal", engine.settings.inventory_s / TIMES, self._renew)

    def _renew(self) -> None:
        self._engine.guard.check()
        renew_secrets(self._engine.store, self._engine.settings)


class ArtifactSweeper(PeriodicThread):
    """Runs in the API: the folder of artifacts is there."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("sweep of artifacts", SWEEP_EVERY_S, self._round)
        self._engine = engine

    def _round(self) -> None:
        removed = sweep_artifacts(self._engine)
        if removed:
            log.info("artifacts removed", extra={"count": len(removed)})
