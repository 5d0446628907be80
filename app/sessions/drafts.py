"""What a new session is made of: the compiled document, definitions, environment and folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from app.compiler import compile_document
from app.compiler.subflows import faults_of_subflows, parts_of
from app.core.addresses import SessionRef
from app.core.environment import Definitions, SessionEnvironment
from app.core.folders import RESERVED, OwnFolder, Workspace
from app.core.program import Program
from app.core.states import FINAL, SessionStatus
from app.errors import InvalidDocument, SeveralInvalid, SpecForeign
from app.fleet.admission import Where, admit, faults_here
from app.fleet.flow_catalog import Catalog
from app.fleet.flow_tools import CalledFlows, called_flows, faults_of_called_flows, with_flows
from app.fleet.folder_reports import DefinitionFiles
from app.fleet.overview import Fleet
from app.programs import Registry
from app.redaction import without_keys
from app.security import signatures
from app.security.api_tokens import Owner
from app.sessions.rewind import ResumePlan
from app.settings import Settings
from app.store.session_reads import CreatedSession
from app.store.store import Recent, Store
from leadhand.flows.documents import AnyDocument, CheckStep, FlowDocument
from leadhand.flows.faults import all_faults, faults_of_graph
from leadhand.flows.structure import steps_of
from leadhand.graphs.documents import GraphDocument, GraphStep
from leadhand.models.documents import (
    Budget,
    Checker,
    LoopDocument,
    PhaseDocument,
    WorkflowDocument,
    WorktreeOptions,
)
from leadhand.models.folder_settings import SessionSettings
from leadhand.models.git_settings import repository_top
from leadhand.models.plans import PlanDocument
from leadhand.models.session_environment import FIELDS, check_values
from leadhand.models.views.fleet import WorkerView
from leadhand.models.views.shared import FlowCheckView, FlowFaultView

_Part = TypeVar("_Part", bound=BaseModel)
#: The number of programs that a process keeps, and the size (characters of JSON) of the largest
#: document whose program is kept.
KEPT, LARGEST = 128, 64_000
#: Fields that are not stored: a webhook has a secret, and an environment may have some.
_SECRET = {"webhook", *FIELDS}
#: The most characters of a commit's subject, as git's own tools show them.
SUBJECT = 72


class FolderDefinitions(NamedTuple):
    """The definitions of a session, and the folder from which they were looked up."""

    definitions: Definitions | None = None
    folder: str = ""
    #: Whether its bodies may bring commands; if not, only approved definitions apply.
    free: bool = False

    @property
    def text(self) -> str:
        """Return the definitions as stored (JSON text); '' for none."""
        return "" if self.definitions is None else self.definitions.text

    @property
    def mark(self) -> str:
        """Return the digest of the definitions; '' for none."""
        return "" if self.definitions is None else self.definitions.mark


class About(NamedTuple):
    """Descriptive fields of a new session: name, folder, place, budget, webhook."""

    kind: str
    name: str
    label: str = ""
    #: The label, with its scope, if no other session at work may have it there, or ''.
    unique_label: str = ""
    cwd: str = ""
    place: str = ""
    #: The real path of `cwd` if it is known, so that two names of a folder share a lock.
    folder: str = ""
    listed_in: str = ""
    priority: int = 5
    #: The webhook (JSON), and the events that it gets.
    webhook: str = ""
    rings: str = ""
    #: The budget in the document.
    budget: Budget = Budget()
    #: For a flow of the catalog: its Source (JSON).
    source: str = ""
    #: Not empty if its place was chosen automatically; it may change until a step is claimed.
    chosen: str = ""
    #: For a child that a body starts: what becomes of it at its parent's end.
    on_parent_end: str = ""
    #: The limits of cost and tokens that its document asks for (JSON), for such a child.
    own_budget: str = ""
    #: For a fork or rerun: the session that it was made from, and how (JSON).
    made_from: str = ""

    def within(self, own: OwnFolder | None, session: str) -> About:
        """Return the fields with the session's own folder as working folder; unchanged for None."""
        if own is None:
            return self
        cwd = own.cwd(session)
        return self._replace(cwd=cwd, folder=cwd)


