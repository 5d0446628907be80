"""Runs a user's workflow file and reports the line of an error in it."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import click

from leadhand.errors import LeadhandError
from leadhand.models.documents import WorkflowDocument
from leadhand.models.views.result import ResultView
from leadhand.run import CONDUCTOR
from leadhand.settings import environment


def run_file(
    file: Path, *, conductor: Callable[[WorkflowDocument], ResultView], quiet: bool
) -> int:
    """Run a workflow file as `python FILE` would, and return its exit code.

    With `quiet` the file's output goes to standard error. Raises ClickException with the file's
    line if it fails.
    """
    token = CONDUCTOR.set(conductor)
    try:
        with _as_main(file), redirect_stdout(sys.stderr if quiet else sys.stdout):
            runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        return _code(end)
    except LeadhandError:
        raise  # An error of the API or of Leadhand, not of the file.
    except Exception as error:  # A user's file may raise whatever it likes.
        raise file_error(file, error) from error
    finally:
        CONDUCTOR.reset(token)
    return 0


def file_error(file: Path, error: BaseException) -> click.ClickException:
    """Returns a ClickException that describes an error in a workflow file, with its line."""
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
    """Set sys.path and sys.argv as `python FILE` does."""
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
