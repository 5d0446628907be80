"""Continues a session from a point of it in a new one, or runs its document again, with changes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from pydantic import JsonValue

from app.compiler.folders import in_own_folder, opening_inputs, own_folder_of, without_own_folder
from app.core.addresses import SessionRef, path_of
from app.core.environment import SessionEnvironment
from app.core.folders import OwnFolder
from app.core.outcomes import MICROS
from app.core.program import Action, Program
from app.core.records import NewSession, Reply
from app.core.routing import Join, stored_program
from app.core.states import AT_WORK
from app.errors import InvalidDocument, PositionRefused, SpecForeign
from app.fleet.admission import AgentsThere
from app.fleet.overview import Fleet
from app.history.points import address_of, position_of
from app.history.records import Snapshot
from app.programs import Registry
from app.security.api_tokens import Owner, owner_argument, quota_error
from app.security.signatures import comparison
from app.sessions.documents import Changes, submitted_document, with_changes
from app.sessions.drafts import (
    Environments,
    FolderDefinitions,
    commit_subject,
    own_folder_from,
    stored_text,
    worktrees_of,
)
from app.sessions.forking import (
    FolderWork,
    KeptOutcomes,
    changed_nodes,
    copied_warnings,
    find_recorded_state,
    rewind_of_fork,
    steps_left,
    writes_folder,
)
from app.sessions.migrate import explain_misfit
from app.sessions.presenters import diff_view
from app.sessions.rewind import Rewind
from app.sessions.submit import DRAWS, About, Request, Submissions, Submitted, digest_of
from app.settings import Settings
from app.store.store import Store
from app.transitions import Transitions
from leadhand.errors import ControlRefused, IdempotencyConflict, SessionUnknown
from leadhand.flows.documents import AnyDocument

VERB = "fork"
RERUN_VERB = "rerun"


class ForkFolder(NamedTuple):
    """Where a fork works."""

    #: The worktree that it has to itself; None for the folder of the other session.
    own: OwnFolder | None = None
    warnings: tuple[str, ...] = ()


class ForkFolders:
    """Chooses the folders of forks."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def choose(
        self,
        ref: SessionRef,
        fields: Mapping[str, str],
        old: Program,
        program: Program,
        rewind: Rewind,
        kept: KeptOutcomes,
        *,
        as_is: bool,
    ) -> ForkFolder:
        """Choose the folder for what is left of the program in a fork of a session.

        `old` is the program of the session. Raises InvalidDocument without a recorded state, unless
        the fork is to work in the folder as it is, and ControlRefused for a session with a folder
        of its own that has none.
        """
        folder = fields.get("cwd", "")
        # A child session works in the folder of its parent.
        works = any(
            step.folder or step.action is Action.CHILD for step in steps_left(program, rewind)
        )
        if not folder or not works:
            return ForkFolder()
        own = own_folder_of(old, worktrees_of(self._settings))
        if as_is and own is not None:
            hint = "the session has a folder of its own, and its fork gets another; leave it out"
            raise InvalidDocument("folder", "as-is", hint)
        if as_is:
            then = f"{folder} as it was when it was forked"
            return ForkFolder(None, (f"it works in {then}, whatever changed there since",))
        if own is None and opening_inputs(old) is not None:
            raise _not_recorded(folder, "a plan merges what it does there")
        since_ms = int(fields["created"]) if own is not None else 0
        found = find_recorded_state(ref.id, kept, self._work(ref, old), since_ms=since_ms)
        if found.state is None and own is not None:
            hint = f"{found.why}; start it again with: leadhand rerun {ref.id}"
            raise ControlRefused(ref.id, "fork", "a session with a folder of its own", hint)
        if found.state is None:
            raise _not_recorded(folder, found.why)
        own = own or own_folder_from(folder, self._settings)
        ahead = [
            f"its folder has the work of {step} already, which runs again" for step in found.ahead
        ]
        return ForkFolder(own._replace(state=found.state), tuple(ahead))

    def _work(self, ref: SessionRef, program: Program) -> FolderWork:
        """What the steps that may have changed the folder of a session recorded of it."""
        names = self._store.names(ref, "steps")
        writers = [name for name in names if writes_folder(program, path_of(name))]
        records = self._store.steps(ref, writers)
        ended = {at: one for at, one in records.items() if one.ended and one.state != "skipped"}
        outcome = Snapshot(self._store, ref).outcome
        return FolderWork(ended, outcome, partial(self._diffed_from, ref))

    def _diffed_from(self, ref: SessionRef, address: str) -> str | None:
        packed = self._store.values(ref, "diffs", [address]).get(address)
        return None if packed is None else diff_view(address, packed).before


