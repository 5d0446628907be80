"""`leadhand hook`: what agents' hooks call: messages for a team lead, and Stop guards."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from leadhand.cli.group import Group
from leadhand.cli.guards import hooks
from leadhand.cli.render.tables import plural

if TYPE_CHECKING:
    from leadhand.models.views.inbox import InboxMessage

#: Events of Claude Code whose hooks may add to the context.
_ADDS_CONTEXT = ("UserPromptSubmit", "SessionStart")

_session = click.option(
    "--session", metavar="ID", help="The session whose messages these are. [LEADHAND_SESSION]"
)


@click.group("hook", cls=Group)
def hook_command() -> None:
    """Show an agent its messages, and guard its stops.

    Each command but install and trust reads the hook's JSON on standard input.
    """


hooks.add_to(hook_command)


@hook_command.command("prompt")
@_session
def prompt_command(*, session: str | None) -> int:
    """For UserPromptSubmit and SessionStart: add unread messages to the context; mark them read.

    Without a session it prints nothing, so that one hook serves all folders.
    """
    from leadhand.cli.connect import open_client

    event = str(_read_event().get("hook_event_name") or _ADDS_CONTEXT[0])
    if event not in _ADDS_CONTEXT:
        raise click.ClickException(
            f"hook_event_name is {event!r}: use `leadhand hook prompt` for UserPromptSubmit"
        )
    session = session or _own_session()
    if session is None:
        return 0
    with open_client(outlives_attempt=True, needs_worker=True) as client:
        messages = client.take_messages(session)  # more than one turn can read wait for the next
    if messages:
        context = context_of(session, messages)
        output = {"hookEventName": event, "additionalContext": context}
        click.echo(json.dumps({"hookSpecificOutput": output}))
    return 0


@hook_command.command("notification")
@_session
def notification_command(*, session: str | None) -> int:
    """For Notification: show the user how many messages are unread; they stay unread."""
    from leadhand.cli.connect import open_client

    _read_event()
    session = session or _own_session()
    if session is None:
        return 0
    with open_client(outlives_attempt=True, needs_worker=True) as client:
        messages = client.inbox(session, unread=True, limit=100).items
    if messages:
        newest = messages[-1]
        first_line = newest.text.strip().splitlines()[0][:200]
        text = (
            f"{plural(len(messages), 'unread message')} of session {session};"
            f" the newest is of {newest.sender}: {first_line}"
        )
        click.echo(json.dumps({"systemMessage": text}))
    return 0


def context_of(session: str, messages: Sequence[InboxMessage]) -> str:
    """Formats inbox messages as text that is added to an agent's context."""
    parts = [f"Messages to Leadhand session {session} since your last turn:"]
    for message in messages:
        mark = ", which reports a failure" if message.escalates else ""
        head = f"Message {message.id}: {message.kind} from {message.sender}{mark}, {message.at}"
        parts.append(f"{head}\n{message.text.strip()}")
    return "\n\n".join(parts)


def _read_event() -> dict[str, object]:
    """The hook's JSON on standard input; empty at a terminal."""
    text = "" if sys.stdin.isatty() else sys.stdin.read()
    try:
        event = json.loads(text or "{}")
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise click.ClickException("standard input is not the JSON object of a hook")
    return event


def _own_session() -> str | None:
    from leadhand.settings import ClientSettings

    return ClientSettings.from_env().session
