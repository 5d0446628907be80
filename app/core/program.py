"""The program: the intermediate form that every kind of document is compiled to.

A program is a block of nodes. A node is a step or a loop; a loop has a block as its body. Within
a block, `needs` names the nodes that must finish first. A node without `needs` needs the one before
it, and `needs: []` starts at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from app.core.addresses import path_of
from app.core.outcomes import MICROS, Outcome
from app.core.references import parse
from leadhand.graphs.faults import BUSY, TIMEOUT, exit_error
from leadhand.models.cycles import find_blocked
from leadhand.models.documents import Budget
from leadhand.models.verdicts import ReasonCode

#: The form of programs that this version writes and reads. A worker refuses a newer one.
SCHEMA_VERSION = 1
#: The queue of steps that the session's submitter carries out, as a worker over REST.
LOCAL = "local"
NodeId = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
#: The built-in tool of the nodes that make the list of a for_each.
ITEMS = "graph.items"


class Action(StrEnum):
    #: A doer: an agent, a command or a callable that works on the task.
    AGENT = "agent"
    #: A named tool of the worker.
    TOOL = "tool"
    #: Judges a doer's work and gives a verdict with feedback.
    CHECK = "check"
    #: Combines the verdicts of the checks into the iteration's.
    JUDGE = "judge"
    #: Decides whether the loop around it, or its iteration, ends.
    BREAK = "break"
    #: Decides which of the nodes after it run: accept is yes, retry is no. It ends nothing.
    DECIDE = "decide"
    #: Asks a person and parks until the answer or the deadline.
    HUMAN = "human"
    #: Parks for a time.
    WAIT = "wait"
    #: Starts a child session and parks until it ends.
    CHILD = "child"
    #: Asks a team lead for the tasks of a plan.
    DRAFT = "draft"
    #: Executes a plan: parks until the child sessions of its tasks have ended.
    PLAN = "plan"
    #: Makes, keeps, merges or removes the folder of a plan's task, or looks at that of the plan.
    WORKSPACE = "workspace"


#: Actions whose verdict can be another node's condition.
DECIDERS = frozenset({Action.DECIDE, Action.BREAK, Action.CHECK, Action.JUDGE})


class OnFail(StrEnum):
    #: The block around the loop fails too.
    STOP = "stop"
    #: The next node starts; the session ends with a warning.
    CONTINUE = "continue"
    #: The loop starts its next run, up to `retries` times.
    RETRY = "retry"


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


#: The share of a retry's wait that is random.
JITTER = 0.5


class RetryPolicy(Frozen):
    """How often a failed attempt is retried, and with which back-off."""

    retries: Annotated[int, Field(ge=0, le=100)] = 0
    backoff_s: Annotated[float, Field(ge=0, le=3600)] = 1.0
    max_backoff_s: Annotated[float, Field(ge=0, le=24 * 3600)] = 60.0
    #: The share of each wait that is random.
    jitter: Annotated[float, Field(ge=0, le=1)] = JITTER
    #: The errors that are retried (`app/core/program.py`); without any, all of them.
    on: tuple[str, ...] = ()


class Given(Frozen):
    """A node's condition: it runs only if another node gave this verdict, else it is skipped."""

    #: An earlier decide, break, check or judge in the same block.
    node: NodeId
    verdict: Literal["accept", "retry"]


class Origin(Frozen):
    """Where in a flow's file a node comes from; several nodes may come from one step of it."""

    #: Such as `steps[2].steps[0]`.
    path: str
    #: The type of the step in the file.
    kind: str
    #: Its position in its list of steps, from 1, and the length of the list.
    index: Annotated[int, Field(ge=1)]
    total: Annotated[int, Field(ge=1)]
    #: The agent and the identifier of the conversation.
    agent: str | None = None
    identifier: str | None = None


