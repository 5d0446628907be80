"""The edge of the command line: what goes wrong becomes one plain sentence and an exit code."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence

import click

from leadhand.cli.codes import FAULT, HALTED


def run(command: click.Command, arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; no error leaves as a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # A narrow terminal is no reason to fail.
    try:
        code = command.main(list(arguments), prog_name="leadhand", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAULT
    except (KeyboardInterrupt, click.Abort):
        return HALTED
    except Exception as error:  # noqa: BLE001 - the edge: whatever it is, people get a sentence
        _show(error)
        return FAULT
    return code if isinstance(code, int) else 0


def sentence(error: BaseException) -> str:
    """What an error says to people."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        said = error.format_message().rstrip(".")
        return f"{said}; see: {error.ctx.command_path} --help"
    if isinstance(error, click.ClickException):
        return error.format_message()
    from leadhand.errors import ApiAway, LeadhandError, RequestInvalid

    if isinstance(error, ApiAway):
        return f"{error}; sessions are kept and go on once it is back: see `leadhand doctor`"
    if isinstance(error, RequestInvalid):
        return _with_value(str(error), error.problem.value)
    if isinstance(error, LeadhandError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    told = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"a fault of Leadhand's own, {told}; LEADHAND_DEBUG=1 shows where it happened"


def _with_value(said: str, value: str | None) -> str:
    """What the API refused, with the value that it was given where the sentence lacks it."""
    if value is None or value.strip("'\"") in said:
        return said
    return f"{said} (given: {value})"


def _show(error: Exception) -> None:
    from leadhand.settings import environment

    if environment().get("LEADHAND_DEBUG") == "1":
        traceback.print_exception(error)
    click.echo(f"leadhand: {sentence(error)}", err=True)
