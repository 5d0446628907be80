"""`leadhand plan apply` and the diffs of plans: each shows how a session at its place ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.cli.render.tables import echo_json
from leadhand.models.text import block, plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.result import ResultView

#: The exit code if a branch was left alone.
_FAILED = 3


@click.command("apply")
@click.argument("session")
@click.option("--branch", metavar="NAME", help="Another branch than the one checked out.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def plan_apply_command(*, session: str, branch: str | None, as_json: bool) -> int:
    """Fast-forward your branch to the merged work of the plan of SESSION.

    It is the branch that is checked out in the plan's folder, if its working tree is clean. A
    branch that is checked out elsewhere, has other commits or is protected (git config
    leadhand.protected) is left as it is, with the reason.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        result = _end_of(client, client.apply_plan(session, branch=branch).session)
    why = _why_not(result)
    if as_json:
        echo_json({"applied": not why, "why": why, "session_id": result.session_id})
    else:
        click.echo(f"not applied: {why}" if why else plain(result.result_text))
    return _FAILED if why else 0


def show_plan_diff(
    client: Client, session: str, task: str | None, *, unmerged: bool, as_json: bool
) -> int:
    """Gets and prints the diff of a plan or task, or what is unmerged; returns an exit code."""
    result = _end_of(client, client.diff_plan(session, task=task, unmerged=unmerged).session)
    why = _why_not(result)
    if as_json:
        echo_json({"diff": result.result_text, "why": why})
    elif why:
        click.echo(f"no diff: {why}")
    else:
        for line in block(result.result_text):
            click.echo(line)
        if not result.result_text:
            click.echo("no changes")
    return _FAILED if why else 0


def _end_of(client: Client, session: str) -> ResultView:
    return client.wait(session)


def _why_not(result: ResultView) -> str:
    """Why it did not succeed, as its step says; empty if it did."""
    if result.status == "completed":
        return ""
    reason = result.reason
    while reason is not None and reason.beneath is not None:
        reason = reason.beneath
    return plain(reason.text, most=1000) if reason is not None else f"it is {result.status}"
