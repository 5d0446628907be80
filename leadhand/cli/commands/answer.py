"""`leadhand answer` and `leadhand questions`: steps that wait for a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.render.tables import echo_json

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.explain import QuestionView
    from leadhand.models.views.session import SessionView

#: Questions per request, the most that a page may have.
_PAGE = 500


@click.command("answer", context_settings={"ignore_unknown_options": True})
@click.argument("session")
@click.argument("words", metavar="[STEP] [TEXT]", nargs=-1)
@click.option("--choice", metavar="CHOICE", help="One of the question's choices.")
@click.option(
    "--field", "pairs", metavar="NAME=VALUE", multiple=True,
    help="A field of the question's form, as GROUP.NAME within a group. Repeat it for more fields,"
    " and for the options of a list.",
)  # fmt: skip
def answer_command(
    *, session: str, words: tuple[str, ...], choice: str | None, pairs: tuple[str, ...]
) -> int:
    """Answer the question that SESSION asks a person.

    Give a TEXT, or for a question with choices or a form --choice and --field; fields that are left
    out have their defaults. `-` as the TEXT reads standard input; any other TEXT may begin with `-`
    too.

    STEP is the label, address or position of the step that asks. It is needed only if several steps
    wait for an answer: `leadhand questions` lists them.
    """
    from leadhand.cli.connect import open_client

    has_rules = choice is not None or bool(pairs)
    if len(words) > (1 if has_rules else 2):
        raise click.UsageError(
            "give a STEP alone beside --choice and --field"
            if has_rules
            else "give one TEXT, in quotes, and at most a STEP before it"
        )
    with open_client(needs_worker=True) as client:
        if has_rules:
            view = _answer_with_rules(client, session, words, choice, pairs)
        else:
            view = _answer_with_text(client, session, words)
    click.echo(f"answered; session {session} is {view.status}")
    return 0


def _answer_with_text(client: Client, session: str, words: tuple[str, ...]) -> SessionView:
    if not words:
        raise click.UsageError("give the answer: TEXT, --choice or --field")
    text = sys.stdin.read() if words[-1] == "-" else words[-1]
    return client.answer(session, text, words[0] if len(words) > 1 else None)


def _answer_with_rules(
    client: Client, session: str, words: tuple[str, ...], choice: str | None, pairs: tuple[str, ...]
) -> SessionView:
    from leadhand.cli.connect import tell
    from leadhand.errors import RequestInvalid

    step = words[0] if words else None
    fields = _fields(client, session, step, pairs) if pairs else None
    try:
        return client.answer(session, address=step, choice=choice, fields=fields)
    except RequestInvalid as error:
        for one in error.problem.errors[1:]:  # the first one is the error's text
            tell(f"{one.field}: {one.message}" + (f"; {one.hint}" if one.hint else ""))
        raise


def _fields(
    client: Client, session: str, step: str | None, pairs: tuple[str, ...]
) -> dict[str, Any]:
    """The fields, read as the form of the question has them."""
    from leadhand.cli.forms import form_of, parse_fields

    named = []
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise click.UsageError(f"--field {pair}: give NAME=VALUE")
        named.append((name, value))
    found = client.questions(session=session).items
    asking = [view for view in found if view.session == session]
    # A step may be named by its label, which only the API knows.
    asking = [view for view in asking if step and _is_named(view.address, step)] or asking
    form = form_of(asking[0]) if len(asking) == 1 else None
    return parse_fields(form, named)


def _is_named(address: str, step: str) -> bool:
    """Whether a step is named by its address or by its last part.

    >>> _is_named("turns~1[2]/ask", "ask"), _is_named("ask", "ask"), _is_named("task", "ask")
    (True, True, False)
    """
    return step in (address, address.rpartition("/")[2])


@click.command("questions")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def questions_command(*, as_json: bool) -> int:
    """List the open questions of all sessions, the oldest first."""
    from leadhand.cli.connect import open_client
    from leadhand.cli.forms import form_lines
    from leadhand.cli.questions import answer_lines
    from leadhand.cli.render.times import age, clock_time
    from leadhand.models.text import block, plain

    with open_client(needs_worker=True) as client:
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
        for line in [*form_lines(view), *answer_lines(view)]:
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
