"""Random actions of workers, sweepers and users on one session, in the engine and in its model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from app.core.addresses import SessionRef, block_of, path_of, turn_of
from app.core.outcomes import Thread
from app.core.program import Action, Step
from app.core.records import Grant
from app.errors import PositionRefused
from app.history.records import Snapshot
from app.sessions.migrate import can_switch_in_place
from app.sessions.resume import rewind_to
from tests.engine.driving import LEASE_MS, assert_nothing_left, held, usage
from tests.model.calls import Calls
from tests.model.comparison import Call
from tests.model.random_programs import Choose, altered

#: Beyond what any of the programs here uses.
PLENTY = {"steps": 100_000, "iterations": 100_000, "cost_micros": 10**9, "tokens": 10**9,
          "wall_ms": 10**9, "stage_stops": 10**6, "stops": 10**6}  # fmt: skip


class Simulation(Calls):
    """One session; every public method does something to it and compares what came of it."""

    # What workers do

    def deliver(self, choose: Choose, *, times: int = 1) -> None:
        """A hint arrives: any that was ever sent, early, late or twice."""
        if self.hints:
            address = choose(self.hints[-12:])
            for _ in range(times):
                self.call("claim", address=address, nonce=self.bench.nonce())

    def pump(self, choose: Choose, *, rounds: int = 3) -> None:
        """Workers take what is ready, and settle it: what happens most of the time."""
        for _ in range(rounds):
            ready = [a for a in self.ready() if a in set(self.hints)]
            if not ready or self.model.status != "active":
                self.sweep(choose)
                return
            for _ in range(choose((1, 1, 2, 3))):
                self.call("claim", address=choose(ready), nonce=self.bench.nonce())
            if choose((True, True, False)):
                self.finish_one(choose, fair=False)

    def finish_one(self, choose: Choose, *, fair: bool) -> None:
        """Settle or park a step that an attempt holds."""
        held_now = [g for g in self.grants[-20:] if self._holds(g)]
        if not held_now:
            return
        grant = choose(held_now)
        action = self.model.steps[grant.address].node.action
        answered = fair and self.model.steps[grant.address].given  # or it asks for ever
        parks = action in (Action.HUMAN, Action.WAIT, Action.CHILD) and not answered
        if parks and (fair or choose((True, False))):
            self.park(grant, choose, on=action.value)
        else:
            self.settle(grant, choose, fair=fair)

    def settle(self, grant: Grant, choose: Choose, *, fair: bool = False) -> None:
        action = self.model.steps[grant.address].node.action
        verdicts = {
            Action.JUDGE: ("retry", "retry", "accept", "terminate"),
            Action.BREAK: (None, None, "accept"),
            Action.AGENT: (None,) * 9 + ("terminate",),
            Action.CHECK: ("accept", "retry"),
            Action.DECIDE: ("accept", "retry", "accept", "retry", None),
        }
        good = "accept" if action in (Action.JUDGE, Action.BREAK) else None
        self.call(
            "settle",
            **held(grant),
            word="succeeded" if fair else choose(self._words(grant)),
            verdict=good if fair else choose(verdicts.get(action, (None,))),
            retryable=True if fair else choose((True, True, False)),
            busy=None
            if fair
            else choose((None, None, {"tries": 2}, {"tries": 1, "after_ms": 7_000})),
            expand=self._widths(grant.address, choose),
            take=[self.bench.nonce() for _ in range(choose((0, 0, 1, 3)))],
            worker="w",
            usage=random_usage(choose),
            thread=choose((None, {}, self._thread(), self._thread())),
            **self._signed(grant, choose),
            said=choose(((), (), (self.bench.nonce(),), (self.bench.nonce(), "and so on"))),
        )
        if not fair and choose((False, False, True)):
            self.repeat(choose, last=1)

    def _signed(self, grant: Grant, choose: Choose) -> dict[str, Any]:
        """The signature of a judge's iteration, mostly the same one."""
        if self.model.steps[grant.address].node.action is not Action.JUDGE:
            return {}
        signature = choose(("same", "same", "same", "other", None))
        turn = turn_of(block_of(grant.address))
        signed = {"ledger": turn, "refused_by": "lint", "signature": signature}
        return signed | {"recheck": choose((None, None, True))}

    def _thread(self) -> dict[str, str]:
        """An agent's conversation went on to here."""
        return {"kept": Thread(conversation="a|x", id=self.bench.nonce()).model_dump_json()}

    def _words(self, grant: Grant) -> tuple[str, ...]:
        step = self.model.steps[grant.address]
        again = step.failed < step.node.retry.retries
        return ("succeeded", "failed") if again else ("succeeded",) * 6 + ("failed", "skipped")

    def claim_again(self, choose: Choose) -> None:
        """Who holds a step, or held it, sends the very claim once more."""
        if self.grants:
            grant = choose(self.grants[-8:])
            self.call("claim", address=grant.address, nonce=grant.nonce)

    def park(self, grant: Grant, choose: Choose, *, on: str) -> None:
        until = self.bench.clock.now + choose((5_000, 60_000, 0))
        child: dict[str, str] = {}
        if on == "child":
            name = self._child_of(grant.address)
            child = {"child": name, "child_base": self.bench.store.keys.base(self._ref(name))}
        seen = choose((None, "{}")) if on == "human" else None
        answer = self.call("park", **held(grant), on=on, until_ms=until, seen=seen, **child)
        if answer.word == "ended":
            self.settle(grant, choose, fair=True)

    def spawn(self, choose: Choose) -> None:
        """A step that is held starts its child session, unless an attempt before it has."""
        holders = [
            g.address for g in self.grants[-20:]
            if self._holds(g) and self.model.steps[g.address].node.action is Action.CHILD
        ]  # fmt: skip
        if holders:
            address = choose(holders)
            if self._child_of(address) not in self.model.children:
                self._start_child(address)

    def _start_child(self, address: str) -> None:
        """All that its parent sees of a child: its status, and the step that it stands below."""
        name, key = self._child_of(address), self.bench.store.keys.part
        self.bench.redis.hset(key(self._ref(name), "session"), "status", "active")
        self.bench.redis.sadd(self.drive.key("children"), name)
        self.bench.redis.zadd(self.drive.key("born"), {f"{address}<{name}": 0})
        self.model.spawn(address, name)

    def end_child(self, choose: Choose, *, fair: bool = False) -> None:
        """A child session ends, and its parent hears of it, or does not yet."""
        working = [child.name for child in self.model.children.values() if child.at_work]
        if working:
            name = choose(working)
            session = self.bench.store.keys.part(self._ref(name), "session")
            self.bench.redis.hset(session, mapping={"status": "aborted", "ended": 1})
            self.model.child_ends(name)
            self.unheard.add(name)
        if self.model.children and (fair or choose((True, True, False))):
            name = name if working else choose(sorted(self.model.children))
            self.unheard.discard(name)
            self.call("poke", child=name, address=self.model.children[name].step.address)

    def _child_of(self, address: str) -> str:
        return f"of {address}"

    def _ref(self, child: str) -> SessionRef:
        return SessionRef(child, self.drive.ref.root)

    def zombie(self, choose: Choose) -> None:
        """An attempt of any age calls as if it still owned its step."""
        if not self.grants:
            return
        grant = choose(self.grants[-25:])
        match choose(("settle", "settle", "beat", "release", "park")):
            case "settle":
                self.settle(grant, choose)
            case "park":
                self.park(grant, choose, on=choose(("human", "wait", "child")))
            case "beat":
                self.beat(grant, choose)
            case _:
                self.call("release", **held(grant), usage=random_usage(choose))

    def beat(self, grant: Grant, choose: Choose) -> None:
        self.call(
            "beat",
            **held(grant),
            spent=choose((None, usage(3), usage(40, 3), usage(0, 5, 1), usage(500, 90))),
        )

    def holder(self, choose: Choose) -> None:
        """Somebody who holds a step beats, or hands it back."""
        holders = [g for g in self.grants[-20:] if self._holds(g)]
        if holders:
            grant = choose(holders)
            if choose((True, True, False)):
                self.beat(grant, choose)
            else:
                self.call("release", **held(grant), usage=random_usage(choose))

    def answer(self, choose: Choose) -> None:
        """An answer to any question that was ever asked."""
        if self.fences:
            address, fence = choose(self.fences[-5:])
            word = choose(("succeeded", "failed"))
            self.call("answer", address=address, fence=fence, word=word, by=self.bench.nonce())

    def repeat(self, choose: Choose, *, last: int = 40) -> None:
        """A call comes again, word for word: its reply was lost, or it lay somewhere."""
        if self.calls:
            again = choose(self.calls[-last:])
            if self._is_stale(again):
                return
            self.call(again.verb, **again.arguments)

    def _is_stale(self, call: Call) -> bool:
        """What was worked out for a session that has changed since: the engine looks again."""
        worked_out = any(call.arguments.get(name) is not None for name in ("levels", "adopts"))
        return worked_out and call.arguments["nonce"] not in self.model.steered[-8:]

    def repeat_stretch(self, choose: Choose) -> None:
        """A settle that went on with a next step comes again."""
        stretches = [c for c in self.calls if c.verb == "settle" and self._went_on(c)]
        if stretches:
            again = choose(stretches[-3:])
            self.call(again.verb, **again.arguments)

    # What others do

    def tick(self, seconds: float) -> None:
        self.bench.tick(seconds)
        self.model.now = self.bench.clock.now

    def sweep(self, choose: Choose, *, restarted: bool = False) -> None:
        """Sweep: expire what is due, some of it twice."""
        if restarted:
            self.run_ids += 1
            self.grace_until = self.model.grace_until = self.bench.clock.now + LEASE_MS
        due = self.bench.due(run_id=f"run {self.run_ids}")
        now = self.model.swept = self.bench.clock.now
        past = {self._member(a) for a, score in self._leases().items() if score <= now}
        parked = {a: s for a, s in self.model.steps.items() if s.state == "parked"}
        timers = {self._member(a) for a, step in parked.items() if step.on == "wait"}
        assert set(due.leases) == (past if now >= self.grace_until else past & timers)
        for member in [*due.leases, *due.leases[: choose((0, 1))]]:
            self.call("expire", address=member.split("|", 2)[2])
        for member in due.ready:
            self.drive.rehint(member.split("|", 2)[2], depth=choose((0, 0, 100)))
        self.check()

    def look(self, choose: Choose) -> None:
        """A sweeper that was paused looks at anything, at the wrong time."""
        steps = self.model.steps
        held_now = [a for a, step in steps.items() if step.state in ("running", "parked")]
        address = choose(choose((held_now, sorted(steps), [""])) or ["nowhere"])
        if choose((True, False)):
            self.call("expire", address=address)
        else:
            self.drive.rehint(address, depth=0)
            self.check()

    def lose_hints(self) -> None:
        """A queue was deleted."""
        self.hints.clear()

    def control(self, verb: str, choose: Choose) -> None:
        """Somebody steers; now and then from inside of a step, of any age."""
        more: dict[str, Any] = {}
        if verb == "exit" and self.grants and choose((True, False)):
            grant = choose(self.grants[-10:])
            more = {"by": grant.address, "fence": grant.fence}
        if verb == "resume":
            more = {"max_iterations": choose((None, 1, 0)), "budget": choose((None, PLENTY))}
        self.call("control", steer=verb, nonce=self.bench.nonce(), **more)

    def rest(self) -> None:
        """Somebody stops it, and all who hold something hand it back."""
        if self.model.status == "active":
            self.call("control", steer="stop", nonce=self.bench.nonce())
        for grant in self.grants[-30:]:
            if self._holds(grant):
                self.call("release", **held(grant), usage=usage())

    def go_back(self, choose: Choose) -> None:
        """A session at rest goes on after an earlier point, if anything can follow there."""
        failed = self.model.status == "failed"
        if not failed and self.model.status != "stopped":
            return
        done = [a for a, step in self.model.steps.items() if step.state == "succeeded"]
        after = choose(done[-12:] or ["nowhere"])
        try:
            known = Snapshot(self.bench.store, self.drive.ref)
            found = rewind_to(self.drive.program, after, known, failed=failed)
        except PositionRefused:
            return
        self.went_back += 1
        more = {} if found is None else found.arguments()
        allowed = {"max_iterations": choose((None, None, 1, 3)), "budget": choose((None, PLENTY))}
        self.call("control", steer="resume", nonce=self.bench.nonce(), **allowed, **more)

    def adopt(self, choose: Choose) -> None:
        """Resume a session at rest with another program, if its records fit that program."""
        if self.model.status not in ("stopped", "failed"):
            return
        store, ref, old = self.bench.store, self.drive.ref, self.drive.program
        begun = {path_of(address) for address in (*self.model.steps, *self.model.turns)}
        try:
            new = altered(choose, old, begun)
        except ValidationError:  # a loop of it would have nothing to do
            return
        turns = store.turns(ref, store.names(ref, "turns"))
        known = Snapshot(store, ref)
        if new.hash != old.hash and can_switch_in_place(old, new, self.model.steps, turns, known):
            self.call(
                "control", steer="resume", nonce=self.bench.nonce(), adopts=new,
                budget=choose((None, PLENTY)),
            )  # fmt: skip

    def bring_to_its_end(self) -> None:
        """Run fair workers and sweepers, without faults, until the session ends.

        One that failed is resumed once before it is left alone.
        """
        resumes = 1
        for _ in range(800):
            if self.model.status == "failed":
                resumes -= 1
            if self.model.status in ("completed", "exited", "aborted") or resumes < 0:
                break
            if self.model.status in ("stopped", "failed"):
                self.call(
                    "control", steer="resume", nonce=self.bench.nonce(), max_iterations=2,
                    budget=PLENTY,
                )  # fmt: skip
            self._fair_round()
        else:
            raise AssertionError(f"stuck: {self.model.status}, live: {self.drive.live}")
        assert_nothing_left(self.drive)

    def _fair_round(self) -> None:
        held_now = [g for g in self.grants[-30:] if self._holds(g)]
        hinted = [a for a in dict.fromkeys(self.hints) if a in self.ready()]
        self.hints.clear()
        for grant in held_now:
            if self._holds(grant):
                self.finish_one(_first, fair=True)
        for address in hinted:
            self.call("claim", address=address, nonce=self.bench.nonce())
        for _ in range(len(self.model.children)):
            self.end_child(_first, fair=True)
        for address, step in list(self.model.steps.items()):
            if step.state == "parked" and step.on == "child":
                self.call("answer", address=address, fence=step.fence, word="succeeded", by="it")
        if not (held_now or hinted):
            self._wait()
            self.sweep(_first)

    def _wait(self) -> None:
        """Nobody has anything to do before the next thing is due."""
        scores = [*self.bench.scores("ready").values(), *self._leases().values()]
        if scores:
            self.tick(max(0.0, (max(min(scores), self.grace_until) - self.bench.clock.now) / 1000))
        else:
            self.tick(1)

    def _widths(self, address: str, choose: Choose) -> dict[str, list[str]]:
        """What the step writes for each for_each right after it."""
        step = self.model.steps[address]
        if step.item:
            return {}
        body = step.block.body
        wanting = [
            node.id
            for before, node in pairwise(body)
            if isinstance(node, Step) and node.for_each == "${it}" and before is step.node
        ]
        return {name: [str(item) for item in range(choose((0, 1, 3)))] for name in wanting}


def random_usage(choose: Choose) -> dict[str, int]:
    """What an attempt used: mostly nothing."""
    used: dict[str, int] = choose(
        (usage(), usage(), usage(), usage(50, 7, 1), usage(10), usage(0, 100))
    )
    return used


def _first(options: Sequence[Any]) -> Any:
    return options[0]