class Request(NamedTuple):
    """What comes with a document: Idempotency-Key, parent step, owning token, environment."""

    body: str = ""
    key: str | None = None
    parent: Mapping[str, JsonValue] | None = None
    root: str | None = None
    owner: Owner | None = None
    #: Whether its bodies may bring commands; a child has the right of its parent.
    free: bool = False
    #: For a child that a body starts: its policy, its parent's place, and the limits of its tree.
    on_parent_end: str = ""
    place: str = ""
    limits: Mapping[str, int] | None = None
    #: For a task of a plan: the folder of its own that its first step makes.
    workspace: Workspace | None = None
    #: The folder that the session has to itself.
    own: OwnFolder | None = None
    #: For a rerun, as of About.
    made_from: str = ""
    #: What its bodies get in addition; of a child, with its parent's.
    environment: SessionEnvironment | None = None
    #: The folder of the command that submits it: its definitions apply. By default its own.
    folder: str = ""
    #: The definitions, once they are found.
    defined: FolderDefinitions | None = None

    @property
    def stored_key(self) -> str | None:
        """Return the Idempotency-Key as stored, prefixed with the owner's id, or None."""
        return _own_key(self.owner, self.key)

    @property
    def is_taken_over(self) -> bool:
        """Whether a later attempt of the same step may take over the child with this key."""
        return self.on_parent_end == "let-go-on"


class Submitted(NamedTuple):
    """The session of a submitted document."""

    session: str
    #: False if an earlier call with the same key created it.
    created: bool
    #: What is known of it, if this call created it from a document.
    made: CreatedSession | None = None


def _own_key(owner: Owner | None, key: str | None) -> str | None:
    """The stored form of an Idempotency-Key: each token has its own namespace."""
    if key is None:
        return None
    return f"{owner.token if owner is not None else ''}/{key}"


class Environments:
    """Checks, inherits and encrypts environments."""

    def __init__(self, store: Store, settings: Settings, registry: Registry) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry

    def effective(
        self,
        given: SessionEnvironment,
        parent: Mapping[str, JsonValue] | None = None,
        root: str | None = None,
    ) -> SessionEnvironment:
        """Return a new session's environment: its parent's, overridden by its own values.

        Raises InvalidDocument if it cannot be stored, is too large together, or if the values of a
        shell come from another machine than the worker's.
        """
        if given.shell and not self._settings.own_redis:
            hint = "only the embedded services of this machine take it; pass variables as env"
            raise InvalidDocument("shell_env", len(given.shell), hint)
        if parent is not None:
            given = given.below(self._of_parent(SessionRef(str(parent["session"]), str(root))))
        if not given.is_empty and not self._settings.secret:
            raise InvalidDocument("env", len(given.passed), "set LEADHAND_SECRET for the API first")
        for field, values in (("env", given.passed), ("shell_env", given.shell)):
            try:
                check_values({**values})
            except ValueError as error:
                raise InvalidDocument(field, len(values), f"with the parent's, {error}") from None
        return given

    def encrypt(self, ref: SessionRef, environment: SessionEnvironment | None) -> str:
        """Return a session's environment encrypted for the store; '' if it is empty."""
        if environment is None or environment.is_empty:
            return ""
        return signatures.encrypt(environment, ref, secret=self._settings.secret)

    def _of_parent(self, parent: SessionRef) -> SessionEnvironment:
        fields = self._store.values(parent, "session", ["environment", "status"])
        if fields.get("status") in FINAL:  # nothing starts below it, and its environment is gone
            return SessionEnvironment()
        try:
            return self._registry.environment(parent, fields.get("environment", ""))
        except SpecForeign as error:
            raise InvalidDocument("env", parent.id, f"{error.why} for its parent") from None


