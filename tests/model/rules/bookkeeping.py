"""What the model counts and records: events, ledger, usage, budgets and the session's clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from app.core.program import Action, Loop, Program, Step
from tests.model.rules.tree import Block, Child, StepRun, Turn

#: The part of the time limit after which the sweep looks at a session.
NEARLY = 0.8


class Bookkeeping:
    """The state of one session, and the records of what happens to it."""

    def __init__(
        self, program: Program, now: int, budget: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self.now = now
        self.budget = dict(budget)
        #: When the session's time is over; and the time left while its clock is stopped.
        self.until = now + budget["wall_ms"] if "wall_ms" in budget else None
        #: Until then attempts are not expired: Redis has restarted.
        self.grace_until = 0
        #: The time of the last sweep.
        self.swept = now
        self.left = budget.get("wall_ms", 0)
        self.clock_look = self._next_look()
        self.reached = False
        self.status = "active"
        self.steps: dict[str, StepRun] = {}
        self.turns: dict[str, Turn] = {}
        self.events: Counter[tuple[str, str]] = Counter({("session.created", ""): 1})
        self.ledger: Counter[tuple[str, int, str, int]] = Counter()
        self.counters: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        #: Of each outermost loop, and of all.
        self.stops: Counter[str] = Counter()
        self.released: list[StepRun] = []
        self.allowance: int | None = None
        #: Where each conversation continues.
        self.threads: dict[str, str] = {}
        #: The block and the signature of the judge that settles now.
        self.signed: tuple[Block, str | None] | None = None
        #: Whether that judge's verdict is stale.
        self.is_stale = False
        #: The transcript.
        self.said: list[str] = []
        self.exited: tuple[str, int] = ("", 0)
        self.steered: list[str] = []
        self.children: dict[str, Child] = {}
        self.aborted: set[str] = set()
        #: Every block that ever was open, by its address.
        self.blocks: dict[str, Block] = {}
        self.root = Turn("", None, None)
        self.turns[""] = self.root
        self.root.inner = self._block(self.root, "", program.body)

    def _block(self, turn: Turn, address: str, body: tuple[Step | Loop, ...]) -> Block:
        self.blocks[address] = Block(turn, address, body)
        return self.blocks[address]

    def _stands_still(self, turn: Turn) -> bool:
        """Whether this iteration came to the same as so many before it."""
        if self.signed is None or self.signed[0] is not turn.inner or self.is_stale:
            return False
        signature = self.signed[1]
        turn.same = turn.same + 1 if signature == turn.signature else 1
        turn.same, turn.signature = (turn.same if signature else 0), signature
        assert isinstance(turn.node, Loop)
        return 0 < turn.node.no_progress < turn.same

    def _ready(self, step: StepRun) -> None:
        step.state = "ready"
        self.steps[step.address] = step
        self.released.append(step)
        self._tell("step.ready", step.address)

    def _cancel(self, step: StepRun) -> None:
        self._leave(step, "cancelled")
        self._tell("step.cancelled", step.address)

    def _leave(self, step: StepRun, state: str) -> None:
        step.state, step.lease, step.deadline, step.due = state, None, None, None
        step.given &= state == "ready"

    def _at_work(self) -> list[Child]:
        return [child for child in self.children.values() if child.at_work]

    def _stop_if_idle(self) -> None:
        if self._at_work():
            return
        if self.status == "stopping" and not any(s.state == "running" for s in self.steps.values()):
            self.status = "stopped"
            self._tell("session.status", "")

    def _write(self, turn: Turn, verdict: str) -> None:
        if turn.loop:
            entry = (turn.address, turn.iteration, verdict, turn.cost)
            self.ledger[entry] += 1
            if verdict == "retry":
                turn.cost = 0
            else:
                turn.entry = entry
            if turn.iteration != turn.recheck:
                self.counters["iterations"] += 1
                self.used["iterations"] += 1

    def _keep_thread(self, step: StepRun, thread: Mapping[str, str] | None) -> None:
        talk = step.node.conversation
        if talk and thread is not None:
            self.threads.pop(talk, None)
            if "kept" in thread:
                self.threads[talk] = thread["kept"]

    def _use_all(self, step: StepRun, usage: Mapping[str, int]) -> None:
        more = {name: max(0, now - step.told.get(name, 0)) for name, now in usage.items()}
        step.told = {name: max(now, step.told.get(name, 0)) for name, now in usage.items()}
        if not any(more.values()):
            return
        self._use(step, more["cost_micros"])
        for name in ("tokens_in", "tokens_out"):
            self.counters[name] += more[name]
            self._note("tokens", more[name])

    def _use(self, step: StepRun, micros: int) -> None:
        self.counters["cost_micros"] += micros
        self._note("cost_micros", micros)
        for turn in step.block.turns():
            turn.cost += micros
            if turn.entry is not None:  # it ended while this attempt was running
                self.ledger[turn.entry] -= 1
                turn.entry = (*turn.entry[:3], turn.cost)
                self.ledger[turn.entry] += 1

    def _note(self, name: str, more: int) -> None:
        """So much more is used; what reaches its limit ends the session if nothing else does."""
        self.used[name] += more
        self.reached = self.reached or self.used[name] >= self.budget.get(name, math.inf)

    def _spent_up(self, more: int) -> bool:
        """Whether no further iteration may begin."""
        iterations = self.used["iterations"] + more >= self.budget.get("iterations", math.inf)
        return self.status == "active" and (self.reached or iterations)

    def _next_look(self) -> int:
        """When the sweep looks at the session's time: once it is nearly used, and at its end."""
        wall = self.budget.get("wall_ms", 0)
        due = self.until or 0
        near = due - wall + math.ceil(NEARLY * wall) + 1
        return min(near, due) if near > self.now else due

    def _stop_clock(self) -> None:
        if self.until is not None:
            self.left, self.until = max(0, self.until - self.now), None

    def _tell(self, kind: str, address: str) -> None:
        self.events[kind, address] += 1

    def _holder(self, address: str, fence: int, nonce: str) -> StepRun | None:
        step = self.steps.get(address)
        held = step and step.state == "running" and (step.fence, step.nonce) == (fence, nonce)
        return step if held else None

    @staticmethod
    def _critical(node: Step) -> bool:
        return node.critical and node.action is not Action.CHECK
