"""`leadhand spawn`: runs one doer-checker loop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.options import (
    SessionSettings,
    budget_options,
    checker_of,
    child_options,
    loop_options,
    pop_budget,
    read_task,
    worktree_field,
    worktree_option,
)
from leadhand.cli.render.tables import echo_json

if TYPE_CHECKING:
    from leadhand.contract.submissions import ParentEnd
    from leadhand.models.documents import LoopDocument
    from leadhand.models.views.session import SessionView


_EXAMPLE = '\b\nleadhand spawn "make it pass" --doer "python doer.py" --checker "pytest -q"'


class _RuleType(click.ParamType):  # type: ignore[type-arg]  # generic only since 8.4
    """`all`, `any` or a number of checkers."""

    name = "all|any|K"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        if value in ("all", "any"):
            return str(value)
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is not a rule; use all, any or a number of checkers", param, ctx)


@click.command("spawn", epilog=_EXAMPLE)
@click.argument("task", required=False)
@click.option(
    "--task-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read the task from this file.",
)
@click.option(
    "--checker",
    "checkers",
    metavar="SPEC",
    multiple=True,
    required=True,
    help="A command, 'agent: what to judge', 'agent(NAME): what to judge', FILE.md (a rubric),"
    " 'callable: module:function' or 'tool: module:function'; 'NAME: SPEC' names it; may be"
    " repeated.",
)
@click.option("--doer", metavar="CMD", help="A shell command that does the work.")
@click.option("--agent", metavar="NAME", help="An agent of agents.toml that does the work.")
@click.option("--cwd", metavar="DIR", help="The folder to work in (the current one).")
@worktree_option
@click.option("--max-iterations", type=int, metavar="N", help="The most iterations (3).")
@click.option(
    "--rule", type=_RuleType(), metavar="all|any|K", help="How many checkers must accept (all)."
)
@click.option("--model", metavar="NAME", help="The doer's model.")
@click.option("--checker-model", metavar="NAME", help="The checkers' model (the doer's).")
@click.option("--label", metavar="TEXT", help="The session's label.")
@loop_options
@click.option(
    "--priority",
    type=click.Choice(["high", "normal", "low"]),
    help="The priority of the session's steps (normal).",
)
@click.option("--place", metavar="NAME", help="The place to work at, if workers are at several.")
@click.option(
    "--concurrency-key", metavar="KEY", help="Doers with this key share the limit of key:KEY."
)
@budget_options
@child_options
@click.option("--detach", is_flag=True, help="Print the session's id and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def spawn_command(
    *, detach: bool, as_json: bool, key: str | None, on_parent_end: ParentEnd | None, **given: Any
) -> int:
    """Run a doer on TASK until its checkers accept the work.

    The doer reads the task and the checkers' feedback from its standard input. `-` as the TASK
    reads it from standard input.

    Inside a doer or checker, the session is a child of the running one.
    """
    from leadhand.cli.connect import open_client, tell_warnings
    from leadhand.cli.running import warn_about_cost_limit

    given["task"] = read_task(given["task"], given.pop("task_file"))
    document = _document(**given)
    with open_client(needs_worker=True) as client:
        session = client.submit(document, key, on_parent_end=on_parent_end)
        warn_about_cost_limit(client, document)
        tell_warnings(session)
        if detach:
            _show_detached(session, as_json=as_json)
            return 0
        from leadhand.cli.render.result_text import loop_summary
        from leadhand.cli.running import wait_and_show

        return wait_and_show(client, session, as_json=as_json, summary=loop_summary)


def _document(
    *, task: str, checkers: tuple[str, ...], doer: str | None, agent: str | None, **limits: Any
) -> LoopDocument:
    from pydantic import ValidationError

    from leadhand.callables import as_doer
    from leadhand.loop import loop_document
    from leadhand.models.validation_messages import first_error

    budget = pop_budget(limits)
    given = {name: value for name, value in limits.items() if value is not None}
    if budget:
        given["budget"] = budget
    cwd = given.pop("cwd", None)
    settings = SessionSettings(cwd)
    given["quarantine"] = settings.read_quarantine()
    given |= settings.read_leave_out()
    given["protected"] = [*settings.read_protected(), *given.get("protected", ())]
    given["worktree"] = worktree_field(
        cwd, worktree=given["worktree"], no_prepare=given.pop("no_prepare")
    )
    try:
        named = [checker_of(checker, cwd) for checker in checkers]
        return loop_document(task, named, doer=as_doer(doer, agent), cwd=cwd, **given)
    except ValidationError as error:
        raise click.ClickException(first_error(error)) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _show_detached(session: SessionView, *, as_json: bool) -> None:
    if not as_json:
        click.echo(session.id)
        return
    echo_json(
        {
            "session_id": session.id,
            "status": session.status,
            "verdict": None,
            "iterations": 0,
            "history": [],
            "result_text": "",
            "exit_reason": "",
        }
    )
