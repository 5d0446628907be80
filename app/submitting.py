"""Takes documents in: what may run here becomes a session, once for each key."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app import decide
from app.admission import admit, faults_here
from app.breakers import limits_of
from app.catalog import Catalog, hash_of
from app.errors import IdempotencyConflict, InvalidDocument, ParentRests, QuotaPassed
from app.flow_sources import Source, run_of
from app.frontends import compile_document
from app.frontends.flow_children import faults_of_subflows
from app.keys import SessionRef, lock_name
from app.program import Program
from app.records import NewSession
from app.registry import Registry
from app.settings import Settings
from app.store import Store
from app.tokens import DAY_MS, Owner
from app.transitions import Transitions
from app.views import FlowCheckView, FlowFaultView, Submitted, WorkerView
from leadhand.any_document import AnyDocument
from leadhand.documents import Budget
from leadhand.flow_documents import FlowDocument, FlowRun
from leadhand.flow_faults import all_faults

#: How often a new session id is drawn before giving up; eight hex digits collide rarely.
DRAWS = 20

#: What a message's priority is; 0 goes first.
PRIORITIES = {"high": 0, "normal": 5, "low": 9}


class About(NamedTuple):
    """What a session is called, and where it works."""

    kind: str
    name: str
    label: str = ""
    cwd: str = ""
    place: str = ""
    #: The real path of `cwd` where it is known: two names of a folder are one lock.
    folder: str = ""
    priority: int = 5
    #: Who is told of what becomes of it (JSON), and of which events.
    webhook: str = ""
    rings: str = ""
    #: What the session may use, as far as its document says.
    budget: Budget = Budget()
    #: Of a flow of the catalog: which one, as of when, and how it was run (JSON).
    source: str = ""
    #: Not empty: its place was chosen for its folder, and another may be until a step is claimed.
    chosen: str = ""


class Asker(NamedTuple):
    """Who asks for a session: by which key, from which step, in whose name."""

    body: str = ""
    key: str | None = None
    parent: Mapping[str, JsonValue] | None = None
    root: str | None = None
    owner: Owner | None = None


class Submitting:
    """Creates sessions, and tells workers of them."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        registry: Registry,
        transitions: Transitions,
        workers: Callable[[], list[WorkerView]],
        catalog: Catalog,
    ) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry
        self._transitions = transitions
        self._workers = workers
        self._catalog = catalog

    def submit(
        self,
        document: AnyDocument,
        *,
        idempotency_key: str | None = None,
        parent: Mapping[str, JsonValue] | None = None,
        root: str | None = None,
        owner: Owner | None = None,
    ) -> Submitted:
        """Create a session and tell workers of it; the same key again finds the same session.

        Raises InvalidDocument for what cannot run here, IdempotencyConflict for a key that was
        used with another body, QuotaPassed where its owner has no room for it.
        """
        # As the caller wrote it: what a later version fills in makes no other body of it.
        body = hashlib.sha256(document.model_dump_json(exclude_unset=True).encode()).hexdigest()
        known = self._known(owner, idempotency_key, body)
        if known is not None:
            return known
        asker = Asker(body, idempotency_key, parent, root, owner)
        return self._create(document, asker)

    def run_flow(
        self,
        name: str,
        run: FlowRun,
        *,
        idempotency_key: str | None = None,
        owner: Owner | None = None,
    ) -> Submitted:
        """Run a flow of the catalog; the same key again finds the session, whatever the file is.

        Raises FlowUnknown, FlowDisabled, and what submit does.
        """
        said = f"flow {name} {run.model_dump_json(exclude_unset=True)}"
        body = hashlib.sha256(said.encode()).hexdigest()
        known = self._known(owner, idempotency_key, body)
        if known is not None:
            return known
        document = self._catalog.document(name)
        source = Source(
            flow=name,
            hash=hash_of(document),
            inputs=run.inputs,
            agents=run.agents,
            limits=document.budget.limits(),
            given=tuple(run.budget.limits()),
        )
        asker = Asker(body, idempotency_key, owner=owner)
        try:
            return self._create(run_of(document, run), asker, source=source.model_dump_json())
        except InvalidDocument as error:
            if error.field != "cwd":
                raise
            # A run calls it by another name than a document does.
            raise InvalidDocument("working_folder", error.value, error.hint) from None

    def check_flow(self, given: JsonValue) -> FlowCheckView:
        """Whether a flow could be run here now, and all that keeps it from that."""
        found = all_faults(FlowDocument, given)
        faults = [FlowFaultView(path=path, message=told) for path, told in found.faults]
        if isinstance(found.flow, FlowDocument):
            asked_for = {name: text or "" for name, text in found.flow.inputs.items()}
            document = found.flow.model_copy(update={"inputs": asked_for})
            faults += map(_told, self._faults_here(document, known=[f.path for f in faults]))
        return FlowCheckView(valid=not faults, faults=faults)

    def _faults_here(self, document: FlowDocument, *, known: list[str]) -> list[InvalidDocument]:
        """What it lacks of other files, and of what the workers have."""
        whole, faults = self._catalog.gathered(document)
        here = faults_here(whole, self._settings, self._workers())
        # Whom agentTypes lead to is not known where that part could not be read.
        is_led = not any(path.partition(".")[0] == "agents" for path in known)
        faults += (one for one in here if is_led or not one.field.endswith(_OF_AGENTS))
        faults += faults_of_subflows(whole)
        if not faults and not known:
            try:
                compile_document(whole)
            except InvalidDocument as error:
                faults.append(error)
        return list({(fault.field, fault.hint): fault for fault in faults}.values())

    def compiled(self, document: FlowDocument) -> Program:
        """What a flow would run here now. Raises InvalidDocument."""
        whole = self._whole(document)
        admit(whole, self._settings, self._workers())
        return compile_document(whole)

    def usual_limits(self, program: Program) -> dict[str, int]:
        """What a session may use where neither its document nor its run says so."""
        return limits_of(program, self._settings.budget, Budget())

    def _create(self, document: AnyDocument, asker: Asker, *, source: str = "") -> Submitted:
        owner = asker.owner
        hook = document.webhook or (owner.webhook if owner is not None else None)
        label = document.label or ""
        if isinstance(document, FlowDocument):
            document = self._whole(document)
            label = document.label or f"Flow: {document.name}"
        where = admit(document, self._settings, self._workers())
        program = compile_document(document)
        about = About(
            kind=document.kind,
            name=program.name,
            label=label,
            cwd=document.cwd or "",
            place=where.place,
            folder=where.folder,
            priority=PRIORITIES[document.priority],
            webhook=hook.model_dump_json() if hook else "",
            rings=",".join(hook.events) if hook else "",
            budget=document.budget,
            source=source,
            chosen="yes" if document.place is None and asker.parent is None else "",
        )
        size = len(document.model_dump_json().encode())
        return self.start(program, about, size=size, **asker._asdict())

    def _whole(self, document: FlowDocument) -> FlowDocument:
        """A flow with all that it needs of other files, and of the settings."""
        attempts = document.attempts or self._settings.attempts
        whole = self._catalog.completed(document)
        return whole.model_copy(update={"attempts": attempts})

    def _known(self, owner: Owner | None, key: str | None, body: str) -> Submitted | None:
        """What was submitted with this key before, whatever could be submitted now."""
        own = _own_key(owner, key)
        found = self._store.submitted(own) if own is not None else None
        if found is None:
            return None
        session, known = found
        if known != body:
            raise IdempotencyConflict(str(key))
        return Submitted(session=session, created=False)

    def start(
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
        """Create a session that runs a program; `body` is what the key must go with."""
        for _ in range(DRAWS):
            session = secrets.token_hex(4)
            ref = SessionRef(session, root or session)
            fields = self._fields(ref, program, about, parent)
            answer = self._store.create(
                NewSession(
                    ref=ref,
                    program=program.hash,
                    document=program.model_dump_json(),
                    routes=decide.routes(program),
                    fields=fields,
                    idempotency_key=_own_key(owner, key),
                    body_hash=body,
                    parent=parent,
                    owner=_owning(owner, size),
                )
            )
            match answer.word:
                case "taken":
                    continue
                case "created":
                    self._transitions.dispatch(ref, answer)
                    return Submitted(session=session, created=True)
                case "exists":
                    return Submitted(session=str(answer.session), created=False)
                case "conflict":
                    raise IdempotencyConflict(str(key))
                case "quota" if owner is not None:
                    raise _passed(owner, str(answer.why), answer.now)
                case _:
                    raise ParentRests(str(parent))
        raise RuntimeError("no free session id was found")

    def _fields(
        self,
        ref: SessionRef,
        program: Program,
        about: About,
        parent: Mapping[str, JsonValue] | None,
    ) -> dict[str, str]:
        return {
            "id": ref.id,
            "root": ref.root,
            "nonce": secrets.token_hex(8),
            **{name: str(value) for name, value in about._asdict().items()},
            "budget": json.dumps(limits_of(program, self._settings.budget, about.budget)),
            "folder": lock_name(f"folder:{about.place}:{about.folder}") if about.folder else "",
            "program": program.hash,
            "signature": self._registry.signature(
                ref, program.hash, cwd=about.cwd, place=about.place
            ),
            "schema": str(program.schema_version),
            "window": str(self._settings.window),
            "export": "1" if self._settings.export_dir else "",
            **self._settings.retentions,
            "parent": json.dumps(dict(parent)) if parent else "",
        }


_OF_AGENTS = (".agentType", ".agent", ".model")


def _told(fault: InvalidDocument) -> FlowFaultView:
    return FlowFaultView(path=fault.field, message=f"it is {fault.value!r}; {fault.hint}")


def _own_key(owner: Owner | None, key: str | None) -> str | None:
    """An Idempotency-Key as it is kept: what one token's holder uses is not another's."""
    if key is None:
        return None
    return f"{owner.token if owner is not None else ''}/{key}"


def _owning(owner: Owner | None, size: int) -> dict[str, JsonValue] | None:
    """What the script is told of whose a session is."""
    if owner is None:
        return None
    quotas = owner.quotas
    return {
        "token": owner.token,
        "sessions": quotas.max_sessions,
        "steps": quotas.steps_per_day,
        "bytes": quotas.bytes_per_day,
        "size": size,
    }


def _passed(owner: Owner, what: str, now_ms: int) -> QuotaPassed:
    quotas = owner.quotas
    if what == "sessions":
        return QuotaPassed(what, quotas.max_sessions or 0)
    limit = quotas.steps_per_day if what == "steps" else quotas.bytes_per_day
    return QuotaPassed(what, limit or 0, retry_after_s=-(-(DAY_MS - now_ms % DAY_MS) // 1000))
