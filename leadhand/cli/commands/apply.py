"""`leadhand apply`: brings the work of a session into the folder that it was started in."""

from __future__ import annotations

from typing import Literal

import click

from leadhand.cli.env_options import env_options
from leadhand.cli.render.tables import echo_json


@click.command("apply")
@click.argument("session")
@click.option("--force", is_flag=True, help="Also work that was not accepted.")
@click.option(
    "--recheck",
    type=click.Choice(["commands", "all", "none"]),
    default="commands",
    show_default=True,
    help="Which of the checkers that accepted the work judge the merged work.",
)
@env_options
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def apply_command(
    *, session: str, force: bool, recheck: Literal["commands", "all", "none"], as_json: bool
) -> int:
    """Bring the work of SESSION into the folder it came from.

    For sessions that were started with --worktree.

    In a git repository the branch that was checked out there is fast-forwarded, or the session's
    branch is merged into it. It must be checked out; uncommitted changes stay as they are, unless
    the work has the same files. In a plain folder the changed files are copied back, unless one of
    them has changed there too. Otherwise nothing is changed, and the command says why.

    If the merged tree is not the one that the checkers accepted, those that are no agents judge it
    first, in a worktree of its own. If they refuse it, your branch stays where it is.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.result_text import evidence_lines

    with open_client(needs_worker=True) as client:
        started = client.apply(session, force=force, recheck=recheck)
        ended = client.wait(started.session)
        found = client.session(session).worktree
        evidence = client.result(session).evidence
    done = ended.status == "completed"
    why = ended.reason.text if ended.reason is not None else f"session {started.session} failed"
    text = (found and (found.applied if done else found.refused)) or ("" if done else why)
    if as_json:
        checked = found.recheck if found is not None else None
        receipt = checked.model_dump(mode="json") if checked is not None else None
        echo_json(
            {"session": session, "applied": done, "text": text, "recheck": receipt,
             "evidence": evidence and evidence.model_dump(mode="json")}
        )  # fmt: skip
    else:
        click.echo(text if done else f"not applied: {text}")
        for line in evidence_lines(evidence) if done else ():
            click.echo(line)
    return 0 if done else 3
