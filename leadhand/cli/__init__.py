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
    "spawn": "leadhand.cli.commands.spawn",
    "workflow": "leadhand.cli.commands.workflow",
    "flow": "leadhand.cli.commands.flow",
    "flows": "leadhand.cli.commands.flows",
    "graph": "leadhand.cli.commands.graph",
    "plan": "leadhand.cli.plans.command",
    "worktree": "leadhand.cli.plans.worktree",
    "apply": "leadhand.cli.commands.apply",
    "answer": "leadhand.cli.commands.answer",
    "questions": "leadhand.cli.commands.answer",
    "hint": "leadhand.cli.commands.hint",
    "inbox": "leadhand.cli.commands.inbox",
    "notify": "leadhand.cli.commands.notify",
    "hook": "leadhand.cli.commands.hook",
    "guard": "leadhand.cli.guards.command",
    "ask": "leadhand.cli.commands.ask",
    "lock": "leadhand.cli.commands.lock",
    "kv": "leadhand.cli.commands.kv",
    "stack": "leadhand.cli.commands.stack",
    "exit": "leadhand.cli.commands.exit",
    "report": "leadhand.cli.plans.report",
    "ls": "leadhand.cli.commands.ls",
    "show": "leadhand.cli.commands.show",
    "tree": "leadhand.cli.commands.tree",
    "draw": "leadhand.cli.commands.draw",
    "explain": "leadhand.cli.commands.explain",
    "watch": "leadhand.cli.commands.watch",
    "wait": "leadhand.cli.commands.wait",
    "poll": "leadhand.cli.commands.poll",
    "logs": "leadhand.cli.commands.logs",
    "transcript": "leadhand.cli.commands.transcript",
    "stop": "leadhand.cli.commands.control",
    "resume": "leadhand.cli.commands.control",
    "retry": "leadhand.cli.commands.control",
    "skip": "leadhand.cli.commands.control",
    "fork": "leadhand.cli.commands.steps.fork",
    "rerun": "leadhand.cli.commands.steps.rerun",
    "abort": "leadhand.cli.commands.control",
    "rehome": "leadhand.cli.commands.control",
    "artifacts": "leadhand.cli.commands.artifacts",
    "rename": "leadhand.cli.commands.administration.annotations",
    "note": "leadhand.cli.commands.administration.annotations",
    "archive": "leadhand.cli.commands.administration.annotations",
    "export": "leadhand.cli.commands.export",
    "rm": "leadhand.cli.commands.rm",
    "limit": "leadhand.cli.commands.administration.limit",
    "top": "leadhand.cli.commands.fleet",
    "queues": "leadhand.cli.commands.fleet",
    "workers": "leadhand.cli.commands.fleet",
    "stats": "leadhand.cli.commands.administration.stats",
    "agents": "leadhand.cli.commands.agents",
    "tools": "leadhand.cli.commands.tools",
    "mcp": "leadhand.cli.commands.mcp",
    "ui": "leadhand.cli.commands.administration.ui",
    "up": "leadhand.cli.commands.up",
    "down": "leadhand.cli.commands.down",
    "restart": "leadhand.cli.commands.restart",
    "trust": "leadhand.cli.commands.trust",
    "status": "leadhand.cli.commands.status",
    "worker": "leadhand.cli.commands.servers",
    "api": "leadhand.cli.commands.servers",
    "doctor": "leadhand.cli.commands.doctor",
    "fsck": "leadhand.cli.commands.administration.fsck",
    "store": "leadhand.cli.commands.administration.store",
    "token": "leadhand.cli.commands.administration.token",
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
