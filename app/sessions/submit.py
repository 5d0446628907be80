"""Creates sessions from submitted documents, one or many, idempotently by key."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from app.compiler.folders import in_own_folder, in_workspace
from app.core.addresses import SessionRef, lock_name
from app.core.environment import (
    Definitions,
    SessionEnvironment,
    environment_of,
    without_environment,
)
from app.core.folders import OwnFolder, Workspace
from app.core.program import Action, Program, Step, limits_of
from app.core.records import NewSession, Reply
from app.core.routing import stored_program
from app.errors import InvalidDocument, ParentRests
from app.fleet.admission import Where
from app.fleet.flow_catalog import Catalog
from app.fleet.flow_tools import apply_run, source_of
from app.fleet.folder_reports import DefinitionFiles
from app.fleet.inventory import workers_for
from app.fleet.overview import Fleet
from app.fleet.store_guard import StoreGuard
from app.redaction import without_keys
from app.security.api_tokens import Owner, owner_argument, quota_error
from app.security.signatures import comparison, mark_of
from app.sessions.documents import stored_text
from app.sessions.drafts import (
    About,
    Asker,
    CompiledPrograms,
    Draft,
    Environments,
    Found,
    SubmitDefinitions,
    Submitted,
    workers_by_definitions,
)
from app.sessions.folders import commit_subject, own_facts, own_folder
from app.sessions.programs import Registry
from app.sessions.transitions import Transitions
from app.settings import Settings
from app.store.session_reads import CreatedSession
from app.store.store import Store
from leadhand.errors import (
    IdempotencyConflict,
    LabelTaken,
    LeadhandError,
    StoreAway,
    TreeLimitReached,
)
from leadhand.flows.documents import AnyDocument, FlowDocument, FlowRun
from leadhand.models.documents import Budget
from leadhand.models.pipelines import hidden_exit_code
from leadhand.models.plans import PlanDocument
from leadhand.models.session_environment import FIELDS, WithEnvironment
from leadhand.models.views.fleet import WorkerView

__all__ = ["About", "Asker", "Draft", "Submissions", "Submitted"]
#: Attempts to draw an unused session id; eight hex digits collide rarely.
DRAWS = 20
#: Priorities of messages; 0 is first.
PRIORITIES = {"high": 0, "normal": 5, "low": 9}


def create_error(
    answer: Reply, label: str, parent: Mapping[str, JsonValue] | None
) -> LabelTaken | ParentRests | TreeLimitReached:
    """Converts the store's reply that refused to create a session to an error, and returns it."""
    if answer.word == "tree_limit" and parent is not None:
        return TreeLimitReached(str(answer.why), answer.limit or 0, str(parent["session"]))
    if answer.word == "label_taken":
        return LabelTaken(label, str(answer.session))
    return ParentRests()


def hash_document(document: AnyDocument, secret: str) -> str:
    """Returns the hash by which a repeated submit of a document is recognised.

    It covers only what the caller wrote: defaults that a later version adds must not change it.
    The values of its environment count by their MAC.
    """
    return digest_of(_text(document) + hash_environment(document, secret))


def hash_run(name: str, run: FlowRun, secret: str) -> str:
    """Returns the hash by which a repeated run of a flow is recognised."""
    return digest_of(f"flow {name} {_text(run)}{hash_environment(run, secret)}")


def hash_environment(given: WithEnvironment, secret: str) -> str:
    """Returns a keyed hash (MAC) of the variables that a request passes; '' for none.

    Those of the shell may differ.
    """
    return comparison(environment_of(given), secret=secret)


def _text(given: WithEnvironment) -> str:
    return given.model_dump_json(exclude_unset=True, exclude={*FIELDS})


