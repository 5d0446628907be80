"""The folders of a plan's tasks: recorded by workers, listed, and removed by a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import PurePosixPath

from pydantic import JsonValue

from app.compiler.workspaces import clean_program
from app.domain.ids import SessionRef
from app.domain.plans import parse_plan
from app.domain.states import FINAL, SessionStatus
from app.domain.workspaces import Kind
from app.operations.folders.known import plan_views
from app.operations.registry import Registry
from app.operations.submit import About, Submissions
from app.operations.transitions import Transitions
from app.store.store import Store
from leadhand.errors import NoPlan, PlanRefused
from leadhand.models.views.plan import CleaningView, WorktreeView

#: The name, beside the tasks' folders, whose lock a session holds while it removes some.
_CLEANING = ".cleaning"


class Worktrees:
    """Lists and removes the folders of a plan's tasks, and records what workers made of them."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        transitions: Transitions,
        submit: Submissions,
    ) -> None:
        self._store = store
        self._registry = registry
        self._transitions = transitions
        self._submit = submit

    def record(self, fields: Mapping[str, JsonValue]) -> None:
        """Store what happened to the folder of a task's run. Raises StoreAway.

        `fields` name the plan, the task and the run; a deleted plan is no error.
        """
        ref = self._store.ref(str(fields["plan"]))
        if ref is None:
            return
        arguments = {name: value for name, value in fields.items() if name != "plan"}
        answer = self._transitions.run("plan_workspace", ref, arguments)
        self._transitions.dispatch(ref, answer)

    def list_all(self, session: str) -> list[WorktreeView]:
        """List the folders of a plan's tasks in its order. Raises SessionUnknown, NoPlan."""
        ref = self._registry.ref(session)
        facts = self._registry.facts(ref)
        if facts.kind != "plan":
            raise NoPlan(session, f"it is a {facts.kind}; plans are of kind plan")
        plan = parse_plan(self._store.plan(ref))
        return list(plan_views(self._store, ref, plan, facts.place)) if plan else []

    def clean(self, session: str, tasks: Sequence[str], *, force: bool) -> CleaningView:
        """Start a session that removes the folders of ended tasks: of all, or of some.

        Raises NoPlan, and PlanRefused for a task without a folder.
        """
        found = [one for one in self.list_all(session) if not one.cleaned]
        for task in tasks:
            if not any(one.task == task for one in found):
                raise PlanRefused(session, task, "it has no folder of its own")
        chosen = [one for one in found if not tasks or one.task in tasks]
        plan = parse_plan(self._store.plan(self._registry.ref(session)))
        merging = {one.id for one in plan.tasks if one.state == "merging"} if plan else set()
        checked = [(one, _why_not(one, merging, force=force)) for one in chosen]
        failed = [one.model_copy(update={"kept": why}) for one, why in checked if why]
        cleaning = [one for one, why in checked if not why]
        started = self._start(self._registry.ref(session), cleaning, force=force)
        return CleaningView(session=started, cleaning=cleaning, failed=failed)

    def _start(self, ref: SessionRef, cleaning: list[WorktreeView], *, force: bool) -> str | None:
        if not cleaning:
            return None
        facts = self._registry.facts(ref)
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
        return self._submit.program(program, about).session


def _why_not(one: WorktreeView, merging: Set[str], *, force: bool) -> str:
    """Why a folder must stay; empty if it may be removed."""
    if one.task in merging:
        return "its work is being merged"
    if one.status is None or one.status in (*FINAL, SessionStatus.FAILED):
        return ""
    if one.status == SessionStatus.STOPPED:
        return "" if force else "its session is stopped and may be resumed; --force removes it"
    return f"its session is {one.status}"
