"""What the functions of a noun take as their first argument."""

from __future__ import annotations

from app.fleet.store_guard import StoreGuard
from app.settings import Settings
from app.store.store import Store


class Context:
    """The store of one process, its settings, and the guard that knows which store it expects."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.guard = StoreGuard(store)
        store.expected_identity = self.guard.expected_identity
