"""Chooses the folder of a fork: a git worktree at the recorded state, or the session's as it is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from app.compiler.workspaces import in_own_folder, opening_inputs, own_folder_of
from app.domain.addresses import path_of
from app.domain.ids import SessionRef
from app.domain.program import Action, Program
from app.domain.routing import Join
from app.domain.workspaces import OwnFolder
from app.errors import InvalidDocument
from app.history.snapshot import Snapshot
from app.operations.folders.documents import own_folder_from, worktrees_of
from app.queries.presenters import diff_view
from app.resume.forking import KeptOutcomes, steps_left
from app.resume.recorded_folder import FolderWork, find_recorded_state, writes_folder
from app.resume.rewind import Rewind
from app.settings import Settings
from app.store.store import Store
from leadhand.errors import ControlRefused


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
