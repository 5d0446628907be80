"""The records of the model: turns, blocks, steps and child sessions of one session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.core.addresses import path_of, turn_of
from app.core.program import Action, Loop, Program, Step

ENDING = {
    Action.AGENT: {"terminate"},
    Action.JUDGE: {"accept", "terminate"},
    Action.BREAK: {"accept", "terminate"},
}


@dataclass(eq=False)
class StepRun:
    address: str
    node: Step
    block: Block
    item: bool
    state: str = "ready"
    fence: int = 0
    nonce: str | None = None
    attempt: int = 0
    lost: int = 0
    failed: int = 0
    busy: int = 0
    lease: int | None = None
    deadline: int | None = None
    #: When this attempt last beat.
    heard: int = 0
    due: int | None = None
    until: int = 0
    look_at: int = 0
    on: str = ""
    #: Whether the question shows the work; then its answer is kept for the next attempt.
    seen: bool = False
    given: bool = False
    verdict: str | None = None
    #: The usage of this attempt that its heartbeats reported.
    told: dict[str, int] = field(default_factory=dict)
    settled: int | None = None
    granted: dict[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(eq=False)
class Child:
    """A session that a step started."""

    name: str
    step: StepRun
    at_work: bool = True


@dataclass(eq=False)
class Turn:
    address: str
    node: Step | Loop | None
    block: Block | None
    state: str = "open"
    iteration: int = 0
    max: int = 0
    left: int = 0
    verdict: str | None = None
    inner: Block | None = None
    arrived: int = 0
    width: int = 0
    #: What its open iteration cost, or the last one did.
    cost: int = 0
    #: The address of its last iteration in the ledger.
    entry: tuple[str, int, str, int] | None = None
    #: What its last iteration came to, and how many in a row came to that.
    signature: str | None = None
    same: int = 0
    #: The iteration that is a recheck: it does not count, and `max` leaves it out.
    recheck: int | None = None

    @property
    def counted(self) -> int:
        """How many of its iterations count."""
        return self.iteration - (self.recheck is not None and self.recheck <= self.iteration)

    @property
    def loop(self) -> bool:
        return isinstance(self.node, Loop)


class Back(NamedTuple):
    """How a session is sent back: outermost nodes that run anew, turns to open, conversations."""

    anew: frozenset[str]
    levels: Sequence[Mapping[str, Any]]
    threads: Mapping[str, str] | None


@dataclass(eq=False)
class Block:
    turn: Turn
    address: str
    body: tuple[Step | Loop, ...]
    arrived: set[str] = field(default_factory=set)
    begun: dict[str, StepRun | Turn] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    widths: dict[str, int] = field(default_factory=dict)
    #: The newest run of each node, also of those that are to run anew.
    newest: dict[str, StepRun | Turn] = field(default_factory=dict)

    def begin(self, name: str, run: StepRun | Turn) -> None:
        self.begun[name] = self.newest[name] = run

    @property
    def open(self) -> bool:
        turn, outer = self.turn, self.turn.block
        return turn.state == "open" and turn.inner is self and (outer is None or outer.open)

    def turns(self) -> Iterator[Turn]:
        """The turns around it, innermost first."""
        block: Block | None = self
        while block is not None:
            yield block.turn
            block = block.turn.block

    def address_of(self, name: str) -> str:
        return f"{self.address}/{name}" if self.address else name


def body_at(program: Program, address: str) -> tuple[Step | Loop, ...]:
    """The body of a block, by its address; that of a for_each has none."""
    node = program.node(path_of(turn_of(address))) if address else None
    if node is None:
        return program.body
    return node.body if isinstance(node, Loop) else ()