class SubmitDefinitions:
    """Finds the definitions of a new session."""

    def __init__(self, store: Store, registry: Registry, files: DefinitionFiles) -> None:
        self._store = store
        self._registry = registry
        self._files = files

    def of(self, request: Request, cwd: str | None) -> FolderDefinitions:
        """Returns the agent and tool definitions for a new session: its folder's or its parent's.

        They are those of the folder of the command that submits it, by default of its own working
        folder. Who may not bring commands does not choose them for another folder than its own.
        Raises InvalidDocument if a file of another user would define something.
        """
        if request.defined is not None:
            return request.defined
        if request.parent is not None:
            return self.of_session(SessionRef(str(request.parent["session"]), str(request.root)))
        folder = (request.folder or cwd) if request.free else (cwd or request.folder)
        return self.of_folder(folder or "", free=request.free)

    def with_folder_settings(self, document: AnyDocument, *, is_child: bool) -> AnyDocument:
        """Returns the document with the settings of leadhand.toml in its folder.

        Protected files and quarantined tests are added to those of the document; by-products are
        set unless it has its own. Raises InvalidDocument for an invalid file.
        """
        found = self._files.session_settings_in(document.cwd, is_child=is_child)
        if found.leave_out is None and not any(found):
            return document
        if isinstance(document, GraphDocument):
            steps = tuple(_with_session(step, found) for step in document.steps)
            document = document.model_copy(update={"steps": steps})
        if isinstance(document, WorkflowDocument):
            phases = tuple(_with_settings(phase, found) for phase in document.phases)
            return document.model_copy(update={"phases": phases})
        return _with_settings(document, found)

    def again(
        self,
        ref: SessionRef,
        fields: Mapping[str, str],
        *,
        free: bool,
        above: SessionRef | None = None,
    ) -> FolderDefinitions:
        """Returns the definitions with which a session is resumed: those of its folder now.

        Unless the one who resumes it is `free` to bring commands, a session that may have commands
        gets approved ones, and otherwise keeps its own. One that follows the session `above` gets
        those. Raises InvalidDocument if a file of another user would define something.
        """
        folder, is_free = fields.get("defined_in", ""), self._registry.is_free(ref, fields)
        if above is None:
            found = self.of_folder(folder, free=is_free)
            if free or not is_free or self._files.are_approved(found.definitions):
                return found
            above = ref
        mark = self._store.values(above, "session", ["definitions"]).get("definitions", "")
        return FolderDefinitions(self._registry.definitions(above, mark), folder, is_free)

    def of_folder(self, folder: str, *, free: bool) -> FolderDefinitions:
        """Reads the agent and tool definitions that apply in a folder, as its files are now."""
        if not self._files.are_read:
            return FolderDefinitions(free=free)
        return FolderDefinitions(self._files.of(folder, free=free), folder, free)

    def of_session(self, ref: SessionRef) -> FolderDefinitions:
        """Returns a session's stored definitions, for its child sessions; empty if it is final."""
        names = ["definitions", "defined_in", "status", "free"]
        fields = self._store.values(ref, "session", names)
        free = self._registry.is_free(ref, fields)
        if not self._files.are_read or fields.get("status") in FINAL:  # nothing starts below that
            return FolderDefinitions(free=free)
        mark, folder = fields.get("definitions", ""), fields.get("defined_in", "")
        return FolderDefinitions(self._registry.definitions(ref, mark), folder, free)

    def adopt_changes(
        self,
        ref: SessionRef,
        plan: ResumePlan,
        *,
        free: bool = False,
        above: SessionRef | None = None,
    ) -> tuple[ResumePlan, JsonValue]:
        """Reads a session's definitions again; returns the resume plan, and what to adopt or None.

        None if they did not change, if the session has not stopped or failed, or if this server may
        not sign them. Otherwise the plan holds for the session as it is now, since the signature
        covers all of it.
        """
        fields = self._store.fields(ref)
        if fields.get("status") not in (SessionStatus.STOPPED, SessionStatus.FAILED):
            return plan, None
        found = self.again(ref, fields, free=free, above=above)
        program = plan.adopts and plan.adopts.program.hash
        if found.mark == fields.get("definitions", ""):
            return plan, None
        signature = self._registry.sign_for_definitions(ref, fields, found.mark, program=program)
        if not signature:
            return plan, None  # the step that runs first says why it may not run
        defines: JsonValue = {"mark": found.mark, "text": found.text, "signature": signature}
        return plan._replace(as_of=plan.as_of or fields["updated"]), defines