def digest_of(text: str) -> str:
    """Returns the SHA-256 digest of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


class Submissions:
    """Creates sessions, and sends hints for their first steps."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        registry: Registry,
        transitions: Transitions,
        fleet: Fleet,
        catalog_of: Callable[[str, bool], Catalog],
        definitions: DefinitionFiles,
        guard: StoreGuard,
    ) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry
        self._transitions = transitions
        self._fleet = fleet
        #: The catalog with the flows of a folder, without commands that are not approved.
        self.catalog_of = catalog_of
        self._programs = CompiledPrograms()
        self.definitions = SubmitDefinitions(store, registry, definitions)
        self._guard = guard
        self._environments = Environments(store, settings, registry)

    def document(
        self,
        document: AnyDocument,
        *,
        idempotency_key: str | None = None,
        parent: Mapping[str, JsonValue] | None = None,
        root: str | None = None,
        owner: Owner | None = None,
        free: bool = False,
        workspace: Workspace | None = None,
        folder: str = "",
        workers: Sequence[WorkerView] | None = None,
    ) -> Submitted:
        """Create a session from a document; the same key again returns the same session.

        `workers` are the live ones, if the caller has just read them.

        Raises InvalidDocument if it cannot run here, IdempotencyConflict if the key was used
        with another body, QuotaPassed if the owner's quota is used up, LabelTaken if another
        active session has the label.
        """
        body = hash_document(document, self._settings.secret)
        asker = Asker(
            body, idempotency_key, parent, root, owner, free, workspace=workspace, folder=folder
        )
        return self.document_of(asker, document, workers=workers)

    def document_of(
        self, asker: Asker, document: AnyDocument, *, workers: Sequence[WorkerView] | None = None
    ) -> Submitted:
        """Create a session from a document, or return that of its key. Raises as `document`."""
        workers_of = workers_by_definitions(self._fleet, workers)
        return self._or_submitted(
            asker, lambda: self.create_draft(self.draft(document, asker, workers_of=workers_of))
        )

    def flow(
        self,
        name: str,
        run: FlowRun,
        *,
        idempotency_key: str | None = None,
        owner: Owner | None = None,
        free: bool = False,
        folder: str = "",
    ) -> Submitted:
        """Create a session from a flow of the catalog, or return that of the same idempotency key.

        Raises FlowUnknown, FlowDisabled, and the errors of `document`.
        """
        body = hash_run(name, run, self._settings.secret)
        asker = Asker(body, idempotency_key, owner=owner, free=free, folder=folder)
        return self.flow_of(asker, name, run)

    def flow_of(self, asker: Asker, name: str, run: FlowRun) -> Submitted:
        """Create a session from a catalog flow, or return that of its key. Raises as `flow`."""
        return self._or_submitted(asker, lambda: self._create_run(asker, name, run))

    def _create_run(self, asker: Asker, name: str, run: FlowRun) -> Submitted:
        found = self.definitions.of(asker, run.working_folder)
        asker = asker._replace(found=found)
        document = self.catalog_of(found.folder, found.free).document(name)
        try:
            applied = apply_run(document, run)
            source = source_of(document, run, applied)
            return self._create(applied, asker, source=source.model_dump_json())
        except InvalidDocument as error:
            if error.field != "cwd":
                raise
            # The field has another name in a run than in a document.
            raise InvalidDocument("working_folder", error.value, error.hint) from None

    def compile_flow(
        self,
        document: FlowDocument,
        found: Found,
        own: OwnFolder | None = None,
        *,
        is_child: bool = False,
    ) -> Program:
        """Compile a flow, with all checks of a submit. Raises InvalidDocument.

        `own` is the folder that the session has to itself.
        """
        catalog = self.catalog_of(found.folder, found.free)
        whole = self._with_files(document, catalog)
        settled = self.definitions.with_folder_settings(whole, is_child=is_child)
        program = self.compile(settled, found)
        return in_own_folder(program, own, document.label or "") if own is not None else program

    def compile(self, document: AnyDocument, found: Found, *, is_new: bool = True) -> Program:
        """Compile a document, with all checks of a submit if it is new. Raises InvalidDocument."""
        text = document.model_dump_json()
        catalog = self.catalog_of(found.folder, found.free)
        if not is_new:
            return self._programs.compile(document, text, catalog)
        workers = self._fleet.inventories(found.definitions)
        return self._programs.check(document, text, catalog, self._settings, workers).program

    def default_limits(self, program: Program) -> dict[str, int]:
        """Return the default budget limits of a session with this program."""
        return limits_of(program, self._settings.budget, Budget())

    def _create(self, document: AnyDocument, asker: Asker, *, source: str = "") -> Submitted:
        return self.create_draft(self.draft(document, asker, source=source))

    def draft(
        self,
        document: AnyDocument,
        asker: Asker,
        *,
        source: str = "",
        workers_of: Callable[[Definitions | None], Sequence[WorkerView]] | None = None,
    ) -> Draft:
        """Check and compile a document; creates nothing. Raises InvalidDocument."""
        # `workers_of` returns the workers, by the definitions that the session has.
        document, asker = self._in_its_surroundings(document, asker)
        found, environment = asker.found or Found(), asker.environment or SessionEnvironment()
        workers = (workers_of or self._fleet.inventories)(found.definitions)
        given, catalog = document, self.catalog_of(found.folder, found.free)
        hook, label = document.webhook or (asker.owner and asker.owner.webhook), document.label
        if isinstance(document, FlowDocument):
            given = document = self._with_files(document, catalog)
            label = document.label or f"Flow: {document.name}"
        text, label = document.model_dump_json(), label or ""
        here = workers_for(workers, environment)
        where, program = self._programs.check(document, text, catalog, self._settings, here)
        cwd, workspace = document.cwd or "", asker.workspace
        if workspace is not None:
            program, cwd = in_workspace(program, workspace, label), workspace.cwd
            where = where._replace(folder=cwd)
        own = own_folder(document, self._settings, is_task=workspace is not None)
        if own is not None:
            subject = commit_subject(document, label)
            program, asker = in_own_folder(program, own, subject), asker._replace(own=own)
        about = About(
            kind=document.kind,
            name=without_keys(program.name),
            label=without_keys(label),
            unique_label=self._unique_label(document, asker, source, where),
            cwd=cwd,
            place=where.place,
            folder=where.folder,
            listed_in=where.listed_in,
            priority=_priority(document, asker),
            webhook=hook.model_dump_json() if hook else "",
            rings=",".join(hook.events) if hook else "",
            budget=document.budget,
            source=source,
            chosen="yes" if document.place is None and asker.parent is None else "",
            on_parent_end=asker.on_parent_end,
            own_budget=_own_budget(document) if asker.is_taken_over else "",
            made_from=asker.made_from,
        )
        made = Draft(asker, program, about, len(text.encode()), stored_text(given), workers)
        return made._replace(warnings=_warnings(document, program))

    def _in_its_surroundings(
        self, document: AnyDocument, asker: Asker
    ) -> tuple[AnyDocument, Asker]:
        """The document at its place, and a caller with what the session's bodies get around it."""
        environment = self._environment_of(asker, environment_of(document))
        document = without_environment(document)
        if document.place is None and asker.place:
            document = document.model_copy(update={"place": asker.place})
        found = self.definitions.of(asker, document.cwd)
        document = self.definitions.with_folder_settings(
            document, is_child=asker.parent is not None
        )
        return document, asker._replace(environment=environment, found=found)

    def _unique_label(self, document: AnyDocument, asker: Asker, source: str, where: Where) -> str:
        """The label and where it is unique: in a working folder of embedded services, or a fleet.

        A label is a user's own: that of a child session or of a flow's run may repeat.
        """
        label = without_keys(document.label or "")
        if not label or asker.parent is not None or source:
            return ""
        if not self._settings.own_redis or not where.folder:
            return label
        folder = hashlib.sha256(f"{where.place}:{where.folder}".encode()).hexdigest()[:16]
        return f"{folder}:{label}"

    def _with_files(self, document: FlowDocument, catalog: Catalog) -> FlowDocument:
        """Adds a flow's files and subflows, and the settings' number of attempts."""
        attempts = document.attempts or self._settings.attempts
        whole = catalog.complete(document)
        return whole.model_copy(update={"attempts": attempts})

    def _or_submitted(self, asker: Asker, create: Callable[[], Submitted]) -> Submitted:
        """Create a session, or find the one of the same key if the document is refused now.

        The create transition finds it too, but a refused document does not get that far.
        """
        try:
            return create()
        except LeadhandError as error:
            known = None if isinstance(error, StoreAway) else self.find_submitted(asker)
            if known is None:
                raise
            return known

    def find_submitted(self, asker: Asker) -> Submitted | None:
        """Return the session of this key, or None. Raises IdempotencyConflict for another body."""
        own = asker.stored_key
        # Only the create transition can assign the child of an earlier attempt to this one.
        found = self._store.find_submitted(own) if own and not asker.is_taken_over else None
        if found is None:
            return None
        session, known = found
        if known != asker.body:
            raise IdempotencyConflict(str(asker.key))
        return Submitted(session=session, created=False)

    def program(
        self,
        program: Program,
        about: About,
        *,
        body: str = "",
        key: str | None = None,
        parent: Mapping[str, JsonValue] | None = None,
        root: str | None = None,
        owner: Owner | None = None,
        size: int = 0,
    ) -> Submitted:
        """Create a session for a compiled program; `body` is a hash to recognise repeats."""
        return self.program_of(Asker(body, key, parent, root, owner), program, about, size=size)

    def program_of(
        self, asker: Asker, program: Program, about: About, *, size: int = 0, request: str = ""
    ) -> Submitted:
        """Create a session for a compiled program, for this caller.

        Raises ParentRests and TreeLimitReached for a child session, IdempotencyConflict,
        QuotaPassed, LabelTaken.
        """
        return self.create_draft(Draft(asker, program, about, size, request))

    def create_draft(self, draft: Draft) -> Submitted:
        """Create the session of a draft, and send the queue messages for its first steps.

        Raises as `program_of`.
        """
        for _ in range(DRAWS):
            new = self.new_session(draft)
            answer = self._store.create(new)
            found = self.submitted(draft, new, answer)
            if found is not None:
                if found.created:
                    self._transitions.dispatch(new.ref, answer, draft.program)
                    found = found._replace(made=_created(draft, new, answer))
                return found
        raise RuntimeError("no free session id was found")

    def new_session(self, draft: Draft) -> NewSession:
        """Build the arguments that create a draft's session, with a random id; stores nothing."""
        asker, program = draft.asker, draft.program
        session = secrets.token_hex(4)
        ref = SessionRef(session, asker.root or session)
        sealed = self._environments.encrypt(ref, self._environment_of(asker))
        about = draft.about.within(asker.own, session)
        asker = asker._replace(found=self.definitions.of(asker, about.cwd))
        fields = self.fields_of(ref, program, about, asker, sealed)
        return NewSession(
            ref=ref,
            program=program.hash,
            content=lambda: stored_program(program),
            fields={**fields, **self._registry.request_seal(ref, draft.request)},
            idempotency_key=asker.stored_key,
            body_hash=asker.body,
            parent=asker.parent,
            limits=asker.limits,
            owner=owner_argument(asker.owner, draft.size),
            request=draft.request,
            environment=sealed,
            definitions=asker.found.text if asker.found is not None else "",
            warnings=draft.warnings,
        )

    def _environment_of(
        self, asker: Asker, given: SessionEnvironment | None = None
    ) -> SessionEnvironment:
        """The environment of a new session. A draft has it; `given` is that of a document."""
        if given is None and asker.environment is not None:
            return asker.environment
        given = asker.environment or given or SessionEnvironment()
        return self._environments.effective(given, asker.parent, asker.root)

    def submitted(self, draft: Draft, new: NewSession, answer: Reply) -> Submitted | None:
        """Convert the reply to a create to the session or an error; None if it must be repeated.

        The error is raised, as by `program_of`.
        """
        owner, parent, key = draft.asker.owner, draft.asker.parent, draft.asker.key
        match answer.word:
            case "taken" | "no_program":
                return None
            case "created":
                return Submitted(session=new.ref.id, created=True)
            case "exists":
                return Submitted(session=str(answer.session), created=False)
            case "conflict":
                raise IdempotencyConflict(str(key))
            case "other_store":
                # Raises StoreUnknown, or adopts a store that was accepted meanwhile.
                self._guard.check()
                return None
            case "quota" if owner is not None:
                raise quota_error(owner, str(answer.why), answer.now)
            case _:
                raise create_error(answer, draft.about.label, parent)

    def fields_of(
        self, ref: SessionRef, program: Program, about: About, asker: Asker, sealed: str = ""
    ) -> dict[str, str]:
        """Build the signed fields of a new session's Redis hash; `sealed` is its environment."""
        parent, mark, found = asker.parent, mark_of(sealed), asker.found or Found()
        return {
            "id": ref.id,
            "root": ref.root,
            "nonce": secrets.token_hex(8),
            **{name: str(value) for name, value in about._asdict().items()},
            "budget": json.dumps(limits_of(program, self._settings.budget, about.budget)),
            "folder": lock_name(f"folder:{about.place}:{about.folder}") if about.folder else "",
            "program": program.hash,
            "signature": self._registry.signature(
                ref,
                program.hash,
                cwd=about.cwd,
                place=about.place,
                environment=mark,
                definitions=found.mark,
            ),
            **({"environment": mark} if mark else {}),
            **({"definitions": found.mark} if found.mark else {}),
            **({"defined_in": found.folder} if found.folder else {}),
            "schema": str(program.schema_version),
            "window": str(self._settings.window),
            "export": "1" if self._settings.export_dir else "",
            **self._settings.retentions,
            "parent": json.dumps(dict(parent)) if parent else "",
            "own_folder": own_facts(ref.id, asker.own),
            "free": self._registry.seal_commands(ref) if found.free else "",
        }


