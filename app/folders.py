"""The folders that tasks and sessions have to themselves: derived, recorded, listed and removed.

An own folder is that of a session; the tasks of a plan have folders by its runs. All functions
raise StoreAway.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import NamedTuple

from pydantic import JsonValue

from app.compiler.applying import Mode, Recheck, apply_program, recheck_of
from app.compiler.folders import audit_program, clean_program, discard_program, own_folder_of
from app.context import Context
from app.core.addresses import SessionRef
from app.core.environment import SessionEnvironment
from app.core.folders import MERGE_FOLDER, Kind, OwnFolder
from app.core.program import Program
from app.core.states import ACCEPTED, ENDED, FINAL, SessionStatus
from app.plans.edits import read_survey
from app.plans.tasks import PlanRecord, parse_plan
from app.sessions.context import SessionContext
from app.sessions.listing import END, decode_place, encode_cursor
from app.sessions.submit import About, Request
from app.store.store import Store
from leadhand.errors import ControlRefused, KeyDamaged, NoPlan, PlanRefused, SessionUnknown
from leadhand.models.text import list_first
from leadhand.models.views.fleet import FolderAuditStarted, FolderAuditView
from leadhand.models.views.plan import ApplyingView, CleaningView, WorktreeView
from leadhand.models.views.result import LedgerEntry
from leadhand.models.views.view import Page

#: The name, in the folder of worktrees, whose lock an audit holds: one at a time in a place.
_AUDIT = ".audit"
#: Sessions that one page examines.
EXAMINED = 200
#: Folders that an error names.
_SHOWN = 3
#: The name, beside a session's folder, whose lock the session holds that removes it.
_CLEANING = ".cleaning"


def audit(engine: SessionContext, *, repair: bool) -> FolderAuditView:
    """Start one session per place (worker host) that compares its folders with the store.

    With `repair` it also repairs what differs.
    """
    folder = str(engine.settings.worktrees_root.resolve() / _AUDIT)
    items = []
    for place in sorted({worker.place for worker in engine.fleet.inventories()}):
        program = audit_program(place, repair=repair)
        about = About(
            kind="workflow",
            name=program.name,
            label=f"Audit the folders at {place}",
            cwd=folder,
            folder=folder,
            place=place,
        )
        started = engine.submit.program(program, about).session
        items.append(FolderAuditStarted(place=place, session=started))
    return FolderAuditView(items=items)


class KnownFolder(NamedTuple):
    """A folder that a worker has made, as the store has it on record."""

    view: WorktreeView
    #: The folder that it was made from, and the branch or commit whose tip it started from.
    origin: str
    target: str


class StoreFolders(NamedTuple):
    """What a store has on record, to compare with the folders of a place."""

    #: The id of the store: folders of others are left alone.
    store: str
    #: The statuses of the sessions that were asked about; deleted ones are missing.
    statuses: Mapping[str, str]
    #: The folders that are at the place, without those that were removed or never made.
    folders: tuple[KnownFolder, ...]


def list_all(engine: Context, cursor: str | None) -> Page[WorktreeView]:
    """List the folders made for the next batch of sessions and their tasks, newest first."""
    before = END if cursor is None else decode_place(cursor)
    places = engine.store.session_index().page(None, before=before, limit=EXAMINED)
    damaged: list[str] = []
    found = [one.view for one in _folders_of(engine, [place.session for place in places], damaged)]
    more = len(places) == EXAMINED
    following = encode_cursor(list(places[-1])) if more else None
    return Page(items=found, next=following, partial=more, examined=len(places), damaged=damaged)


def read_at_place(engine: Context, place: str, sessions: Sequence[str]) -> StoreFolders:
    """Return all folders on record at a worker host, and the statuses of `sessions`."""
    found: list[KnownFolder] = []
    batch: list[str] = []
    for one in engine.store.session_index().walk(None, END):
        batch.append(one.session)
        if len(batch) == EXAMINED:
            found += _folders_of(engine, batch, [])
            batch = []
    found += _folders_of(engine, batch, [])
    here = [one for one in found if one.view.place == place and _is_made(one.view)]
    return read_statuses(engine, sessions)._replace(folders=tuple(here))


def read_statuses(engine: Context, sessions: Sequence[str]) -> StoreFolders:
    """Return the statuses of these sessions and the store's id, without listing folders."""
    identity = engine.store.identity().read()
    damaged: list[str] = []
    found = engine.store.fields_of(list(sessions), damaged)
    statuses = {session: fields["status"] for session, (_, fields) in found.items()}
    statuses |= dict.fromkeys(damaged, "damaged")  # it was not deleted
    return StoreFolders(identity.id if identity is not None else "", statuses, ())


