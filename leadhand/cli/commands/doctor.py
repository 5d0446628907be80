"""`leadhand doctor`: checks the setup and says how to fix what is wrong."""

from __future__ import annotations

import sys

import click

from leadhand.cli.render.terminal import raw
from leadhand.models.text import escape_controls

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
def doctor_command() -> int:
    """Check the setup, and say how to fix what is wrong.

    Exits with 1 if a check fails. Without LEADHAND_URL this starts the user's services, as any
    command does.
    """
    from leadhand.cli.health_checks import findings

    failed = False
    for finding in findings():
        failed = failed or finding.level == "fail"
        mend = f"\n      mend: {finding.mend}" if finding.mend else ""
        level = click.style(f"{finding.level:<4}", fg=_STYLES[finding.level])
        text = escape_controls(f"{finding.subject}: {finding.text}{mend}")
        click.echo(f"{level}  {text}", file=raw(sys.stdout))
    return 1 if failed else 0