def _created(draft: Draft, new: NewSession, reply: Reply) -> CreatedSession | None:
    """What is known of a session that was just created from a draft."""
    if draft.workers is None:
        return None
    nodes = [node.id for node in draft.program.body]
    return CreatedSession(new.ref, nodes, [hint.address for hint in reply.hints], draft.workers)


def _warnings(document: AnyDocument, program: Program) -> list[str]:
    """Warnings about checkers whose command never fails; those of a plan check its tasks."""
    checks = [
        node.inputs.get("checker")
        for _, node in program.walk()
        if isinstance(node, Step) and node.action is Action.CHECK
    ]
    commands = [one.get("command") for one in checks if isinstance(one, dict)]
    if isinstance(document, PlanDocument):
        commands += [one.command for one in document.checkers]
    found = (hidden_exit_code(without_keys(one)) for one in commands if isinstance(one, str))
    return list(dict.fromkeys(text for text in found if text is not None))


def _priority(document: AnyDocument, asker: Asker) -> int:
    """The priority of its messages: a child that a body may wait for comes before new sessions."""
    is_waited_for = asker.limits is not None and "priority" not in document.model_fields_set
    return PRIORITIES["high" if is_waited_for else document.priority]


def _own_budget(document: AnyDocument) -> str:
    """The limits of cost and tokens that a document asks for, as JSON."""
    limits = document.budget.limits()
    return json.dumps({n: v for n, v in limits.items() if n in ("cost_micros", "tokens")})


