"""`leadhand draw`: draws a session in the terminal, or as an SVG file."""

from __future__ import annotations

import shutil
from pathlib import Path

import click


@click.command("draw")
@click.argument("session")
@click.option(
    "--svg", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write an SVG to FILE, replacing it.",
)  # fmt: skip
@click.option(
    "--width", type=click.IntRange(20, 400), help="Characters of a line (the terminal's, or 120)."
)
def draw_command(*, session: str, path: Path | None, width: int | None) -> int:
    """Draw SESSION: its steps in layers, its loops, and what ran."""
    from leadhand.cli.connect import open_client, tell

    with open_client(needs_worker=False) as client:
        if path is None:
            columns = width or max(20, shutil.get_terminal_size((120, 24)).columns)
            click.echo(client.drawing(session, form="text", width=min(400, columns)), nl=False)
            return 0
        text = client.drawing(session)
    write_drawing(path, text)
    tell(f"session {session} is drawn in {path}")
    return 0


def write_drawing(path: Path, text: str) -> None:
    """Writes a drawing's text to a file. Raises click.FileError if that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from error
