"""Budgets of a session; among them how often stages (outermost loops) may end unaccepted."""

from __future__ import annotations

from app.domain.outcomes import MICROS
from app.domain.program import Loop, OnFail, Program
from leadhand.models.documents import Budget


def limits_of(program: Program, usual: Budget, given: Budget) -> dict[str, int]:
    """Returns a session's limits: given ones, else defaults, raised to allow the program's retries.

    `retry:N` allows a stage N stops and one more that ends it, `continue` allows one.

    >>> stage = Loop.model_construct(on_fail=OnFail.RETRY, retries=7)
    >>> limits_of(Program.model_construct(body=(stage,)), Budget(stage_stops=5, stops=15), Budget())
    {'stage_stops': 8, 'stops': 15}
    """
    limits = usual.limits()
    stages = [node for node in program.body if isinstance(node, Loop)]
    most = max((_failures_allowed(stage) for stage in stages), default=0)
    for name, granted in (("stage_stops", most), ("stops", sum(map(_failures_allowed, stages)))):
        limits[name] = max(limits[name], granted + 1)
    return limits | given.limits()


def _failures_allowed(stage: Loop) -> int:
    """How many runs of the stage may end unaccepted before the session fails."""
    return {OnFail.RETRY: stage.retries, OnFail.CONTINUE: 1, OnFail.STOP: 0}[stage.on_fail]


#: A document's limit -> the session's counter, and how many of the counter's units make one.
BUDGETS = {
    "iterations": ("iterations", 1),
    "steps": ("steps", 1),
    "wall_s": ("wall_ms", 1000),
    "cost_usd": ("cost_micros", MICROS),
    "tokens": ("tokens", 1),
    "stage_stops": ("stage_stops", 1),
    "stops": ("stops", 1),
}
