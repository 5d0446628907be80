"""Groups of commands: help with whole sentences, and arguments that begin with a dash."""

from __future__ import annotations

from collections.abc import Sequence

import click

#: Characters of a sentence; click would cut each at the width of the screen.
_WHOLE = 500


class TextGroup(click.Group):
    """Passes its commands texts such as `- a task`, which are no options."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of these words, and put the texts among its arguments behind `--`."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is None or isinstance(command, click.Group) or "--" in rest:
            return name, command, rest
        return name, command, _texts_last(command.params, rest)


def _texts_last(params: Sequence[click.Parameter], words: list[str]) -> list[str]:
    """The words, with the first text behind `--`, and after it all that are no options."""
    options = [one for one in params if isinstance(one, click.Option)]
    values = {name: one.nargs for one in options if not one.is_flag for name in one.opts}
    front, behind, left = list[str](), list[str](), 0
    for word in words:
        is_text = word[:1] == "-" and word[1:2].isspace()
        is_option = word[:1] == "-" and len(word) > 1
        if left:
            front.append(word)
            left -= 1
        elif is_text or (behind and not is_option):
            behind.append(word)
        else:
            front.append(word)
            left = values.get(word, 0)
    return [*front, "--", *behind] if behind else words


class Group(TextGroup):
    """Lists its commands with their first sentences, which may take several lines."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help's list of commands, each with the whole first sentence of its help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in commands if one is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
