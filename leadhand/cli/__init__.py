"""The `leadhand` command: its commands are imported when they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

#: Where each command is, in the order in which the help lists them.
_COMMANDS = {
    "spawn": "leadhand.cli.spawn",
    "workflow": "leadhand.cli.workflow",
    "flow": "leadhand.cli.flow",
    "flows": "leadhand.cli.flows",
    "answer": "leadhand.cli.answer",
    "exit": "leadhand.cli.exit",
    "ls": "leadhand.cli.ls",
    "show": "leadhand.cli.show",
    "explain": "leadhand.cli.explain",
    "watch": "leadhand.cli.watch",
    "wait": "leadhand.cli.wait",
    "logs": "leadhand.cli.logs",
    "transcript": "leadhand.cli.transcript",
    "stop": "leadhand.cli.control",
    "resume": "leadhand.cli.control",
    "abort": "leadhand.cli.control",
    "rehome": "leadhand.cli.rehome",
    "export": "leadhand.cli.export",
    "rm": "leadhand.cli.rm",
    "limit": "leadhand.cli.limit",
    "top": "leadhand.cli.fleet",
    "queues": "leadhand.cli.fleet",
    "workers": "leadhand.cli.fleet",
    "agents": "leadhand.cli.agents",
    "tools": "leadhand.cli.tools",
    "up": "leadhand.cli.up",
    "worker": "leadhand.cli.servers",
    "api": "leadhand.cli.servers",
    "doctor": "leadhand.cli.doctor",
    "fsck": "leadhand.cli.fsck",
    "token": "leadhand.cli.token",
}


class _Commands(click.Group):
    """Imports a command's module when the command is asked for."""

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
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 wrong input, or a fault of ours; 2 stopped, exited or aborted; "
    "3 failed: not accepted within its limits.",
)
@click.version_option(package_name="leadhand")
def cli() -> None:
    """Runs agent work on a fleet, judges it, and remembers all of it.

    Without LEADHAND_URL the current folder's own services are used; they are started when they
    are needed, and keep their state in .leadhand/.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    from leadhand.cli.edge import run

    sys.exit(run(cli, sys.argv[1:] if arguments is None else arguments))
