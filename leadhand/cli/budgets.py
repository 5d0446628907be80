"""The options that say what a session may use, and how its budget is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from leadhand.views import BudgetLine, SessionView

F = TypeVar("F", bound=Callable[..., Any])

#: Option -> the budget's field, its type and what is said of it.
_OPTIONS = {
    "max_cost": ("cost_usd", float, "USD", "Most that its agents may cost, as far as they tell."),
    "max_tokens": ("tokens", int, "N", "Most tokens that its models may read and write."),
    "max_steps": ("steps", int, "N", "Most steps that it may take."),
    "max_total_iterations": ("iterations", int, "N", "Most iterations of all its loops together."),
    "max_wall": ("wall_s", float, "S", "Most seconds, those not counted in which it is stopped."),
    "max_stage_stops": ("stage_stops", int, "N", "Most runs of one phase that are not accepted."),
    "max_stops": ("stops", int, "N", "Most runs of all its phases that are not accepted."),
}


def budget_options(command: F) -> F:
    """Add an option for each limit of a session's budget."""
    for name, (_, type_, metavar, said) in reversed(_OPTIONS.items()):
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, name, type=type_, metavar=metavar, help=said)(command)
    return command


def taken_budget(given: dict[str, Any]) -> dict[str, float]:
    """Take the budget's options out of those given; only what was said is in it."""
    taken = {field: given.pop(name, None) for name, (field, *_) in _OPTIONS.items()}
    return {field: limit for field, limit in taken.items() if limit is not None}


def used_lines(view: SessionView) -> Iterator[str]:
    """What a session used, and of which limits at least a tenth is used."""
    counted = view.counters
    if counted.cost_usd or counted.input_tokens or counted.output_tokens:
        yield (
            f"used     ${counted.cost_usd:.4f}, tokens {counted.input_tokens} read,"
            f" {counted.output_tokens} written"
        )
    for name, line in view.budget.items():
        if line.used * 10 >= line.limit:
            yield f"budget   {name} {_short(line)}"


def _short(line: BudgetLine) -> str:
    return f"{round(line.used, 4):g} of {round(line.limit, 4):g}"
