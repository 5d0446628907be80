"""Derives routes from the program: what the end of each node releases, ends or repeats (pure).

The routes are stored beside the program, one small field per node. A transition reads only the
nodes that it touches, and the caller that ends a step (a worker, a sweeper, an answer) need not
load the program. Which nodes have arrived is known to the Lua functions only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue
from pydantic_core import to_json

from app.core.addresses import path_of
from app.core.outcomes import Outcome
from app.core.program import (
    LOCAL,
    Action,
    Loop,
    Node,
    OnFail,
    Program,
    Step,
    is_before_work,
    needs_of,
    sinks_of,
)
from app.core.records import StepRecord, StoredProgram, TurnRecord
from app.core.references import of_outcome, parse
from app.redaction import without_keys
from leadhand.graphs.faults import TIMEOUT
from leadhand.models.verdicts import Reason, ReasonCode

#: Actions without a message of their own: the worker that released them continues with them.
QUICK = frozenset({Action.JUDGE, Action.HUMAN, Action.WAIT, Action.CHILD, Action.PLAN})
#: How much work a step is, for the share of a session that is done: an agent takes minutes, a tool
#: or check seconds, and the others no time of their own.
WEIGHTS = {
    Action.AGENT: 30, Action.DRAFT: 30, Action.CHILD: 30, Action.PLAN: 30,
    Action.CHECK: 5, Action.TOOL: 5, Action.WORKSPACE: 5,
}  # fmt: skip
#: No node counts as more work: Redis adds whole numbers of 64 bits.
MOST_WORK = 10**12
#: Default queue of an action's messages.
QUEUES = {Action.AGENT: "agents", Action.DRAFT: "agents", Action.CHECK: "checks"}
#: Actions that an agent performs unless they name something else.
_BY_AGENTS = frozenset({Action.AGENT, Action.DRAFT, Action.CHECK, Action.BREAK, Action.DECIDE})
#: Maximum number of items of a for_each.
MAX_WIDTH = 10_000
#: Joins of steps that run after the session has failed; `always` also after a stop or an exit.
LAST = ("always", "ended")
Route = dict[str, JsonValue]


def routes(program: Program) -> dict[str, Route]:
    """Returns for each node path a route (JSON): which steps follow when the node is done."""
    table: dict[str, Route] = {
        "": {**_block(program.body), "size": _work_of(program.body), **_last(program)}
    }
    _routes_of(program.body, "", table)
    return table


def _last(program: Program) -> Route:
    """The outermost steps that run although the session ends early, each with what it needs."""
    needs = needs_of(program.body)
    found: Route = {
        node.id: {"join": node.template.join, "needs": [*needs[node.id]]}
        for node in program.body
        if isinstance(node, Step) and node.template and runs_last(node)
    }
    return {"last": found} if found else {}


def runs_last(step: Step) -> bool:
    """Whether a step runs although its session ends early: a single call with such a join."""
    single = step.for_each is None and step.action is not Action.CHILD and not step.quick
    return single and step.template is not None and step.template.join in LAST


def stored_program(program: Program) -> StoredProgram:
    """Serializes a program and the route of each node to JSON, as the store keeps them."""
    texts = {path: json.dumps(route) for path, route in routes(program).items()}
    return StoredProgram(program.text, texts)


def queues(program: Program) -> frozenset[str]:
    """Returns the names of the queues that a program's steps use, without the `@place` suffix."""
    return frozenset(queue_of(node) for _, node in program.walk() if isinstance(node, Step))


def dependents(program: Program, names: Iterable[str]) -> tuple[str, ...]:
    """Returns these nodes of the outermost block and all that depend on them, in document order."""
    needs = needs_of(program.body)
    affected = set(names)
    for node in _topological(program.body):
        if affected.intersection(needs[node]):
            affected.add(node)
    return tuple(node.id for node in program.body if node.id in affected)


class Join(NamedTuple):
    """A node that runs again, and which of its needs are done; the block's own join has no name."""

    name: str
    done: tuple[str, ...]

    def argument(self) -> dict[str, JsonValue]:
        """Return the node's name and finished needs as an argument of the Lua verb `control`."""
        return {"name": self.name, "done": [*self.done]}


def joins_for_rerun(
    program: Program, names: Iterable[str], finished: Iterable[str]
) -> tuple[Join, ...]:
    """Returns, for each outermost node to run again, which of the nodes it needs are done.

    Nodes that never started run too: their needs may have been met too late to release them.
    """
    done, needs = set(finished) - set(names), needs_of(program.body)
    joins = {"": sinks_of(program.body)} | {n: needs[n] for n in needs if n not in done}
    return tuple(Join(n, tuple(m for m in joins[n] if m in done)) for n in joins)


def widths(program: Program, path: str) -> Mapping[str, str]:
    """Returns the for_each nodes that depend on a step, each with the reference to its list."""
    block = _block_at(program, path)
    me = path.rpartition("/")[2]
    needs = needs_of(block)
    return {
        node.id: node.for_each
        for node in block
        if isinstance(node, Step) and isinstance(node.for_each, str) and me in needs[node.id]
    }


