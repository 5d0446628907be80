"""`leadhand answer`, `questions`, `ask`, `hint`, `inbox`, `notify` and `exit`: messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.render.tables import echo_json
from leadhand.cli.render.times import age, clock_time
from leadhand.models.text import block, plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.explain import InboxMessage, QuestionView
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
    from leadhand.cli.questions import form_of, parse_fields

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
    from leadhand.cli.questions import answer_lines, form_lines

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


@click.command("ask")
@click.argument("question")
@click.option("--choice", "choices", metavar="CHOICE", multiple=True, help="An answer; repeat it.")
@click.option("--form", metavar="JSON", help="The fields of the answer: a JSON Schema.")
@click.option("--default", metavar="ANSWER", help="The answer if none comes in time: a text,"
              " a choice, or JSON with text, choice and fields.")  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), metavar="S",
    help="How long a person may take (a day).",
)  # fmt: skip
@click.option("--key", metavar="NAME", help="The same question with another NAME is asked again.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def ask_command(
    *,
    question: str,
    choices: tuple[str, ...],
    form: str | None,
    default: str | None,
    timeout_s: float | None,
    key: str | None,
    as_json: bool,
) -> int:
    """Ask a person QUESTION, wait, and print the answer.

    For doers and checkers. The question is a child session: people see it in `leadhand questions`,
    and a later attempt at the same step finds the same question with its answer.

    Exits with 3 if no answer came in time.
    """
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.exit_codes import DONE, code_of
    from leadhand.client.questions import ASK_TIMEOUT_S, answer_in, question_of
    from leadhand.settings import ClientSettings

    if ClientSettings.from_env().session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: only a doer or checker inside a session asks; a flow has"
            " steps of the type human"
        )
    rules = {
        "choices": choices or None,
        "form": _parse("--form", form),
        "default": _default(default),
    }
    try:
        asked = question_of(question, rules, timeout_s=timeout_s or ASK_TIMEOUT_S, key=key)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with open_client(needs_worker=True) as client:
        view = client.submit(asked.document, asked.key, on_parent_end=asked.on_parent_end)
        client.wait(view.id)
        view = client.session(view.id)
        found = answer_in(view, client.steps(view.id).items)
    if as_json:
        echo_json(found)
    elif found["answered"]:
        click.echo(found["text"])
    else:
        tell(f"there is no answer: session {view.id} is {view.status}")
    return DONE if found["answered"] else code_of(view.status)


def _parse(option: str, text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option} is no JSON: {error}") from None


def _default(text: str | None) -> Any:
    """A default answer: an object, or a text, which may be one of the choices."""
    if text is None:
        return None
    return _parse("--default", text) if text.lstrip().startswith("{") else {"text": text}


@click.command("hint", context_settings={"ignore_unknown_options": True})
@click.argument("session")
@click.argument("text")
def hint_command(*, session: str, text: str) -> int:
    """Send TEXT to SESSION, whose next turn begins with it.

    `-` as the TEXT reads standard input. A turn that runs already does not get it. `leadhand inbox
    SESSION` shows which turn did.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        message = client.hint(session, sys.stdin.read() if text == "-" else text)
        view = client.session(session)
    click.echo(f"message {message.id} is in the inbox of session {session}")
    for line in view.needs_attention:
        click.echo(f"attention: {line}", err=True)
    return 0


@click.command("inbox")
@click.argument("session", required=False)
@click.option("--unread", is_flag=True, help="Only messages that are not acknowledged.")
@click.option(
    "--take", is_flag=True, help="Acknowledge and show the messages that no turn has got."
)
@click.option("--follow", "-f", is_flag=True, help="Continue until the session has ended.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per message and line.")
def inbox_command(
    *, session: str | None, unread: bool, take: bool, follow: bool, as_json: bool
) -> int:
    """Show messages to SESSION; --take acknowledges them.

    In a doer or checker, SESSION is by default its own. A turn acknowledges the messages that its
    prompt began with. With --take no turn gets them.
    """
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.running import following
    from leadhand.client.waiting import reporting_troubles
    from leadhand.settings import ClientSettings

    if take and (follow or unread):
        raise click.UsageError("--take shows what it takes; leave out --follow and --unread")
    session = session or ClientSettings.from_env().session
    if session is None:
        raise click.ClickException("LEADHAND_SESSION not set: name the session, as in: inbox ID")
    shown = False
    with open_client(outlives_attempt=True, needs_worker=True) as client, ExitStack() as stack:
        if follow:
            stack.enter_context(following(session))
            stack.enter_context(reporting_troubles(client, [session], tell))
        found = _taken(client, session) if take else _messages(client, session, unread, follow)
        for message in found:
            shown = True
            click.echo(message.model_dump_json() if as_json else "\n".join(message_lines(message)))
    if not shown and not as_json:
        click.echo("no unread messages" if unread or take else "no messages")
    return 0


