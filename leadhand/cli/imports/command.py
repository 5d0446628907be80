"""`leadhand import`: takes over sessions of a state folder from before, or from elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.exit_codes import DONE, FAULT
from leadhand.cli.render.tables import plural
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.cli.imports.transfer import Importable
    from leadhand.models.views import SessionView

#: What became of a session that was not imported, for its line.
_WHY = {
    "exists": "imported before, and left as it is",
    "taken": "not imported: another session has its id",
    "torn": "not imported: the copy was lost meanwhile; run the import again",
    "at work": "not imported: a session of its tree works; run the import again",
    "unreadable": "not imported: its program was changed, or a newer version wrote it",
}
_TROUBLE = {"taken", "torn", "at work", "unreadable"}


@click.command("import")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--session", "-s", "sessions", metavar="ID", multiple=True, help="Import only this session."
)
@click.option("--yes", is_flag=True, help="Import without a question.")
@click.option("--adopt", is_flag=True, help="Accept a folder that others may have written.")
def import_command(*, folder: Path | None, sessions: Sequence[str], yes: bool, adopt: bool) -> int:
    """Import sessions of a state folder from before.

    DIR is by default ./.leadhand. First it lists the sessions, and what each would run again, and
    asks. They are stopped, and none runs until you resume it: a resumed session runs its commands
    as you. DIR stays as it is. A link, a folder of another user and one that git tracks need
    --adopt.

    Webhooks, pending deliveries and API tokens stay behind, so no receiver is contacted.

    With --home and without DIR, that folder itself, such as a restored backup, becomes usable: all
    its sessions are stopped in it.
    """
    from leadhand.settings import ClientSettings, environment

    env = environment()
    named = ClientSettings.from_env().home
    if folder is None and named is not None:
        return _in_place(named.absolute(), env)
    folder = folder or Path(".leadhand")
    if not folder.exists():
        click.echo(f"there is no {plain(folder)}; nothing was imported")
        return DONE
    return _copied(folder, env, sessions, yes=yes, adopt=adopt)


def _in_place(home: Path, env: Mapping[str, str]) -> int:
    from leadhand.cli.connect import tell
    from leadhand.cli.imports.in_place import import_sessions

    if not home.exists():
        click.echo(f"there is no {plain(str(home))}; nothing was imported")
        return DONE
    found = import_sessions(home, env, tell)
    if found is None:
        click.echo("these sessions are yours already; nothing was imported")
        return DONE
    for session in found:
        click.echo(_line(session))
    if found:
        click.echo("their webhooks and API tokens were removed; create new tokens if needed")
    click.echo(
        f"{plural(len(found), 'session')} imported;"
        " see each with `leadhand show`, resume it with `leadhand resume`"
    )
    return DONE


def _line(session: SessionView) -> str:
    return f"{plain(session.id)}  {plain(session.status)}  in {plain(session.cwd or 'no folder')}"


def _copied(
    folder: Path, env: Mapping[str, str], sessions: Sequence[str], *, yes: bool, adopt: bool
) -> int:
    from leadhand.cli.connect import tell
    from leadhand.cli.imports.marks import remember_import
    from leadhand.cli.imports.transfer import Transfer
    from leadhand.cli.imports.working_copy import opened_copy
    from leadhand.local.connect import ensure
    from leadhand.local.redis_data import holds_data

    if not holds_data(folder):
        raise click.ClickException(
            f"{plain(folder)} has no sessions; name the folder that has `redis/`, such as .leadhand"
        )
    with (
        ensure(say=tell, env=env) as services,
        opened_copy(folder, env, tell, adopt=adopt) as origin,
    ):
        transfer = Transfer(origin, services.home, env)
        found = transfer.found()
        chosen = _chosen(found, sessions)
        _show(chosen)
        if not chosen or not _is_confirmed(chosen, asked=not (yes or sessions)):
            click.echo("nothing was imported")
            return DONE
        words = transfer.run([one.session for one in chosen])
        if len(chosen) == len(found):
            remember_import(folder, env)
    return _report(words, folder)


def _chosen(found: Sequence[Importable], sessions: Sequence[str]) -> list[Importable]:
    known = {one.session: one for one in found}
    for session in sessions:
        if session not in known:
            raise click.BadParameter(
                f"{session!r} is not a session of this folder; leave the option out to see them",
                param_hint="'--session'",
            )
    return [known[session] for session in dict.fromkeys(sessions)] if sessions else list(found)


def _show(found: Sequence[Importable]) -> None:
    for one in found:
        children = one.sessions - 1
        more = f" with {plural(children, 'child session')}" if children else ""
        where = f" in {plain(one.folder)}" if one.folder else ""
        click.echo(f"{one.session}  {one.status}  {plain(one.label)}{more}{where}")
        for line in one.runs:
            click.echo(f"    would run: {plain(line)}")


def _is_confirmed(chosen: Sequence[Importable], *, asked: bool) -> bool:
    if not asked:
        return True
    if not sys.stdin.isatty():
        click.echo("to import them: leadhand import --yes; some of them: leadhand import -s ID")
        return False
    return click.confirm(f"Import {plural(len(chosen), 'session')}? They stay stopped")


def _report(words: Mapping[str, str], folder: Path) -> int:
    for session, word in words.items():
        if word in _WHY:
            click.echo(f"{session}  {_WHY[word]}")
    imported = [session for session, word in words.items() if word == "imported"]
    hint = "; see each with `leadhand show`, resume it with `leadhand resume`" if imported else ""
    click.echo(f"{plural(len(imported), 'session')} imported{hint}")
    if not _TROUBLE.intersection(words.values()):
        click.echo(f"{plain(folder)} is as it was; remove it when you no longer need it")
        return DONE
    return FAULT