class Following(NamedTuple):
    """Steps that need one node only, and the step that joins them, if any."""

    header: tuple[str, ...]
    join: str | None


def following(program: Program, path: str) -> Following | None:
    """Returns the steps that need only this step; None if there are none, or others need it too."""
    block = _block_at(program, path)
    me = path.rpartition("/")[2]
    needs = needs_of(block)
    header = tuple(node.id for node in block if needs[node.id] == (me,) and _single(node))
    if not header or len(header) != sum(1 for node in block if me in needs[node.id]):
        return None
    return Following(header, _join_of(block, frozenset(header)))


def join_step(program: Program, path: str) -> str | None:
    """Returns the only step that waits for this one and others, or for all its items; else None."""
    block = _block_at(program, path)
    me = path.rpartition("/")[2]
    needs = needs_of(block)
    waiting = [node for node in block if me in needs[node.id]]
    if len(waiting) != 1 or not _single(waiting[0]):
        return None
    fans_out = not _single(next(node for node in block if node.id == me))
    return waiting[0].id if fans_out or len(needs[waiting[0].id]) > 1 else None


def _single(node: Node) -> bool:
    """Whether one message can carry the node: no message is for a local step."""
    return isinstance(node, Step) and node.for_each is None and node.queue != LOCAL


def _join_of(block: tuple[Node, ...], header: frozenset[str]) -> str | None:
    needs = needs_of(block)
    for node in block:
        if len(header) > 1 and header == frozenset(needs[node.id]) and _single(node):
            return node.id
    return None


def _routes_of(block: tuple[Node, ...], prefix: str, table: dict[str, Route]) -> None:
    needs, sinks = needs_of(block), set(sinks_of(block))
    followers: dict[str, list[JsonValue]] = {node.id: [] for node in block}
    for name, wanted in needs.items():
        for need in wanted:
            followers[need].append(name)
    for node in block:
        route: Route = {
            "needs": len(needs[node.id]),
            "next": followers[node.id],
            "sink": node.id in sinks,
        }
        if node.given is not None:
            route["given"] = node.given.model_dump()
        table[prefix + node.id] = route
        if isinstance(node, Loop):
            route |= _loop(node)
            _routes_of(node.body, f"{prefix}{node.id}/", table)
        else:
            route |= _step(node)


def _block(block: tuple[Node, ...]) -> Route:
    needs = needs_of(block)
    roots: list[JsonValue] = [node.id for node in block if not needs[node.id]]
    return {"kind": "block", "roots": roots, "sinks": len(sinks_of(block))}


def _loop(loop: Loop) -> Route:
    return {
        **_block(loop.body),
        "kind": "loop",
        "body": _work_of(loop.body),
        "size": _work(loop),
        "max": loop.max_iterations,
        "on_fail": loop.on_fail.value,
        "retries": loop.retries if loop.on_fail is OnFail.RETRY else 0,
        "label": without_keys(loop.label or loop.id),
        "by": next((_performer(node) for node in loop.body if isinstance(node, Step)), ""),
        **({"no_progress": loop.no_progress} if loop.no_progress else {}),
        **({} if any(_judges(node) for node in loop.body) else {"breaks": True}),
    }


def _judges(node: Node) -> bool:
    return isinstance(node, Step) and node.action is Action.JUDGE


def _is_quick(step: Step) -> bool:
    """Whether its worker needs no message; to compare the folder may take long."""
    compares = (step.action is Action.JUDGE and step.folder) or "binds" in step.inputs
    return step.quick or (step.action in QUICK and not compares)


def _step(step: Step) -> Route:
    route: Route = {
        "kind": "step",
        "action": step.action.value,
        "queue": queue_of(step),
        "quick": _is_quick(step) and not (step.limits or step.conversation),
        "critical": is_critical(step),
        "timeout_ms": round(step.timeout_s * 1000),
        "retries": step.retry.retries,
        "backoff_ms": round(step.retry.backoff_s * 1000),
        "max_backoff_ms": round(step.retry.max_backoff_s * 1000),
        "label": without_keys(step.label or step.id),
        "by": _performer(step),
        "weight": weight_of(step),
        "size": _work(step),
    }
    flags = {"folder": step.folder, "before_work": is_before_work(step)}
    route |= {name: True for name, is_set in flags.items() if is_set}
    if step.conversation is not None:
        route["talk"] = step.conversation
    if step.origin is not None:
        route["step"] = [step.origin.index, step.origin.total]
    if step.retry.on and TIMEOUT not in step.retry.on:
        route["late_is_final"] = True
    if step.ends == "iteration":
        route["ends"] = "iteration"
    if not route["quick"]:
        route["limits"] = [*step.limits, f"queue:{queue_of(step)}"]
    if step.for_each is not None:
        route |= _items(step, step.for_each)
    return route


def _performer(step: Step) -> str:
    """Who performs a step, for statistics: an agent, a tool, or the kind of doer or checker."""
    who = step.inputs.get("doer") or step.inputs.get("checker") or step.inputs
    assert isinstance(who, Mapping)
    for name in ("agent", "tool"):
        if isinstance(found := who.get(name), str):
            return without_keys(found)
    for name in ("command", "callable"):
        if who.get(name):
            return name
    return "default" if step.action in _BY_AGENTS else step.action.value


