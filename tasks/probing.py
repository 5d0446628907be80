"""Threads that check periodically whether this process can write to its folders and use Redis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.engine import Engine
from leadhand.errors import StoreAway
from tasks.bootstrap import examine
from tasks.periodic import STEADY, Pace, PeriodicThread

#: Seconds between two checks.
EVERY_S = 5.0
#: Seconds between two examinations of Redis: its settings and rights change seldom.
EXAMINED_EVERY_S = 60.0


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
        super().__init__("probe of folders", EVERY_S, self._look, pace=pace)
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
