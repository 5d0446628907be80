"""`leadhand answer`: what a person says to a session that asks."""

from __future__ import annotations

import sys

import click


@click.command("answer", context_settings={"ignore_unknown_options": True})
@click.argument("session")
@click.argument("said", metavar="[STEP] TEXT", nargs=-1, required=True)
def answer_command(*, session: str, said: tuple[str, ...]) -> int:
    """Answer what SESSION asks of a person.

    `-` as the TEXT reads standard input; any other TEXT may begin with `-` too.

    STEP is the label, the address or the position of the step that asks, and is needed only where
    several wait: `leadhand explain` lists them.
    """
    from leadhand.cli.connecting import connected

    if len(said) > 2:
        raise click.UsageError("give one TEXT, in quotes, and at most a STEP before it")
    text = sys.stdin.read() if said[-1] == "-" else said[-1]
    with connected() as client:
        view = client.answer(session, text, said[0] if len(said) > 1 else None)
    click.echo(f"answered; session {session} is {view.status}")
    return 0
