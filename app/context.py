"""What the functions of a noun take as their first argument."""

from __future__ import annotations

from app.core.records import Carrier
from app.fleet.flow_catalog import Catalog
from app.fleet.folder_reports import DefinitionFiles
from app.fleet.overview import Fleet
from app.fleet.store_guard import StoreGuard
from app.fleet.troubles import Troubles
from app.programs import Registry
from app.settings import Settings
from app.store.artifact_folder import ArtifactFolder, Limits
from app.store.store import Store
from app.transitions import Transitions


class Context:
    """The store of one process and its settings, with what each process keeps in its memory.

    That is: which store it expects, its copies of programs and facts, the definitions of flows and
    folders, its queues, its troubles and the folder of its artifacts.
    """

    def __init__(self, store: Store, carrier: Carrier, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.guard = StoreGuard(store)
        store.expected_identity = self.guard.expected_identity
        self.registry = Registry(store, settings)
        self.transitions = Transitions(store, carrier, self.registry)
        self.troubles = Troubles()
        self.catalog = Catalog(settings.flows)
        self.definitions = DefinitionFiles(settings)
        self.fleet = Fleet(
            store,
            depths=carrier.depths,
            troubles=self.troubles,
            flows=self.catalog.flows,
            place=settings.place,
        )
        limits = Limits(settings.artifact_max, settings.artifacts_max)
        self.artifact_folder = ArtifactFolder(settings.artifacts_root, limits)
