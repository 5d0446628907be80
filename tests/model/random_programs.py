"""Small programs of anything: loops in loops, branches, for_each, retries."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from app.core.program import (
    DECIDERS,
    Action,
    Given,
    Loop,
    OnFail,
    Program,
    RetryPolicy,
    Step,
    transitive_needs,
)

#: Picks one of several; drawn by Hypothesis, or by a random number.
Choose = Callable[[Sequence[Any]], Any]
#: Names that could be mistaken for each other's beginnings.
NAMES = ("a", "ab", "a.b", "a-1", "document")


def random_program(choose: Choose) -> Program:
    return Program(body=_block(choose, depth=0))


def random_budget(choose: Choose) -> dict[str, int]:
    """What a session may use: mostly all that it likes, else little of one thing."""
    budget: dict[str, int] = choose((
        {}, {}, {"stage_stops": 2, "stops": 3}, {"steps": choose((3, 8))},
        {"iterations": choose((1, 2))}, {"cost_micros": choose((50, 500))},
        {"tokens": choose((8, 108))},
        {"wall_ms": choose((4_000, 75_000))}, {"steps": 8, "wall_ms": 75_000},
    ))  # fmt: skip
    return budget


def altered(choose: Choose, program: Program, begun: Container[str]) -> Program:
    """The same nodes with other limits and decisions; a loop that never started may change."""
    return Program(body=_altered(choose, program.body, "", begun))


def _altered(
    choose: Choose, body: tuple[Step | Loop, ...], prefix: str, begun: Container[str]
) -> tuple[Step | Loop, ...]:
    nodes: list[Step | Loop] = []
    for node in body:
        path = prefix + node.id
        if isinstance(node, Step):
            wish = _step(choose, node.id, None, (), in_loop=False)
            fields = ("timeout_s", "retry", "critical", "quick", "queue", "conversation")
            nodes.append(node.model_copy(update={name: getattr(wish, name) for name in fields}))
            continue
        wished = _loop(choose, node.id, node.needs, depth=1)
        inner = _altered(choose, node.body, path + "/", begun)
        if path not in begun and choose((True, False)):
            inner = wished.body
        limits = ("max_iterations", "on_fail", "retries", "no_progress")
        more = {name: getattr(wished, name) for name in limits} | {"body": inner}
        if all(_may_idle(inside) for inside in inner):
            more["max_iterations"] = 0
        nodes.append(node.model_copy(update=more))
    return tuple(nodes)


def _block(choose: Choose, depth: int) -> tuple[Step | Loop, ...]:
    count = choose((2, 3, 4, 5) if depth == 0 else (1, 2, 2, 3))
    body: list[Step | Loop] = []
    for name in NAMES[:count]:
        earlier = tuple(node.id for node in body)
        needs = choose((None, (), (), earlier[:1], earlier[-2:], earlier))
        kinds = ("step", "step", "loop") if depth < 2 else ("step",)
        if choose(kinds) == "loop":
            body.append(_loop(choose, name, needs, depth))
        else:
            body.append(_step(choose, name, needs, body, in_loop=depth > 0))
    if depth > 0 and choose((True, True, False)):
        judge = choose((Action.JUDGE, Action.BREAK))
        body.append(Step(id="j", action=judge, retry=RetryPolicy(retries=choose((0, 0, 1)))))
    if depth > 0 and all(_may_idle(node) for node in body):
        body.append(Step(id="work", action=Action.TOOL))
    return _decided(choose, tuple(body))


def _decided(choose: Choose, body: tuple[Step | Loop, ...]) -> tuple[Step | Loop, ...]:
    """Make some nodes depend on a decision, and some breaks end their iteration only."""
    earlier = transitive_needs(body)
    deciders = [
        n.id for n in body
        if isinstance(n, Step) and n.action in DECIDERS and n.for_each is None
    ]  # fmt: skip
    decided = []
    for node in body:
        asked = [name for name in deciders if name in earlier[node.id]]
        if asked and choose((True, False)):
            said = Given(node=choose(asked), verdict=choose(("accept", "retry")))
            node = node.model_copy(update={"given": said})
        if _alone(node, earlier) and choose((True, False)):
            node = node.model_copy(update={"ends": "iteration"})
        decided.append(node)
    return tuple(decided)


def _alone(node: Step | Loop, earlier: dict[str, frozenset[str]]) -> bool:
    """Whether it is a break that nothing in its block can run beside."""
    if not isinstance(node, Step) or node.action is not Action.BREAK:
        return False
    others = earlier.keys() - {node.id} - earlier[node.id]
    return all(node.id in earlier[other] for other in others)


def _may_idle(node: Step | Loop) -> bool:
    """Loops of nothing else are refused."""
    if isinstance(node, Loop):
        return node.max_iterations == 0
    return node.for_each in ((), "${it}")


def _loop(choose: Choose, name: str, needs: tuple[str, ...] | None, depth: int) -> Loop:
    return Loop(
        id=name,
        body=_block(choose, depth + 1),
        needs=needs,
        max_iterations=choose((2, 3, 2, 1, 1, 0)),
        on_fail=choose((OnFail.CONTINUE, OnFail.RETRY, OnFail.STOP)),
        retries=1,
        no_progress=choose((0, 0, 1, 1, 2)),
    )


def _step(
    choose: Choose,
    name: str,
    needs: tuple[str, ...] | None,
    body: Sequence[Step | Loop],
    *,
    in_loop: bool,
) -> Step:
    actions = (
        Action.TOOL, Action.AGENT, Action.CHECK, Action.HUMAN, Action.WAIT, Action.CHILD,
        Action.DECIDE, Action.DECIDE,
    )  # fmt: skip
    each = choose((None, None, None, (), (1, 2), (1, 2, 3), "${it}"))
    named = body[-1] if body and needs is None else None
    if each == "${it}" and not (isinstance(named, Step) and named.for_each is None):
        each = None  # a width is written by a step that is no for_each itself
    return Step(
        id=name,
        action=choose((*actions, Action.BREAK) if in_loop and each is None else actions),
        needs=needs,
        timeout_s=choose((60, 600, 5)),
        retry=RetryPolicy(retries=choose((0, 2, 2)), backoff_s=choose((1, 0, 40))),
        critical=choose((False, False, True) if in_loop else (True, True, False)),
        quick=choose((False, True)),
        conversation=choose((None, None, None, "a|x", "a|x", "b|x")),
        queue=choose(("", "q", "q.1")),
        for_each=each,
    )
