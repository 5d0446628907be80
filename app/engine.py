"""Builds the services of one process and wires them together.

Each service is a class in `app/operations` or `app/queries`. Callers name the service that they
use, such as `engine.attempts.settle` or `engine.queries.session`.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.artifacts.folder import ArtifactFolder
from app.artifacts.folder import Limits as ArtifactLimits
from app.artifacts.local import LocalArtifacts
from app.catalog.flow_catalog import Catalog
from app.domain.ports import Carrier
from app.errors import InvalidDocument
from app.fleet.definition_files import DefinitionFiles
from app.fleet.troubles import Troubles
from app.operations.annotations import Annotations
from app.operations.answers import Answers
from app.operations.artifacts import Uploads
from app.operations.attempts import Attempts
from app.operations.audit import Audit
from app.operations.bulk import Bulk
from app.operations.callers import Callers
from app.operations.child_reports import ChildReports
from app.operations.control import SessionControl
from app.operations.deletion import Deletion
from app.operations.expiry import Expiry
from app.operations.folders.audits import FolderAudits
from app.operations.folders.known import FolderIndex
from app.operations.folders.own_folders import OwnFolders
from app.operations.guards import Guards
from app.operations.inbox import Inbox
from app.operations.limits import Limits
from app.operations.local_work import LocalWork
from app.operations.migrate import Migration
from app.operations.named_locks import NamedLocks
from app.operations.outbox import Outbox
from app.operations.planning.coming_home import ComingHome
from app.operations.planning.facts import PlanFacts
from app.operations.planning.plans import Plans
from app.operations.planning.progress import PlanProgress
from app.operations.registry import Registry
from app.operations.spawn import Spawner
from app.operations.stacks import Stacks
from app.operations.step_verbs.fork import Forks
from app.operations.step_verbs.rerun import Reruns
from app.operations.step_verbs.retry import Retry
from app.operations.step_verbs.skip import Skip
from app.operations.store_guard import StoreGuard
from app.operations.submission.batch import Batches
from app.operations.submission.flow_checks import FlowChecks
from app.operations.submit import Submissions
from app.operations.transitions import Transitions
from app.operations.values import SharedValues
from app.operations.worktrees import Worktrees
from app.queries.artifacts import ArtifactQueries
from app.queries.attention import Attention
from app.queries.control_receipts import Receipts
from app.queries.explain import Explainer
from app.queries.fleet import Fleet
from app.queries.guards import GuardQueries
from app.queries.inbox import InboxQueries
from app.queries.outputs import OutputQueries
from app.queries.progress.drawings import Drawings
from app.queries.questions import Questions
from app.queries.sessions import Queries
from app.queries.shared import SharedQueries
from app.queries.stacks import StackQueries
from app.queries.statistics import Statistics
from app.queries.tree import Trees
from app.security.api_tokens import Tokens
from app.settings import Settings
from app.store.store import Store
from leadhand.models.views.fleet import WorkerView


class Engine:
    """The services of one process. All their methods raise StoreAway if Redis is unreachable."""

    def __init__(self, store: Store, carrier: Carrier, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.guard = StoreGuard(store)
        self.troubles = Troubles()
        store.expected_identity = self.guard.expected_identity
        self.registry = Registry(store, settings)
        self.transitions = Transitions(store, carrier, self.registry)
        self.catalog = Catalog(settings.flows)
        self.definitions = DefinitionFiles(settings)
        self.tokens = Tokens(store.tokens(), secret=settings.secret, other=settings.secret_other)
        limits = ArtifactLimits(settings.artifact_max, settings.artifacts_max)
        self.artifact_folder = ArtifactFolder(settings.artifacts_root, limits)
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
        self.fleet = Fleet(
            store,
            depths=carrier.depths,
            troubles=self.troubles,
            flows=self.catalog.flows,
            place=self.settings.place,
        )
        self.queries = Queries(
            store,
            self.registry.program,
            self.catalog_of,
            self.fleet,
            self.troubles,
            self.local_artifacts,
        )
        self.artifacts = ArtifactQueries(
            store, self.queries.ref, self.artifact_folder, self.registry.program
        )
        self.drawings = Drawings(store, self.queries.ref, self.registry.program)
        self.outputs = OutputQueries(store, self.queries.ref)
        self.messages = InboxQueries(store, self.queries.ref)
        self.shared = SharedQueries(store, self.queries.ref)
        self.stack_queries = StackQueries(store)
        self.statistics = Statistics(store)
        self.questions = Questions(store)
        self.attention = Attention(store, self.queries, self.fleet.inventories)
        self.guard_list = GuardQueries(store, self.queries)
        self.explainer = Explainer(
            store,
            self.registry.program,
            workers=self.fleet.inventories,
            workers_of=self._workers_of,
            at_work=self.fleet.at_work,
            depths=carrier.depths,
            troubles=self.troubles,
        )
        self.receipts = Receipts(store)
        self.trees = Trees(store, self.registry.program)

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
        self.callers = Callers(store)
        self.guards = Guards(store, self.submit, self.transitions, self.guard_list)
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
        self.limits = Limits(store, self.transitions, self.guard)
        self.inbox = Inbox(store, self.registry, self.transitions)
        self.locks = NamedLocks(store, self.registry, self.transitions)
        self.values = SharedValues(self.registry, self.transitions)
        self.stacks = Stacks(store, self.guard, keep_s=settings.retention_s)
        self.attempts = Attempts(
            store, settings, self.registry, self.transitions, self.local_artifacts
        )
        self.uploads = Uploads(store, self.artifact_folder, self.guard)
        self.answers = Answers(store, self.registry, self.transitions, self.queries)

    def _add_follow_ups(self, store: Store, settings: Settings, carrier: Carrier) -> None:
        """Add the services that follow: reports, plans, deletion, outbox, expiry and audit."""
        self.plan_facts = PlanFacts(store, self.registry, self.transitions)
        self.reports = ChildReports(
            store, self.registry, self.control, self.answers, self.plan_facts
        )
        self.plan_progress = PlanProgress(
            store, self.registry, self.transitions, self.submit, self.reports, self.plan_facts
        )
        self.worktrees = Worktrees(store, self.registry, self.transitions, self.submit)
        self.folder_index = FolderIndex(store, self.registry)
        self.folder_audits = FolderAudits(settings, self.fleet, self.submit)
        self.coming_home = ComingHome(store, self.registry, self.submit)
        self.own_folders = OwnFolders(store, settings, self.registry, self.transitions, self.submit)
        self.plans = Plans(store, self.registry, self.transitions, self.answers, self.inbox)
        self.deletion = Deletion(self.registry, self.control, self.reports, self.folder_index)
        self.bulk = Bulk(store, self.queries, self.control, self.deletion, self.annotations)
        self.outbox = Outbox(
            store,
            settings,
            self.queries,
            self.control,
            self.reports,
            self.deletion,
            self.plan_progress,
            self.locks,
        )
        self.transitions.deliver = self.outbox.run
        self.expiry = Expiry(
            store,
            carrier,
            self.registry,
            self.transitions,
            self.reports,
            self.plan_progress,
            self.answers,
        )
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
