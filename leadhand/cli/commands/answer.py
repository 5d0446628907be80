"""`leadhand answer` and `leadhand questions`: steps that wait for a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from leadhand.cli.render.tables import echo_json

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views import QuestionView

#: Questions per request, the most that a page may have.
_PAGE = 500


@click.command("answer", context_settings={"ignore_unknown_options": True})
@click.argument("session")
@click.argument("words", metavar="[STEP] TEXT", nargs=-1, required=True)
def answer_command(*, session: str, words: tuple[str, ...]) -> int:
    """Answer the question that SESSION asks a person.

    `-` as the TEXT reads standard input; any other TEXT may begin with `-` too.

    STEP is the label, address or position of the step that asks. It is needed only if several steps
    wait for an answer: `leadhand questions` lists them.
    """
    from leadhand.cli.connect import open_client

    if len(words) > 2:
        raise click.UsageError("give one TEXT, in quotes, and at most a STEP before it")
    text = sys.stdin.read() if words[-1] == "-" else words[-1]
    with open_client() as client:
        view = client.answer(session, text, words[0] if len(words) > 1 else None)
    click.echo(f"answered; session {session} is {view.status}")
    return 0


@click.command("questions")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def questions_command(*, as_json: bool) -> int:
    """List the open questions of all sessions, the oldest first."""
    from leadhand.cli.connect import open_client
    from leadhand.cli.questions import answer_lines
    from leadhand.cli.render.times import age, clock_time
    from leadhand.models.text import block, plain

    with open_client() as client:
        found = _all_questions(client)
    if as_json:
        echo_json({"items": [view.model_dump(mode="json") for view in found]})
        return 0
    for view in found:
        since = "" if view.since is None else f"  asked {age(view.since)}"
        until = f", until {clock_time(view.until)}" if view.until else ""
        name, address = plain(view.name, most=60), plain(view.address)
        click.echo(f"{view.session}  {name}  {address}{since}{until}")
        for line in block(view.question, indent="  "):
            click.echo(line)
        for line in answer_lines(view):
            click.echo(f"  {line}")
    if not found:
        click.echo("no open questions")
    return 0


def _all_questions(client: Client) -> list[QuestionView]:
    page = client.questions(limit=_PAGE)
    found = list(page.items)
    while page.next is not None:
        page = client.questions(limit=_PAGE, cursor=page.next)
        found += page.items
    return sorted(found, key=lambda view: (view.since or "", view.session, view.address))
