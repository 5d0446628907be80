"""`leadhand watch`: looks on while a session runs."""

from __future__ import annotations

import sys

import click


@click.command("watch")
@click.argument("session")
def watch_command(*, session: str) -> int:
    """Show SESSION live until it ends. Ctrl-C leaves it running."""
    from leadhand.cli.codes import HALTED, code_of
    from leadhand.cli.connecting import connected, tell
    from leadhand.cli.screens import screen_for
    from leadhand.cli.summaries import ending

    with connected() as client:
        view = client.session(session)
        screen = screen_for(sys.stdout)
        try:
            screen.began(view)
            for event in client.events(session):
                screen.saw(event)
        except KeyboardInterrupt:
            screen.left()
            tell(f"session {session} goes on; stop it with: leadhand stop {session}")
            return HALTED
        finally:
            screen.left()
        result = client.wait(session)
    click.echo(f"session {session}: {ending(result)}")
    return code_of(result.status)
