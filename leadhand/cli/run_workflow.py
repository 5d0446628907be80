"""Runs the workflows of a workflow file for the command line: with progress and a summary."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module

from pydantic import Field, JsonValue

from leadhand.cli.connect import tell, tell_warnings
from leadhand.cli.cost_warning import warn_about_cost_limit
from leadhand.cli.leave_running import leaving_running
from leadhand.cli.questions import ASKED, answering_questions
from leadhand.cli.render.live import screen_beside_json, screen_for
from leadhand.cli.render.result_text import workflow_summary
from leadhand.cli.run_session import print_summary
from leadhand.client.client import Client
from leadhand.contract.submissions import ParentEnd
from leadhand.models.documents import (
    Budget,
    Document,
    Doer,
    Name,
    WorkflowDocument,
    WorktreeOptions,
)
from leadhand.models.session_environment import REVEALED
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import SessionView
from leadhand.run import Audience, Interrupted, wait_for_session

# Imported here and not when a screen is drawn: by then the workflow file's folder is first on
# sys.path, and a module of its own with such a name would be imported instead.
for _module in ("rich.console", "rich.live", "rich.text"):
    import_module(_module)


class Overrides(Document):
    """The options of the command that replace settings of the file's workflows."""

    doer: Doer | None = None
    cwd: str | None = None
    label: Name | None = None
    worktree: bool | WorktreeOptions = False
    budget: Budget = Budget()
    #: Fields of all phases, such as `timeout_s`.
    of_phases: dict[str, JsonValue] = Field(default_factory=dict)


class Conductor:
    """Runs each workflow to its end and keeps its result, or starts the first one only."""

    def __init__(
        self,
        client: Client,
        *,
        overrides: Overrides,
        detach: bool,
        as_json: bool,
        key: str | None = None,
        on_parent_end: ParentEnd | None = None,
    ) -> None:
        self.results: list[ResultView] = []
        #: The session that was started and left running.
        self.detached: SessionView | None = None
        self.as_json = as_json
        self._client = client
        self._overrides = overrides
        self._detach = detach
        self._key = key
        self._on_parent_end = on_parent_end
        self._started = 0

    def __call__(self, document: WorkflowDocument) -> ResultView:
        document = overridden(document, self._overrides)
        warn_about_cost_limit(self._client, document)
        if self._detach:
            self.detached = self._submit(document)
            raise SystemExit(0)  # The file cannot continue: the workflow has no results yet.
        return self._run(document)

    def _run(self, document: WorkflowDocument) -> ResultView:
        audience = (
            screen_beside_json() if self.as_json else screen_for(sys.__stdout__ or sys.stdout)
        )
        try:
            session = self._submit(document)
            ids = [session.id]
            with (
                leaving_running(ids),
                answering_questions(self._client, ids, screen=audience, as_json=self.as_json),
            ):
                result = wait_for_session(
                    self._client, session, say=tell, audience=audience, shown=ASKED
                )
        except Interrupted as interrupted:
            self._keep(interrupted.result, audience)
            raise
        self._keep(result, audience)
        return result

    def _submit(self, document: WorkflowDocument) -> SessionView:
        """Start the next workflow of the file; each has a key of its own."""
        self._started += 1
        key = self._key
        if key is not None and self._started > 1:
            key = f"{key}-{self._started}"
        session = self._client.submit(document, key, on_parent_end=self._on_parent_end)
        tell_warnings(session)
        return session

    def _keep(self, result: ResultView, audience: Audience | None) -> None:
        self.results.append(result)
        if not self.as_json:
            print_summary(workflow_summary(result), audience)


def overridden(document: WorkflowDocument, given: Overrides) -> WorkflowDocument:
    """Returns a copy of a workflow with the command line's settings, such as another doer."""
    fields = document.model_dump(context=REVEALED)
    fields["budget"] = {**fields["budget"], **given.budget.model_dump(exclude_none=True)}
    if given.doer is not None:
        fields["doer"] = given.doer
        fields["phases"] = [{**phase, "doer": None} for phase in fields["phases"]]
    if given.cwd is not None:
        fields["cwd"] = given.cwd
    if given.worktree:
        fields["worktree"] = given.worktree
    if given.label is not None:
        fields["label"] = given.label
    return with_settings(WorkflowDocument.model_validate(fields), given.of_phases)


def _listed(value: object) -> Iterable[object]:
    return value if isinstance(value, (list, tuple)) else ()


def with_settings(document: WorkflowDocument, settings: Mapping[str, object]) -> WorkflowDocument:
    """Returns a workflow with these fields set in all phases; keeps a checker's own timeout.

    Protected files and quarantined tests are added to those of each phase.
    """
    if not settings:
        return document
    fields = document.model_dump(context=REVEALED)
    for phase in fields["phases"]:
        for checker in phase["checkers"]:
            if checker["timeout_s"] == phase["checker_timeout_s"]:
                del checker["timeout_s"]
        added = {
            name: [*phase[name], *_listed(settings.get(name))]
            for name in ("protected", "quarantine")
        }
        phase.update({**settings, **added})
    return WorkflowDocument.model_validate(fields)