def with_own_folder(
    program: Program, rewind: Rewind, own: OwnFolder, title: str
) -> tuple[Program, Rewind]:
    """Adds the steps that make and keep a fork's folder to what runs in the fork."""
    whole = in_own_folder(program, own, title)
    first, last = whole.body[0].id, whole.body[-1].id
    again = [join for join in rewind.again if join.name]
    done = next(join.done for join in rewind.again if not join.name)
    joins = (Join("", ()), Join(first, ()), *again, Join(last, done))
    return whole, rewind._replace(again=joins)


def _not_recorded(folder: str, why: str) -> InvalidDocument:
    hint = (
        f"its steps work in {folder}, and {why}; to continue with the folder as it is now, give"
        " folder: as-is (--folder as-is)"
    )
    return InvalidDocument("folder", None, hint)


class Wish(NamedTuple):
    """Where a fork continues, and what is different in it."""

    after: str | None = None
    changes: Changes = Changes()
    #: Whether it works in the session's folder as that is now.
    as_is: bool = False
    #: What its bodies get: not what those of the other session got.
    environment: SessionEnvironment = SessionEnvironment()

    def digest(self, session: str, secret: str) -> str:
        """Return a hash of this request to fork a session, to recognise a repeated one."""
        shown = json.dumps(self[:-1], default=list, sort_keys=True)
        return digest_of(f"fork {session} {shown}{comparison(self.environment, secret=secret)}")


class _Plan(NamedTuple):
    """What runs in the fork."""

    program: Program
    rewind: Rewind
    warnings: list[str]
    #: The document, with the changes.
    request: str
    #: The worktree that it has to itself.
    own: OwnFolder | None


