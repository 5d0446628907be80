"""A group of commands whose help shows the whole first sentence of each command."""

from __future__ import annotations

import click

#: Characters of a sentence; click would cut each at the width of the screen.
_WHOLE = 500


class Group(click.Group):
    """Lists its commands with their first sentences, which may take several lines."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help's list of commands, each with the whole first sentence of its help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in commands if one is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