def _items(step: Step, for_each: str | tuple[JsonValue, ...]) -> Route:
    width = -1 if isinstance(for_each, str) else len(for_each)
    limit: Route = {} if step.at_once is None else {"at_once": step.at_once}
    return {"each": True, "width": width, **limit}


def weight_of(step: Step) -> int:
    """Returns how much one run of a step counts in the progress: 30 for an agent, 5 for a tool."""
    return WEIGHTS.get(step.action, 1)


def _work(node: Node) -> int:
    """How much work a node is at most; a list that another step makes counts as one item."""
    if isinstance(node, Loop):
        return min(MOST_WORK, node.max_iterations * _work_of(node.body))
    items = len(node.for_each) if isinstance(node.for_each, tuple) else 1
    return weight_of(node) * items


def _work_of(block: Iterable[Node]) -> int:
    return min(MOST_WORK, sum(map(_work, block)))


def may_need_less(program: Program) -> bool:
    """Whether a program may run fewer steps than its maximum, as it has loops or lists."""
    return program.has_widths_to_write or any(
        isinstance(node, Loop) and node.max_iterations > 1 for _, node in program.walk()
    )


def is_critical(step: Step) -> bool:
    """Whether the step's failure fails its block; false for checks, which the judge handles."""
    judges = step.action is Action.CHECK and "look" not in step.inputs
    return step.critical and not judges


def queue_of(step: Step) -> str:
    """Returns the queue of a step: its own, the default of its action, or `tools`."""
    return step.queue or QUEUES.get(step.action, "tools")


def full_queue(queue: str, *, place: str, session: str) -> str:
    """Returns the full name of a queue: `queue@place`, or `local@session` for local steps.

    >>> full_queue("tools", place="here", session="0000000a")
    'tools@here'
    >>> full_queue("local", place="here", session="0000000a")
    'local@0000000a'
    """
    of = session if queue == LOCAL else place
    return f"{queue}@{of}" if of else queue


def _block_at(program: Program, path: str) -> tuple[Node, ...]:
    outer = path.rpartition("/")[0]
    if not outer:
        return program.body
    loop = program.node(outer)
    assert isinstance(loop, Loop)
    return loop.body


def _topological(block: tuple[Node, ...]) -> list[str]:
    """Node names in topological order."""
    needs, placed = needs_of(block), list[str]()
    while len(placed) < len(block):
        placed += [
            node.id
            for node in block
            if node.id not in placed and all(need in placed for need in needs[node.id])
        ]
    return placed


def expansion(
    program: Program, address: str, outcome: Outcome
) -> tuple[dict[str, JsonValue], Outcome]:
    """Returns the items of each for_each over a step's outcome; the outcome fails if it is no list.

    If the value is not a list, or is too long, the outcome becomes `failed`. An outcome without a
    value has no items: those that an older run of the step listed do not count for its next run.
    """
    if not program.has_widths_to_write:
        return {}, outcome
    expand: dict[str, JsonValue] = {}
    name = path_of(address).rpartition("/")[2]
    for node, reference in widths(program, path_of(address)).items():
        parsed = parse(reference)
        if parsed is None or parsed.word != name:
            continue
        expand[node] = []
        if outcome.word == "succeeded":
            value = of_outcome(outcome.model_dump(mode="json"), parsed.keys)
            if isinstance(value, list) and len(value) <= MAX_WIDTH:
                expand[node] = [_item_json(item) for item in value]
            else:
                outcome = _no_list(outcome, node, reference)
    return (expand if outcome.word == "succeeded" else {key: [] for key in expand}), outcome


def _item_json(item: JsonValue) -> str:
    """Serializes an item like stored outcomes: NaN becomes null."""
    return to_json(item, inf_nan_mode="null").decode()


def _no_list(outcome: Outcome, node: str, reference: str) -> Outcome:
    text = f"for_each of {node!r} needs a list of at most {MAX_WIDTH} items at {reference}"
    reason = Reason(code=ReasonCode.INVALID_ANSWER, text=text)
    return outcome.model_copy(update={"word": "failed", "reason": reason})


def turn_is_done(node: Step | Loop, turn: TurnRecord) -> bool:
    """Whether a loop or for_each has ended so that its successors may start."""
    if turn.state != "closed":
        return False
    if turn.verdict == "skipped":
        return True
    if isinstance(node, Loop) and node.on_fail == "continue":
        return turn.verdict in ("accept", "terminate", "max_iterations")
    return turn.verdict == "accept"


def step_is_done(node: Step | Loop, step: StepRecord | None) -> bool:
    """Whether a step's successors may start: it succeeded, was skipped, or was not critical."""
    assert step is not None
    assert isinstance(node, Step)
    if (
        step.last is True
    ):  # the end of the session has started it, before what it comes after was done
        return False
    if step.state == "failed":
        return not is_critical(node)
    return step.state in ("succeeded", "skipped") and step.verdict != "terminate"
