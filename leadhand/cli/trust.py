"""`leadhand trust`: approves the commands that a folder's files define."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from leadhand.cli.exit_codes import DONE


@click.command("trust")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--all",
    "whole",
    is_flag=True,
    help="Also approve its folders flows and tools, for tokens without exec:free.",
)
@click.option("--yes", is_flag=True, help="Approve without a question.")
@click.option("--remove", is_flag=True, help="Withdraw the approval.")
def trust_command(*, folder: Path, whole: bool, yes: bool, remove: bool) -> int:
    """Approve the agents.toml, tools.toml and leadhand.toml of DIR.

    Without it a folder's files cannot replace an agent or tool that you have already, none of
    their MCP servers is started, and neither the gates nor the [worktree] prepare of a
    leadhand.toml run. Tokens without exec:free use no command of a folder that is not approved. A
    changed file has to be approved again.
    """
    from leadhand.cli.approvals import approve, approved_digest, show_whole, withdraw
    from leadhand.local.user_state import defining_folder
    from leadhand.models.approvals import digest_of
    from leadhand.settings import environment

    env = environment()
    if not folder.is_dir():
        raise click.ClickException(f"{folder} is not a folder; name one with an agents.toml")
    place = defining_folder(folder, env) or folder.absolute()
    paths = _paths(place, folder, env, whole=whole or remove)
    if remove:
        removed = [str(path) for path in paths if withdraw(path, env)]
        click.echo(f"withdrew {_and(removed)}" if removed else f"nothing of {place} is approved")
        return DONE
    texts = _texts(paths)
    if not texts:
        names = " or ".join(dict.fromkeys(path.name for path in paths))
        raise click.ClickException(f"{place} has no {names}; there is nothing to approve")
    digests = {path: digest_of(text) for path, text in texts.items()}
    new = {path: digest for path, digest in digests.items() if approved_digest(path, env) != digest}
    if not new:
        click.echo(f"{_and(map(str, texts))}: approved already, as now")
        return DONE
    show_whole({path: texts[path] for path in new})
    names = _and(str(path) for path in new)
    if not (yes or sys.stdin.isatty()):
        raise click.ClickException(
            "nothing was approved: no terminal to ask; look at it, then add --yes"
        )
    if not yes and not click.confirm(f"Approve {names}?"):
        raise click.ClickException("nothing was approved")
    approve(new, env)
    click.echo(f"approved {names}")
    return DONE


def _paths(place: Path, folder: Path, env: Mapping[str, str], *, whole: bool) -> list[Path]:
    """What can be approved: the definitions that apply in a folder, and each leadhand.toml."""
    from leadhand.cli.guards.config import searched_folders
    from leadhand.models.folder_settings import FILE, FILES, FOLDERS

    names = (*FILES, *(name for name, _ in FOLDERS)) if whole else FILES
    searched = searched_folders(folder, env)
    return [*(place / name for name in names), *(above / FILE for above in searched)]


def _texts(paths: Iterable[Path]) -> dict[Path, str]:
    """The text of each file or folder that defines a command. Raises ClickException."""
    from leadhand.models.approvals import Unapprovable, text_of_folder
    from leadhand.models.folder_settings import FILE, FOLDERS, TomlUnreadable, read_toml

    texts = {}
    try:
        for path in paths:
            if path.name in dict(FOLDERS):
                _refuse_compiled(path)
                texts[path] = text_of_folder(path)
                continue
            text, content = read_toml(path)
            if path.name != FILE or {"guard", "worktree"} & content.keys():
                texts[path] = text
    except (TomlUnreadable, Unapprovable) as error:
        raise click.ClickException(str(error)) from None
    return {path: text for path, text in texts.items() if text}


def _refuse_compiled(folder: Path) -> None:
    """Raises Unapprovable for compiled files: Python may run them in place of what is shown."""
    from leadhand.models.approvals import CACHE, Unapprovable

    for compiled in folder.rglob(CACHE):
        why = "has compiled files, which may hide what runs"
        raise Unapprovable(f"{compiled} {why}; remove it, Python makes it anew")


def _and(names: Iterable[str]) -> str:
    return " and ".join(names)
