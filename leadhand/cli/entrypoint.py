"""Runs a command and turns every error into one sentence and an exit code."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from leadhand.cli.exit_codes import FAULT, HALTED
from leadhand.cli.options import BUDGET_FIELDS
from leadhand.cli.render.terminal import discard_buffer, escaped_streams
from leadhand.cli.render.times import with_local_times

if TYPE_CHECKING:
    from leadhand.errors import Refused, TokenRefused

#: A field's path where a message begins with it: `checkers.0.timeout_s`, `inputs.who`.
_FIELD = re.compile(r"[a-z][a-z_]*(?:\.[\w*-]+|\[\d+\])*(?=: | is | asks )")


#: The fields of a parameter, unless its only field has its own name.
_FIELDS = {
    "agent": ("doer.agent",),
    "lead": ("agent",),
    "lead_model": ("model",),
    "lead_timeout": ("timeout_s",),
    "retries": ("task_retries",),
    "on_failure": ("on_task_failure",),
    "tasks_file": ("tasks",),
    "cwd": ("cwd", "working_folder"),
    "expires": ("expires_s",),
    "webhook": ("webhook.url", "webhook"),
    "events": ("webhook.events",),
    "secret": ("webhook.secret",),
    "max_sessions": ("quotas.max_sessions",),
    "steps_per_day": ("quotas.steps_per_day",),
    "bytes_per_day": ("quotas.bytes_per_day",),
    **{option: (f"budget.{field}",) for option, field in BUDGET_FIELDS.items()},
}
#: Those of `leadhand tools call`, which makes a document of one step. Others name a step of a file.
_OF_CALL = {
    "name": ("name", "steps.0.tool"),
    "arguments": ("steps.0.arguments",),
    "timeout": ("timeout", "steps.0.timeout_s"),
}
_WAYS_TO_NAME_A_DOER = (
    "name one with agent, command or callable",
    "give --doer or --agent",
)
#: Fields whose flags take KEY=TEXT.
_KEYED = frozenset({"inputs", "agents", "tools", "steps.0.arguments"})


def in_flags(message: str, command: click.Command) -> str:
    """Replaces the field name at the start of an error message with the command's flag for it.

    >>> option = click.Option(["--input", "inputs"])
    >>> in_flags("inputs.who: it is missing", click.Command("run", params=[option]))
    '--input who=...: it is missing'
    >>> tool = click.Argument(["name"])
    >>> in_flags("steps[0].tool: it is unknown", click.Command("call", params=[tool]))
    'NAME: it is unknown'
    >>> in_flags("steps[0].tool: it is unknown", click.Command("run", params=[tool]))
    'steps[0].tool: it is unknown'
    """
    flags = dict(_flags(command))
    if "doer" in flags:
        message = message.replace(*_WAYS_TO_NAME_A_DOER)
    found = _FIELD.match(message)
    flag = found and _flag_of(found[0], flags)
    return f"{flag}{message[found.end() :]}" if found and flag else message


def innermost(command: click.Command, arguments: Sequence[str]) -> click.Command:
    """Returns the subcommand that these arguments select in a group of commands."""
    for word in arguments:
        inner = None
        if isinstance(command, click.Group):
            inner = command.get_command(click.Context(command), word)
        command = inner or command
    return command


def _flag_of(field: str, flags: Mapping[str, str]) -> str | None:
    """The flag of a field, or of the nearest field around it."""
    parts = field.replace("[", ".").replace("]", "").split(".")
    for end in range(len(parts), 0, -1):
        around, inner = ".".join(parts[:end]), parts[end:]
        if around in flags:
            is_keyed = around in _KEYED and inner and inner[0] != "*"
            return f"{flags[around]} {inner[0]}=..." if is_keyed else flags[around]
    return None


def _flags(command: click.Command) -> Iterator[tuple[str, str]]:
    fields = _FIELDS | _OF_CALL if command.name == "call" else _FIELDS
    for parameter in command.params:
        name = parameter.name or ""
        if isinstance(parameter, click.Argument):
            shown = (parameter.metavar or name).strip(".").upper()
        else:
            shown = max(parameter.opts, key=len)
        for field in fields.get(name, (name,)):
            yield field, shown


def run(command: click.Command, arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; errors are printed without a traceback."""
    with escaped_streams():
        _name_misspelt_variables()
        return _run(command, arguments)


