"""Builds the services of one process and wires them together.

Each service is a class in the room of its noun, such as `app/sessions`. Callers name the service
that they use, such as `engine.attempts.settle` or `engine.queries.session`. A noun with nothing to
keep between calls has functions that take the engine as their context (`app/context.py`), such as
`shared.set_limit(engine, ...)`.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.core.records import Carrier
from app.errors import InvalidDocument
from app.fleet.flow_catalog import Catalog
from app.security.api_tokens import Tokens
from app.sessions.answers import Answers, ChildReports
from app.sessions.attempts import Attempts
from app.sessions.attention import Attention
from app.sessions.audit import Audit
from app.sessions.bulk import Annotations, Bulk, Deletion
from app.sessions.context import SessionContext
from app.sessions.control import SessionControl
from app.sessions.drafts import FlowChecks
from app.sessions.expiry import Expiry
from app.sessions.explain import Explainer
from app.sessions.fork import Forks, Reruns
from app.sessions.local_work import LocalWork
from app.sessions.migrate import Migration
from app.sessions.outbox import Outbox
from app.sessions.queries import Queries
from app.sessions.skip import Retry, Skip
from app.sessions.spawn import Spawner
from app.sessions.submit import Batches, Submissions
from app.settings import Settings
from app.store.artifact_folder import LocalArtifacts
from app.store.store import Store
from leadhand.models.views.fleet import WorkerView


class Engine(SessionContext):
    """The services of one process. All their methods raise StoreAway if Redis is unreachable."""

    def __init__(self, store: Store, carrier: Carrier, settings: Settings) -> None:
        super().__init__(store, carrier, settings)
        self.tokens = Tokens(store.tokens(), secret=settings.secret, other=settings.secret_other)
        self.local_artifacts = LocalArtifacts(self.artifact_folder)
        self._add_queries(store, carrier)
        self._add_session_operations(store, settings)
        self._add_follow_ups(store, settings, carrier)

    def catalog_of(self, folder: str, free: bool) -> Catalog:
        """Return the catalog of flows, with those that a folder defines added; '' is no folder.

        Unless `free`, flows of the folder with commands that are not approved are disabled.
        """
        flows = self.definitions.flows_of(folder)
        why = None if free or flows is None else self.definitions.why_no_commands(flows)
        return self.catalog.with_folder(flows, no_commands=why)

    def _add_queries(self, store: Store, carrier: Carrier) -> None:
        """Add the services that only read."""
        self.queries = Queries(
            store,
            self.registry.program,
            self.catalog_of,
            self.fleet,
            self.troubles,
            self.local_artifacts,
        )
        self.attention = Attention(store, self.queries, self.fleet.inventories)
        self.explainer = Explainer(
            store,
            self.registry.program,
            workers=self.fleet.inventories,
            workers_of=self._workers_of,
            at_work=self.fleet.at_work,
            depths=carrier.depths,
            troubles=self.troubles,
        )

    def _workers_of(self, fields: Mapping[str, str]) -> list[WorkerView]:
        """The live workers, with what the definitions of a session's folder add to them now."""
        try:
            found = self.definitions.of(fields.get("defined_in"), free=bool(fields.get("free")))
        except InvalidDocument:  # a file of another user: a submit says so
            found = None
        return self.fleet.inventories(found)

    def _add_session_operations(self, store: Store, settings: Settings) -> None:
        """Add the services that create sessions, control them and run their steps."""
        self.submit = Submissions(
            store,
            settings,
            self.registry,
            self.transitions,
            self.fleet,
            self.catalog_of,
            self.definitions,
            self.guard,
        )
        self.batches = Batches(store, self.fleet, self.submit, self.transitions)
        self.flow_checks = FlowChecks(settings, self.fleet, self.catalog_of, self.definitions)
        self.spawner = Spawner(store, settings, self.registry, self.tokens, self.submit)
        self.control = SessionControl(
            store,
            self.registry,
            self.transitions,
            self.queries,
            self.fleet,
            self.submit.definitions,
        )
        self.migration = Migration(store, self.registry, self.control, self.submit)
        self.step_verbs = Retry(store, self.registry, self.control)
        self.skips = Skip(store, self.registry, self.transitions, self.control, self.queries)
        self.annotations = Annotations(self.registry, self.transitions, self.queries)
        self.forks = Forks(
            store, settings, self.registry, self.transitions, self.submit, self.fleet
        )
        self.reruns = Reruns(store, settings, self.registry, self.submit)
        self.attempts = Attempts(
            store, settings, self.registry, self.transitions, self.local_artifacts
        )
        self.answers = Answers(store, self.registry, self.transitions, self.queries)

    def _add_follow_ups(self, store: Store, settings: Settings, carrier: Carrier) -> None:
        """Add the services that follow: reports, plans, deletion, outbox, expiry and audit."""
        self.reports = ChildReports(self, self.control, self.answers)
        self.deletion = Deletion(self, self.control)
        self.bulk = Bulk(store, self.queries, self.control, self.deletion, self.annotations)
        self.outbox = Outbox(self, self.control, self.deletion)
        self.transitions.deliver = self.outbox.run
        self.expiry = Expiry(self, carrier)
        self.local_work = LocalWork(
            store,
            settings,
            self.registry,
            self.transitions,
            self.attempts,
            self.expiry,
            self.artifact_folder,
        )
        self.audit = Audit(store, self.transitions, carrier, self.fleet)
