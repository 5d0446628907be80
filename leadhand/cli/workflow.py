"""`leadhand workflow`: runs a Python file that builds and runs workflows."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from pydantic import Field, JsonValue

from leadhand.cli.connect import tell, tell_warnings
from leadhand.cli.options import (
    SessionSettings,
    budget_options,
    child_options,
    loop_options,
    pop_budget,
    worktree_field,
    worktree_option,
)
from leadhand.cli.questions import ASKED, answering_questions
from leadhand.cli.render.live import screen_beside_json, screen_for
from leadhand.cli.render.result_text import workflow_summary
from leadhand.cli.running import leaving_running, print_summary, warn_about_cost_limit
from leadhand.client.client import Client
from leadhand.contract.submissions import ParentEnd
from leadhand.errors import LeadhandError
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
from leadhand.run import CONDUCTOR, Audience, Interrupted, wait_for_session
from leadhand.settings import environment


@click.command("workflow")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--doer", metavar="CMD", help="Use this command as the doer of all phases.")
@click.option("--agent", metavar="NAME", help="Use this agent as the doer of all phases.")
@click.option("--cwd", metavar="DIR", help="The folder to work in (that of the workflow in FILE).")
@worktree_option
@click.option("--label", metavar="TEXT", help="The session's label.")
@loop_options
@budget_options
@child_options
@click.option(
    "--detach",
    is_flag=True,
    help="Print the id of the session of the first workflow, and exit; FILE runs up to there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def workflow_command(
    *,
    file: Path,
    detach: bool,
    as_json: bool,
    key: str | None,
    on_parent_end: ParentEnd | None,
    **given: Any,
) -> int:
    """Run FILE and show the workflows that it runs.

    FILE runs as with `python FILE`: it builds a Workflow and calls its run() itself. Its own folder
    is searched first for imports. The options replace the settings in FILE. With a key,
    the second workflow of FILE has the key NAME-2, and so on.

    Inside a doer or checker, the sessions are children of the running one.
    """
    from leadhand.cli.connect import open_client

    overrides = _overrides(**given)
    compile_first(file)
    with open_client(needs_worker=True) as client:
        conductor = Conductor(
            client,
            overrides=overrides,
            detach=detach,
            as_json=as_json,
            key=key,
            on_parent_end=on_parent_end,
        )
        code = run_file(file, conductor=conductor, quiet=as_json or detach)
    return _end(conductor, file, code)


def _overrides(
    *,
    doer: str | None,
    agent: str | None,
    cwd: str | None,
    label: str | None,
    worktree: bool,
    no_prepare: bool,
    **others: Any,
) -> Overrides:
    """The validated options. Raises ClickException."""
    from pydantic import ValidationError

    from leadhand.callables import as_doer
    from leadhand.models.validation_messages import first_error
    from leadhand.run import working_folder

    budget = pop_budget(others)
    settings = SessionSettings(cwd)
    quarantine = settings.read_quarantine()
    held: dict[str, object] = {"quarantine": quarantine} if quarantine else {}
    held |= settings.read_leave_out()
    held["protected"] = [*settings.read_protected(), *(others.pop("protected", None) or ())]
    try:
        return Overrides.model_validate(
            {
                "doer": as_doer(doer, agent),
                "cwd": None if cwd is None else working_folder(cwd),
                "label": label,
                "worktree": worktree_field(cwd, worktree=worktree, no_prepare=no_prepare),
                "budget": budget,
                "of_phases": {k: v for k, v in others.items() if v is not None} | held,
            }
        )
    except ValidationError as error:
        raise click.ClickException(first_error(error)) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def compile_first(file: Path) -> None:
    """Raises ClickException for a file that is not valid Python, before services are started."""
    try:
        compile(file.read_bytes(), str(file), "exec")
    except (SyntaxError, ValueError) as error:
        raise file_error(file, error) from None


def _end(conductor: Conductor, file: Path, code: int) -> int:
    from leadhand.cli.exit_codes import worst
    from leadhand.cli.render.tables import echo_json

    if conductor.detached is not None:
        if conductor.as_json:
            echo_json(conductor.detached)
        else:
            click.echo(conductor.detached.id)
        return code
    results = conductor.results
    if not results and not code:
        raise click.ClickException(f"{file} ran no workflow; call run() on one in it")
    if conductor.as_json:
        workflows = [result.model_dump(mode="json") for result in results]
        echo_json(workflows[0] if len(workflows) == 1 else {"workflows": workflows})
    sys.stdout.flush()
    return worst(result.status for result in results) or code


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


def run_file(
    file: Path, *, conductor: Callable[[WorkflowDocument], ResultView], quiet: bool
) -> int:
    """Run a workflow file as `python FILE` would, and return its exit code.

    With `quiet` the file's output goes to standard error. Raises ClickException with the file's
    line if it fails.
    """
    token = CONDUCTOR.set(conductor)
    try:
        with _as_main(file), redirect_stdout(sys.stderr if quiet else sys.stdout):
            runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        return _code(end)
    except LeadhandError:
        raise  # An error of the API or of Leadhand, not of the file.
    except Exception as error:  # A user's file may raise whatever it likes.
        raise file_error(file, error) from error
    finally:
        CONDUCTOR.reset(token)
    return 0


def file_error(file: Path, error: BaseException) -> click.ClickException:
    """Returns a ClickException that describes an error in a workflow file, with its line."""
    if environment().get("LEADHAND_DEBUG") == "1":
        traceback.print_exception(error)
    kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
    if isinstance(error, SyntaxError):
        return click.ClickException(f"{error.filename}:{error.lineno}: {kind}{error.msg}")
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if _is(f.filename, file)]
    where = f"{file}:{lines[-1]}" if lines else str(file)
    return click.ClickException(f"{where}: {kind}{error}".rstrip(": "))


@contextmanager
def _as_main(file: Path) -> Iterator[None]:
    """Set sys.path and sys.argv as `python FILE` does."""
    path, arguments = list(sys.path), list(sys.argv)
    sys.path.insert(0, str(file.resolve().parent))
    sys.argv[:] = [str(file)]
    try:
        yield
    finally:
        sys.path[:] = path
        sys.argv[:] = arguments


def _code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    raise click.ClickException(str(end.code)) from None


def _is(name: str, file: Path) -> bool:
    return Path(name).resolve() == file.resolve()
