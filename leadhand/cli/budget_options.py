"""The options for a session's budget, and how usage and budget are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from leadhand.models.views.session import BudgetLine, SessionView

F = TypeVar("F", bound=Callable[..., Any])

#: Option -> the budget's field, its type, its metavar and its help.
_OPTIONS = {
    "max_cost": ("cost_usd", float, "USD", "Limit on the cost that its agents report."),
    "max_tokens": ("tokens", int, "N", "Limit on input and output tokens."),
    "max_steps": ("steps", int, "N", "Limit on steps."),
    "max_total_iterations": ("iterations", int, "N", "Limit on iterations of all its loops."),
    "max_wall": (
        "wall_s",
        float,
        "S",
        "Limit on seconds; stopped time does not count.",
    ),
    "max_stage_stops": ("stage_stops", int, "N", "Limit on failed runs of one phase."),
    "max_stops": ("stops", int, "N", "Limit on failed runs of all its phases."),
}
#: The budget's field of each option.
BUDGET_FIELDS = {name: field for name, (field, *_) in _OPTIONS.items()}


def budget_options(command: F) -> F:
    """Adds a command-line option for each limit of a session's budget."""
    for name, (_, type_, metavar, text) in reversed(_OPTIONS.items()):
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, name, type=type_, metavar=metavar, help=text)(command)
    return command


def pop_budget(options: dict[str, Any]) -> dict[str, float]:
    """Moves the budget's options out of a command's options; returns the limits that are set."""
    taken = {field: options.pop(name, None) for name, (field, *_) in _OPTIONS.items()}
    return {field: limit for field, limit in taken.items() if limit is not None}


def usage_lines(view: SessionView) -> Iterator[str]:
    """Formats a session's cost and tokens, and each limit of which at least a tenth is used."""
    counters = view.counters
    if counters.cost_usd or counters.input_tokens or counters.output_tokens:
        yield (
            f"used     ${counters.cost_usd:.4f}, tokens {counters.input_tokens} read,"
            f" {counters.output_tokens} written"
        )
    for name, line in view.budget.items():
        if line.used * 10 >= line.limit:
            yield f"budget   {name} {_short(line)}"


def _short(line: BudgetLine) -> str:
    return f"{round(line.used, 4):g} of {round(line.limit, 4):g}"
