"""`leadhand spawn`: one doer-checker loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.budgets import budget_options, taken_budget
from leadhand.cli.tables import echo_json

if TYPE_CHECKING:
    from leadhand.documents import LoopDocument
    from leadhand.views import SessionView


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
            self.fail(f"{value!r} is no rule; use all, any or a number of checkers", param, ctx)


@click.command("spawn", epilog=_EXAMPLE)
@click.argument("task")
@click.option(
    "--checker",
    "checkers",
    metavar="SPEC",
    multiple=True,
    required=True,
    help="A command, 'agent: what to judge', 'rubric: FILE.md' or 'callable: module:function'; may"
    " be repeated.",
)
@click.option("--doer", metavar="CMD", help="A shell command that does the work.")
@click.option("--agent", metavar="NAME", help="An agent of agents.toml that does the work.")
@click.option("--cwd", metavar="DIR", help="The folder to work in; this one unless given.")
@click.option("--max-iterations", type=int, metavar="N", help="How often the loop may turn (3).")
@click.option(
    "--rule", type=_RuleType(), metavar="all|any|K", help="How many checkers must accept (all)."
)
@click.option("--model", metavar="NAME", help="The doer's model.")
@click.option("--checker-model", metavar="NAME", help="The checkers' model; else the doer's.")
@click.option("--label", metavar="TEXT", help="What people call the session.")
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="Seconds for a doer (3600).")
@click.option(
    "--priority",
    type=click.Choice(["high", "normal", "low"]),
    help="Which sessions' steps go first (normal).",
)
@click.option("--place", metavar="NAME", help="Where to work, of several places with workers.")
@click.option(
    "--concurrency-key", metavar="KEY", help="Doers with the same key share `limit set key:KEY`."
)
@budget_options
@click.option("--detach", is_flag=True, help="Print the session's id and leave it running.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def spawn_command(*, detach: bool, as_json: bool, **given: Any) -> int:
    """Let a doer work on TASK until its checkers accept the work.

    The task and the checkers' feedback reach the doer on its standard input.
    """
    from leadhand.cli.connecting import connected

    document = _document(**given)
    with connected() as client:
        session = client.submit(document)
        if detach:
            _show_detached(session, as_json=as_json)
            return 0
        from leadhand.cli.attended import attended
        from leadhand.cli.summaries import loop_summary

        return attended(client, session, as_json=as_json, summary=loop_summary)


def _document(
    *, task: str, checkers: tuple[str, ...], doer: str | None, agent: str | None, **limits: Any
) -> LoopDocument:
    from leadhand.callables import as_doer
    from leadhand.loop import loop_document

    budget = taken_budget(limits)
    given = {name: value for name, value in limits.items() if value is not None}
    if budget:
        given["budget"] = budget
    try:
        return loop_document(
            task, checkers, doer=as_doer(doer, agent), cwd=given.pop("cwd", None), **given
        )
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
