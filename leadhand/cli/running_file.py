"""Runs a user's workflow file, and says where it is broken."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import click

from leadhand.attending import CONDUCTOR
from leadhand.documents import WorkflowDocument
from leadhand.errors import LeadhandError
from leadhand.settings import environment
from leadhand.views import ResultView


def run_file(
    file: Path, *, conductor: Callable[[WorkflowDocument], ResultView], quiet: bool
) -> int:
    """Run the file and return the exit code that it asked for.

    With `quiet` what the file prints goes to standard error. Raises ClickException with the
    file's own line where it is broken.
    """
    token = CONDUCTOR.set(conductor)
    try:
        with _as_main(file), redirect_stdout(sys.stderr if quiet else sys.stdout):
            runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        return _code(end)
    except LeadhandError:
        raise  # The API's or our own word, not the file's.
    except Exception as error:  # A user's file may raise whatever it likes.
        raise broken(file, error) from error
    finally:
        CONDUCTOR.reset(token)
    return 0


def broken(file: Path, error: BaseException) -> click.ClickException:
    """One sentence on what is wrong with the file, and in which line."""
    if environment().get("LEADHAND_DEBUG") == "1":
        traceback.print_exception(error)
    kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
    if isinstance(error, SyntaxError):
        return click.ClickException(f"{error.filename}:{error.lineno}: {kind}{error.msg}")
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if _is(f.filename, file)]
    where = f"{file}:{lines[-1]}" if lines else str(file)
    return click.ClickException(f"{where}: {kind}{error}".rstrip(": "))


@contextmanager
def _as_main(file: Path) -> Iterator[None]:
    """Search the file's folder first, as `python FILE` does, and let it see its own name."""
    path, arguments = list(sys.path), list(sys.argv)
    sys.path.insert(0, str(file.resolve().parent))
    sys.argv[:] = [str(file)]
    try:
        yield
    finally:
        sys.path[:] = path
        sys.argv[:] = arguments


def _code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    raise click.ClickException(str(end.code)) from None


def _is(name: str, file: Path) -> bool:
    return Path(name).resolve() == file.resolve()
