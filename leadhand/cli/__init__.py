"""The `leadhand` command; each subcommand's module is imported on first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import click

from leadhand.cli.group import TextGroup

#: The modules that have commands, in the order in which the help lists these.
_ROOMS = (
    "spawn", "workflow", "flow", "graph", "plan", "worktree", "steps", "messages", "guards.hooks",
    "guards.command", "shared", "stacks", "ls", "show", "watch", "control", "artifacts", "fleet",
    "agents", "tools", "services", "trust", "doctor", "token",
)  # fmt: skip
#: Makes a command of `leadhand` itself (the decorator of a group makes one of the group), whose
#: help begins with a sentence.
_COMMAND = re.compile(
    r'''\n@click\.(?:command|group)\("([a-z]+)".*?\n    """(.+?)(?:\n\n|""")''', re.DOTALL
)


@cache
def _commands_of(room: str) -> dict[str, str]:
    """The commands of a module, with their help, by its text: to import all modules takes long."""
    file = Path(__file__).parent / f"{room.replace('.', '/')}.py"
    return dict(_COMMAND.findall(file.read_text(encoding="utf-8")))


def _all_commands() -> dict[str, str]:
    return {name: about for room in _ROOMS for name, about in _commands_of(room).items()}


#: What `leadhand` alone prints: the whole list has more than sixty commands.
_SHORT_HELP = """\
Leadhand runs agent work in loops, judges it, and records every iteration.

  leadhand spawn TASK --doer COMMAND --checker COMMAND   run a loop until the work is accepted
  leadhand workflow FILE      run the phases of a Python file
  leadhand flow run NAME      run flows/NAME.json
  leadhand graph run FILE     run a graph of steps that call tools
  leadhand plan new REQUEST   have a request divided into tasks

  leadhand ls                 list the sessions of this folder
  leadhand show ID            show a session's steps, verdicts and feedback
  leadhand explain ID         show why it waits or why it ended, and what to do next
  leadhand ui                 open the dashboard
  leadhand doctor             check the setup

leadhand --help lists all commands, leadhand COMMAND --help the options of one.
"""


class _Commands(TextGroup):
    """Imports a command's module on first use."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from leadhand.models.suggestions import nearest

            near = nearest(args[0], _all_commands())
            hint = f"; did you mean {near!r}?" if near is not None else ""
            raise click.UsageError(f"No such command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_all_commands())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        every = [click.Command(name, help=about) for name, about in _all_commands().items()]
        width = formatter.width - 6 - max(len(one.name or "") for one in every)
        with formatter.section("Commands"):
            formatter.write_dl([(one.name or "", one.get_short_help_str(width)) for one in every])

    def get_command(  # click's own signature
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        room = next((room for room in _ROOMS if cmd_name in _commands_of(room)), None)
        if room is None:
            return None
        command = getattr(import_module(f"leadhand.cli.{room}"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 invalid input or internal error; 2 stopped, exited or aborted; "
    "3 failed: not accepted within its limits.",
)
@click.version_option(package_name="leadhand")
@click.option(
    "--home", metavar="DIR", type=click.Path(path_type=Path), help="The state folder to use."
)
@click.pass_context
def cli(context: click.Context, home: Path | None) -> None:
    """Run agent work in loops on a fleet, judge it, and record every iteration.

    Without LEADHAND_URL, commands use your own services: one set for all folders, which start on
    demand and keep their state in ~/.local/state/leadhand (LEADHAND_HOME or --home names another
    folder).
    """
    if home is not None:
        from leadhand.settings import use_home

        use_home(home)
    if context.invoked_subcommand is None:
        click.echo(_SHORT_HELP, nl=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command of the command line and exit with its exit code."""
    from leadhand.cli.entrypoint import run

    sys.exit(run(cli, sys.argv[1:] if arguments is None else arguments))
