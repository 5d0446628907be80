"""What follows from an outcome in the model: the next nodes, iterations and the end of a turn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from app.core.program import Given, Loop, OnFail, Program, Step, is_before_work, needs_of
from tests.model.rules.bookkeeping import Bookkeeping
from tests.model.rules.tree import ENDING, Block, StepRun, Turn

#: Leases that a step may lose before it fails.
LOST_MAX = 5


class Progress(Bookkeeping):
    """How steps and turns start and end."""

    def __init__(
        self, program: Program, now: int, budget: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        super().__init__(program, now, budget)
        assert self.root.inner is not None
        self._start(self.root.inner)

    def _start(self, block: Block, *, after: str | None = None) -> None:
        """Begin the nodes (that need this one) whose needs have all arrived."""
        needs = needs_of(block.body)
        for node in block.body:
            fresh = node.id not in block.begun and node.id not in block.arrived
            asked = after is None or after in needs[node.id]
            if block.open and fresh and asked and block.arrived.issuperset(needs[node.id]):
                self._begin(block, node)

    def _begin(self, block: Block, node: Step | Loop) -> None:
        run = block.runs[node.id] + 1
        address = block.address_of(node.id)
        if node.given is not None and not self._said(block, node.given):
            self._skip(block, node, address, run)
        elif isinstance(node, Loop):
            self._open_loop(block, node, node.retries if node.on_fail is OnFail.RETRY else 0)
        elif node.for_each is not None:
            listed = None if isinstance(node.for_each, str) else len(node.for_each)
            turn = Turn(f"{address}~{run}", node, block)
            turn.width = block.widths.get(node.id, 0) if listed is None else listed
            turn.inner = self._block(turn, turn.address, ())
            self.turns[turn.address] = turn
            block.begin(node.id, turn)
            for item in range(1, turn.width + 1):
                self._ready(StepRun(f"{turn.address}#{item}", node, turn.inner, item=True))
            if turn.width == 0:
                self._close(turn, "accept")
        else:
            step = StepRun(address if run == 1 else f"{address}~{run}", node, block, item=False)
            block.begin(node.id, step)
            self._ready(step)

    @staticmethod
    def _said(block: Block, given: Given) -> bool:
        """Whether the node before it succeeded, and said so."""
        run = block.newest.get(given.node)
        return (
            isinstance(run, StepRun) and run.state == "succeeded" and run.verdict == given.verdict
        )

    def _skip(self, block: Block, node: Step | Loop, address: str, run: int) -> None:
        if isinstance(node, Loop) or node.for_each is not None:
            turn = Turn(f"{address}~{run}", node, block, state="closed", verdict="skipped")
            block.begin(node.id, turn)
            self.turns[turn.address] = turn
            self._tell("loop.closed", turn.address)
        else:
            step = StepRun(address if run == 1 else f"{address}~{run}", node, block, item=False)
            step.state = "skipped"
            block.begin(node.id, step)
            self.steps[step.address] = step
            self._tell("step.settled", step.address)
        self._arrive(block, node.id)

    def _open_loop(self, block: Block, node: Loop, left: int, allowed: int | None = None) -> None:
        turn = Turn(f"{block.address_of(node.id)}~{block.runs[node.id] + 1}", node, block)
        outermost = block.turn is self.root and self.allowance is not None
        turn.max = self.allowance or 0 if outermost else node.max_iterations
        if allowed is not None:
            turn.max = allowed
        turn.left = left
        if turn.max > 0 and self._spent_up(0):
            self._end_spent()
            return
        self.turns[turn.address] = turn
        block.begin(node.id, turn)
        self._tell("loop.opened", turn.address)
        if turn.max == 0:
            self._close(turn, "max_iterations")
        else:
            self._iterate(turn)

    def _iterate(self, turn: Turn) -> None:
        assert isinstance(turn.node, Loop)
        turn.iteration += 1
        if turn.iteration > 1:
            self._tell("loop.iteration", turn.address)
        turn.inner = self._block(turn, f"{turn.address}[{turn.iteration}]", turn.node.body)
        self._start(turn.inner)

    def _arrive(self, block: Block, name: str) -> None:
        block.arrived.add(name)
        self._start(block, after=name)
        if not block.open or len(block.arrived) < len(block.body):
            return
        if block.turn is self.root:
            self._close(self.root, "accept")
        else:
            self._turn_over(block.turn)

    def _turn_over(self, turn: Turn) -> None:
        """An iteration is over, and did not end the loop."""
        still = self._stands_still(turn)
        again = turn.recheck == turn.iteration + 1
        counts = turn.iteration != turn.recheck
        is_over = self.reached if again else turn.counted < turn.max and self._spent_up(counts)
        if is_over and self.status == "active":
            self._end_spent()
            return
        self._write(turn, "retry")
        if turn.counted >= turn.max and not again:
            self._close(turn, "max_iterations")
        elif still:
            self._close(turn, "terminate")
        else:
            self._iterate(turn)

    def _finish(
        self, step: StepRun, word: str, verdict: str | None, expand: dict[str, list[str]]
    ) -> None:
        open_, block = step.block.open, step.block
        self._note_stale(block, word, verdict)
        self._leave(step, word)
        step.verdict = verdict
        counted = int(not is_before_work(step.node))
        self.counters["steps"] += counted
        self._note("steps", counted)
        self._tell("step.settled", step.address)
        for name, items in expand.items():
            block.widths[name] = len(items)
        if not open_:
            self._close_around(block)
        elif word == "failed" and self._critical(step.node):
            self._end(block.turn, "terminate")
        elif step.node.ends == "iteration" and verdict == "accept":
            self._turn_over(block.turn)
        elif verdict in ENDING.get(step.node.action, ()):
            self._end(block.turn, str(verdict))
        elif step.item:
            block.turn.arrived += 1
            if block.turn.arrived == block.turn.width:
                self._close(block.turn, "accept")
        else:
            self._arrive(block, step.node.id)
        self._stop_if_idle()

    def _note_stale(self, block: Block, word: str, verdict: str | None) -> None:
        """If the verdict is stale, the next iteration is a recheck, once in a run."""
        asks = self.is_stale and (word, verdict) == ("succeeded", "retry")
        if block.open and asks and block.turn.recheck is None:
            block.turn.recheck = block.turn.iteration + 1

    def _fail_attempt(
        self, step: StepRun, verdict: str | None, *, retryable: bool, expand: dict[str, list[str]]
    ) -> None:
        step.failed += 1
        self.counters["attempts_failed"] += 1
        policy = step.node.retry
        if not (retryable and step.failed <= policy.retries and step.block.open):
            self._finish(step, "failed", verdict, expand)
            return
        wait_s = min(policy.backoff_s * 2 ** (step.failed - 1), policy.max_backoff_s)
        self._come_back(step, round(wait_s * 1000))

    def _come_back(self, step: StepRun, wait_ms: int) -> None:
        self._leave(step, "ready")
        step.due = self.now + wait_ms
        self._tell("step.retried", step.address)
        self._ready(step)
        self._stop_if_idle()

    def _hand_back(self, step: StepRun, event: str) -> None:
        self._tell(event, step.address)
        if step.block.open:
            self._leave(step, "ready")
            self._ready(step)
        else:
            self._cancel(step)
            self._close_around(step.block)
        self._stop_if_idle()

    def _expire_parked(self, step: StepRun) -> str:
        if step.until > self.now:
            step.look_at = step.until
            return "alive"
        if step.on == "child":
            step.look_at = self.now + 60_000
            return "look"
        self._finish(step, "succeeded" if step.on == "wait" else "failed", None, {})
        return "woken"

    def _expire_running(self, step: StepRun) -> str:
        assert step.lease is not None
        assert step.deadline is not None
        if step.lease > self.now:
            return "alive"
        if step.heard >= step.deadline:
            self._tell("step.expired", step.address)
            self._fail_attempt(step, None, retryable=True, expand={})
            return "timeout"
        step.lost += 1
        self.counters["attempts_lost"] += 1
        if step.lost > LOST_MAX:
            self._tell("step.expired", step.address)
            self._finish(step, "failed", None, {})
            return "poison"
        self._hand_back(step, "step.expired")
        return "cancelled" if step.state == "cancelled" else "lost"

    def _end(self, turn: Turn, verdict: str) -> None:
        """A turn ends early: what waits below it is cancelled, what runs is waited for."""
        turn.state, turn.verdict = "closing", verdict
        self._end_below(turn, verdict)
        self._write(turn, verdict)
        self._close_if_quiet(turn)

    def _end_below(self, turn: Turn, verdict: str) -> None:
        for step in list(self.steps.values()):
            if step.state in ("ready", "parked") and turn in step.block.turns():
                self._cancel(step)
        for inner in self.turns.values():
            if inner.state != "closed" and inner.block and turn in inner.block.turns():
                if inner.state == "open":
                    inner.verdict = "exit" if verdict == "exit" else "cancelled"
                    self._write(inner, inner.verdict)
                inner.state = "closed"
                self._tell("loop.closed", inner.address)

    def _close_around(self, block: Block) -> None:
        for turn in block.turns():
            if turn.state == "closing":
                self._close_if_quiet(turn)

    def _close_if_quiet(self, turn: Turn) -> None:
        below = {c.name for c in self._at_work() if turn in c.step.block.turns()}
        self.aborted |= below
        if below:
            return
        running = (step for step in self.steps.values() if step.state == "running")
        if not any(turn in step.block.turns() for step in running):
            self._close(turn, str(turn.verdict))

    def _close(self, turn: Turn, verdict: str) -> None:
        turn.state, turn.verdict = "closed", verdict
        if turn.block is None or turn.node is None:
            ends = {"accept": "completed", "exit": "exited", "abort": "aborted"}
            self._end_session(ends.get(verdict, "failed"))
            return
        self._tell("loop.closed", turn.address)
        block, node = turn.block, turn.node
        if verdict == "accept":
            self._arrive(block, node.id)
        elif isinstance(node, Loop) and block.turn is self.root and self._circuit_opens(node):
            self._end(self.root, "terminate")
        elif isinstance(node, Loop) and node.on_fail is OnFail.RETRY and turn.left > 0:
            block.runs[node.id] += 1
            self.counters["phase_retries"] += 1
            self._open_loop(block, node, turn.left - 1, turn.max)
        elif isinstance(node, Loop) and node.on_fail is OnFail.CONTINUE:
            self._arrive(block, node.id)
        else:
            capped = isinstance(node, Loop) and verdict == "max_iterations"
            self._end(block.turn, verdict if capped else "terminate")

    def _circuit_opens(self, stage: Loop) -> bool:
        """One more run of it was not accepted; whether that was the last that may not be."""
        for name in (stage.id, "stops"):
            self.stops[name] += 1
        self.used["stops"] = self.counters["stops"] = self.stops["stops"]
        again = stage.on_fail is not OnFail.CONTINUE
        here = again and self.stops[stage.id] >= self.budget.get("stage_stops", math.inf)
        return here or self.stops["stops"] >= self.budget.get("stops", math.inf)

    def _end_session(self, status: str) -> None:
        self.status = status
        self._stop_clock()
        self.aborted |= self.children.keys()
        self._tell("session.ended", "")

    def _end_spent(self) -> None:
        if self.root.state == "open":
            self._end(self.root, "terminate")

    def _end_if_spent(self) -> None:
        if self.reached and self.status == "active":
            self._end_spent()
        self.reached = False