class Template(Frozen):
    """The arguments of a graph's step as its author wrote them, with references.

    See decisions: graphs.
    """

    arguments: dict[str, JsonValue] = {}
    #: A reference, or `not` and a reference; the step is skipped unless its value is true.
    when: str | None = None
    #: The nodes of the steps that it refers to, by their names.
    names: dict[str, NodeId] = {}
    #: The graph's inputs that it refers to.
    inputs: dict[str, JsonValue] = {}
    #: Which of `waits` must have succeeded, so that the step is not skipped. With `ended` it also
    #: runs if one has failed the session; with `always` however the session ends or stops.
    join: Literal["all", "any", "ended", "always"] | None = None
    #: The nodes of the steps that it waits for, if it has a join.
    waits: tuple[NodeId, ...] = ()


class Step(Frozen):
    """The smallest unit of work that a worker carries out."""

    kind: Literal["step"] = "step"
    id: NodeId
    action: Action
    needs: tuple[NodeId, ...] | None = None
    #: A reference that must be truthy for the step to run; else the step is skipped.
    when: str | None = None
    #: The same by an earlier verdict, which needs no worker to evaluate.
    given: Given | None = None
    #: Of a break: what its accept ends.
    ends: Literal["loop", "iteration"] = "loop"
    timeout_s: Annotated[float, Field(gt=0, le=30 * 24 * 3600)] = 60.0
    retry: RetryPolicy = RetryPolicy()
    #: Whether its failure ends the block around it.
    critical: bool = True
    #: The queue of its message, without the place.
    queue: Annotated[str, Field(pattern=r"^([a-z][a-z0-9_.-]{0,63})?$")] = ""
    #: Whether it may run in the worker that released it, without a message of its own.
    quick: bool = False
    label: str | None = None
    #: Whether it works in the session's folder, which is then locked for its loop.
    folder: bool = False
    #: The agent's conversation: `agent|identifier`.
    conversation: Annotated[str, Field(pattern=r"^[^|<]+\|[^|<]*$", max_length=200)] | None = None
    #: Keys of concurrency and rate limits: `agent:x`, `model:y`, `key:z`.
    limits: tuple[str, ...] = ()
    inputs: dict[str, JsonValue] = {}
    #: A reference to a list, or a list: one item of the step runs for each element.
    for_each: str | tuple[JsonValue, ...] | None = None
    origin: Origin | None = None
    #: Resolved when the step is claimed; its arguments become the input `arguments`.
    template: Template | None = None
    #: How many items of the for_each are ready or running at once; None for all.
    at_once: Annotated[int, Field(ge=1, le=10_000)] | None = None


class Loop(Frozen):
    """A block that is repeated until a judge, a break or a limit ends it."""

    kind: Literal["loop"] = "loop"
    id: NodeId
    body: Annotated[tuple[Node, ...], Field(min_length=1)]
    needs: tuple[NodeId, ...] | None = None
    given: Given | None = None
    max_iterations: Annotated[int, Field(ge=0, le=10_000)] = 3
    on_fail: OnFail = OnFail.STOP
    retries: Annotated[int, Field(ge=0, le=999)] = 0
    #: After this many iterations with the same work and the same refusals the doer gets a warning,
    #: and the next one ends the loop; 0 means never.
    no_progress: Annotated[int, Field(ge=0, le=1000)] = 0
    #: The step in the body whose text is the loop's result.
    result: NodeId | None = None
    label: str | None = None
    origin: Origin | None = None


Node = Annotated[Step | Loop, Field(discriminator="kind")]
Loop.model_rebuild()