class Forks:
    """Creates forks."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        registry: Registry,
        transitions: Transitions,
        submissions: Submissions,
        fleet: Fleet,
    ) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry
        self._environments = Environments(store, settings, registry)
        self._transitions = transitions
        self._submissions = submissions
        self._folders = ForkFolders(store, settings)
        self._fleet = fleet

    def fork(
        self,
        session: str,
        wish: Wish,
        *,
        key: str | None = None,
        owner: Owner | None = None,
        free: bool = False,
        check: Callable[[AnyDocument], None] = lambda _: None,
    ) -> Submitted:
        """Create a session that copies another one's outcomes up to a point and runs the rest.

        `check` refuses a document that the caller may not run. Raises SessionUnknown,
        ControlRefused for a session that cannot be forked, PositionRefused, InvalidDocument for a
        change that does not apply, IdempotencyConflict, QuotaPassed.
        """
        environment = self._environments.effective(wish.environment)
        body = wish.digest(session, self._settings.secret)
        request = Request(body, key, owner=owner, free=free, environment=environment)
        for _ in range(DRAWS):
            ref = self._registry.ref(session)
            made = self._submissions.find_submitted(request) or self._try(ref, wish, request, check)
            if made is not None:
                return made
        raise RuntimeError("the session could not be copied")

    def _try(
        self, ref: SessionRef, wish: Wish, request: Request, check: Callable[[AnyDocument], None]
    ) -> Submitted | None:
        """Plan the fork and create it; None if the session changed or the id is taken."""
        fields = self._store.fields(ref)
        if "status" not in fields:
            raise SessionUnknown(ref.id)
        if fields["kind"] in ("plan", "guard"):
            hint = f"start it again with: leadhand rerun {ref.id}"
            raise ControlRefused(ref.id, VERB, f"a {fields['kind']}", hint)
        document = submitted_document(self._store, self._registry, ref, fields, VERB)
        check(with_changes(document, wish.changes))
        folder = fields.get("defined_in", "")
        found = self._submissions.definitions.of_folder(folder, free=request.free)
        plan = self._plan(ref, fields, document, wish, found)
        request = request._replace(defined=found)
        return self._create(ref, fields, plan, wish, request)

    def _plan(
        self,
        ref: SessionRef,
        fields: Mapping[str, str],
        document: AnyDocument,
        wish: Wish,
        found: FolderDefinitions,
    ) -> _Plan:
        whole = self._verified(ref, fields)
        old = program = without_own_folder(whole)
        anew, other = set[str](), set[str]()
        if wish.changes != Changes(label=wish.changes.label):
            # It was checked when it was submitted; what it needs may be gone since.
            base = self._submissions.compile(document, found, is_new=False)
            program = self._submissions.compile(with_changes(document, wish.changes), found)
            other = changed_nodes(base, program)
            inputs = Changes(inputs=wish.changes.inputs)
            if inputs.inputs:
                changed = with_changes(document, inputs)
                anew = changed_nodes(base, self._submissions.compile(changed, found, is_new=False))
        snapshot = Snapshot(self._store, ref)
        try:
            rewind = rewind_of_fork(program, wish.after, snapshot, anew).without_kept_items(other)
        except PositionRefused as error:
            raise PositionRefused("after", error.value, error.hint) from None
        why = explain_misfit(old, program, rewind, snapshot, after=True)
        if why is not None:
            raise ControlRefused(ref.id, VERB, fields["status"], why)
        rewind, lost = self._without_foreign_threads(rewind, found)
        request = stored_text(with_changes(document, wish.changes))
        kept = KeptOutcomes(rewind, snapshot)
        before = copied_warnings(program, kept, self._store.lines(ref, "warnings", 0, -1))
        folder = self._folders.choose(ref, fields, whole, program, rewind, kept, as_is=wish.as_is)
        if folder.own is not None:
            title = wish.changes.label or fields.get("label", "")
            subject = commit_subject(document, title)
            program, rewind = with_own_folder(program, rewind, folder.own, subject)
        return _Plan(program, rewind, [*before, *folder.warnings, *lost], request, folder.own)

    def _verified(self, ref: SessionRef, fields: Mapping[str, str]) -> Program:
        """The session's program, whose signature is valid. Raises ControlRefused."""
        try:
            return self._registry.program_of(ref, fields)
        except SpecForeign as error:
            hint = f"{error.why}, so it may not run; submit the document again"
            raise ControlRefused(ref.id, VERB, fields["status"], hint) from None

    def _without_foreign_threads(
        self, rewind: Rewind, found: FolderDefinitions
    ) -> tuple[Rewind, list[str]]:
        """Leave out the conversations of agents that would continue in the origin's thread."""
        if not rewind.threads:
            return rewind, []
        agents = AgentsThere(self._fleet.inventories(found.definitions))
        kept = {
            talk: thread
            for talk, thread in rewind.threads.items()
            if agents.can_fork(talk.partition("|")[0])
        }
        lost = sorted(rewind.threads.keys() - kept.keys())
        notes = [
            f"agent {talk.partition('|')[0]!r} cannot fork its conversation, which begins anew"
            for talk in lost
        ]
        return rewind._replace(threads=kept), notes

    def _create(
        self,
        ref: SessionRef,
        fields: Mapping[str, str],
        plan: _Plan,
        wish: Wish,
        request: Request,
    ) -> Submitted | None:
        copies = self._store.copies()
        session = secrets.token_hex(4)
        target = SessionRef(session, session)
        if self._store.ref(session) is not None:
            return None
        copied = copies.copy(ref, target)
        answer = self._store.fork(
            self._new(target, ref, fields, plan, wish, request, copied.cost_micros),
            {
                **plan.rewind.arguments(),
                "counts": {**copied.counts},
                "warnings": [*plan.warnings],
                "origin": self._origin(ref, fields),
            },
        )
        if answer.word == "created":
            self._transitions.dispatch(target, answer)
            return Submitted(session=session, created=True)
        if answer.session != target.id:
            copies.discard(target)
        return None if answer.word in ("taken", "torn") else _other(answer, request)

    def _origin(self, ref: SessionRef, fields: Mapping[str, str]) -> dict[str, JsonValue]:
        """The session as it was planned for; while it works, it may change."""
        origin: dict[str, JsonValue] = {"base": self._store.keys.base(ref)}
        if fields["status"] not in AT_WORK and "updated" in fields:
            origin["updated"] = fields["updated"]
        return origin

    def _new(
        self,
        target: SessionRef,
        ref: SessionRef,
        fields: Mapping[str, str],
        plan: _Plan,
        wish: Wish,
        request: Request,
        cost_micros: int,
    ) -> NewSession:
        known = Snapshot(self._store, ref)
        program = self._registry.program(fields["program"])
        after = wish.after and address_of(program, known, position_of(program, wish.after, known))
        made_from = {
            "session": ref.id, "verb": VERB, "after": after, "cost_usd": cost_micros / MICROS,
        }  # fmt: skip
        about = About(
            kind=fields["kind"],
            name=fields["name"],
            label=wish.changes.label or fields.get("label", ""),
            cwd=fields.get("cwd", ""),
            listed_in=fields.get("listed_in", ""),
            place=fields.get("place", ""),
            priority=int(fields.get("priority") or 5),
            source=fields.get("source", ""),
            made_from=json.dumps(made_from),
        ).within(plan.own, target.id)
        request = request._replace(own=plan.own)
        sealed = self._environments.encrypt(target, request.environment)
        new = self._submissions.fields_of(
            target, plan.program, about, request, sealed, plan.request
        )
        size = len(plan.program.text.encode())
        return NewSession(
            ref=target,
            program=plan.program,
            content=lambda: stored_program(plan.program),
            fields={
                **new,
                "budget": fields["budget"],
                **({} if plan.own is not None else {"folder": fields.get("folder", "")}),
            },
            idempotency_key=request.stored_key,
            body_hash=request.body,
            owner=owner_argument(request.owner, size),
            request=plan.request,
            environment=sealed,
            definitions=request.defined.text if request.defined is not None else "",
        )


