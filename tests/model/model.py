"""A model of the engine in plain objects: a tree of turns, blocks and steps, and a clock.

This file has the calls; `rules/` has what follows from them. Both are written from the design and
not from the scripts: a node starts once all that it needs has arrived, and a block is done once all
of its nodes have. There are no join sets, no indexes and no keys. A rule of the engine that changes
must change here too: the two must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.core.addresses import path_of
from app.core.program import Action, Program, Step
from tests.model.rules.resuming import Resuming
from tests.model.rules.tree import Back, Child, StepRun, body_at

GRACE_MS = 10_000
EXIT_GRACE_MS = 3_000
QUIET_MS = 5_000
MAY = {
    "stop": {"active"},
    "resume": {"stopped", "failed"},
    "exit": {"active", "stopping"},
    "abort": {"active", "stopping", "stopped", "exiting", "failed"},
}


class Model(Resuming):
    """One session. Each method returns the word that the script of the same name should return."""

    def claim(self, address: str, nonce: str, lease_ms: int) -> str:
        step = self.steps.get(address)
        if step is None:
            return "refused"
        if step.nonce == nonce:
            lasts = step.state == "running" and (step.lease or 0) > self.now
            return "granted" if lasts else "superseded"
        self._end_if_over()
        if self.status != "active" or not step.block.open or not self.claimable(step):
            return "refused"
        self.grant(step, nonce, lease_ms)
        return "granted"

    def claimable(self, step: StepRun) -> bool:
        return step.state == "ready" and (step.due or 0) <= self.now

    def talking(self, step: StepRun) -> list[StepRun]:
        """The running attempts in the step's conversation."""
        talk = step.node.conversation
        running = (other for other in self.steps.values() if other.state == "running")
        return [other for other in running if talk and other.node.conversation == talk]

    def grant(self, step: StepRun, nonce: str, lease_ms: int) -> None:
        assert not self.talking(step), f"{step.address} speaks while another does"
        step.state, step.nonce, step.due = "running", nonce, None
        step.fence += 1
        step.attempt += 1
        step.deadline = self.now + round(step.node.timeout_s * 1000)
        step.lease = min(self.now + lease_ms, step.deadline + GRACE_MS)
        step.heard, step.told = 0, {}
        self._tell("step.claimed", step.address)

    def beat(
        self,
        address: str,
        fence: int,
        nonce: str,
        lease_ms: int,
        spent: Mapping[str, int] | None = None,
    ) -> str:
        step = self._holder(address, fence, nonce)
        if step is None or self._is_late(step):
            return "lost"
        step.heard = self.now
        step.lease = min(self.now + lease_ms, (step.deadline or 0) + GRACE_MS)
        if spent is not None:
            self._use_all(step, spent)
            self._end_if_spent()
        if not step.block.open:
            by, at = self.exited
            return "ok" if by == address and self.now < at + EXIT_GRACE_MS else "cancel"
        return "stop" if self.status == "stopping" else "ok"

    def settle(
        self, address: str, fence: int, nonce: str, word: str, verdict: str | None,
        retryable: bool, expand: dict[str, list[str]], usage: Mapping[str, int],
        thread: Mapping[str, str] | None, said: Sequence[str], signature: str | None = None,
        busy: dict[str, int] | None = None, recheck: bool | None = None,
    ) -> str:  # fmt: skip
        step = self.steps.get(address)
        if step is None or (step.fence, step.nonce) != (fence, nonce):
            return "superseded"
        if step.settled == fence:
            return "repeated"
        if step.state != "running":
            return "superseded"
        if self._is_late(step, usage):
            return "superseded"
        step.settled = fence
        self._use_all(step, usage)
        self.signed = (step.block, signature) if step.node.action is Action.JUDGE else None
        self.is_stale = bool(recheck)
        for text in said:
            self.said.append(text)
            self._tell("transcript.added", address)
        if word == "failed" and busy and step.busy < busy["tries"] and step.block.open:
            step.busy += 1
            self._come_back(step, busy.get("after_ms", 1000 * 2 ** (step.busy - 1)))
        elif word == "failed":
            self._fail_attempt(step, verdict, retryable=retryable, expand=expand)
        else:
            self._keep_thread(step, thread)
            self._finish(step, word, verdict, expand)
        self.signed, self.is_stale = None, False
        self._end_if_spent()
        return "again" if step.state == "ready" else "settled"

    def release(self, address: str, fence: int, nonce: str, usage: Mapping[str, int]) -> str:
        step = self._holder(address, fence, nonce)
        if step is None or self._is_late(step):
            return "superseded"
        step.attempt -= 1
        self._use_all(step, usage)
        self._hand_back(step, "step.released")
        self._end_if_spent()
        return "released"

    def park(
        self, address: str, fence: int, nonce: str, on: str, until: int, *, seen: bool = False
    ) -> str:
        step = self.steps.get(address)
        if step and step.state == "parked" and (step.fence, step.nonce) == (fence + 1, nonce):
            return "parked"
        step = self._holder(address, fence, nonce)
        if step is None or self._is_late(step):
            return "superseded"
        if not step.block.open:
            self._hand_back(step, "step.released")
            return "superseded"
        if on == "child" and any(c.step is step and not c.at_work for c in self.children.values()):
            return "ended"
        step.state, step.fence, step.lease, step.deadline = "parked", fence + 1, None, None
        step.on, step.until, step.look_at = on, until, until
        step.seen, step.given = seen, False
        self._tell("step.parked", address)
        self._stop_if_idle()
        return "parked"

    def answer(self, address: str, fence: int, word: str) -> str:
        step = self.steps.get(address)
        if step is None or step.state != "parked" or step.fence != fence:
            return "superseded"
        if self._is_late(step):
            return "superseded"
        if step.seen and word == "succeeded":
            step.given = True
            self._hand_back(step, "step.released")
        else:
            self._finish(step, word, None, {})
        self._end_if_spent()
        return "settled"

    def _is_overdue(self, step: StepRun) -> bool:
        over = step.deadline is not None and step.deadline + GRACE_MS <= self.now
        is_swept = self.now - self.swept <= QUIET_MS and self.now >= self.grace_until
        return step.state == "running" and over and is_swept

    def _is_late(self, step: StepRun, usage: Mapping[str, int] | None = None) -> bool:
        """Apply the deadlines that have passed: whether a call for the step comes too late."""
        was, overdue = step.state, self._is_overdue(step)
        if overdue and usage is not None:
            self._use_all(step, usage)
        self._end_if_over()
        if overdue:
            self._expire_running(step)
        elif step.state == "parked" and step.on == "human" and step.until <= self.now:
            self._expire_parked(step)
        elif step.state == was:
            return False
        self._end_if_spent()
        return True

    def _end_if_over(self) -> None:
        if self.until is not None and self.until <= self.now:
            self._expire_all()

    def expire(self, address: str) -> str:
        if address == "":
            return self._expire_all()
        step = self.steps.get(address)
        if step is None or step.state not in ("running", "parked"):
            return "gone"
        word = (self._expire_parked if step.state == "parked" else self._expire_running)(step)
        self._end_if_spent()
        return "cancelled" if word == "lost" and step.state == "cancelled" else word

    def _expire_all(self) -> str:
        if self.until is None:
            return "gone"
        if self.until > self.now:
            self.clock_look = self._next_look()
            return "alive"
        self._stop_clock()
        self.reached = True
        self._end_if_spent()
        return "spent"

    def control(
        self,
        verb: str,
        nonce: str,
        *,
        by: tuple[str, int] | None = None,
        allowance: int | None = None,
        budget: Mapping[str, int] | None = None,
        back: Back | None = None,
        adopts: Program | None = None,
    ) -> str:
        if nonce in self.steered[-8:]:
            return "done"
        if by is not None:
            step = self.steps.get(by[0])
            if step is None or step.state != "running" or step.fence != by[1]:
                return "refused"
        if self.status not in MAY[verb]:
            return "refused"
        if verb == "resume":
            if self._is_spent(budget, back, adopts):
                return "refused"
            self.budget |= budget or {}
            if adopts is not None:
                self._adopt(adopts)
        self.steered.append(nonce)
        self._steer(verb, by, allowance, back)
        self._end_if_spent()
        return "done"

    def _adopt(self, program: Program) -> None:
        """Adopt another program; all records stay."""
        for address, block in self.blocks.items():
            block.body = body_at(program, address)
        for step in self.steps.values():
            node = program.node(path_of(step.address))
            assert isinstance(node, Step)
            step.node = node
        for turn in self.turns.values():
            turn.node = program.node(path_of(turn.address)) if turn.address else None
        self._tell("session.adopted", "")

    def spawn(self, address: str, name: str) -> None:
        """A step that runs starts a child session."""
        self.children[name] = Child(name, self.steps[address])

    def child_ends(self, name: str) -> None:
        self.children[name].at_work = False

    def poke(self, name: str) -> str:
        """A child session has ended and notifies its parent."""
        if self.status not in ("active", "stopping", "exiting", "aborting"):
            return "refused"
        self._close_around(self.children[name].step.block)
        self._stop_if_idle()
        return "done"
