"""Creates sessions from submitted documents, one or many, idempotently by key.

A request becomes a new session in this order: the environment, the definitions and the settings of
its folder; the compiled program, checked against the workers; the folder that it has to itself; the
fields that describe it; its id and signatures. Then it is created, and its first steps are sent.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
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
from app.fleet.flow_tools import CalledFlows, apply_run, called_flows, source_of
from app.fleet.folder_reports import DefinitionFiles
from app.fleet.inventory import workers_for
from app.fleet.overview import Fleet
from app.fleet.store_guard import StoreGuard
from app.programs import Registry
from app.redaction import without_keys
from app.security.api_tokens import Owner, owner_argument, quota_error
from app.security.signatures import Spec, comparison, mark_of, seal_commands, seal_request, sign
from app.sessions.drafts import (
    About,
    CompiledPrograms,
    Environments,
    FolderDefinitions,
    Request,
    SubmitDefinitions,
    Submitted,
    commit_subject,
    own_facts,
    own_folder,
    stored_text,
    workers_by_definitions,
)
from app.settings import Settings
from app.store.session_reads import CreatedSession
from app.store.store import Store
from app.transitions import Transitions
from leadhand.errors import (
    IdempotencyConflict,
    LabelTaken,
    LeadhandError,
    StoreAway,
    TreeLimitReached,
)
from leadhand.flows.documents import AnyDocument, FlowDocument, FlowRun
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import Budget
from leadhand.models.pipelines import hidden_exit_code
from leadhand.models.plans import PlanDocument
from leadhand.models.session_environment import FIELDS, WithEnvironment
from leadhand.models.views.fleet import WorkerView

__all__ = ["About", "Request", "Submissions", "Submitted"]
#: Attempts to draw an unused session id; eight hex digits collide rarely.
DRAWS = 20
#: Priorities of messages; 0 is first.
PRIORITIES = {"high": 0, "normal": 5, "low": 9}
#: The live workers, by the definitions that a session has.
WorkersOf = Callable[[Definitions | None], Sequence[WorkerView]]


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
        request = Request(
            body, idempotency_key, parent, root, owner, free, workspace=workspace, folder=folder
        )
        return self.document_of(request, document, workers=workers)

    def document_of(
        self,
        request: Request,
        document: AnyDocument,
        *,
        workers: Sequence[WorkerView] | None = None,
    ) -> Submitted:
        """Create a session from a document, or return that of its key. Raises as `document`."""
        workers_of = workers_by_definitions(self._fleet, workers)
        make = partial(self.new_session, request, document, workers_of=workers_of)
        return self._or_submitted(request, partial(self.create, request, make))

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
        request = Request(body, idempotency_key, owner=owner, free=free, folder=folder)
        return self.flow_of(request, name, run)

    def flow_of(self, request: Request, name: str, run: FlowRun) -> Submitted:
        """Create a session from a catalog flow, or return that of its key. Raises as `flow`."""
        return self._or_submitted(request, partial(self._create_run, request, name, run))

    def _create_run(self, request: Request, name: str, run: FlowRun) -> Submitted:
        defined = self.definitions.of(request, run.working_folder)
        request = request._replace(defined=defined)
        document = self.catalog_of(defined.folder, defined.free).document(name)
        try:
            applied = apply_run(document, run)
            source = source_of(document, run, applied).model_dump_json()
            make = partial(self.new_session, request, applied, source=source)
            return self.create(request, make)
        except InvalidDocument as error:
            if error.field != "cwd":
                raise
            # The field has another name in a run than in a document.
            raise InvalidDocument("working_folder", error.value, error.hint) from None

    def compile_flow(
        self,
        document: FlowDocument,
        defined: FolderDefinitions,
        own: OwnFolder | None = None,
        *,
        is_child: bool = False,
    ) -> Program:
        """Compile a flow, with all checks of a submit. Raises InvalidDocument.

        `own` is the folder that the session has to itself.
        """
        whole = self._with_files(document, defined)
        settled = self.definitions.with_folder_settings(whole, is_child=is_child)
        program = self.compile(settled, defined)
        return in_own_folder(program, own, document.label or "") if own is not None else program

    def compile(
        self, document: AnyDocument, defined: FolderDefinitions, *, is_new: bool = True
    ) -> Program:
        """Compile a document, with all checks of a submit if it is new. Raises InvalidDocument."""
        text = document.model_dump_json()
        called = self._called_flows(document, defined)
        if not is_new:
            return self._programs.compile(document, text, called)
        workers = self._fleet.inventories(defined.definitions)
        return self._programs.check(document, text, called, self._settings, workers)[1]

    def default_limits(self, program: Program) -> dict[str, int]:
        """Return the default budget limits of a session with this program."""
        return limits_of(program, self._settings.budget, Budget())

    def new_session(
        self,
        request: Request,
        document: AnyDocument,
        *,
        source: str = "",
        workers_of: WorkersOf | None = None,
    ) -> NewSession:
        """Check and compile a document to a new session; stores nothing. Raises InvalidDocument."""
        # `workers_of` returns the workers, by the definitions that the session has.
        environment = self._environment(request, environment_of(document))
        document = without_environment(document)
        if document.place is None and request.place:
            document = document.model_copy(update={"place": request.place})
        defined = self.definitions.of(request, document.cwd)
        document = self.definitions.with_folder_settings(
            document, is_child=request.parent is not None
        )
        request = request._replace(environment=environment, defined=defined)
        workers = (workers_of or self._fleet.inventories)(defined.definitions)
        label = document.label or ""
        if isinstance(document, FlowDocument):
            document = self._with_files(document, defined)
            label = document.label or f"Flow: {document.name}"
        text, called = document.model_dump_json(), self._called_flows(document, defined)
        here = workers_for(workers, environment)
        where, program = self._programs.check(document, text, called, self._settings, here)
        if request.workspace is not None:
            program = in_workspace(program, request.workspace, label)
            where = where._replace(folder=request.workspace.cwd)
        # A session that a step starts works in the folder of its parent, which was checked with it.
        has_own = request.workspace is not None or (
            request.parent is not None and not request.on_parent_end
        )
        own = own_folder(document, self._settings, has_own=has_own)
        if own is not None:
            program = in_own_folder(program, own, commit_subject(document, label))
            request = request._replace(own=own)
        about = self._about(request, document, program, where, label, source)
        new = self._signed(
            request, program, about, size=len(text.encode()), text=stored_text(document)
        )
        return new._replace(workers=workers, warnings=_warnings(document, program))

    def _about(
        self,
        request: Request,
        document: AnyDocument,
        program: Program,
        where: Where,
        label: str,
        source: str,
    ) -> About:
        """The fields that describe the session of a document."""
        hook = document.webhook or (request.owner and request.owner.webhook)
        workspace = request.workspace
        return About(
            kind=document.kind,
            name=without_keys(program.name),
            label=without_keys(label),
            unique_label=self._unique_label(document, request, source, where),
            cwd=workspace.cwd if workspace is not None else document.cwd or "",
            place=where.place,
            folder=where.folder,
            listed_in=where.listed_in,
            priority=_priority(document, request),
            webhook=hook.model_dump_json() if hook else "",
            rings=",".join(hook.events) if hook else "",
            budget=document.budget,
            source=source,
            chosen="yes" if document.place is None and request.parent is None else "",
            on_parent_end=request.on_parent_end,
            own_budget=_own_budget(document) if request.is_taken_over else "",
            made_from=request.made_from,
        )

    def _unique_label(
        self, document: AnyDocument, request: Request, source: str, where: Where
    ) -> str:
        """The label and where it is unique: in a working folder of embedded services, or a fleet.

        A label is a user's own: that of a child session or of a flow's run may repeat.
        """
        label = without_keys(document.label or "")
        if not label or request.parent is not None or source:
            return ""
        if not self._settings.own_redis or not where.folder:
            return label
        folder = hashlib.sha256(f"{where.place}:{where.folder}".encode()).hexdigest()[:16]
        return f"{folder}:{label}"

    def _with_files(self, document: FlowDocument, defined: FolderDefinitions) -> FlowDocument:
        """Adds a flow's files and subflows, and the settings' number of attempts."""
        attempts = document.attempts or self._settings.attempts
        whole = self.catalog_of(defined.folder, defined.free).complete(document)
        return whole.model_copy(update={"attempts": attempts})

    def _called_flows(self, document: AnyDocument, defined: FolderDefinitions) -> CalledFlows:
        """The flows that a graph calls, read from their files each time: they may change."""
        if not isinstance(document, GraphDocument):
            return {}
        return called_flows(document, self.catalog_of(defined.folder, defined.free))

    def _environment(self, request: Request, given: SessionEnvironment) -> SessionEnvironment:
        """The environment of a session; `given` is that of a document."""
        given = request.environment or given
        return self._environments.effective(given, request.parent, request.root)

    def _or_submitted(self, request: Request, create: Callable[[], Submitted]) -> Submitted:
        """Create a session, or find the one of the same key if the document is refused now.

        The create transition finds it too, but a refused document does not get that far.
        """
        try:
            return create()
        except LeadhandError as error:
            known = None if isinstance(error, StoreAway) else self.find_submitted(request)
            if known is None:
                raise
            return known

    def find_submitted(self, request: Request) -> Submitted | None:
        """Return the session of this key, or None. Raises IdempotencyConflict for another body."""
        own = request.stored_key
        # Only the create transition can assign the child of an earlier attempt to this one.
        found = self._store.find_submitted(own) if own and not request.is_taken_over else None
        if found is None:
            return None
        session, known = found
        if known != request.body:
            raise IdempotencyConflict(str(request.key))
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
        environment: SessionEnvironment | None = None,
    ) -> Submitted:
        """Create a session for a compiled program; `body` is a hash to recognise repeats.

        `environment` is what its caller passes.
        """
        request = Request(body, key, parent, root, owner, environment=environment)
        return self.program_of(request, program, about, size=size)

    def program_of(
        self, request: Request, program: Program, about: About, *, size: int = 0
    ) -> Submitted:
        """Create a session for a compiled program, for this caller.

        Raises InvalidDocument for the environment, ParentRests and TreeLimitReached for a child
        session, IdempotencyConflict, QuotaPassed, LabelTaken.
        """
        environment = self._environment(request, SessionEnvironment())
        request = request._replace(environment=environment)
        return self.create(request, partial(self._signed, request, program, about, size=size))

    def create(self, request: Request, make: Callable[[], NewSession]) -> Submitted:
        """Create the session that `make` builds, and send the queue messages for its first steps.

        It is built again, with another id, if its id is in use. Raises as `program_of`.
        """
        for _ in range(DRAWS):
            new = make()
            answer = self._store.create(new)
            found = self.submitted(request, new, answer)
            if found is not None:
                if found.created:
                    self._transitions.dispatch(new.ref, answer, new.program)
                    found = found._replace(made=_created(new, answer))
                return found
        raise RuntimeError("no free session id was found")

    def _signed(
        self, request: Request, program: Program, about: About, *, size: int = 0, text: str = ""
    ) -> NewSession:
        """A session with a random id and its signatures; `text` is its stored document."""
        session = secrets.token_hex(4)
        ref = SessionRef(session, request.root or session)
        about = about.within(request.own, session)
        defined = self.definitions.of(request, about.cwd)
        sealed = self._environments.encrypt(ref, request.environment)
        request = request._replace(defined=defined)
        return NewSession(
            ref=ref,
            program=program,
            content=lambda: stored_program(program),
            fields=self.fields_of(ref, program, about, request, sealed, text),
            idempotency_key=request.stored_key,
            body_hash=request.body,
            parent=request.parent,
            limits=request.limits,
            owner=owner_argument(request.owner, size) if request.owner is not None else None,
            request=text,
            environment=sealed,
            definitions=defined.text,
        )

    def submitted(self, request: Request, new: NewSession, answer: Reply) -> Submitted | None:
        """Convert the reply to a create to the session or an error; None if it must be repeated.

        The error is raised, as by `program_of`.
        """
        match answer.word:
            case "taken" | "no_program":
                return None
            case "created":
                return Submitted(session=new.ref.id, created=True)
            case "exists":
                return Submitted(session=str(answer.session), created=False)
            case "conflict":
                raise IdempotencyConflict(str(request.key))
            case "other_store":
                # Raises StoreUnknown, or adopts a store that was accepted meanwhile.
                self._guard.check()
                return None
            case "quota" if request.owner is not None:
                raise quota_error(request.owner, str(answer.why), answer.now)
            case _:
                raise create_error(answer, new.fields["label"], request.parent)

    def fields_of(
        self,
        ref: SessionRef,
        program: Program,
        about: About,
        request: Request,
        sealed: str = "",
        text: str = "",
    ) -> dict[str, str]:
        """Build the signed fields of a new session's Redis hash.

        `sealed` is its environment, and `text` its document, as they are stored.
        """
        parent, defined = request.parent, request.defined or FolderDefinitions()
        secret, mark, definitions = self._settings.secret, mark_of(sealed), defined.mark
        spec = Spec(ref.id, ref.root, program.hash, about.cwd, about.place, mark, definitions)
        return {
            "id": ref.id,
            "root": ref.root,
            "nonce": secrets.token_hex(8),
            **{name: str(value) for name, value in about._asdict().items()},
            "budget": json.dumps(limits_of(program, self._settings.budget, about.budget)),
            "folder": lock_name(f"folder:{about.place}:{about.folder}") if about.folder else "",
            "program": program.hash,
            "signature": sign(spec, secret=secret),
            **({"environment": mark} if mark else {}),
            **({"definitions": definitions} if definitions else {}),
            **({"defined_in": defined.folder} if defined.folder else {}),
            "schema": str(program.schema_version),
            "window": str(self._settings.window),
            "export": "1" if self._settings.export_dir else "",
            **self._settings.retentions,
            "parent": json.dumps(dict(parent)) if parent else "",
            "own_folder": own_facts(ref.id, request.own),
            "free": seal_commands(ref.id, ref.root, secret=secret) if defined.free else "",
            "request_seal": seal_request(ref.id, ref.root, text, secret=secret) if text else "",
        }


def _created(new: NewSession, reply: Reply) -> CreatedSession | None:
    """What is known of a session that was just created from a document."""
    if new.workers is None:
        return None
    nodes = [node.id for node in new.program.body]
    return CreatedSession(new.ref, nodes, [hint.address for hint in reply.hints], new.workers)


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


def _priority(document: AnyDocument, request: Request) -> int:
    """The priority of its messages: a child that a body may wait for comes before new sessions."""
    is_waited_for = request.limits is not None and "priority" not in document.model_fields_set
    return PRIORITIES["high" if is_waited_for else document.priority]


def _own_budget(document: AnyDocument) -> str:
    """The limits of cost and tokens that a document asks for, as JSON."""
    limits = document.budget.limits()
    return json.dumps({n: v for n, v in limits.items() if n in ("cost_micros", "tokens")})


class Item(NamedTuple):
    """A document of a batch, and the request's origin, which has its own key."""

    document: AnyDocument
    request: Request


