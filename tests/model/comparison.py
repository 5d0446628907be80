"""Compares everything that can be read of a session in the store with the model."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from app.core.program import Action, Program
from app.core.records import Grant
from tests.engine.driving import Bench, Drive
from tests.model.model import Model
from tests.model.rules.tree import StepRun, Turn

HINT_MAX_MS = 48_000
COUNTERS = (
    "steps", "iterations", "attempts_failed", "attempts_lost", "phase_retries", "stops",
    "cost_micros", "tokens_in", "tokens_out",
)  # fmt: skip


class Call(NamedTuple):
    """One call of a script as a worker made it: it may come again, at any age."""

    verb: str
    arguments: dict[str, Any]


class Comparison:
    """A session in the engine, its model, and the comparison of the two."""

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
            assert record.get("recheck") == turn.recheck, id_
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
        clock = {} if self.model.until is None else {"": self.model.clock_look}
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


def _path(turn: Turn) -> str:
    names: Iterable[str] = (t.node.id for t in _chain(turn) if t.node is not None)
    return "/".join(reversed(list(names)))


def _chain(turn: Turn) -> Iterable[Turn]:
    yield turn
    if turn.block is not None:
        yield from turn.block.turns()
