"""The folders that sessions have to themselves: recorded, listed, applied and removed."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import PurePosixPath

from pydantic import JsonValue

from app.compiler.applying import Mode, Recheck, apply_program, recheck_of
from app.compiler.workspaces import discard_program, own_folder_of
from app.domain.environment.session import SessionEnvironment
from app.domain.ids import SessionRef
from app.domain.merges import MERGE_FOLDER
from app.domain.program import Program
from app.domain.states import ACCEPTED, ENDED, FINAL, SessionStatus
from app.domain.workspaces import OwnFolder
from app.operations.folders.known import own_view
from app.operations.registry import Registry
from app.operations.submission.environments import Environments
from app.operations.submit import About, Asker, Submissions
from app.operations.transitions import Transitions
from app.settings import Settings
from app.store.store import Store
from leadhand.errors import ControlRefused, SessionUnknown
from leadhand.models.views.folder import ApplyingView
from leadhand.models.views.plan import CleaningView, WorktreeView
from leadhand.models.views.result import LedgerEntry

#: The name, beside a session's folder, whose lock the session holds that removes it.
_CLEANING = ".cleaning"


class OwnFolders:
    """Lists, applies and removes the folders of sessions, and records what workers made of them."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        registry: Registry,
        transitions: Transitions,
        submit: Submissions,
    ) -> None:
        self._store = store
        self._environments = Environments(store, settings, registry)
        self._registry = registry
        self._transitions = transitions
        self._submit = submit

    def record(self, fields: Mapping[str, JsonValue]) -> None:
        """Store facts about a session's own folder in its record; ignores a deleted session."""
        ref = self._store.ref(str(fields["session"]))
        if ref is None:
            return
        facts = {name: value for name, value in fields.items() if name != "session"}
        self._transitions.run("own_folder", ref, {"facts": facts})

    def record_work(self, ref: SessionRef, fields: Mapping[str, JsonValue]) -> None:
        """Record the state of a folder that is judged (`work`), where no doer has made it."""
        work = f"{time.time_ns() // 1_000_000} {fields['work']}"
        self._transitions.run("own_folder", ref, {"work": work})

    def reserve(self, session: str, statuses: Collection[SessionStatus], hold_s: float) -> str:
        """Keep a session from being resumed for a time; returns '' or the status that forbids it.

        It is blocked only in one of these `statuses`. A deleted session needs no reservation. It
        lasts until `release`, or for `hold_s` seconds if that never comes.
        """
        ref = self._store.ref(session)
        if ref is None:
            return ""
        allowed: list[JsonValue] = [status.value for status in statuses]
        arguments: dict[str, JsonValue] = {"from": allowed, "hold_ms": int(hold_s * 1000)}
        try:
            answer = self._transitions.run("own_folder", ref, arguments)
        except SessionUnknown:
            return ""
        return str(answer.status) if answer.word == "refused" else ""

    def release(self, session: str) -> None:
        """End the reservation of a session's folder, so that the session can be resumed."""
        ref = self._store.ref(session)
        if ref is not None:
            with suppress(SessionUnknown):
                self._transitions.run("own_folder", ref, {"release": True})

    def find(self, session: str) -> WorktreeView | None:
        """Return a view of the folder made for a session, or None. Raises SessionUnknown."""
        fields = self._store.fields(self._registry.ref(session))
        known = json.loads(fields.get("own_folder") or "null")
        if known is None:
            return None
        return own_view(session, fields, known)

    def apply(
        self,
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
        ref = self._registry.ref(session)
        fields = self._store.fields(ref)
        status = fields["status"]
        found = self.find(session)
        if found is None:
            raise _refusal(session, status, "it worked in the folder itself, not in one of its own")
        if found.cleaned:
            raise _refusal(session, status, "its folder was removed")
        if status not in ENDED:
            raise _refusal(session, status, "wait for its end")
        if status not in ACCEPTED and not force:
            raise _refusal(session, status, "its work was not accepted; --force applies it")
        own, is_copy = self._own(ref), json.loads(fields["own_folder"]).get("kind") == "copy"
        program = apply_program(
            session, own, found.folder, is_copy=is_copy, recheck=self._recheck(ref, mode)
        )
        merge = PurePosixPath(found.folder).with_name(MERGE_FOLDER) / own.prefix
        definitions = self._submit.definitions.again(ref, fields, free=free)
        effective = self._environments.effective(environment)
        asker = Asker(environment=effective, found=definitions, free=definitions.free)
        about = self._about(ref, program, own.origin, "Apply")
        about = about._replace(cwd=own.origin if is_copy else str(merge), listed_in=own.origin)
        return ApplyingView(session=self._submit.program_of(asker, program, about).session)

    def _recheck(self, ref: SessionRef, mode: Mode) -> Recheck:
        """How the merged work of a session is checked: by its last iteration."""
        line = self._store.lines(ref, "ledger", -1, -1)
        entry = LedgerEntry.model_validate_json(line[0]) if line else None
        work = self._store.values(ref, "session", ["work"]).get("work", "").partition(" ")[2]
        program = self._registry.program(self._registry.facts(ref).program)
        return recheck_of(program, entry, work, mode)

    def clean(self, found: WorktreeView, *, force: bool) -> CleaningView:
        """Start a session that removes an ended session's folder, or return why it is kept."""
        why = _why_not_removed(found, force=force)
        if why or found.cleaned:
            failed = [] if found.cleaned else [found.model_copy(update={"kept": why})]
            return CleaningView(failed=failed)
        ref = self._registry.ref(found.session)
        # Its lock is on a folder of its own: the session may hold that of the work.
        folder = str(PurePosixPath(found.folder).parent / _CLEANING)
        program = discard_program(ref.id, self._own(ref), found.folder, force=force)
        about = self._about(ref, program, folder, "Remove the folder")
        started = self._submit.program(program, about).session
        return CleaningView(session=started, cleaning=[found])

    def _own(self, ref: SessionRef) -> OwnFolder:
        program = self._registry.program(self._registry.facts(ref).program)
        own = own_folder_of(program, root="")
        assert own is not None
        return own

    def _about(self, ref: SessionRef, program: Program, folder: str, what: str) -> About:
        return About(
            kind="workflow",
            name=program.name,
            label=f"{what} of session {ref.id}",
            cwd=folder,
            folder=folder,
            place=self._registry.facts(ref).place,
        )


def _refusal(session: str, status: str, hint: str) -> ControlRefused:
    return ControlRefused(session, "apply", status, hint)


def _why_not_removed(found: WorktreeView, *, force: bool) -> str:
    """Why a folder must stay; empty if it may be removed."""
    if found.status is None or found.status in (*FINAL, SessionStatus.FAILED):
        return ""
    if found.status == SessionStatus.STOPPED:
        return "" if force else "its session is stopped and may be resumed; --force removes it"
    return f"its session is {found.status}"