def check_deletion(engine: Context, session: str) -> None:
    """Raise ControlRefused if an ended session's folder may hold work not yet merged.

    Nothing could apply the work in a folder without its session. Folders whose work is applied
    or merged do not count: a worker of their place removes them later.
    """
    ref = engine.registry.ref(session)
    fields = engine.store.fields(ref)
    if fields["status"] not in ENDED:
        return
    own = json.loads(fields.get("own_folder") or "{}")
    merged: set[str] = set()
    if fields.get("kind") == "plan":
        plan = parse_plan(engine.store.plan(ref))
        merged = {task.id for task in plan.tasks if task.merged} if plan else set()
    left = [
        one.view.folder
        for one in _folders_of(engine, [session])
        if not (one.view.cleaned or own.get("applied") or one.view.task in merged)
    ]
    if left:
        which = "its folder" if len(left) == 1 else "its folders"
        hint = (
            f"{which} {list_first(left, _SHOWN)} may have work; apply it or clean them"
            " first, or delete the session with force, which leaves them"
        )
        raise ControlRefused(session, "delete", fields["status"], hint)


def _folders_of(
    engine: Context, sessions: Sequence[str], damaged: list[str] | None = None
) -> Iterator[KnownFolder]:
    """Yields the folders of sessions, as `Store.fields_of` reads them."""
    for session, (ref, fields) in engine.store.fields_of(sessions, damaged).items():
        try:
            yield from list(_folders_of_session(engine, ref, fields))
        except KeyDamaged:
            if damaged is None:
                raise
            damaged.append(session)


def _folders_of_session(
    engine: Context, ref: SessionRef, fields: Mapping[str, str]
) -> Iterator[KnownFolder]:
    if fields.get("kind") == "plan":
        yield from _folders_of_plan(engine, ref, fields)
    elif fields.get("own_folder"):
        own = json.loads(fields["own_folder"])
        if "kind" in own:  # a worker has made it
            view = _own_view(ref.id, fields, own)
            yield KnownFolder(view, str(own["origin"]), str(own.get("target") or ""))


def _folders_of_plan(
    engine: Context, ref: SessionRef, fields: Mapping[str, str]
) -> Iterator[KnownFolder]:
    plan, survey = parse_plan(engine.store.plan(ref)), read_survey(engine.store, ref)
    if plan is None or survey is None:
        return
    for view in _plan_views(engine.store, ref, plan, fields.get("place", "")):
        yield KnownFolder(view, fields.get("cwd", ""), survey.target)


def _is_made(view: WorktreeView) -> bool:
    """Whether a folder should be there.

    The run of a task has its folder on record before its worker makes it, and then records the
    commit from which the branch starts, an empty one for a copy.
    """
    is_due = bool(view.plan) and view.base is None
    return not view.cleaned and not is_due


def _plan_views(
    store: Store, ref: SessionRef, plan: PlanRecord, place: str
) -> Iterator[WorktreeView]:
    """Yields a view of each folder that the tasks of a plan have, in the order of the plan."""
    runs = [(task, run) for task in plan.tasks for run in task.runs]
    statuses = store.fields_of([run.session for _, run in runs])
    for task, run in runs:
        if run.folder is None:
            continue
        yield WorktreeView(
            plan=ref.id,
            task=task.id,
            run=run.run,
            session=run.session,
            status=statuses[run.session][1].get("status") if run.session in statuses else None,
            folder=run.folder,
            branch=run.branch,
            base=run.base,
            place=place,
            cleaned=run.cleaned,
            kept=run.kept or "",
        )


def _own_view(session: str, fields: Mapping[str, str], own: Mapping[str, object]) -> WorktreeView:
    """Builds the API's view of the folder that a session has to itself."""
    return WorktreeView.model_validate(
        {
            "task": "", "run": 1, "session": session, "status": fields["status"],
            "folder": own["folder"], "branch": own.get("branch"), "base": own.get("base"),
            "place": fields.get("place", ""), "cleaned": own.get("cleaned", False),
            "kept": own.get("kept", ""),
        }
    )  # fmt: skip


