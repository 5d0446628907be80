"""`leadhand artifacts`: lists the artifacts of a session, prints one or saves it to a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.step import ArtifactView

#: Characters of a digest that a list shows, and the least that name one.
_SHOWN, _LEAST = 12, 6


@click.command("artifacts")
@click.argument("session")
@click.argument("name", required=False, metavar="[NAME|DIGEST]")
@click.option(
    "--to", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write it to FILE, replacing it; by default to standard output.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="List one JSON object per artifact and line.")
def artifacts_command(*, session: str, name: str | None, path: Path | None, as_json: bool) -> int:
    """List the long results and outputs of SESSION, or print one.

    NAME is as listed, such as search/value, or the step alone where it has one artifact.
    """
    from leadhand.cli.connect import open_client, tell

    if name is None and path is not None:
        raise click.UsageError("--to needs the name of an artifact")
    with open_client(needs_worker=False) as client:
        found = _all(client, session)
        if name is None:
            _print_list(found, as_json=as_json)
            return 0
        one = _named(found, session, name)
        data = client.artifact(session, one.digest)
    if path is not None:
        _replace(path, data)
        tell(f"{_shown(one)} is in {path} ({len(data)} bytes)")
    elif sys.stdout.isatty():
        click.echo(data.decode(errors="replace"))
    else:
        click.echo(data, nl=False)
    return 0


def _all(client: Client, session: str) -> list[ArtifactView]:
    found: list[ArtifactView] = []
    cursor: str | None = None
    while True:
        page = client.artifacts(session, limit=200, cursor=cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


def _print_list(found: list[ArtifactView], *, as_json: bool) -> None:
    from leadhand.cli.render.tables import table

    if as_json:
        for one in found:
            click.echo(one.model_dump_json())
        return
    if not found:
        click.echo("no artifacts: all results and outputs are short")
        return
    rows = [[_shown(one), one.size, one.digest[:_SHOWN], one.media_type] for one in found]
    click.echo("\n".join(table(["NAME", "BYTES", "DIGEST", "TYPE"], rows)))


def _shown(one: ArtifactView) -> str:
    """The name of an artifact, with the name of its step as its document has it."""
    return f"{one.label}/{one.kind}" if one.label else one.name


def _named(found: list[ArtifactView], session: str, name: str) -> ArtifactView:
    """The artifact with this name, digest, or beginning of a digest; that of a step, if one."""
    is_digest = len(name) >= _LEAST
    fitting = [one for one in found if name in (one.name, _shown(one))]
    fitting = fitting or [one for one in found if is_digest and one.digest.startswith(name)]
    fitting = fitting or [one for one in found if name in (one.step, one.label)]
    if len({one.digest for one in fitting}) == 1:
        return fitting[0]
    if fitting:
        names = ", ".join(_shown(one) for one in fitting[:5])
        raise click.ClickException(f"{name!r} has several artifacts; name one of {names}")
    hint = f"`leadhand artifacts {session}` lists them"
    raise click.ClickException(f"session {session} has no artifact {name!r}; {hint}")


def _replace(path: Path, data: bytes) -> None:
    """Replace the file atomically."""
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise click.FileError(str(path), error.strerror or str(error)) from error
