"""The options that say how a loop's doer and checkers are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

_RUBRICS = (".md", ".markdown")


def loop_options(command: _F) -> _F:
    """Adds the options of a loop to a command: timeouts, attempts and conversation."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


#: Of the commands that start loops, also those of a plan's tasks.
baseline_option = click.option(
    "--baseline/--no-baseline",
    default=None,
    help="Whether checkers that are commands also run once before the first doer, so that each"
    " check says whether it was red before the work (yes).",
)
protect_option = click.option(
    "--protect",
    "protected",
    metavar="PATTERN",
    multiple=True,
    callback=lambda _context, _option, patterns: patterns or None,
    help="Files that the doer must not change, such as 'tests/**' or conftest.py: otherwise the"
    " session ends, tampered; may be repeated.",
)
on_protected_option = click.option(
    "--on-protected",
    type=click.Choice(["terminate", "ask"]),
    help="Whether such a change ends the session, or a person decides about it (terminate).",
)
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
    baseline_option,
    protect_option,
    on_protected_option,
)


def checker_of(text: str, cwd: str | None) -> str | Mapping[str, Any]:
    """Parses a `--checker` option: a checker as documents write it, or a rubric's path from here.

    >>> checker_of("lint: ruff check .", None)
    'lint: ruff check .'
    """
    from pydantic import ValidationError

    from leadhand.models.documents import Checker

    if (rubric := _rubric_of(text, cwd)) is not None:
        return rubric
    try:
        checker = Checker.model_validate(text)
    except ValidationError:
        return text  # the document names the error with its field
    rubric = _rubric_of(checker.rubric, cwd) if checker.rubric is not None else None
    if rubric is None:
        return text
    return {**checker.model_dump(include=checker.model_fields_set), **rubric}


def _rubric_of(text: str, cwd: str | None) -> Mapping[str, str] | None:
    """The rubric that a text names: a file of the working folder, or else of this one."""
    name = text.strip()
    if not name.lower().endswith(_RUBRICS):
        return None
    if cwd is None or Path(cwd, name).is_file():
        return {"rubric": name} if Path(cwd or ".", name).is_file() else None
    return {"rubric": str(Path(name).resolve())} if Path(name).is_file() else None
