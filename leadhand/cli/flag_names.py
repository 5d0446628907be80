"""Words messages about fields of a document as the flags that the user typed (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import click

from leadhand.cli.budget_options import BUDGET_FIELDS

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
