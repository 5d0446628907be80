"""`leadhand fork`, `rerun` and `apply`: what is made of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from leadhand.cli.options import env_options, pairs_of
from leadhand.cli.render.tables import echo_json

if TYPE_CHECKING:
    from leadhand.models.views.session import SessionView


@click.command("fork")
@click.argument("session")
@click.option(
    "--after",
    metavar="STEP",
    help="The last step that counts as done. Without it, where SESSION had come to.",
)
@click.option(
    "--set",
    "inputs",
    metavar="INPUT=VALUE",
    multiple=True,
    help="Another value of an input; the steps that refer to it run again.",
)
@click.option(
    "--tool",
    "tools",
    metavar="NAME=OTHER",
    multiple=True,
    help="Another tool for the step NAME, or in place of the tool NAME, in the steps that run.",
)
@click.option("--agent", metavar="NAME", help="The agent that does the work from here on.")
@click.option(
    "--folder",
    type=click.Choice(["as-is"]),
    help="as-is: work in the folder of SESSION as it is now. Without it, in a git worktree at the"
    " state that SESSION had recorded.",
)
@click.option("--label", metavar="TEXT", help="The label of the new session.")
@click.option("--key", metavar="TEXT", help="The same key again returns the same session.")
@env_options
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def fork_command(
    *,
    session: str,
    after: str | None,
    inputs: tuple[str, ...],
    tools: tuple[str, ...],
    agent: str | None,
    folder: Literal["as-is"] | None,
    label: str | None,
    key: str | None,
    as_json: bool,
) -> int:
    """Continue from a point of SESSION in a new session.

    SESSION stays as it is, and may have any status. The results up to the point are copied, and
    cost nothing again. STEP is named as the POSITION of `leadhand resume --after`.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        view = client.fork(
            session,
            after,
            inputs=dict(pairs_of(inputs, "--set")) or None,
            tools=dict(pairs_of(tools, "--tool")) or None,
            agent=agent,
            folder=folder,
            label=label,
            idempotency_key=key,
        )
    at = f" after {after}" if after else ""
    show_made(view, f"forked from {session}{at}", as_json=as_json)
    return 0


def show_made(view: SessionView, how: str, *, as_json: bool) -> None:
    """Prints a new session: as JSON, or its id with how to follow it, and its warnings."""
    from leadhand.models.text import plain

    if as_json:
        echo_json(view)
        return
    click.echo(
        f"session {view.id} is {view.status}, {how}; follow it with: leadhand watch {view.id}"
    )
    if view.worktree is not None:
        click.echo(
            f"it works in a folder of its own; bring its work back with: leadhand apply {view.id}"
        )
    for warning in view.warnings:
        click.echo(f"warning: {plain(warning, most=400)}", err=True)


@click.command("rerun")
@click.argument("session")
@click.option("--task", metavar="TEXT", help="Another task of a loop, or request of a plan.")
@click.option(
    "--checker",
    "checkers",
    metavar="CHECKER",
    multiple=True,
    help="A checker as of `leadhand spawn`, in place of the old ones; may be repeated.",
)
@click.option("--agent", metavar="NAME", help="The agent that does the work.")
@click.option(
    "--set",
    "inputs",
    metavar="INPUT=VALUE",
    multiple=True,
    help="Another value of an input of a flow or graph.",
)
@click.option("--label", metavar="TEXT", help="The label of the new session.")
@click.option("--key", metavar="TEXT", help="The same key again returns the same session.")
@env_options
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def rerun_command(
    *,
    session: str,
    task: str | None,
    checkers: tuple[str, ...],
    agent: str | None,
    inputs: tuple[str, ...],
    label: str | None,
    key: str | None,
    as_json: bool,
) -> int:
    """Run what SESSION was started with again, as a new session.

    Nothing of its work is copied; `leadhand fork` copies it.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.options import checker_of

    with open_client(needs_worker=True) as client:
        named = [checker_of(one, client.session(session).cwd) for one in checkers]
        view = client.rerun(
            session,
            task=task,
            checkers=named or None,
            agent=agent,
            inputs=dict(pairs_of(inputs, "--set")) or None,
            label=label,
            idempotency_key=key,
        )
    show_made(view, f"a rerun of {session}", as_json=as_json)
    return 0


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
        recheck_done = checked.model_dump(mode="json") if checked is not None else None
        echo_json(
            {"session": session, "applied": done, "text": text, "recheck": recheck_done,
             "evidence": evidence and evidence.model_dump(mode="json")}
        )  # fmt: skip
    else:
        click.echo(text if done else f"not applied: {text}")
        for line in evidence_lines(evidence) if done else ():
            click.echo(line)
    return 0 if done else 3