def _taken(client: Client, session: str) -> Iterator[InboxMessage]:
    """Acknowledges all messages that no turn has got, and yields them."""
    while found := client.take_messages(session):
        yield from found


def message_lines(message: InboxMessage) -> Iterator[str]:
    """Formats an inbox message: a line with number and sender, then its text."""
    state = "unread" if message.read_at is None else f"read by {plain(message.read_by)}"
    mark = ", failure" if message.escalates else ""
    sender, at = plain(message.sender), clock_time(message.at)
    yield f"{message.id}. {message.kind} from {sender}{mark}  {at}  {state}"
    yield from block(message.text, indent="    ")


def _messages(client: Client, session: str, unread: bool, follow: bool) -> Iterator[InboxMessage]:
    from leadhand.cli.connect import tell

    reading = _Reading(client, session, unread=unread)
    yield from reading.read_new()
    if not follow:
        return
    if not reading.last:
        tell("no messages yet; each is shown when it comes, until the session ends")
    for event in client.events(session):
        id_ = event.fields.get("id")
        if event.type == "inbox.message" and isinstance(id_, int) and id_ > reading.last:
            yield from reading.read_new()
    yield from reading.read_new()


class _Reading:
    """A position in an inbox."""

    def __init__(self, client: Client, session: str, *, unread: bool) -> None:
        self.last = 0
        self._client = client
        self._session = session
        self._unread = unread
        self._cursor: str | None = None

    def read_new(self) -> Iterator[InboxMessage]:
        """The messages after the position; reads the last page again, as it may have grown."""
        while True:
            page = self._client.inbox(
                self._session, unread=self._unread, limit=_PAGE, cursor=self._cursor
            )
            for message in page.items:
                if message.id > self.last:
                    self.last = message.id
                    yield message
            if page.next is None:
                return
            self._cursor = page.next


@click.command("notify", context_settings={"ignore_unknown_options": True})
@click.argument("text")
@click.option("--failure", is_flag=True, help="Mark the message as a failure that needs a person.")
@click.option(
    "--pr", "pr_number", type=click.IntRange(1), metavar="N", help="The number of a pull request."
)
@click.option(
    "--session",
    metavar="ID",
    help="The session that sends it; by default that of this command.",
)
def notify_command(*, text: str, failure: bool, pr_number: int | None, session: str | None) -> int:
    """Send TEXT from a child session to its parent.

    For doers and checkers: the parent's next turn begins with it. It does not end the child. `-` as
    the TEXT reads standard input.
    """
    from leadhand.cli.connect import open_client
    from leadhand.settings import ClientSettings

    session = session or ClientSettings.from_env().session
    if session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: name the session that reports with --session ID"
        )
    with open_client(needs_worker=True) as client:
        message = client.notify_parent(
            session,
            "failure" if failure else "success",
            sys.stdin.read() if text == "-" else text,
            pr_number=pr_number,
        )
    click.echo(f"message {message.id} is in the inbox of the parent session")
    return 0


@click.command("exit")
@click.argument("reason")
def exit_command(*, reason: str) -> int:
    """End the session that this command runs in, with REASON.

    For doers and checkers: no new step starts, and the session's result has the reason.
    LEADHAND_SESSION, LEADHAND_URL and LEADHAND_TOKEN are in their environment.
    """
    from leadhand.cli.connect import open_client
    from leadhand.settings import ClientSettings

    session = ClientSettings.from_env().session
    if session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: only a doer or checker inside a session can exit it;"
            " from outside use `leadhand stop ID` or `leadhand abort ID`"
        )
    if not reason.strip():
        raise click.ClickException("REASON is empty; say why this path will not work")
    with open_client(needs_worker=True) as client:
        view = client.exit(session, reason)
    click.echo(f"session {view.id} is {view.status}: {reason}")
    return 0
