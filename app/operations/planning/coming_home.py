"""Brings the work of a plan home: receipts of merges, the user's branch, and diffs."""

from __future__ import annotations

from pathlib import PurePosixPath

from app.compiler.merges import apply_program, diff_program
from app.domain.ids import SessionRef
from app.domain.plans import PlanRecord, parse_plan
from app.domain.program import Program
from app.domain.states import ENDED
from app.domain.workspaces import Survey
from app.operations.planning.survey import read_survey
from app.operations.registry import Facts, Registry
from app.operations.submit import About, Submissions
from app.queries.plans import merge_view
from app.store.store import Store
from leadhand.errors import NoPlan, PlanRefused
from leadhand.models.views.plan import HomeView, MergeView

_HEADS = "refs/heads/"


class ComingHome:
    """Lists merges, and starts sessions that apply or compare. Raises SessionUnknown, NoPlan."""

    def __init__(self, store: Store, registry: Registry, submit: Submissions) -> None:
        self._store = store
        self._registry = registry
        self._submit = submit

    def merges(self, session: str) -> list[MergeView]:
        """Return a view of each merge of a plan's tasks, in the order of the plan."""
        _, _, plan = self._read(session)
        return [merge_view(one) for one in plan.tasks if one.merge is not None] if plan else []

    def apply(self, session: str, branch: str = "") -> HomeView:
        """Start a session that fast-forwards a user's branch to the plan's merged work.

        Raises PlanRefused for a plan that has no branch.
        """
        ref, facts, _ = self._read(session)
        survey = self._survey(ref)
        source = survey.target.removeprefix(_HEADS)
        program = apply_program(session, facts.cwd or "", source, branch)
        # Once the plan has ended nothing holds its folder: wait for others that work there.
        is_free = facts.cwd and self._store.fields(ref).get("status") in ENDED
        folder = facts.cwd if is_free else None
        return self._start(ref, program, survey, source, folder, f"Apply plan {session}")

    def diff(self, session: str, task: str | None, *, unmerged: bool) -> HomeView:
        """Start a session that computes the diff of a task, the plan, or its unmerged work.

        Each is compared with the commit that it has in common with the branch that is to get it.
        """
        ref, facts, plan = self._read(session)
        survey = self._survey(ref)
        tasks = plan.tasks if plan is not None else ()
        if task is not None and not any(one.id == task for one in tasks):
            raise PlanRefused(session, task, "the plan has no such task")
        chosen = [one for one in tasks if one.branch and task in (None, one.id)]
        source = survey.target.removeprefix(_HEADS)
        pairs = [(survey.home, _HEADS + source)]
        if unmerged or task is not None:
            pairs = [
                # The target has merged work itself: that is compared with where it started.
                (one.base if one.merged and one.base else survey.target, f"{_HEADS}{one.branch}")
                for one in chosen
                if not (unmerged and one.merged)
            ]
        program = diff_program(facts.cwd or "", pairs)
        return self._start(ref, program, survey, source, None, f"Diff of plan {session}")

    def _start(
        self,
        ref: SessionRef,
        program: Program,
        survey: Survey,
        source: str,
        folder: str | None,
        label: str,
    ) -> HomeView:
        facts = self._registry.facts(ref)
        own = folder or str(PurePosixPath(survey.shelf, ".home"))
        about = About(
            kind="workflow", name=program.name, label=label, cwd=own, folder=own,
            listed_in=facts.cwd or "", place=facts.place,
        )  # fmt: skip
        started = self._submit.program(program, about)
        return HomeView(session=started.session, source=source)

    def _survey(self, ref: SessionRef) -> Survey:
        survey = read_survey(self._store, ref)
        if survey is None or not survey.merge:
            raise PlanRefused(ref.id, "", "it merges nothing: it has no branch of its own")
        return survey

    def _read(self, session: str) -> tuple[SessionRef, Facts, PlanRecord | None]:
        ref = self._registry.ref(session)
        facts = self._registry.facts(ref)
        if facts.kind != "plan":
            raise NoPlan(session, f"it is a {facts.kind}; plans are of kind plan")
        return ref, facts, parse_plan(self._store.plan(ref))
