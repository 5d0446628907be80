"""What the engine should do, in plain objects: a tree of turns, blocks and steps, and a clock.

Written from the design's words, not from the scripts: a node starts once all that it needs has
arrived, and a block is done once all of its nodes have; there are no join sets, no indexes and no
keys. A rule of the engine that changes must change here too: the two must agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from app.domain.addresses import path_of, turn_of
from app.domain.program import Action, Given, Loop, OnFail, Program, Step, needs_of

GRACE_MS = 10_000
EXIT_GRACE_MS = 3_000
LOST_MAX = 5
MAY = {
    "stop": {"active"},
    "resume": {"stopped", "failed"},
    "exit": {"active", "stopping"},
    "abort": {"active", "stopping", "stopped", "exiting", "failed"},
}
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


def _body_at(program: Program, address: str) -> tuple[Step | Loop, ...]:
    """The body of a block, by its address; that of a for_each has none."""
    node = program.node(path_of(turn_of(address))) if address else None
    if node is None:
        return program.body
    return node.body if isinstance(node, Loop) else ()


class Model:
    """One session. Every method answers the word that the script of its name should answer."""

    def __init__(
        self, program: Program, now: int, budget: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self.now = now
        self.budget = dict(budget)
        #: When the session's time is over; and the time left while its clock is stopped.
        self.until = now + budget["wall_ms"] if "wall_ms" in budget else None
        self.left = budget.get("wall_ms", 0)
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
        #: Where each conversation goes on.
        self.threads: dict[str, str] = {}
        #: What the judge who speaks now says that his iteration came to.
        self.signed: tuple[Block, str | None] | None = None
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
        self._start(self.root.inner)

    # What is asked of it

    def claim(self, address: str, nonce: str, lease_ms: int) -> str:
        step = self.steps.get(address)
        if step is None:
            return "refused"
        if step.nonce == nonce:
            lasts = step.state == "running" and (step.lease or 0) > self.now
            return "granted" if lasts else "superseded"
        if self.status != "active" or not step.block.open or not self.claimable(step):
            return "refused"
        self.grant(step, nonce, lease_ms)
        return "granted"

    def claimable(self, step: StepRun) -> bool:
        return step.state == "ready" and (step.due or 0) <= self.now

    def talking(self, step: StepRun) -> list[StepRun]:
        """Who speaks in the step's conversation now."""
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
        if step is None:
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
        busy: dict[str, int] | None = None,
    ) -> str:  # fmt: skip
        step = self.steps.get(address)
        if step is None or (step.fence, step.nonce) != (fence, nonce):
            return "superseded"
        if step.settled == fence:
            return "repeated"
        if step.state != "running":
            return "superseded"
        step.settled = fence
        self._use_all(step, usage)
        self.signed = (step.block, signature) if step.node.action is Action.JUDGE else None
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
        self.signed = None
        self._end_if_spent()
        return "again" if step.state == "ready" else "settled"

    def release(self, address: str, fence: int, nonce: str, usage: Mapping[str, int]) -> str:
        step = self._holder(address, fence, nonce)
        if step is None:
            return "superseded"
        step.attempt -= 1
        self._use_all(step, usage)
        self._hand_back(step, "step.released")
        self._end_if_spent()
        return "released"

    def park(self, address: str, fence: int, nonce: str, on: str, until: int) -> str:
        step = self.steps.get(address)
        if step and step.state == "parked" and (step.fence, step.nonce) == (fence + 1, nonce):
            return "parked"
        step = self._holder(address, fence, nonce)
        if step is None:
            return "superseded"
        if not step.block.open:
            self._hand_back(step, "step.released")
            return "superseded"
        if on == "child" and any(c.step is step and not c.at_work for c in self.children.values()):
            return "ended"
        step.state, step.fence, step.lease, step.deadline = "parked", fence + 1, None, None
        step.on, step.until, step.look_at = on, until, until
        self._tell("step.parked", address)
        self._stop_if_idle()
        return "parked"

    def answer(self, address: str, fence: int, word: str) -> str:
        step = self.steps.get(address)
        if step is None or step.state != "parked" or step.fence != fence:
            return "superseded"
        self._finish(step, word, None, {})
        self._end_if_spent()
        return "settled"

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
        if self.until is None or self.until > self.now:
            return "gone" if self.until is None else "alive"
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
            if self._is_spent(budget, back):
                return "refused"
            self.budget |= budget or {}
            if adopts is not None:
                self._adopt(adopts)
        self.steered.append(nonce)
        self._steer(verb, by, allowance, back)
        self._end_if_spent()
        return "done"

    def _adopt(self, program: Program) -> None:
        """It goes on by another program, with what it has done."""
        for address, block in self.blocks.items():
            block.body = _body_at(program, address)
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
        """A child has ended, and says so."""
        if self.status not in ("active", "stopping", "exiting", "aborting"):
            return "refused"
        self._close_around(self.children[name].step.block)
        self._stop_if_idle()
        return "done"

    # How it comes about

    def _is_spent(self, raised: Mapping[str, int] | None, back: Back | None) -> bool:
        """Whether a session at rest has nothing left to go on with."""
        self.used["wall_ms"] = self.budget.get("wall_ms", 0) - self.left
        self.used["stage_stops"] = self._most_stops(back)
        limits = {**self.budget, **(raised or {})}
        return any(self.used[name] >= limit for name, limit in limits.items())

    def _steer(
        self, verb: str, by: tuple[str, int] | None, allowance: int | None, back: Back | None
    ) -> None:
        failed = self.status == "failed"
        self.status = {"stop": "stopping", "resume": "active", "exit": "exiting"}.get(
            verb, "aborting"
        )
        self._tell("session.status", "")
        if verb == "resume" and "wall_ms" in self.budget:
            self.until = self.now + self.budget["wall_ms"] - self.used["wall_ms"]
        match verb:
            case "stop":
                self._stop_clock()
                self._stop_if_idle()
            case "resume":
                self.allowance = allowance
                self._resume(back, failed=failed)
                self.allowance = None
            case "exit" | "abort":
                self.exited = (by[0], self.now) if by and verb == "exit" else self.exited
                self._end_root(verb, failed=failed)
            case _:
                pass

    def _resume(self, back: Back | None, *, failed: bool) -> None:
        if failed:
            self.root.state, self.root.verdict = "open", None
        if back is not None:
            self._go_back(back, failed=failed)
        elif failed:
            self._run_anew()
        else:
            self._raise_ceilings()
        # What a closing turn waited for may have come to an end meanwhile.
        for turn in list(self.turns.values()):
            if turn.state == "closing":
                self._close_if_quiet(turn)

    def _raise_ceilings(self) -> None:
        """Where nothing runs anew, a ceiling that is named is that of the loops under way."""
        for turn in self.turns.values():
            outermost = turn.block is not None and turn.block.turn is self.root
            under_way = outermost and turn.state == "open" and isinstance(turn.node, Loop)
            if under_way and self.allowance is not None:
                turn.max = self.allowance

    def _end_root(self, verdict: str, *, failed: bool) -> None:
        if failed:
            self._end_session("aborted")
        elif self.root.state == "open":
            self._end(self.root, verdict)
        else:
            self.root.verdict = verdict
            self._close_if_quiet(self.root)

    def _run_anew(self) -> None:
        """A failed session goes on: all that is not done runs anew."""
        block = self.root.inner
        assert block is not None
        anew = {n.id for n in block.body if not self._fine(n, block.begun.get(n.id))}
        self._renew(anew, failed=True)
        self._go_on([block], anew)

    def _go_back(self, back: Back, *, failed: bool) -> None:
        """It goes on after an earlier point: turns open in each other, where older ones stood."""
        block = self.root.inner
        assert block is not None
        if back.threads is not None:
            self.threads = dict(back.threads)
        self._renew(back.anew, failed=failed)
        opened, inside = [block], block
        for level in back.levels:
            inside = self._open_at(inside, level)
            opened.append(inside)
        turn = inside.turn
        if back.levels and back.levels[-1]["iteration"] > turn.max:
            self._close(turn, "max_iterations")
        self._go_on(opened, back.anew)

    def _go_on(self, opened: Sequence[Block], anew: Collection[str]) -> None:
        for block in opened:
            self._start(block)
        if not anew:
            self._close(self.root, "accept")

    def _renew(self, names: Collection[str], *, failed: bool) -> None:
        """Outermost nodes begin again, as next runs where they had begun; all others count as done.

        Of a stopped session, only those that had arrived: the others continue as they are.
        """
        block = self.root.inner
        assert block is not None
        for node in block.body:
            if node.id in names:
                self._end_run(block, node.id)
                block.begun.pop(node.id, None)
                block.runs[node.id] += self._has_run(block, node.id)
                block.arrived.discard(node.id)
            elif failed:
                block.arrived.add(node.id)

    def _end_run(self, block: Block, name: str) -> None:
        """The newest run of a node ends as it stands, because another takes its place."""
        run = block.begun.get(name)
        if isinstance(run, StepRun) and run.state in ("ready", "parked"):
            self._cancel(run)
        if isinstance(run, Turn) and run.state != "closed":
            if run.state == "open":
                self._end_below(run, "cancelled")
                run.verdict = "cancelled"
                self._write(run, "cancelled")
            run.state = "closed"
            self._tell("loop.closed", run.address)

    def _open_at(self, block: Block, level: Mapping[str, Any]) -> Block:
        """The next run of a loop, at the iteration in which an older one stood."""
        node = next(node for node in block.body if node.id == level["node"])
        assert isinstance(node, Loop)
        turn = Turn(f"{block.address_of(node.id)}~{block.runs[node.id] + 1}", node, block)
        outermost = block.turn is self.root and self.allowance is not None
        turn.max = self.allowance or 0 if outermost else level["max"]
        turn.left, turn.iteration = level["left"], min(level["iteration"], turn.max)
        self.turns[turn.address] = turn
        block.begin(node.id, turn)
        self._tell("loop.opened", turn.address)
        inner = self._block(turn, f"{turn.address}[{level['iteration']}]", node.body)
        for name, home in level["kept"].items():
            inner.arrived.add(name)
            inner.newest[name] = self.blocks[home].newest[name]
        for name, place in level["widths"].items():
            older = self.blocks[place.removesuffix(name).rstrip("/")]
            if name in older.widths:
                inner.widths[name] = older.widths[name]
        turn.inner = inner
        return inner

    def _has_run(self, block: Block, name: str) -> bool:
        """Whether the newest run has begun; one that never did is begun under its own number."""
        run, address = block.runs[name] + 1, block.address_of(name)
        return f"{address}~{run}" in self.turns | self.steps or (run == 1 and address in self.steps)

    def _fine(self, node: Step | Loop, run: StepRun | Turn | None) -> bool:
        if isinstance(run, Turn):
            passed = isinstance(node, Loop) and node.on_fail is OnFail.CONTINUE
            good = ("accept", "skipped")
            return run.verdict in good or (passed and run.verdict != "cancelled")
        if run is None or run.verdict in ENDING.get(run.node.action, ()):
            return False
        return run.state in ("succeeded", "skipped") or (
            run.state == "failed" and not self._critical(run.node)
        )

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

    def _block(self, turn: Turn, address: str, body: tuple[Step | Loop, ...]) -> Block:
        self.blocks[address] = Block(turn, address, body)
        return self.blocks[address]

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
        if turn.iteration < turn.max and self._spent_up(1):
            self._end_spent()
            return
        self._write(turn, "retry")
        if turn.iteration >= turn.max:
            self._close(turn, "max_iterations")
        elif still:
            self._close(turn, "terminate")
        else:
            self._iterate(turn)

    def _stands_still(self, turn: Turn) -> bool:
        """Whether this iteration came to the same as so many before it."""
        if self.signed is None or self.signed[0] is not turn.inner:
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

    def _finish(
        self, step: StepRun, word: str, verdict: str | None, expand: dict[str, list[str]]
    ) -> None:
        open_, block = step.block.open, step.block
        self._leave(step, word)
        step.verdict = verdict
        self.counters["steps"] += 1
        self._note("steps", 1)
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

    def _most_stops(self, back: Back | None) -> int:
        """How often that one was stopped which was stopped most, of those that would run anew."""
        block = self.root.inner
        assert block is not None
        failed = self.status == "failed"
        fresh = {n.id for n in block.body if failed and not self._fine(n, block.begun.get(n.id))}
        anew = fresh if back is None else back.anew
        return max((self.stops[name] for name in anew), default=0)

    def _end_session(self, status: str) -> None:
        self.status = status
        self._stop_clock()
        self.aborted |= self.children.keys()
        self._tell("session.ended", "")

    def _cancel(self, step: StepRun) -> None:
        self._leave(step, "cancelled")
        self._tell("step.cancelled", step.address)

    def _leave(self, step: StepRun, state: str) -> None:
        step.state, step.lease, step.deadline, step.due = state, None, None, None

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

    def _end_spent(self) -> None:
        if self.root.state == "open":
            self._end(self.root, "terminate")

    def _end_if_spent(self) -> None:
        if self.reached and self.status == "active":
            self._end_spent()
        self.reached = False

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