class Program(Frozen):
    """An immutable block of nodes, identified by the hash of its content."""

    schema_version: int = SCHEMA_VERSION
    name: str = ""
    body: Annotated[tuple[Node, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_structure(self) -> Program:
        _check_block(self.body, path="", in_loop=False)
        return self

    def __copy__(self) -> Program:
        """A copy without what was derived from the content, which the caller may change."""
        copy = super().__copy__()
        for name in ("text", "hash", "_index", "has_widths_to_write"):
            copy.__dict__.pop(name, None)
        return copy

    @cached_property
    def text(self) -> str:
        """The program's canonical JSON, as it is stored."""
        return self.model_dump_json()

    @cached_property
    def hash(self) -> str:
        """Return the first 32 hex characters of the SHA-256 of the program's canonical JSON."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @cached_property
    def _index(self) -> dict[str, Step | Loop]:
        return dict(self.walk())

    @cached_property
    def has_widths_to_write(self) -> bool:
        """Whether any for_each iterates over the outcome of an earlier step."""
        steps = (node for node in self._index.values() if isinstance(node, Step))
        return any(isinstance(step.for_each, str) for step in steps)

    def node(self, path: str) -> Step | Loop:
        """Return the node at a path such as ``outer/inner/ask``. Raises KeyError if missing."""
        return self._index[path]

    def step(self, address: str) -> Step:
        """Return the step definition for an address. Raises KeyError if there is none."""
        node = self._index[path_of(address)]
        if not isinstance(node, Step):
            raise KeyError(address)
        return node

    def step_or_none(self, address: str) -> Step | None:
        """Return the step definition for an address; None if the program has no such step."""
        node = self._index.get(path_of(address))
        return node if isinstance(node, Step) else None

    def has(self, path: str) -> bool:
        """Whether the program has a node at this path."""
        return path in self._index

    def walk(self) -> Iterator[tuple[str, Step | Loop]]:
        """Yields every node with its path, outer before inner, in document order."""
        yield from _walk(self.body, prefix="")


def agents_of(program: Program) -> set[str]:
    """Returns the names of the agents that a program uses."""
    keys = {key for _, node in program.walk() if isinstance(node, Step) for key in node.limits}
    return {key.removeprefix("agent:") for key in keys if key.startswith("agent:")}


def checker_tool(step: Step) -> str | None:
    """Returns the tool that judges in a check step; None for any other checker or step."""
    checker = step.inputs.get("checker")
    tool = checker.get("tool") if isinstance(checker, dict) else None
    return None if tool is None else str(tool)


def is_before_work(step: Step) -> bool:
    """Whether a step looks at the work before the first doer of a loop, and judges nothing."""
    looks = step.inputs.get("is_baseline") is True or "protect" in step.inputs
    return step.action is Action.CHECK and looks


def needs_of(block: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    """Returns the nodes that each node of a block depends on; by default the node before it."""
    filled: dict[str, tuple[str, ...]] = {}
    previous: tuple[str, ...] = ()
    for node in block:
        filled[node.id] = previous if node.needs is None else tuple(dict.fromkeys(node.needs))
        previous = (node.id,)
    return filled


def transitive_needs(block: tuple[Node, ...]) -> dict[str, frozenset[str]]:
    """Returns all nodes that each node of a block depends on, directly or indirectly."""
    needs = needs_of(block)
    found: dict[str, frozenset[str]] = {}
    while len(found) < len(needs):
        for name, wanted in needs.items():
            if name not in found and all(need in found for need in wanted):
                found[name] = frozenset(wanted).union(*(found[need] for need in wanted))
    return found


def sinks_of(block: tuple[Node, ...]) -> tuple[str, ...]:
    """Returns the nodes of a block that no other node depends on; the block ends after them."""
    needed = {name for needs in needs_of(block).values() for name in needs}
    return tuple(node.id for node in block if node.id not in needed)


def _walk(block: tuple[Node, ...], prefix: str) -> Iterator[tuple[str, Step | Loop]]:
    for node in block:
        path = prefix + node.id
        yield path, node
        if isinstance(node, Loop):
            yield from _walk(node.body, prefix=path + "/")


def _check_block(block: tuple[Node, ...], *, path: str, in_loop: bool) -> None:
    seen: set[str] = set()
    for node in block:
        if node.id in seen:
            raise ValueError(f"node {path + node.id!r} occurs twice in its block; rename one")
        seen.add(node.id)
    for node in block:
        _check_node(node, seen, path=path, in_loop=in_loop)
    _check_order(needs_of(block), path=path)
    _check_decisions(block, path=path)


def _check_node(node: Step | Loop, block_ids: set[str], *, path: str, in_loop: bool) -> None:
    for need in node.needs or ():
        if need not in block_ids:
            raise ValueError(f"node {path + node.id!r} needs {need!r}, which is not in its block")
    if isinstance(node, Loop):
        if node.result is not None and node.result not in {inner.id for inner in node.body}:
            raise ValueError(f"loop {path + node.id!r} takes its result from an unknown node")
        if all(_may_idle(inner) for inner in node.body):
            raise ValueError(f"loop {path + node.id!r} may repeat without any step for a worker")
        _check_block(node.body, path=f"{path}{node.id}/", in_loop=True)
    elif node.action in (Action.JUDGE, Action.BREAK) and not in_loop:
        raise ValueError(f"{node.action.value} {path + node.id!r} is outside a loop")


def _check_decisions(block: tuple[Node, ...], *, path: str) -> None:
    deciding = [node for node in block if node.given is not None or _ends_iteration(node)]
    if not deciding:
        return
    earlier, nodes = transitive_needs(block), {node.id: node for node in block}
    for node in deciding:
        if node.given is not None:
            _check_given(node, node.given, nodes, earlier, path=path)
        if isinstance(node, Step) and _ends_iteration(node):
            _check_continue(node, earlier, path=path)


def _ends_iteration(node: Node) -> bool:
    return isinstance(node, Step) and node.ends == "iteration"


def _check_given(
    node: Step | Loop,
    given: Given,
    nodes: dict[str, Node],
    earlier: dict[str, frozenset[str]],
    *,
    path: str,
) -> None:
    where = f"node {path + node.id!r} depends on the verdict of {given.node!r}"
    if given.node not in earlier[node.id]:
        raise ValueError(f"{where}, which it does not wait for; add it to its needs")
    decider = nodes[given.node]
    if not isinstance(decider, Step) or decider.action not in DECIDERS:
        raise ValueError(f"{where}, which gives no verdict; name a decide, break, check or judge")
    if decider.for_each is not None:
        raise ValueError(f"{where}, which is a for_each and has no verdict of its own")


def _check_continue(step: Step, earlier: dict[str, frozenset[str]], *, path: str) -> None:
    """Check that no other step may run beside a break that ends only the iteration."""
    where = f"step {path + step.id!r} ends an iteration"
    if step.action is not Action.BREAK or step.for_each is not None:
        raise ValueError(f"{where}; only a break without for_each can")
    for other, waits_for in earlier.items():
        if step.id not in waits_for and other not in earlier[step.id] and other != step.id:
            raise ValueError(
                f"{where}, and {path + other!r} may run beside it; let one need the other"
            )


def _may_idle(node: Step | Loop) -> bool:
    """Whether a node may finish without a worker; a loop of these would spin in one transition."""
    if node.given is not None:
        return True
    if isinstance(node, Loop):
        return node.max_iterations == 0 or all(_may_idle(inner) for inner in node.body)
    return node.for_each is not None and (isinstance(node.for_each, str) or not node.for_each)


def _check_order(needs: dict[str, tuple[str, ...]], *, path: str) -> None:
    left = find_blocked(needs)
    if left:
        raise ValueError(f"nodes need each other in a cycle: {sorted(path + n for n in left)}")


def graph_steps(program: Program) -> list[Step]:
    """Returns the nodes of a graph's steps in document order; empty for other programs."""
    made = (node for node in program.body if isinstance(node, Step) and node.template is not None)
    return [node for node in made if node.inputs.get("tool") != ITEMS]


def items_maker(program: Program, node: Node) -> Step | None:
    """Returns the helper step that makes the list for a graph step's for_each; None without one."""
    if not isinstance(node, Step) or node.template is None or not isinstance(node.for_each, str):
        return None
    made = parse(node.for_each)
    found = (one for one in program.body if isinstance(one, Step) and made and one.id == made.word)
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
