"""Runs the workflows of a workflow file in the command line's way: shown, counted, stoppable."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from leadhand.attending import Interrupted, run_to_end
from leadhand.cli.connecting import tell
from leadhand.cli.screens import screen_beside_json, screen_for
from leadhand.cli.summaries import workflow_summary
from leadhand.client import Client
from leadhand.documents import WorkflowDocument
from leadhand.views import ResultView

# Imported now, not when a screen is drawn: then the workflow file's own folder comes first on the
# path, and what it holds under these names would be found instead.
for _module in ("rich.console", "rich.live", "rich.text"):
    import_module(_module)


class Conductor:
    """Runs each workflow to its end and keeps its result."""

    def __init__(self, client: Client, *, substitute: object, as_json: bool) -> None:
        self.results: list[ResultView] = []
        self.as_json = as_json
        self._client = client
        self._substitute = substitute

    def __call__(self, document: WorkflowDocument) -> ResultView:
        audience = (
            screen_beside_json() if self.as_json else screen_for(sys.__stdout__ or sys.stdout)
        )
        document = with_doer(document, self._substitute)
        try:
            result = run_to_end(self._client, document, say=tell, audience=audience)
        except Interrupted as interrupted:
            self._keep(interrupted.result)
            raise
        self._keep(result)
        return result

    def _keep(self, result: ResultView) -> None:
        self.results.append(result)
        if not self.as_json:
            for line in workflow_summary(result):
                click.echo(line)


def with_doer(document: WorkflowDocument, doer: object) -> WorkflowDocument:
    """The workflow with one doer for all of its phases; unchanged where none is given."""
    if doer is None:
        return document
    fields = document.model_dump()
    phases = [{**phase, "doer": None} for phase in fields["phases"]]
    return WorkflowDocument.model_validate({**fields, "doer": doer, "phases": phases})
