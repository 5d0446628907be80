"""`leadhand restart`: ends the user's services and starts them with today's settings."""

from __future__ import annotations

import click

from leadhand.cli.commands.down import end_services_here
from leadhand.cli.connect import tell


@click.command("restart")
def restart_command() -> int:
    """Restart your services, with this version and these settings.

    Settings are read from config.toml of your configuration, and from LEADHAND_ variables of this
    command. Active sessions continue. Services without work end 30 minutes after the last command
    (LEADHAND_LINGER), and the next command starts them again with its own variables.
    """
    from leadhand.local.connect import ensure
    from leadhand.local.user_state import state_folder
    from leadhand.settings import environment

    end_services_here(state_folder(environment()))
    with ensure(say=tell) as connection:
        click.echo(f"the services run at {connection.url}")
    return 0