def _other(answer: Reply, request: Request) -> Submitted:
    """The result of a call that created nothing. Raises IdempotencyConflict, QuotaPassed."""
    if answer.word == "exists":
        return Submitted(session=str(answer.session), created=False)
    if answer.word == "quota" and request.owner is not None:
        raise quota_error(request.owner, str(answer.why), answer.now)
    raise IdempotencyConflict(str(request.key))


class Reruns:
    """Submits the documents of sessions again."""

    def __init__(
        self, store: Store, settings: Settings, registry: Registry, submissions: Submissions
    ) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry
        self._submissions = submissions

    def rerun(
        self,
        session: str,
        changes: Changes,
        *,
        environment: SessionEnvironment = SessionEnvironment(),  # noqa: B008 - immutable
        key: str | None = None,
        owner: Owner | None = None,
        free: bool = False,
        check: Callable[[AnyDocument], None] = lambda _: None,
    ) -> Submitted:
        """Create a session that runs another one's document, with changes, again from the start.

        `check` refuses a document that the caller may not run. Raises SessionUnknown,
        ControlRefused if no signed document is stored, and the errors of a submit.
        """
        ref = self._registry.ref(session)
        fields = self._store.fields(ref)
        given = submitted_document(self._store, self._registry, ref, fields, RERUN_VERB)
        document = with_changes(given, changes)
        check(document)
        passed = comparison(environment, secret=self._settings.secret)
        body = digest_of(f"rerun {session} {stored_text(document)}{passed}")
        made_from = json.dumps({"session": session, "verb": RERUN_VERB})
        request = Request(
            body,
            key,
            owner=owner,
            free=free,
            made_from=made_from,
            environment=environment,
            folder=fields.get("defined_in", ""),
        )
        return self._submissions.document_of(request, document)
