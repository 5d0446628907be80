"""`leadhand doctor`: says what is wrong with the set-up, and how to mend it."""

from __future__ import annotations

import click

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
def doctor_command() -> int:
    """Say what is wrong with the set-up, and how to mend it.

    Exits with 1 if anything fails.
    Without LEADHAND_URL this starts the current folder's services, as any command would.
    """
    from leadhand.cli.checkup import findings

    failed = False
    for finding in findings():
        failed = failed or finding.level == "fail"
        mend = f"\n      mend: {finding.mend}" if finding.mend else ""
        level = click.style(f"{finding.level:<4}", fg=_STYLES[finding.level])
        click.echo(f"{level}  {finding.subject}: {finding.text}{mend}")
    return 1 if failed else 0
