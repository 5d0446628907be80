"""The nodes that a graph is compiled to, and which errors of its steps are retried (pure)."""

from __future__ import annotations

from collections.abc import Collection

from app.domain.outcomes import Outcome
from app.domain.program import Node, Program, RetryPolicy, Step
from leadhand.graphs.retry_errors import BUSY, TIMEOUT, exit_error
from leadhand.models.reasons import ReasonCode

#: The built-in tool of the nodes that make the list of a for_each.
ITEMS = "graph.items"


def graph_steps(program: Program) -> list[Step]:
    """Returns the nodes of a graph's steps in document order; empty for other programs."""
    made = (node for node in program.body if isinstance(node, Step) and node.template is not None)
    return [node for node in made if node.inputs.get("tool") != ITEMS]


def items_maker(program: Program, node: Node) -> Step | None:
    """Returns the helper step that makes the list for a graph step's for_each; None without one."""
    if not isinstance(node, Step) or node.template is None or not isinstance(node.for_each, str):
        return None
    name = node.for_each.removeprefix("${").removesuffix("}")
    found = (one for one in program.body if isinstance(one, Step) and one.id == name)
    return next((one for one in found if one.inputs.get("tool") == ITEMS), None)


def step_of_maker(program: Program, node: str) -> Step | None:
    """Returns the graph step for whose for_each this node makes the list; None for other nodes."""
    steps = graph_steps(program)
    return next((s for s in steps if (m := items_maker(program, s)) and m.id == node), None)


def errors_of(outcome: Outcome) -> frozenset[str]:
    """Returns the error names of a failed outcome, as `retry_on` lists them, such as `exit 75`.

    >>> sorted(errors_of(Outcome(word="failed", exit_code=75, errors=("OSError",))))
    ['OSError', 'exit 75']
    """
    found = set(outcome.errors)
    if outcome.exit_code:
        found.add(exit_error(outcome.exit_code))
    if outcome.reason is not None and outcome.reason.code is ReasonCode.TIMEOUT:
        found.add(TIMEOUT)
    if outcome.busy is not None:
        found.add(BUSY)
    return frozenset(found)


def apply_policy(policy: RetryPolicy, outcome: Outcome) -> Outcome:
    """Marks a failed outcome by the errors that the policy lists: retryable if this is one of them.

    Without a list the tool has decided. A cancelled call is never repeated. An exception group is
    one of the errors if all of its members are.

    >>> missing = Outcome(word="failed", errors=("http 404",), retryable=False)
    >>> [apply_policy(RetryPolicy(on=on), missing).retryable for on in ((), ("http 4xx",))]
    [False, True]
    """
    if outcome.word != "failed" or not policy.on or _is_cancelled(outcome):
        return outcome
    by_members = [_matches(policy.on, frozenset(names)) for names in outcome.members]
    if _matches(policy.on, errors_of(outcome)) or (by_members and all(by_members)):
        return outcome.model_copy(update={"retryable": True})
    return outcome.model_copy(update={"retryable": False, "busy": None})


def _is_cancelled(outcome: Outcome) -> bool:
    return outcome.reason is not None and outcome.reason.code is ReasonCode.CANCELLED


def _matches(on: Collection[str], errors: frozenset[str]) -> bool:
    classes = {f"http {error[5]}xx" for error in errors if error.startswith("http ")}
    return not (errors | classes).isdisjoint(on)