class ItemRefused(Exception):
    """The item for which a whole batch is refused."""

    def __init__(self, number: int, error: LeadhandError) -> None:
        super().__init__(number, error)
        #: Its position in the batch, from 0.
        self.number = number
        self.error = error


#: A session, or why there is none.
Result = Submitted | LeadhandError
_Drafted = NewSession | Submitted | LeadhandError


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
        pairs = zip(items, drafted, strict=True)
        created = self._create([(item, one) for item, one in pairs if isinstance(one, NewSession)])
        used, results = set[str | None](), list[Result]()
        for item, one in zip(items, drafted, strict=True):
            key = item.request.stored_key
            result = next(created) if isinstance(one, NewSession) else one
            if key is not None and key in used:  # an item before it has the key now
                result = self._or_found(item, result)
            if isinstance(result, Submitted):
                used.add(key)
            results.append(result)
        return results

    def _draft(self, item: Item, workers_of: WorkersOf) -> _Drafted:
        try:
            return self._submissions.new_session(item.request, item.document, workers_of=workers_of)
        except LeadhandError as error:
            return self._or_found(item, error)

    def _or_found(self, item: Item, result: Result) -> Result:
        """For a refused document, the session that has its key already."""
        if isinstance(result, Submitted):
            return result
        try:
            return self._submissions.find_submitted(item.request) or result
        except LeadhandError as error:
            return error

    def _create(self, drafts: Sequence[tuple[Item, NewSession]]) -> Iterator[Result]:
        replies = self._store.create_all([new for _, new in drafts]) if drafts else []
        made = [(item, new, reply) for (item, new), reply in zip(drafts, replies, strict=True)]
        created = [(new, reply) for _, new, reply in made if reply.word == "created"]
        self._transitions.publish_all(
            [(new.ref, new.program, reply.hints) for new, reply in created]
        )
        for new, reply in created:
            self._transitions.after(new.ref, reply)
        for item, new, reply in made:
            yield self._result(item, new, reply)

    def _result(self, item: Item, new: NewSession, reply: Reply) -> Result:
        try:
            found = self._submissions.submitted(item.request, new, reply)
            if found is not None:
                return found
            make = partial(self._submissions.new_session, item.request, item.document)
            return self._submissions.create(item.request, make)
        except LeadhandError as error:
            return error
