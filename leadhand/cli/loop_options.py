"""The options that say how a loop's doer and checkers are run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

#: `lint=ruff check .`; a name in capitals is a variable that the shell sets for a command.
_NAMED = re.compile(r"^(?=[A-Z0-9_-]*[a-z])([A-Za-z][A-Za-z0-9_-]*)=(\S.*)$", re.DOTALL)
_VARIABLES = re.compile(r"_proxy$")
_RUBRICS = (".md", ".markdown")


def loop_options(command: _F) -> _F:
    """Adds the options of a loop to a command: timeouts, attempts and conversation."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--doer-timeout",
        "--timeout",
        "timeout_s",
        type=float,
        metavar="S",
        help="Seconds for a doer (3600).",
    ),
    click.option(
        "--doer-attempts",
        type=int,
        metavar="N",
        help="How often a doer may be started in one iteration until it succeeds (1).",
    ),
    click.option(
        "--checker-timeout",
        "checker_timeout_s",
        type=float,
        metavar="S",
        help="Seconds for each checker (300).",
    ),
    click.option(
        "--conversation",
        type=click.Choice(["fresh", "continue"]),
        help="Whether each iteration begins a new conversation with the agent, or continues the"
        " last one (fresh).",
    ),
    click.option(
        "--baseline/--no-baseline",
        default=None,
        help="Whether checkers that are commands also run once before the first doer, so that each"
        " check says whether it was red before the work (no).",
    ),
)


def checker_of(text: str, cwd: str | None) -> str | Mapping[str, str]:
    """Parses a `--checker` option: a command, `NAME=` and a command, or a rubric's path.

    >>> checker_of("lint=ruff check .", None)
    {'name': 'lint', 'command': 'ruff check .'}
    >>> checker_of("CI=1 make test", None)
    'CI=1 make test'
    """
    match = _NAMED.match(text.strip())
    if match is None or _VARIABLES.search(match.group(1)):
        return _rubric_of(text, cwd) or text
    name, spec = match.groups()
    return {"name": name, **_fields_of(_rubric_of(spec, cwd) or spec)}


def _rubric_of(text: str, cwd: str | None) -> Mapping[str, str] | None:
    """The rubric that a text names: a file of the working folder, or else of this one."""
    name = text.strip()
    if not name.lower().endswith(_RUBRICS):
        return None
    if cwd is None or Path(cwd, name).is_file():
        return {"rubric": name} if Path(cwd or ".", name).is_file() else None
    return {"rubric": str(Path(name).resolve())} if Path(name).is_file() else None


def _fields_of(spec: str | Mapping[str, str]) -> dict[str, str]:
    """The fields of a checker that is written as text. Raises ValueError."""
    from leadhand.models.documents import Checker

    if not isinstance(spec, str):
        return dict(spec)
    checker = Checker.model_validate(spec)
    return checker.model_dump(include=checker.model_fields_set)