class Item(NamedTuple):
    """A document of a batch, and the request's origin, which has its own key."""

    document: AnyDocument
    asker: Asker


class ItemRefused(Exception):
    """The item for which a whole batch is refused."""

    def __init__(self, number: int, error: LeadhandError) -> None:
        super().__init__(number, error)
        #: Its position in the batch, from 0.
        self.number = number
        self.error = error


#: A session, or why there is none.
Result = Submitted | LeadhandError
_Drafted = Draft | Submitted | LeadhandError


class Batches:
    """Creates the sessions of a batch; each one as if it were submitted by itself."""

    def __init__(
        self, store: Store, fleet: Fleet, submissions: Submissions, transitions: Transitions
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._submissions = submissions
        self._transitions = transitions

    def submit(self, items: Sequence[Item], *, all_or_none: bool) -> list[Result]:
        """Create a session for each item, in order; returns the session or the error of each.

        With `all_or_none` no session is created if any document is refused: raises ItemRefused.
        A quota or a label may still refuse single items, as it is known only at their creation.
        Raises StoreAway; the same call again completes what it began, by the keys of the items.
        """
        workers_of = workers_by_definitions(self._fleet)
        drafted = [self._draft(item, workers_of) for item in items]
        for number, one in enumerate(drafted):
            if all_or_none and isinstance(one, LeadhandError):
                raise ItemRefused(number, one)
        drafts = [one for one in drafted if isinstance(one, Draft)]
        created = self._create(drafts)
        used, results = set[str | None](), list[Result]()
        for item, one in zip(items, drafted, strict=True):
            key = item.asker.stored_key
            result = next(created) if isinstance(one, Draft) else one
            if key is not None and key in used:  # an item before it has the key now
                result = self._or_found(item, result)
            if isinstance(result, Submitted):
                used.add(key)
            results.append(result)
        return results

    def _draft(
        self, item: Item, workers_of: Callable[[Definitions | None], Sequence[WorkerView]]
    ) -> _Drafted:
        try:
            return self._submissions.draft(item.document, item.asker, workers_of=workers_of)
        except LeadhandError as error:
            return self._or_found(item, error)

    def _or_found(self, item: Item, result: Result) -> Result:
        """For a refused document, the session that has its key already."""
        if isinstance(result, Submitted):
            return result
        try:
            return self._submissions.find_submitted(item.asker) or result
        except LeadhandError as error:
            return error

    def _create(self, drafts: Sequence[Draft]) -> Iterator[Result]:
        news = [self._submissions.new_session(draft) for draft in drafts]
        replies = self._store.create_all(news) if news else []
        made = list(zip(drafts, news, replies, strict=True))
        created = [one for one in made if one[2].word == "created"]
        self._transitions.publish_all(
            [(new.ref, draft.program, reply.hints) for draft, new, reply in created]
        )
        for _, new, reply in created:
            self._transitions.after(new.ref, reply)
        for draft, new, reply in made:
            yield self._result(draft, new, reply)

    def _result(self, draft: Draft, new: NewSession, reply: Reply) -> Result:
        try:
            found = self._submissions.submitted(draft, new, reply)
            return self._submissions.create_draft(draft) if found is None else found
        except LeadhandError as error:
            return error