def record_own(engine: Context, fields: Mapping[str, JsonValue]) -> None:
    """Store facts about a session's own folder in its record; ignores a deleted session."""
    ref = engine.store.ref(str(fields["session"]))
    if ref is None:
        return
    facts = {name: value for name, value in fields.items() if name != "session"}
    engine.transitions.run("own_folder", ref, {"facts": facts})


def record_work(engine: Context, ref: SessionRef, fields: Mapping[str, JsonValue]) -> None:
    """Record the state of a folder that is judged (`work`), where no doer has made it."""
    work = f"{time.time_ns() // 1_000_000} {fields['work']}"
    engine.transitions.run("own_folder", ref, {"work": work})


def reserve(
    engine: Context, session: str, statuses: Collection[SessionStatus], hold_s: float
) -> str:
    """Keep a session from being resumed for a time; returns '' or the status that forbids it.

    It is blocked only in one of these `statuses`. A deleted session needs no reservation. It
    lasts until `release`, or for `hold_s` seconds if that never comes.
    """
    ref = engine.store.ref(session)
    if ref is None:
        return ""
    allowed: list[JsonValue] = [status.value for status in statuses]
    arguments: dict[str, JsonValue] = {"from": allowed, "hold_ms": int(hold_s * 1000)}
    try:
        answer = engine.transitions.run("own_folder", ref, arguments)
    except SessionUnknown:
        return ""
    return str(answer.status) if answer.word == "refused" else ""


def release(engine: Context, session: str) -> None:
    """End the reservation of a session's folder, so that the session can be resumed."""
    ref = engine.store.ref(session)
    if ref is not None:
        with suppress(SessionUnknown):
            engine.transitions.run("own_folder", ref, {"release": True})


def find_own(engine: Context, session: str) -> WorktreeView | None:
    """Return a view of the folder made for a session, or None. Raises SessionUnknown."""
    fields = engine.store.fields(engine.registry.ref(session))
    known = json.loads(fields.get("own_folder") or "null")
    if known is None:
        return None
    return _own_view(session, fields, known)


def apply(
    engine: SessionContext,
    session: str,
    *,
    force: bool,
    mode: Mode = "commands",
    environment: SessionEnvironment = SessionEnvironment(),  # noqa: B008 - immutable
    free: bool = False,
) -> ApplyingView:
    """Start a session that applies work in an ended session's folder to the original one.

    With `force` also work that was not accepted. `mode` says which of the checkers that
    accepted it judge the merged work, with this environment; the caller may be `free` to bring
    commands. Raises ControlRefused.
    """
    ref = engine.registry.ref(session)
    fields = engine.store.fields(ref)
    status = fields["status"]
    found = find_own(engine, session)
    if found is None:
        raise _refusal(session, status, "it worked in the folder itself, not in one of its own")
    if found.cleaned:
        raise _refusal(session, status, "its folder was removed")
    if status not in ENDED:
        raise _refusal(session, status, "wait for its end")
    if status not in ACCEPTED and not force:
        raise _refusal(session, status, "its work was not accepted; --force applies it")
    own, is_copy = _own_of(engine, ref), json.loads(fields["own_folder"]).get("kind") == "copy"
    program = apply_program(
        session, own, found.folder, is_copy=is_copy, recheck=_recheck(engine, ref, mode)
    )
    merge = PurePosixPath(found.folder).with_name(MERGE_FOLDER) / own.prefix
    definitions = engine.submit.definitions.again(ref, fields, free=free)
    request = Request(environment=environment, defined=definitions, free=definitions.free)
    about = _about(engine, ref, program, own.origin, "Apply")
    about = about._replace(cwd=own.origin if is_copy else str(merge), listed_in=own.origin)
    return ApplyingView(session=engine.submit.program_of(request, program, about).session)


def _recheck(engine: Context, ref: SessionRef, mode: Mode) -> Recheck:
    """How the merged work of a session is checked: by its last iteration."""
    line = engine.store.lines(ref, "ledger", -1, -1)
    entry = LedgerEntry.model_validate_json(line[0]) if line else None
    work = engine.store.values(ref, "session", ["work"]).get("work", "").partition(" ")[2]
    program = engine.registry.program(engine.registry.facts(ref).program)
    return recheck_of(program, entry, work, mode)


