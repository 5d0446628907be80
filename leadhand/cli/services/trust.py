"""`leadhand trust`: approves what a folder's agents.toml and tools.toml define."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from leadhand.cli.exit_codes import DONE

_FILES = ("agents.toml", "tools.toml")


@click.command("trust")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option("--yes", is_flag=True, help="Approve without a question.")
@click.option("--remove", is_flag=True, help="Withdraw the approval.")
def trust_command(*, folder: Path, yes: bool, remove: bool) -> int:
    """Approve the agents.toml and tools.toml that apply in DIR.

    Without it a folder's files cannot replace an agent or tool that you have already, and none of
    their MCP servers is started. A changed file has to be approved again.
    """
    from leadhand.cli.approvals import approve, approved_digest, withdraw
    from leadhand.local.user_state import defining_folder
    from leadhand.models.approvals import digest_of
    from leadhand.settings import environment

    env = environment()
    if not folder.is_dir():
        raise click.ClickException(f"{folder} is not a folder; name one with an agents.toml")
    place = defining_folder(folder, env) or folder.absolute()
    if remove:
        removed = [str(place / name) for name in _FILES if withdraw(place / name, env)]
        click.echo(f"withdrew {_and(removed)}" if removed else f"nothing of {place} is approved")
        return DONE
    texts = _texts(place)
    digests = {file: digest_of(text) for file, text in texts.items()}
    new = {file: digest for file, digest in digests.items() if approved_digest(file, env) != digest}
    if not new:
        click.echo(f"{_and(map(str, texts))}: approved already, as now")
        return DONE
    _show({file: texts[file] for file in new})
    names = _and(str(file) for file in new)
    if not (yes or sys.stdin.isatty()):
        raise click.ClickException(
            "nothing was approved: no terminal to ask; look at it, then add --yes"
        )
    if not yes and not click.confirm(f"Approve {names}?"):
        raise click.ClickException("nothing was approved")
    approve(new, env)
    click.echo(f"approved {names}")
    return DONE


def _texts(place: Path) -> dict[Path, str]:
    """The text of each file of a folder that can be approved."""
    from leadhand.models.toml_file import TomlUnreadable, read_toml

    texts = {}
    for file in (place / name for name in _FILES):
        try:
            text, _ = read_toml(file)
        except TomlUnreadable as error:
            raise click.ClickException(str(error)) from None
        if text:
            texts[file] = text
    if not texts:
        raise click.ClickException(
            f"{place} has no {' or '.join(_FILES)}; there is nothing to approve"
        )
    return texts


def _show(texts: Mapping[Path, str]) -> None:
    """Print what is approved, whole: a file can hide nothing in a line that is not shown."""
    from leadhand.models.text import escape_controls

    for file, text in texts.items():
        click.echo(f"{file}:")
        for line in text.splitlines():
            click.echo(f"  {escape_controls(line)}")


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)
