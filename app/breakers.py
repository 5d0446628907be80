"""How often stages may end without acceptance: a stage is an outermost loop, such as a phase."""

from __future__ import annotations

from app.program import Loop, OnFail, Program
from leadhand.documents import Budget


def limits_of(program: Program, usual: Budget, given: Budget) -> dict[str, int]:
    """What a session may use; of stops by default no fewer than its own document grants.

    A document's `retry:N` grants N of one stage and one more that ends it, `continue` one.

    >>> stage = Loop.model_construct(on_fail=OnFail.RETRY, retries=7)
    >>> limits_of(Program.model_construct(body=(stage,)), Budget(stage_stops=5, stops=15), Budget())
    {'stage_stops': 8, 'stops': 15}
    """
    limits = usual.limits()
    stages = [node for node in program.body if isinstance(node, Loop)]
    most = max((_granted(stage) for stage in stages), default=0)
    for name, granted in (("stage_stops", most), ("stops", sum(map(_granted, stages)))):
        limits[name] = max(limits[name], granted + 1)
    return limits | given.limits()


def _granted(stage: Loop) -> int:
    """How many of its runs may end without acceptance, and the session goes on."""
    return {OnFail.RETRY: stage.retries, OnFail.CONTINUE: 1, OnFail.STOP: 0}[stage.on_fail]
