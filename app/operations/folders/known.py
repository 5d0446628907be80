"""Lists the folders that the store has on record: those of plans' tasks and of single sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from app.domain.ids import SessionRef
from app.domain.plans import PlanRecord, parse_plan
from app.domain.states import ENDED
from app.operations.planning.survey import read_survey
from app.operations.registry import Registry
from app.queries.cursors import encode_cursor
from app.queries.listing import END, decode_place
from app.store.store import Store
from leadhand.errors import ControlRefused, KeyDamaged
from leadhand.models.text import list_first
from leadhand.models.views.plan import WorktreeView
from leadhand.models.views.view import Page

#: Sessions that one page examines.
EXAMINED = 200
#: Folders that an error names.
_SHOWN = 3


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


class FolderIndex:
    """Reads which folders the sessions of the store have."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def page(self, cursor: str | None) -> Page[WorktreeView]:
        """List the folders made for the next batch of sessions and their tasks, newest first."""
        before = END if cursor is None else decode_place(cursor)
        places = self._store.session_index().page(None, before=before, limit=EXAMINED)
        damaged: list[str] = []
        found = [one.view for one in self._of([place.session for place in places], damaged)]
        more = len(places) == EXAMINED
        following = encode_cursor(list(places[-1])) if more else None
        return Page(
            items=found, next=following, partial=more, examined=len(places), damaged=damaged
        )

    def at_place(self, place: str, sessions: Sequence[str]) -> StoreFolders:
        """Return all folders on record at a worker host, and the statuses of `sessions`."""
        found: list[KnownFolder] = []
        batch: list[str] = []
        for one in self._store.session_index().walk(None, END):
            batch.append(one.session)
            if len(batch) == EXAMINED:
                found += self._of(batch, [])
                batch = []
        found += self._of(batch, [])
        here = [one for one in found if one.view.place == place and _is_made(one.view)]
        return self.of_sessions(sessions)._replace(folders=tuple(here))

    def of_sessions(self, sessions: Sequence[str]) -> StoreFolders:
        """Return the statuses of these sessions and the store's id, without listing folders."""
        identity = self._store.identity().read()
        damaged: list[str] = []
        found = self._store.fields_of(list(sessions), damaged)
        statuses = {session: fields["status"] for session, (_, fields) in found.items()}
        statuses |= dict.fromkeys(damaged, "damaged")  # it was not deleted
        return StoreFolders(identity.id if identity is not None else "", statuses, ())

    def check_deletion(self, session: str) -> None:
        """Raise ControlRefused if an ended session's folder may hold work not yet merged.

        Nothing could apply the work in a folder without its session. Folders whose work is applied
        or merged do not count: a worker of their place removes them later.
        """
        ref = self._registry.ref(session)
        fields = self._store.fields(ref)
        if fields["status"] not in ENDED:
            return
        own = json.loads(fields.get("own_folder") or "{}")
        merged: set[str] = set()
        if fields.get("kind") == "plan":
            plan = parse_plan(self._store.plan(ref))
            merged = {task.id for task in plan.tasks if task.merged} if plan else set()
        left = [
            one.view.folder
            for one in self._of([session])
            if not (one.view.cleaned or own.get("applied") or one.view.task in merged)
        ]
        if left:
            which = "its folder" if len(left) == 1 else "its folders"
            hint = (
                f"{which} {list_first(left, _SHOWN)} may have work; apply it or clean them"
                " first, or delete the session with force, which leaves them"
            )
            raise ControlRefused(session, "delete", fields["status"], hint)

    def _of(
        self, sessions: Sequence[str], damaged: list[str] | None = None
    ) -> Iterator[KnownFolder]:
        """Yields the folders of sessions, as `Store.fields_of` reads them."""
        for session, (ref, fields) in self._store.fields_of(sessions, damaged).items():
            try:
                yield from list(self._of_session(ref, fields))
            except KeyDamaged:
                if damaged is None:
                    raise
                damaged.append(session)

    def _of_session(self, ref: SessionRef, fields: Mapping[str, str]) -> Iterator[KnownFolder]:
        if fields.get("kind") == "plan":
            yield from self._of_plan(ref, fields)
        elif fields.get("own_folder"):
            own = json.loads(fields["own_folder"])
            if "kind" in own:  # a worker has made it
                view = own_view(ref.id, fields, own)
                yield KnownFolder(view, str(own["origin"]), str(own.get("target") or ""))

    def _of_plan(self, ref: SessionRef, fields: Mapping[str, str]) -> Iterator[KnownFolder]:
        plan, survey = parse_plan(self._store.plan(ref)), read_survey(self._store, ref)
        if plan is None or survey is None:
            return
        for view in plan_views(self._store, ref, plan, fields.get("place", "")):
            yield KnownFolder(view, fields.get("cwd", ""), survey.target)


def _is_made(view: WorktreeView) -> bool:
    """Whether a folder should be there.

    The run of a task has its folder on record before its worker makes it, and then records the
    commit from which the branch starts, an empty one for a copy.
    """
    is_due = bool(view.plan) and view.base is None
    return not view.cleaned and not is_due


def plan_views(
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


def own_view(session: str, fields: Mapping[str, str], own: Mapping[str, object]) -> WorktreeView:
    """Builds the API's view of the folder that a session has to itself."""
    return WorktreeView.model_validate(
        {
            "task": "", "run": 1, "session": session, "status": fields["status"],
            "folder": own["folder"], "branch": own.get("branch"), "base": own.get("base"),
            "place": fields.get("place", ""), "cleaned": own.get("cleaned", False),
            "kept": own.get("kept", ""),
        }
    )  # fmt: skip
