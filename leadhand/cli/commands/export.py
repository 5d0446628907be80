"""`leadhand export`: writes all data of a session to a file or standard output."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click


@click.command("export")
@click.argument("session")
@click.option(
    "--to", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write to FILE, replacing it; by default to standard output.",
)  # fmt: skip
@click.option(
    "--part", type=click.Choice(["all", "ledger"]), default="all", show_default=True,
    help="Everything as one JSON object, or the ledger alone as JSON Lines.",
)  # fmt: skip
def export_command(*, session: str, path: Path | None, part: Literal["all", "ledger"]) -> int:
    """Write all data of SESSION to a file or standard output.

    Its data is deleted when its retention ends.
    """
    from leadhand.cli.connect import open_client, tell

    with open_client(needs_worker=False) as client:
        text = client.export_text(session, part)
    if path is None:
        click.echo(text, nl=not text.endswith("\n") and bool(text))
        return 0
    _replace(path, text)
    tell(f"session {session} is in {path}")
    return 0


def _replace(path: Path, text: str) -> None:
    """Replace the file atomically."""
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise click.FileError(str(path), error.strerror or str(error)) from error
