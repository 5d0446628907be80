"""Renews the record of this process's secrets, which other processes check at their start."""

from __future__ import annotations

from app.engine import Engine
from app.operations.fleet_secret import renew_secrets
from tasks.periodic import PeriodicThread

#: Renewals per validity period.
TIMES = 4.5


class SecretRenewal(PeriodicThread):
    """Renews the record periodically, unless the store is unknown."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        super().__init__("secret renewal", engine.settings.inventory_s / TIMES, self._renew)

    def _renew(self) -> None:
        self._engine.guard.check()
        renew_secrets(self._engine.store, self._engine.settings)