def _run(command: click.Command, arguments: Sequence[str]) -> int:
    try:
        code = command.main(list(arguments), prog_name="leadhand", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_buffer(sys.stdout)
        return FAULT
    except (KeyboardInterrupt, click.Abort):
        return HALTED
    except click.exceptions.NoArgsIsHelpError as error:  # a group of commands alone
        click.echo(error.message)
        return 0
    except Exception as error:  # noqa: BLE001 - the edge: every error becomes a sentence
        _show(error, innermost(command, arguments))
        return _code_of(error)
    return code if isinstance(code, int) else 0


def _code_of(error: Exception) -> int:
    from leadhand.errors import LeadhandError

    return error.exit_code if isinstance(error, LeadhandError) else FAULT


def _name_misspelt_variables() -> None:
    from leadhand.models.session_environment import misspelt
    from leadhand.settings import environment

    for text in misspelt(environment()):
        click.echo(f"leadhand: {text}", err=True)


def sentence(error: BaseException, command: click.Command) -> str:
    """Returns the message for an error, as one sentence for the user."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = error.format_message().rstrip(".")
        end = "" if message.endswith("?") else ";"
        return f"{message}{end} see: {error.ctx.command_path} --help"
    if isinstance(error, click.ClickException):
        return in_flags(error.format_message(), command)
    from leadhand.errors import LeadhandError, Refused, TokenRefused

    if isinstance(error, TokenRefused):
        return _about_token(error)
    if isinstance(error, Refused) and error.names_fields:
        return in_flags(_refused(error), command)
    if isinstance(error, LeadhandError):
        return f"{error}; {error.advice}" if error.advice else str(error)
    if isinstance(error, OSError) and (text := _about_files(error)):
        return text
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"internal error of Leadhand, {text}; LEADHAND_DEBUG=1 shows the traceback"


def _about_files(error: OSError) -> str:
    """What is wrong with a file or with the current folder; '' if it is something else."""
    from leadhand.settings import current_folder

    if isinstance(error, FileNotFoundError) and current_folder() is None:
        return "the current folder was deleted; change to another one"
    is_known = error.filename is not None and error.strerror
    return f"{error.filename}: {error.strerror}" if is_known else ""


def _with_value(message: str, value: str | None) -> str:
    """The API's message, with the rejected value if the message does not show it."""
    if value in (None, "null") or value.strip("'\"") in message:
        return message
    return f"{message} (given: {value})"


def _refused(error: Refused) -> str:
    """Why the API refuses a request; of several fields each on a line of its own."""
    fields = error.problem.errors or ()
    if len(fields) < 2:
        return _with_value(str(error), error.problem.value)
    return "\n".join(
        _with_value(f"{one.field or 'the document'}: {one.message}", one.value) for one in fields
    )


def _about_token(error: TokenRefused) -> str:
    """Why the API refuses the token, and which variable holds it."""
    from leadhand.settings import environment

    if environment().get("LEADHAND_URL") is None:  # the token is that of the user's services
        return str(error)
    if error.status == 403:
        return f"{error}; the token is the one in LEADHAND_TOKEN"
    detail = error.problem.detail or error.problem.title
    return f"{detail}; set LEADHAND_TOKEN to a token of the API at LEADHAND_URL"


def _show(error: Exception, command: click.Command) -> None:
    from leadhand.settings import environment

    if environment().get("LEADHAND_DEBUG") == "1":
        traceback.print_exception(error)
    click.echo(f"leadhand: {with_local_times(sentence(error, command))}", err=True)
