"""`leadhand rename`, `note` and `archive`: a title, a note, and whether lists hide a session."""

from __future__ import annotations

import click

from leadhand.models.text import plain


@click.command("rename")
@click.argument("session")
@click.argument("title")
def rename_command(*, session: str, title: str) -> int:
    """Give SESSION a TITLE for lists; an empty one removes it."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        view = client.annotate(session, title=title)
    click.echo(f"session {session} is called {plain(view.title)!r}")
    return 0


@click.command("note")
@click.argument("session")
@click.argument("text")
def note_command(*, session: str, text: str) -> int:
    """Put a note with TEXT on SESSION; an empty one removes it."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        view = client.annotate(session, note=text)
    click.echo(f"session {session} has {'a' if view.note else 'no'} note")
    return 0


@click.command("archive")
@click.argument("sessions", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Show them again.")
def archive_command(*, sessions: tuple[str, ...], undo: bool) -> int:
    """Hide SESSIONS from lists; nothing is deleted.

    `leadhand ls --archived` shows them. A session at work is refused, and one that is resumed is
    shown again. Retention deletes archived sessions as all others.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        for session in sessions:
            client.annotate(session, archived=not undo)
            click.echo(f"session {session} is {'shown again' if undo else 'archived'}")
    return 0