def _with_settings(document: _Part, found: SessionSettings) -> _Part:
    """A document, or a phase of one, with these settings as far as it has such fields."""
    update: dict[str, object] = {}
    for name, values in found._asdict().items():
        if values is None or name not in type(document).model_fields:
            continue
        own = getattr(document, name)
        if name != "leave_out":
            update[name] = tuple(dict.fromkeys((*own, *values)))
        elif own is None:
            update[name] = values
    return document.model_copy(update=update)


def _with_session(step: GraphStep, found: SessionSettings) -> GraphStep:
    """A step of a graph whose child session gets the settings, which it does not read itself."""
    session = step.session
    if isinstance(session, WorkflowDocument):
        phases = tuple(_with_settings(phase, found) for phase in session.phases)
        session = session.model_copy(update={"phases": phases})
    elif session is not None:
        session = _with_settings(session, found)
    return step.model_copy(update={"session": session})


def workers_by_definitions(
    fleet: Fleet, without: Sequence[WorkerView] | None = None
) -> Callable[[Definitions | None], Sequence[WorkerView]]:
    """Returns a function that reads the live workers for definitions, once for each set of them.

    `without` are those for sessions without definitions, if the caller has just read them.
    """
    known = dict[str, Sequence[WorkerView]]() if without is None else {"": without}

    def read(definitions: Definitions | None) -> Sequence[WorkerView]:
        mark = "" if definitions is None else definitions.mark
        if mark not in known:
            known[mark] = fleet.inventories(definitions)
        return known[mark]

    return read


class CompiledPrograms:
    """The programs of documents that were submitted lately."""

    def __init__(self) -> None:
        self._recent = Recent[str, Program](KEPT)

    def compile(self, document: AnyDocument, text: str, called: CalledFlows) -> Program:
        """Compile a document to a program, or reuse a recent result. Raises InvalidDocument.

        `text` is the JSON of the document, `called` the flows that it calls if it is a graph.
        """
        program = self._without_flows(document, text)
        return with_flows(program, document, called) if called else program

    def check(
        self,
        document: AnyDocument,
        text: str,
        called: CalledFlows,
        settings: Settings,
        workers: Sequence[WorkerView],
    ) -> tuple[Where, Program]:
        """Check a document against workers and flows, and compile it; arguments as of `compile`.

        Raises SeveralInvalid with the errors of all checks.
        """
        where, program, faults = None, None, list[InvalidDocument]()
        try:
            where = admit(document, settings, workers)
        except InvalidDocument as error:
            faults += error.all
        if called:
            faults += faults_of_called_flows(document, called)
        try:
            program = self.compile(document, text, called)
        except InvalidDocument as error:
            faults += error.all
        if where is None or program is None or faults:
            # Two checks may report the same error.
            raise SeveralInvalid([*{(one.field, one.hint): one for one in faults}.values()])
        return where, program

    def _without_flows(self, document: AnyDocument, text: str) -> Program:
        if len(text) > LARGEST:
            return compile_document(document)
        # What a document leaves out may compile otherwise than the default that it could have.
        written = document.model_dump_json(exclude_unset=True)
        key = hashlib.sha256(f"{document.kind} {written}".encode()).hexdigest()
        program = self._recent.get(key)
        if program is None:
            program = self._recent[key] = compile_document(document)
        return program


