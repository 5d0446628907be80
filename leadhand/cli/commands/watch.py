"""`leadhand watch`: shows a session live until it ends."""

from __future__ import annotations

import sys

import click


@click.command("watch")
@click.argument("session")
def watch_command(*, session: str) -> int:
    """Show SESSION live until it ends. Ctrl-C leaves it running."""
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.exit_codes import code_of
    from leadhand.cli.leave_running import following
    from leadhand.cli.questions import answering_questions
    from leadhand.cli.render.live import screen_for
    from leadhand.cli.render.result_text import ending
    from leadhand.client.waiting import IN_EVENTS, reporting_troubles

    with open_client(needs_worker=True) as client:
        view = client.session(session)
        screen = screen_for(sys.stdout)
        with following(session):
            try:
                screen.start(view)
                with (
                    reporting_troubles(
                        client, [session], tell, on_view=screen.update, shown=IN_EVENTS
                    ),
                    answering_questions(client, [session], screen=screen),
                ):
                    for event in client.events(session, output=screen.wants_output):
                        screen.show(event)
            finally:
                screen.close()
            result = client.wait(session)
    click.echo(f"session {session}: {ending(result)}")
    return code_of(result.status)
