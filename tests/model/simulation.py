"""The engine and its model side by side: whatever is done to the one is done to the other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from app.domain.addresses import block_of, path_of, turn_of
from app.domain.ids import SessionRef
from app.domain.outcomes import Thread
from app.domain.program import Action, Program, Step
from app.domain.records import Grant, Reply
from app.errors import PositionRefused
from app.history.snapshot import Snapshot
from app.resume.compatibility import can_switch_in_place
from app.resume.plan import rewind_to
from app.store.script_library import Verb
from tests.engine.driving import LEASE_MS, Bench, Drive, assert_nothing_left, held, usage
from tests.model.model import Back, Model, StepRun, Turn
from tests.model.random_programs import Choose, altered

HINT_MAX_MS = 48_000
COUNTERS = (
    "steps", "iterations", "attempts_failed", "attempts_lost", "phase_retries", "stops",
    "cost_micros", "tokens_in", "tokens_out",
)  # fmt: skip
#: Beyond what any of the programs here uses.
PLENTY = {"steps": 100_000, "iterations": 100_000, "cost_micros": 10**9, "tokens": 10**9,
          "wall_ms": 10**9, "stage_stops": 10**6, "stops": 10**6}  # fmt: skip


class Call(NamedTuple):
    """One call of a script as a worker made it: it may come again, at any age."""

    verb: str
    arguments: dict[str, Any]


class Simulation:
    """One session; every public method does something to it and compares what came of it."""

    def __init__(
        self,
        bench: Bench,
        program: Program,
        *,
        window: int,
        place: str = "",
        budget: Mapping[str, int] | None = None,
    ) -> None:
        bench.restart()
        self.bench = bench
        self.drive: Drive = bench.start(program, window=window, place=place, budget=budget)
        self.model = Model(program, bench.clock.now, budget or {})
        self.window, self.place = window, place
        self.hinted_before: set[str] = set()
        self.hints: list[str] = self.drive.hinted
        self.grants: list[Grant] = []
        self.calls: list[Call] = []
        self.fences: list[tuple[str, int]] = []
        self._told: Counter[tuple[str, str]] = Counter()
        self._written: Counter[tuple[str, int, str, int]] = Counter()
        self._event = "-"
        self.grace_until, self.run_ids = 0, 1
        self.went_back = 0
        #: Children that have ended, of which their parent is yet to hear.
        self.unheard: set[str] = set()
        bench.due(run_id="run 1")
        self.check()

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
        """Somebody who holds a step says what came of it, or lets it wait."""
        held_now = [g for g in self.grants[-20:] if self._holds(g)]
        if not held_now:
            return
        grant = choose(held_now)
        action = self.model.steps[grant.address].node.action
        if action in (Action.HUMAN, Action.WAIT, Action.CHILD) and (fair or choose((True, False))):
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
        """A judge says what his iteration came to, mostly the same."""
        if self.model.steps[grant.address].node.action is not Action.JUDGE:
            return {}
        signature = choose(("same", "same", "same", "other", None))
        turn = turn_of(block_of(grant.address))
        return {"ledger": turn, "refused_by": "lint", "signature": signature}

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
        answer = self.call("park", **held(grant), on=on, until_ms=until, **child)
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
        """Somebody of any age speaks as if the step were still his."""
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
        """Somebody looks at what is past its time, twice where choice wills."""
        if restarted:
            self.run_ids += 1
            self.grace_until = self.bench.clock.now + LEASE_MS
        due = self.bench.due(run_id=f"run {self.run_ids}")
        now = self.bench.clock.now
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
        """A session at rest goes on by another program, if that fits what it has done."""
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
        """Fair workers and sweepers, and no more faults: the session must come to an end.

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

    # Both sides

    def call(self, verb: str, **arguments: Any) -> Reply:
        """The same call on either side; the words must be the same, and all that can be seen."""
        self.calls.append(Call(verb, arguments))
        answer = self._ask(verb, arguments)
        word = self._foretell(verb, arguments, answer)
        assert answer.word == word, f"{verb} {arguments}: {answer.word}, not {word}"
        self.check()
        return answer

    def _ask(self, verb: str, arguments: dict[str, Any]) -> Reply:
        drive = self.drive
        match verb:
            case "claim":
                answer = drive.claim(arguments["address"], nonce=arguments["nonce"])
            case "control":
                more = {k: v for k, v in arguments.items() if k != "steer"}
                answer = drive.control(arguments["steer"], **more)
            case "poke":
                answer = drive.poke(arguments["address"])
            case _:
                text = json.dumps({"word": arguments.get("word"), **_left_in(arguments)})
                outcome = text if verb in ("settle", "answer") else ""
                given = {k: v for k, v in arguments.items() if v is not None and k != "said"}
                said = [json.dumps({"text": text}) for text in arguments.get("said", ())]
                answer = drive.run(cast("Verb", verb), given, outcome=outcome, said=said)
        if verb == "park" and answer.word == "parked":
            self.fences.append((arguments["address"], int(answer.fence or 0)))
        known = {(g.address, g.fence) for g in self.grants}
        self.grants += [g for g in answer.grants if (g.address, g.fence) not in known]
        return answer

    def _foretell(self, verb: str, arguments: dict[str, Any], answer: Reply) -> str:
        model = self.model
        model.released.clear()
        unknown = ("take", "worker", "child_base", "ledger", "refused_by")
        given = {k: v for k, v in arguments.items() if k not in unknown}
        match verb:
            case "claim":
                return self._foretell_claim(given["address"], given["nonce"], answer)
            case "beat":
                return model.beat(**given)
            case "release" | "expire":
                given.pop("lease_ms", None)
                return str(getattr(model, verb)(**given))
            case "park":
                return model.park(
                    given["address"], given["fence"], given["nonce"], given["on"], given["until_ms"]
                )
            case "answer":
                return model.answer(given["address"], given["fence"], given["word"])
            case "poke" | "control":
                return self._foretell_steering(verb, given)
            case _:
                given.pop("lease_ms")
                word = model.settle(**given)
                self._compare_next(word, arguments, answer)
                return word

    def _foretell_steering(self, verb: str, given: dict[str, Any]) -> str:
        if verb == "poke":
            return self.model.poke(given["child"])
        by = (given["by"], given["fence"]) if "by" in given else None
        return self.model.control(
            given["steer"], given["nonce"], by=by, allowance=given.get("max_iterations"),
            budget=given.get("budget"), back=_back(given), adopts=given.get("adopts"),
        )  # fmt: skip

    def _foretell_claim(self, address: str, nonce: str, answer: Reply) -> str:
        """Only one speaks in a conversation, and goes on where the last one ended."""
        if answer.why == "lock":
            assert self.model.talking(self.model.steps[address]) or self._in_line(address)
            return "refused"
        word = self.model.claim(address, nonce, LEASE_MS)
        for grant in answer.grants:
            talk = self.model.steps[grant.address].node.conversation or ""
            kept = self.model.threads.get(talk)
            assert grant.thread == (kept and Thread.model_validate_json(kept)), grant.address
        return word

    def _compare_next(self, word: str, arguments: dict[str, Any], answer: Reply) -> None:
        """Quick steps that were released went to the settler, as many as he would take."""
        step = self.model.steps.get(arguments["address"])
        granted = {g.address: (g.fence, g.nonce) for g in answer.grants}
        if step is None or word == "superseded":
            assert not granted
        elif word == "repeated":
            stands = {
                a: (fence, nonce)
                for a, (fence, nonce) in step.granted.items()
                if self.model.steps[a].state == "running"
                and (self.model.steps[a].fence, self.model.steps[a].nonce) == (fence, nonce)
            }
            assert granted == stands
        else:
            quick = {
                s.address for s in self.model.released
                if s is not step and s.state == "ready" and self._quick(s)
            } if self.model.status == "active" else set()  # fmt: skip
            for address in set(granted) - quick:  # from the line for a slot of the window
                other = self.model.steps[address]
                assert other is not step
                assert other.state == "ready"
                assert self._quick(other)
                assert (other.due or 0) <= self.bench.clock.now
                assert self._queue(other) == self._queue(step)
                assert address not in self.hinted_before
            assert len(granted) >= min(len(quick), len(arguments["take"]))
            assert len(granted) <= len(arguments["take"])
            for address, (_, nonce) in granted.items():
                self.model.grant(self.model.steps[address], nonce, LEASE_MS)
            step.granted = granted

    def _in_line(self, address: str) -> bool:
        """Somebody else waits for the same conversation, and was called before."""
        talk = self.model.steps[address].node.conversation
        others = [s for s in self.model.steps.values() if s.node.conversation == talk]
        return any(s.address != address and s.state == "ready" for s in others)

    # What must hold

    def check(self) -> None:
        """Whatever can be seen of the session is as the model has it."""
        seen = self._read()
        self._check_session(seen)
        self._check_steps(seen)
        self._check_turns(seen)
        self._check_told(seen)
        self._check_sets(seen)
        self._check_ready(seen)
        self.hinted_before = {entry.split("<", 1)[1] for entry in seen["hinted"]}

    def _read(self) -> dict[str, Any]:
        key, store = self.drive.key, self.bench.store
        pipe = self.bench.redis.pipeline(transaction=False)
        pipe.hgetall(key("session")).hgetall(key("steps")).hgetall(key("turns"))
        pipe.hgetall(key("threads")).lrange(key("transcript"), 0, -1)
        sets = ("live", "running", "parked", "open", "hinted", "waiting")
        for part in sets:
            pipe.zrange(key(part), 0, -1)
        pipe.zrange(store.keys.everywhere("leases"), 0, -1, withscores=True)
        pipe.zrange(store.keys.everywhere("ready"), 0, -1, withscores=True)
        pipe.lrange(key("ledger"), 0, -1)
        pipe.xrange(key("events"), self._event)
        pipe.zrange(store.keys.everywhere("errands"), 0, -1)
        pipe.hkeys(store.keys.everywhere("called"))
        names = (
            "session", "steps", "turns", "threads", "transcript", *sets,
            "leases", "ready", "ledger", "events", "errands", "called",
        )  # fmt: skip
        seen = dict(zip(names, pipe.execute(), strict=True))
        for part in ("steps", "turns"):
            seen[part] = {address: json.loads(text) for address, text in seen[part].items()}
        return seen | {part: set(seen[part]) for part in sets}

    def _check_session(self, seen: dict[str, Any]) -> None:
        assert seen["session"]["status"] == self.model.status
        assert seen["threads"] == self.model.threads
        assert [json.loads(line)["text"] for line in seen["transcript"]] == self.model.said
        counted = {name: int(seen["session"].get(name, 0)) for name in COUNTERS}
        assert counted == {name: self.model.counters[name] for name in COUNTERS}

    def _check_steps(self, seen: dict[str, Any]) -> None:
        names = (
            "state",
            "fence",
            "attempt",
            "lost",
            "failed",
            "lease",
            "deadline",
            "due",
            "verdict",
        )
        empty = {"fence": 0, "attempt": 0, "lost": 0, "failed": 0}
        for address, record in seen["steps"].items():
            step = self.model.steps.get(address)
            assert step is not None, f"{address} should be pending"
            expected = {name: getattr(step, name) for name in names}
            assert {name: record.get(name, empty.get(name)) for name in names} == expected, address
        assert seen["steps"].keys() == self.model.steps.keys()

    def _check_turns(self, seen: dict[str, Any]) -> None:
        for id_, record in seen["turns"].items():
            turn = self.model.turns.get(id_)
            assert turn is not None, f"{id_} should not have opened"
            stored = (record["state"], record.get("iteration", 0), record.get("verdict"))
            assert stored == (turn.state, turn.iteration, turn.verdict), id_
            assert record.get("same", 0) == turn.same, id_
        assert seen["turns"].keys() == self.model.turns.keys()

        owed = {errand.split("|")[1] for errand in seen["errands"] if errand.startswith("abort|")}
        ours = owed & self.model.children.keys()
        assert {name for name in ours if self.model.children[name].at_work} == {
            name for name in self.model.aborted if self.model.children[name].at_work
        }

    def _check_told(self, seen: dict[str, Any]) -> None:
        for id_, fields in seen["events"]:
            self._event = f"({id_}"
            if fields["t"] == "step.blocked":  # of lines for locks the model knows nothing
                assert self.model.steps[fields["a"]].node.conversation is not None
                continue
            self._told[fields["t"], fields["a"]] += 1
        assert self._told == self.model.events
        self._written.clear()
        for line in map(json.loads, seen["ledger"]):
            cost = round(line.get("cost_usd", 0) * 1_000_000)
            name = f"{line['loop']}~{line['run']}"
            self._written[name, line["iteration"], line["verdict"], cost] += 1
        plain = Counter[tuple[str, int, str, int]]()
        for (id_, iteration, verdict, cost), times in self.model.ledger.items():
            loop, run = self.model.turns[id_], id_.rpartition("~")[2]
            plain[f"{_path(loop)}~{run}", iteration, verdict, cost] += times
        assert self._written == plain

    def _check_sets(self, seen: dict[str, Any]) -> None:
        states = {a: step.state for a, step in self.model.steps.items()}
        assert seen["live"] == {a for a, s in states.items() if s in ("ready", "running", "parked")}
        assert seen["running"] == {a for a, s in states.items() if s == "running"}
        assert seen["parked"] == {a for a, s in states.items() if s == "parked"}
        assert seen["open"] == {id_ for id_, t in self.model.turns.items() if t.state != "closed"}
        assert dict(seen["leases"]) == {self._member(a): s for a, s in self._leases().items()}

    def _check_ready(self, seen: dict[str, Any]) -> None:
        """Whatever is ready has a time at which it is hinted, or stands behind a full window."""
        if self.model.status != "active":
            assert not seen["ready"]
            assert not seen["hinted"]
            return
        scores = {member.split("|", 2)[2]: score for member, score in seen["ready"]}
        ready = [self.model.steps[address] for address in self.ready()]
        assert scores.keys() <= {step.address for step in ready}
        assert seen["hinted"] <= {f"{self._queue(s)}<{s.address}" for s in ready}
        line = {entry.split("<", 2)[2] for entry in seen["waiting"]}
        out = Counter(entry.split("<", 1)[0] for entry in seen["hinted"])
        # A step that was called for a lock waits for no window.
        called = {entry.split("<", 1)[1].split("|", 2)[2] for entry in seen["called"]}
        kept = [entry.split("<", 1) for entry in seen["hinted"]]
        within = Counter(queue for queue, address in kept if address not in called)
        assert max(within.values(), default=0) <= self.window
        for step in ready:
            if (step.due or 0) > self.bench.clock.now:
                assert scores[step.address] == step.due
            elif step.address in scores:
                assert scores[step.address] <= self.bench.clock.now + HINT_MAX_MS
            else:
                assert step.address in line, f"{step.address} is forgotten"
                assert out[self._queue(step)] >= self.window, f"{step.address} waits for nothing"
        assert {entry.split("<", 1)[1] for entry in seen["hinted"]} <= scores.keys()
        if not ready:
            held_now = any(s.state in ("running", "parked") for s in self.model.steps.values())
            told_later = self.unheard or any(c.at_work for c in self.model.children.values())
            assert held_now or told_later, "stuck"

    def ready(self) -> list[str]:
        return [a for a, step in self.model.steps.items() if step.state == "ready"]

    def _leases(self) -> dict[str, int]:
        """When each attempt and each parked step is looked at, and the session for its time."""
        clock = {} if self.model.until is None else {"": self.model.until}
        return clock | {
            address: step.look_at if step.state == "parked" else int(step.lease or 0)
            for address, step in self.model.steps.items()
            if step.state in ("running", "parked")
        }

    def _member(self, address: str) -> str:
        return self.drive.ref.member + address

    def _holds(self, grant: Grant) -> bool:
        step = self.model.steps[grant.address]
        return step.state == "running" and (step.fence, step.nonce) == (grant.fence, grant.nonce)

    def _went_on(self, call: Call) -> bool:
        step = self.model.steps.get(call.arguments["address"])
        return step is not None and bool(step.granted)

    def _queue(self, step: StepRun) -> str:
        of_action = {Action.AGENT: "agents", Action.CHECK: "checks"}
        queue = step.node.queue or of_action.get(step.node.action, "tools")
        return f"{queue}@{self.place}" if self.place else queue

    def _quick(self, step: StepRun) -> bool:
        quick = (Action.JUDGE, Action.HUMAN, Action.WAIT, Action.CHILD)
        return (step.node.quick or step.node.action in quick) and not step.node.conversation

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


def _back(given: Mapping[str, Any]) -> Back | None:
    if given.get("levels") is None:
        return None
    anew = frozenset(join["name"] for join in given["again"] if join["name"])
    return Back(anew, given["levels"], given["threads"])


def _left_in(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What an outcome says of its conversation."""
    thread = arguments.get("thread")
    if thread is None or arguments.get("word") != "succeeded":
        return {}
    kept = thread.get("kept") or Thread(conversation="a|x").model_dump_json()
    return {"thread": json.loads(kept)}


def random_usage(choose: Choose) -> dict[str, int]:
    """What an attempt used: mostly nothing."""
    used: dict[str, int] = choose(
        (usage(), usage(), usage(), usage(50, 7, 1), usage(10), usage(0, 100))
    )
    return used


def _first(options: Sequence[Any]) -> Any:
    return options[0]


def _path(turn: Turn) -> str:
    names: Iterable[str] = (t.node.id for t in _chain(turn) if t.node is not None)
    return "/".join(reversed(list(names)))


def _chain(turn: Turn) -> Iterable[Turn]:
    yield turn
    if turn.block is not None:
        yield from turn.block.turns()