class FlowChecks:
    """Checks flows and graphs without running them."""

    def __init__(
        self,
        settings: Settings,
        fleet: Fleet,
        catalog_of: Callable[[str, bool], Catalog],
        files: DefinitionFiles,
    ) -> None:
        self._files = files
        self._settings = settings
        self._fleet = fleet
        self._catalog_of = catalog_of

    def check(self, given: JsonValue, *, folder: str = "", free: bool = False) -> FlowCheckView:
        """Check whether a flow or graph could run in a folder now, and list its errors.

        Those of fields come alone, and so do those of the structure of a graph. Unless `free`,
        only approved definitions of the folder count.
        """
        if isinstance(given, dict) and given.get("kind") == "graph":
            return self._check_graph(given, folder, free=free)
        found = all_faults(FlowDocument, given)
        faults = [FlowFaultView(path=path, message=text) for path, text in found.faults]
        if isinstance(found.flow, FlowDocument):
            asked_for = {name: text or "" for name, text in found.flow.inputs.items()}
            document = found.flow.model_copy(update={"inputs": asked_for})
            here = self._faults_here(document, folder, is_valid=not faults, free=free)
            faults += map(_fault_view, here)
        return FlowCheckView(valid=not faults, faults=faults)

    def _check_graph(self, given: JsonValue, folder: str, *, free: bool) -> FlowCheckView:
        try:
            graph = GraphDocument.model_validate(given)
        except ValidationError as error:
            found = faults_of_graph(error, given)
            faults = [FlowFaultView(path=path, message=text) for path, text in found]
            return FlowCheckView(valid=False, faults=faults)
        folder = folder or graph.cwd or ""
        workers = self._fleet.inventories(self._files.of(folder, free=free))
        called = called_flows(graph, self._catalog_of(folder, free))
        here = [*faults_here(graph, self._settings, workers)]
        here += faults_of_called_flows(graph, called)
        return FlowCheckView(valid=not here, faults=list(map(_fault_view, here)))

    def _faults_here(
        self, document: FlowDocument, folder: str, *, is_valid: bool, free: bool
    ) -> list[InvalidDocument]:
        """Errors in a flow's files and subflows, and in its use of agents and tools."""
        folder = folder or document.cwd or ""
        whole, faults = self._catalog_of(folder, free).gather(document)
        not_found = {fault.field for fault in faults}
        workers = self._fleet.inventories(self._files.of(folder, free=free))
        faults += faults_here(whole, self._settings, workers)
        faults += (one for one in faults_of_subflows(whole) if one.field not in not_found)
        if not faults and is_valid:
            try:
                compile_document(whole)
            except InvalidDocument as error:
                faults.append(error)
        return list({(fault.field, fault.hint): fault for fault in faults}.values())


def _fault_view(fault: InvalidDocument) -> FlowFaultView:
    return FlowFaultView(path=fault.field, message=f"it is {fault.value!r}; {fault.hint}")


def stored_text(document: AnyDocument) -> str:
    """Serializes a document as JSON for storage, without its webhook and environment."""
    given = document.model_dump(mode="json", exclude_unset=True, exclude=_SECRET)
    return json.dumps({**given, "kind": document.kind})


def own_folder(
    document: AnyDocument, settings: Settings, *, has_own: bool = False
) -> OwnFolder | None:
    """Computes the folder that a session has to itself; None if its document does not ask for one.

    Raises InvalidDocument for a document without a folder to start from, and for checkers that
    need a folder of its own. With `has_own` it may have one that another session makes.
    """
    if isinstance(document, PlanDocument | GraphDocument) or not document.worktree:
        if not has_own:
            _refuse_isolated(document)
        return None
    if document.cwd is None:
        raise InvalidDocument("worktree", True, "name the folder to start from in cwd")
    if has_branch(document.cwd, RESERVED):
        hint = f"the branch {RESERVED!r} is in the way of branches named {RESERVED}/ID; rename it"
        raise InvalidDocument("worktree", True, f"{hint} (git branch -m {RESERVED} OTHER)")
    own = own_folder_from(document.cwd, settings)
    asked = document.worktree
    if not isinstance(asked, WorktreeOptions):
        return own
    return own._replace(copy_files=asked.copy_files, prepare=asked.prepare or "")


