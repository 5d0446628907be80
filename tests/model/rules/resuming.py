"""Stop, resume, exit and abort in the model: which nodes run again, and from where."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from app.core.program import Loop, OnFail, Program, Step
from tests.model.rules.progress import Progress
from tests.model.rules.tree import ENDING, Back, Block, StepRun, Turn


class Resuming(Progress):
    """How a session is controlled, and resumed from an earlier point."""

    def _is_spent(
        self, raised: Mapping[str, int] | None, back: Back | None, adopts: Program | None
    ) -> bool:
        """Whether a budget of a session at rest is used up, by the program that it resumes with."""
        self.used["wall_ms"] = self.budget.get("wall_ms", 0) - self.left
        self.used["stage_stops"] = self._most_stops(back, adopts)
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
            self.clock_look = self._next_look()
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
        # The attempts that a closing turn waited for may have ended while the session was at rest.
        for turn in list(self.turns.values()):
            if turn.state == "closing":
                self._close_if_quiet(turn)

    def _raise_ceilings(self) -> None:
        """A named iteration limit applies to open outermost loops if nothing runs again."""
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
        """Resume a failed session: each outermost node that is not done runs again."""
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
        passed = turn.recheck is not None
        if back.levels and back.levels[-1]["iteration"] - passed > turn.max:
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
        turn.recheck = level.get("recheck")
        more = turn.recheck is not None
        turn.max = self.allowance or 0 if outermost else level["max"] - more
        turn.left, turn.iteration = level["left"], level["iteration"]
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
        """Whether the newest run has started; a node that never did starts with its own number."""
        run, address = block.runs[name] + 1, block.address_of(name)
        return f"{address}~{run}" in self.turns | self.steps or (run == 1 and address in self.steps)

    def _fine(self, node: Step | Loop, run: StepRun | Turn | None) -> bool:
        """Whether a failed session keeps the run of a node: what needs it may start."""
        if isinstance(run, Turn):
            passed = isinstance(node, Loop) and node.on_fail is OnFail.CONTINUE
            good = ("accept", "skipped")
            return run.verdict in good or (passed and run.verdict != "cancelled")
        if run is None or isinstance(node, Loop) or run.verdict in ENDING.get(node.action, ()):
            return False
        return run.state in ("succeeded", "skipped") or (
            run.state == "failed" and not self._critical(node)
        )

    def _most_stops(self, back: Back | None, adopts: Program | None) -> int:
        """The highest count of stops among the outermost nodes that would run again."""
        block = self.root.inner
        assert block is not None
        failed, body = self.status == "failed", (block if adopts is None else adopts).body
        fresh = {n.id for n in body if failed and not self._fine(n, block.begun.get(n.id))}
        anew = fresh if back is None else back.anew
        return max((self.stops[name] for name in anew), default=0)
