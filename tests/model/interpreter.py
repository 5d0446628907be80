"""Computes the result of a program from the design alone: the reference for whole programs.

Plain recursion, no Redis, no schedule and no clock. It receives the outcome of every step, and
returns the steps that ran (in one possible order), the result of each turn, and the end of the
session. It covers programs in which nothing ends a block while another part of it runs beside; such
an end depends on the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from app.core.program import Action, Loop, Node, OnFail, Program, Step, needs_of


class Said(NamedTuple):
    """What comes of a step in the end, however often it was tried; a list is as wide as this."""

    word: str
    verdict: str | None = None
    width: int = 0


@dataclass
class Run:
    """One run of a program."""

    program: Program
    say: Callable[[str, Step], Said]
    #: The steps that ran, in order, and what came of each, with those that were skipped.
    order: list[str] = field(default_factory=list)
    steps: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    #: Each turn's verdict, and its last iteration.
    turns: dict[str, tuple[str, int]] = field(default_factory=dict)
    status: str = ""

    def __post_init__(self) -> None:
        end = self._block(self.program.body, "")
        self.status = "completed" if end == "done" else "failed"
        if end != "done":
            self._last_steps(is_failure=end == "terminate")

    def _block(self, body: tuple[Node, ...], at: str) -> str:
        """Run a block: done, or its early end (accept, next, terminate, max_iterations)."""
        needs, left = needs_of(body), list(body)
        said: dict[str, Said] = {}
        while left:
            node = next(n for n in left if all(need in said for need in needs[n.id]))
            left.remove(node)
            before = {need: said[need] for need in needs[node.id]}
            said[node.id], end = self._node(node, at, said, before)
            if end != "done":
                return end
        return "done"

    def _last_steps(self, *, is_failure: bool) -> None:
        """Run the outermost steps that an early end lets run, in the order of their needs."""
        joins = {n.id: n.template.join for n in self.program.body
                 if isinstance(n, Step) and n.template}  # fmt: skip
        needs = needs_of(self.program.body)

        def is_due(node: Node) -> bool:
            if node.id in self.steps or joins.get(node.id) not in ("always", "ended"):
                return False
            if joins[node.id] == "always":
                return all(self._has_ended(n) for n in needs[node.id] if joins.get(n) == "always")
            return is_failure and all(map(self._has_ended, needs[node.id]))

        while due := [node for node in self.program.body if is_due(node)]:
            for node in due:
                assert isinstance(node, Step)
                self._step(node, node.id)

    def _has_ended(self, name: str) -> bool:
        return name in self.steps or any(id_.startswith(f"{name}~") for id_ in self.turns)

    def _node(
        self, node: Node, at: str, said: dict[str, Said], before: dict[str, Said]
    ) -> tuple[Said, str]:
        address = at + node.id
        given = node.given
        if given is not None and said[given.node][:2] != ("succeeded", given.verdict):
            return Said("skipped"), self._skip(node, address)
        if isinstance(node, Loop):
            return Said("loop"), self._loop(node, address)
        if node.for_each is not None:
            return Said("each"), self._items(node, address, before)
        return self._step(node, address)

    def _skip(self, node: Node, address: str) -> str:
        if isinstance(node, Loop) or node.for_each is not None:
            self.turns[f"{address}~1"] = ("skipped", 0)
        else:
            self.steps[address] = ("skipped", None)
        return "done"

    def _step(self, step: Step, address: str) -> tuple[Said, str]:
        said = self.say(address, step)
        self.order.append(address)
        self.steps[address] = said[:2]
        if said.word == "failed" and step.critical and step.action is not Action.CHECK:
            return said, "terminate"
        if step.action is Action.BREAK and step.ends == "iteration" and said.verdict == "accept":
            return said, "next"
        ends = step.action in (Action.BREAK, Action.JUDGE) and said.verdict in (
            "accept",
            "terminate",
        )
        if ends or (step.action is Action.AGENT and said.verdict == "terminate"):
            return said, str(said.verdict)
        return said, "done"

    def _items(self, step: Step, address: str, before: dict[str, Said]) -> str:
        """As many as are written there, or as the step before it has said."""
        if isinstance(step.for_each, tuple):
            width = len(step.for_each)
        else:
            width = max((said.width for said in before.values()), default=0)
        for item in range(1, width + 1):
            self._step(step, f"{address}~1#{item}")
        self.turns[f"{address}~1"] = ("accept", 0)
        return "done"

    def _loop(self, loop: Loop, address: str) -> str:
        """Its runs, as many as its retries grant, and what that means to the block around it."""
        verdict, runs = "", 1 + (loop.retries if loop.on_fail is OnFail.RETRY else 0)
        for run in range(1, runs + 1):
            verdict, iteration = self._turn(loop, f"{address}~{run}")
            self.turns[f"{address}~{run}"] = (verdict, iteration)
            if verdict == "accept":
                return "done"
        if loop.on_fail is OnFail.CONTINUE:
            return "done"
        return verdict if verdict == "max_iterations" else "terminate"

    def _turn(self, loop: Loop, address: str) -> tuple[str, int]:
        for iteration in range(1, loop.max_iterations + 1):
            end = self._block(loop.body, f"{address}[{iteration}]/")
            if end in ("accept", "terminate", "max_iterations"):
                return end, iteration
        return "max_iterations", loop.max_iterations