def _refuse_isolated(document: AnyDocument) -> None:
    for path, checker in _checkers_of(document):
        if checker.isolated:
            hint = (
                "what other checkers change is put back in a worktree or copy of the session's"
                " own only; give `worktree: true`, or `clean` in place of isolated"
            )
            raise InvalidDocument(f"{path}.isolated", True, hint)


def _checkers_of(document: AnyDocument) -> Iterator[tuple[str, Checker]]:
    """Yields the checkers of a document with their paths, without those in worktrees of a graph."""
    if isinstance(document, FlowDocument):
        steps = ((prefix, one) for prefix, flow in parts_of(document) for one in steps_of(flow))
        for prefix, one in steps:
            if isinstance(one.step, CheckStep):
                yield f"{prefix}{one.path}.checker", one.step.checker
    for path, loop in _loops_of(document).items():
        for number, checker in enumerate(loop.checkers):
            yield f"{path}checkers[{number}]", checker


def _loops_of(document: AnyDocument) -> Mapping[str, LoopDocument | PhaseDocument]:
    match document:
        case LoopDocument():
            return {"": document}
        case WorkflowDocument():
            return {f"phases[{number}].": phase for number, phase in enumerate(document.phases)}
        case GraphDocument():
            return {
                f"steps[{number}].session.{path}": loop
                for number, step in enumerate(document.steps)
                if step.session is not None and not step.session.worktree
                for path, loop in _loops_of(step.session).items()
            }
        case _:
            return {}


def commit_subject(document: AnyDocument, label: str) -> str:
    """Returns the subject of the commit with a session's work: its label, or its task's first line.

    It is empty for documents that have neither.
    """
    if label or not isinstance(document, LoopDocument):
        return label
    lines = (line.strip().lstrip("#*- ") for line in document.task.splitlines())
    first = without_keys(next((line for line in lines if line), ""))
    return first if len(first) <= SUBJECT else f"{first[: SUBJECT - 1].rstrip()}…"


def own_folder_from(origin: str, settings: Settings) -> OwnFolder:
    """Computes the folder that a session which is started in a folder would have to itself."""
    return OwnFolder(worktrees_of(settings), origin, prefix_in_repository(origin))


def worktrees_of(settings: Settings) -> str:
    """Returns the real path of the folder of all worktrees, as sessions record it."""
    return str(settings.worktrees_root.resolve())


def own_facts(session: str, own: OwnFolder | None) -> str:
    """Serializes the original and planned path of a session's own folder as JSON; '' for None."""
    if own is None:
        return ""
    return json.dumps({"origin": own.origin, "folder": own.path(session)})


def prefix_in_repository(folder: str) -> str:
    """Returns a folder's path relative to the top of its git repository; '' at the top, or if none.

    The worker checks it: this process may be on another machine, where the folder is unknown.
    """
    here = Path(folder)
    try:
        top = repository_top(here)
    except OSError:
        return ""
    return "" if top in (None, here) else str(here.relative_to(top))


def has_branch(folder: str, name: str) -> bool:
    """Whether a folder's repository has a branch, as far as its files show that."""
    ref = f"refs/heads/{name}"
    try:
        top = repository_top(Path(folder))
        if top is None:
            return False
        found = top / ".git"
        common = found if found.is_dir() else _common_of(found)
        packed = common / "packed-refs"
        lines = packed.read_text(errors="replace").splitlines() if packed.is_file() else []
        return (common / ref).is_file() or any(line.endswith(f" {ref}") for line in lines)
    except OSError:
        return False


def _common_of(file: Path) -> Path:
    """The directory that all worktrees share, from the file `.git` of a linked one."""
    own = file.parent / file.read_text().removeprefix("gitdir:").strip()
    common = own / "commondir"
    return own / common.read_text().strip() if common.is_file() else own
