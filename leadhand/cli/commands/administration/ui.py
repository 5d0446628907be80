"""`leadhand ui`: opens the dashboard in a browser, signed in."""

from __future__ import annotations

import click


@click.command("ui")
@click.option("--print", "only_print", is_flag=True, help="Print the link; open no browser.")
def ui_command(*, only_print: bool) -> int:
    """Open the dashboard in a browser, signed in.

    The link works once and within a minute. Without LEADHAND_URL the user's services stay
    up until this command ends, with Ctrl-C.
    """
    import webbrowser

    from leadhand.cli.connect import open_client, tell
    from leadhand.settings import ClientSettings

    own = ClientSettings.from_env().url is None
    with open_client(needs_worker=True) as client:
        link = client.sign_in_link()
        if only_print or not webbrowser.open(link.url):
            click.echo(link.url)
        if only_print and own:
            tell("the services end some time after the last command; `leadhand up` keeps them up")
        elif own:
            tell("the dashboard is open; Ctrl-C ends this command, sessions continue")
            _wait_for_interrupt()
    return 0


def _wait_for_interrupt() -> None:
    from contextlib import suppress
    from threading import Event

    with suppress(KeyboardInterrupt):
        Event().wait()