def clean_own(engine: SessionContext, found: WorktreeView, *, force: bool) -> CleaningView:
    """Start a session that removes an ended session's folder, or return why it is kept."""
    why = _why_kept(found, force=force)
    if why or found.cleaned:
        failed = [] if found.cleaned else [found.model_copy(update={"kept": why})]
        return CleaningView(failed=failed)
    ref = engine.registry.ref(found.session)
    # Its lock is on a folder of its own: the session may hold that of the work.
    folder = str(PurePosixPath(found.folder).parent / _CLEANING)
    program = discard_program(ref.id, _own_of(engine, ref), found.folder, force=force)
    about = _about(engine, ref, program, folder, "Remove the folder")
    started = engine.submit.program(program, about).session
    return CleaningView(session=started, cleaning=[found])


def _own_of(engine: Context, ref: SessionRef) -> OwnFolder:
    program = engine.registry.program(engine.registry.facts(ref).program)
    own = own_folder_of(program, root="")
    assert own is not None
    return own


def _about(engine: Context, ref: SessionRef, program: Program, folder: str, what: str) -> About:
    return About(
        kind="workflow",
        name=program.name,
        label=f"{what} of session {ref.id}",
        cwd=folder,
        folder=folder,
        place=engine.registry.facts(ref).place,
    )


def _refusal(session: str, status: str, hint: str) -> ControlRefused:
    return ControlRefused(session, "apply", status, hint)


def _why_kept(one: WorktreeView, merging: Collection[str] = (), *, force: bool) -> str:
    """Why a folder must stay; empty if it may be removed."""
    if one.task in merging:
        return "its work is being merged"
    if one.status is None or one.status in (*FINAL, SessionStatus.FAILED):
        return ""
    if one.status == SessionStatus.STOPPED:
        return "" if force else "its session is stopped and may be resumed; --force removes it"
    return f"its session is {one.status}"


def record_of_task(engine: Context, fields: Mapping[str, JsonValue]) -> None:
    """Store what happened to the folder of a task's run. Raises StoreAway.

    `fields` name the plan, the task and the run; a deleted plan is no error.
    """
    ref = engine.store.ref(str(fields["plan"]))
    if ref is None:
        return
    arguments = {name: value for name, value in fields.items() if name != "plan"}
    engine.transitions.apply("plan_workspace", ref, arguments)


def list_of_plan(engine: Context, session: str) -> list[WorktreeView]:
    """List the folders of a plan's tasks in its order. Raises SessionUnknown, NoPlan."""
    ref = engine.registry.ref(session)
    facts = engine.registry.facts(ref)
    if facts.kind != "plan":
        raise NoPlan(session, f"it is a {facts.kind}; plans are of kind plan")
    plan = parse_plan(engine.store.plan(ref))
    return list(_plan_views(engine.store, ref, plan, facts.place)) if plan else []


def clean_of_plan(
    engine: SessionContext, session: str, tasks: Sequence[str], *, force: bool
) -> CleaningView:
    """Start a session that removes the folders of ended tasks: of all, or of some.

    Raises NoPlan, and PlanRefused for a task without a folder.
    """
    found = [one for one in list_of_plan(engine, session) if not one.cleaned]
    for task in tasks:
        if not any(one.task == task for one in found):
            raise PlanRefused(session, task, "it has no folder of its own")
    chosen = [one for one in found if not tasks or one.task in tasks]
    plan = parse_plan(engine.store.plan(engine.registry.ref(session)))
    merging = {one.id for one in plan.tasks if one.state == "merging"} if plan else set()
    checked = [(one, _why_kept(one, merging, force=force)) for one in chosen]
    failed = [one.model_copy(update={"kept": why}) for one, why in checked if why]
    cleaning = [one for one, why in checked if not why]
    started = _start_cleaning(engine, engine.registry.ref(session), cleaning, force=force)
    return CleaningView(session=started, cleaning=cleaning, failed=failed)


def _start_cleaning(
    engine: SessionContext, ref: SessionRef, cleaning: list[WorktreeView], *, force: bool
) -> str | None:
    if not cleaning:
        return None
    facts = engine.registry.facts(ref)
    runs = {(one.task, one.run): one.folder for one in cleaning}
    kind: Kind = "worktree" if cleaning[0].branch else "copy"
    program = clean_program(ref.id, facts.cwd or "", kind, runs, force=force)
    # Its lock is on a folder of its own: neither the plan nor a task at work delays it.
    folder = str(PurePosixPath(cleaning[0].folder).parent / _CLEANING)
    about = About(
        kind="workflow",
        name=program.name,
        label=f"Clean the worktrees of plan {ref.id}",
        cwd=folder,
        folder=folder,
        listed_in=facts.cwd or "",
        place=facts.place,
    )
    return engine.submit.program(program, about).session
