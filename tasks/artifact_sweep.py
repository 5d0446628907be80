"""Periodically removes the artifacts that no session refers to."""

from __future__ import annotations

import logging

from app.engine import Engine
from tasks.periodic import PeriodicThread

log = logging.getLogger(__name__)

#: Seconds between two sweeps; only artifacts that are a day old are removed.
EVERY_S = 600.0


class ArtifactSweeper(PeriodicThread):
    """Runs in the API: the folder of artifacts is there."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("sweep of artifacts", EVERY_S, self._round)
        self._engine = engine

    def _round(self) -> None:
        removed = self._engine.uploads.sweep()
        if removed:
            log.info("artifacts removed", extra={"count": len(removed)})
