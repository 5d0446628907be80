"""The `leadhand` command; each subcommand's module is imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from leadhand.cli.group import TextGroup

#: Where each command is, in the order in which the help lists them.
_COMMANDS = {
    "spawn": "leadhand.cli.spawn",
    "workflow": "leadhand.cli.workflow",
    "flow": "leadhand.cli.flow",
    "flows": "leadhand.cli.flow",
    "graph": "leadhand.cli.graph",
    "plan": "leadhand.cli.plan",
    "worktree": "leadhand.cli.worktree",
    "apply": "leadhand.cli.steps",
    "answer": "leadhand.cli.messages",
    "questions": "leadhand.cli.messages",
    "hint": "leadhand.cli.messages",
    "inbox": "leadhand.cli.messages",
    "notify": "leadhand.cli.messages",
    "hook": "leadhand.cli.guards.hooks",
    "guard": "leadhand.cli.guards.command",
    "ask": "leadhand.cli.messages",
    "lock": "leadhand.cli.shared",
    "kv": "leadhand.cli.shared",
    "stack": "leadhand.cli.stacks",
    "exit": "leadhand.cli.messages",
    "report": "leadhand.cli.plan",
    "ls": "leadhand.cli.ls",
    "show": "leadhand.cli.show",
    "tree": "leadhand.cli.ls",
    "draw": "leadhand.cli.ls",
    "explain": "leadhand.cli.show",
    "watch": "leadhand.cli.watch",
    "wait": "leadhand.cli.watch",
    "poll": "leadhand.cli.watch",
    "logs": "leadhand.cli.watch",
    "transcript": "leadhand.cli.watch",
    "stop": "leadhand.cli.control",
    "resume": "leadhand.cli.control",
    "retry": "leadhand.cli.control",
    "skip": "leadhand.cli.control",
    "fork": "leadhand.cli.steps",
    "rerun": "leadhand.cli.steps",
    "abort": "leadhand.cli.control",
    "rehome": "leadhand.cli.control",
    "artifacts": "leadhand.cli.artifacts",
    "rename": "leadhand.cli.control",
    "note": "leadhand.cli.control",
    "archive": "leadhand.cli.control",
    "export": "leadhand.cli.show",
    "rm": "leadhand.cli.control",
    "limit": "leadhand.cli.fleet",
    "top": "leadhand.cli.fleet",
    "queues": "leadhand.cli.fleet",
    "workers": "leadhand.cli.fleet",
    "stats": "leadhand.cli.fleet",
    "agents": "leadhand.cli.agents",
    "tools": "leadhand.cli.tools",
    "mcp": "leadhand.cli.services",
    "ui": "leadhand.cli.token",
    "up": "leadhand.cli.services",
    "down": "leadhand.cli.services",
    "restart": "leadhand.cli.services",
    "trust": "leadhand.cli.trust",
    "status": "leadhand.cli.services",
    "worker": "leadhand.cli.services",
    "api": "leadhand.cli.services",
    "doctor": "leadhand.cli.doctor",
    "fsck": "leadhand.cli.fleet",
    "store": "leadhand.cli.fleet",
    "token": "leadhand.cli.token",
}


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
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from leadhand.models.suggestions import nearest

            near = nearest(args[0], _COMMANDS)
            hint = f"; did you mean {near!r}?" if near is not None else ""
            raise click.UsageError(f"No such command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(  # click's own signature
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(_COMMANDS[cmd_name]), f"{cmd_name}_command")
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
