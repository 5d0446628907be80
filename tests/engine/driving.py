"""Drives the real scripts on a real server, under a clock that the tests wind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from redis import ConnectionPool, Redis

from app.core import routing
from app.core.addresses import SessionRef
from app.core.program import Action, Loop, OnFail, Program, RetryPolicy, Step
from app.core.records import Grant, NewSession, Reply, StoredProgram
from app.core.states import SESSION_NEXT, SessionStatus
from app.store.script_library import Reader, Verb, text_of
from app.store.store import Store, connect

LEASE_MS = 30_000
GRACE_MS = 10_000
RETENTION_S = 1000
TARGETS = {
    "stop": SessionStatus.STOPPING,
    "resume": SessionStatus.ACTIVE,
    "exit": SessionStatus.EXITING,
    "abort": SessionStatus.ABORTING,
}
Routes = Callable[[Program], dict[str, routing.Route]]


def step(
    name: str,
    action: str = "tool",
    *,
    needs: tuple[str, ...] | None = None,
    retries: int = 0,
    **more: Any,
) -> Step:
    """A step in few words."""
    retry = RetryPolicy(retries=retries, backoff_s=1, max_backoff_s=3)
    return Step(id=name, action=Action(action), needs=needs, retry=retry, **more)


def loop(
    name: str,
    *body: Step | Loop,
    turns: int = 3,
    needs: tuple[str, ...] | None = None,
    on_fail: str = "stop",
    retries: int = 0,
) -> Loop:
    """A loop in few words."""
    return Loop(
        id=name, body=body, max_iterations=turns, needs=needs, on_fail=OnFail(on_fail),
        retries=retries,
    )  # fmt: skip


def program(*body: Step | Loop) -> Program:
    return Program(body=body)


@dataclass
class Clock:
    now: int = 1_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Bench:
    """An empty server, its clock, and the sessions that are driven on it."""

    redis: Any  # its stubs answer for asyncio too
    read: Reader = text_of
    routes: Routes = routing.routes
    clock: Clock = field(default_factory=Clock)
    run_id: str | None = None

    def __post_init__(self) -> None:
        self.store = Store(self.redis, clock=self.clock, read=self.read)
        self._nonces = count(1)
        self.restart()

    @staticmethod
    def at(url: str) -> Bench:
        return Bench(connect(url))

    def restart(self) -> None:
        """Everything begins again: no session, the clock where it stood at first."""
        self.redis.flushdb()
        self.clock.now = 1_000_000

    def client(self) -> Redis:
        """A client of the same server for one more store: each keeps connections for itself."""
        pool = self.redis.connection_pool
        return Redis(
            connection_pool=ConnectionPool(pool.connection_class, **pool.connection_kwargs)
        )

    def nonce(self) -> str:
        return f"nonce{next(self._nonces)}"

    def start(self, program: Program, *, name: str = "aaaaaaaa", **more: Any) -> Drive:
        """Create a session of the program; its first steps are ready."""
        drive = Drive(self, SessionRef(name, name), program)
        answer = drive.create(**more)
        assert answer.word == "created", answer
        return drive

    def tick(self, seconds: float) -> None:
        self.clock.now += round(seconds * 1000)

    def due(self, *, limit: int = 100, run_id: str | None = None, **more: Any) -> Reply:
        """What a sweep finds, as the server with this run id."""
        arguments: dict[str, Any] = {
            "every_ms": 0,
            "limit": limit,
            "run_id": run_id or "one",
            "grace_ms": LEASE_MS,
        }
        return self.store.run("due", SessionRef("", ""), "", arguments | more)

    def scores(self, part: str) -> dict[str, float]:
        return dict(self.redis.zrange(self.store.keys.everywhere(part), 0, -1, withscores=True))


@dataclass
class Drive:
    """One session, driven by hand."""

    bench: Bench
    ref: SessionRef
    program: Program
    hinted: list[str] = field(default_factory=list)

    def run(
        self,
        verb: Verb,
        arguments: Mapping[str, Any],
        *,
        outcome: str = "",
        ledger: str = "",
        said: Sequence[str] = (),
    ) -> Reply:
        answer = self.bench.store.run(
            verb,
            self.ref,
            self.program.hash,
            arguments,
            outcome=outcome,
            ledger=ledger,
            transcript=said,
        )
        self.hinted += [hint.address for hint in answer.hints]
        return answer

    def create(
        self,
        *,
        key: str | None = None,
        body: str = "body",
        window: int = 100,
        place: str = "",
        nonce: str = "made once",
        parent: Mapping[str, Any] | None = None,
        budget: Mapping[str, int] | None = None,
    ) -> Reply:
        fields = {
            "kind": "loop", "place": place, "window": str(window), "retention": str(RETENTION_S),
            "schema": "1", "program": self.program.hash, "label": "", "nonce": nonce,
            "parent": json.dumps(parent) if parent else "",
            "budget": json.dumps(budget) if budget else "",
        }  # fmt: skip
        new = NewSession(
            self.ref, self.program, self._content, fields, key, body, parent,
        )  # fmt: skip
        answer = self.bench.store.create(new)
        self.hinted += [hint.address for hint in answer.hints]
        return answer

    def _content(self) -> StoredProgram:
        routes = self.bench.routes(self.program)
        texts = {path: json.dumps(route) for path, route in routes.items()}
        return StoredProgram(self.program.text, texts)

    def claim(
        self, address: str, *, nonce: str | None = None, lease_ms: int = LEASE_MS, schema: int = 1
    ) -> Reply:
        return self.run(
            "claim",
            {
                "address": address, "nonce": nonce or self.bench.nonce(), "worker": "w",
                "lease_ms": lease_ms, "schema": schema,
            },
        )  # fmt: skip

    def take(self, address: str, *, lease_ms: int = LEASE_MS) -> Grant:
        """Claim what must be there to be had."""
        answer = self.claim(address, lease_ms=lease_ms)
        assert answer.word == "granted", (address, answer.word, answer.why)
        return answer.grants[0]

    def settle(
        self,
        grant: Grant,
        word: str = "succeeded",
        verdict: str | None = None,
        *,
        take: Sequence[str] = (),
        retryable: bool = True,
        **more: Any,
    ) -> Reply:
        arguments = held(grant) | {
            "worker": "w", "word": word, "verdict": verdict, "take": list(take),
            "retryable": retryable, "reason": {"code": "failed_step"} if word == "failed" else None,
        }  # fmt: skip
        return self.run("settle", arguments | more, outcome=json.dumps({"word": word}))

    def do(
        self, address: str, word: str = "succeeded", verdict: str | None = None, **more: Any
    ) -> Reply:
        """Claim and settle at once."""
        return self.settle(self.take(address), word, verdict, **more)

    def beat(self, grant: Grant, **more: Any) -> Reply:
        return self.run("beat", held(grant) | more)

    def release(self, grant: Grant, why: str = "drain", **more: Any) -> Reply:
        return self.run("release", held(grant) | {"why": why} | more)

    def park(self, grant: Grant, on: str = "human", *, wait_s: float = 60, **more: Any) -> Reply:
        until = self.bench.clock.now + round(wait_s * 1000)
        return self.run("park", held(grant) | {"on": on, "until_ms": until} | more)

    def answer(
        self, address: str, fence: int | None, word: str = "succeeded", **more: Any
    ) -> Reply:
        arguments = {"address": address, "fence": fence, "word": word, "by": "somebody"}
        return self.run("answer", arguments | more, outcome=json.dumps({"word": word}))

    def expire(self, address: str) -> Reply:
        return self.run("expire", {"address": address})

    def rehint(self, address: str, *, depth: int = 0) -> Reply:
        return self.run("notify", {"address": address, "depth": depth})

    def delete(self) -> Reply:
        return self.run("delete", {"program": self.program.hash})

    def control(self, verb: str, *, adopts: Program | None = None, **more: Any) -> Reply:
        """Stop, resume, exit or abort, as far as the table of states allows it.

        A resume may adopt another program, which continues at the same position.
        """
        target = TARGETS[verb]
        allowed = [status for status, following in SESSION_NEXT.items() if target in following]
        arguments: dict[str, Any] = {"verb": verb, "from": allowed, "reason": {"code": "user_stop"}}
        if verb == "resume" and self.status == "failed":
            arguments |= self.again(adopts or self.program)
        if adopts is not None:
            arguments |= {"adopts": self._told(adopts), "as_of": self.field("updated")}
        answer = self.run("control", arguments | more)
        # A repetition is done too: the session may have taken over another one since.
        if adopts is not None and self.field("program") == adopts.hash:
            self.program = adopts
        return answer

    def _told(self, program: Program) -> dict[str, Any]:
        routes = self.bench.routes(program)
        return {
            "program": program.hash, "document": program.model_dump_json(),
            "routes": {path: json.dumps(route) for path, route in routes.items()},
            "signature": "", "source": "", "schema": "1",
            "afresh": self.status == "failed",
        }  # fmt: skip

    def poke(self, address: str) -> Reply:
        """The child of this step has ended."""
        allowed = ["active", "stopping", "exiting", "aborting"]
        return self.run("control", {"verb": "poke", "from": allowed, "address": address})

    def again(self, program: Program) -> dict[str, Any]:
        """The arguments with which a failed session resumes: the outermost nodes to run again."""
        done = [node.id for node in program.body if self._done(node)]
        failed = [n.id for n in program.body if n.id not in done and self._began(n)]
        names = routing.dependents(program, failed)
        again = [join.argument() for join in routing.joins_for_rerun(program, names, done)]
        return {"again": again, "ended": self.field("ended")}

    def sweep(self, *, depth: int = 0) -> list[str]:
        """Sweep until nothing is due, and return the words of the replies."""
        words: list[str] = []
        for _ in range(100):
            due = self.bench.due()
            if not (due.leases or due.ready):
                return words
            words += [self.expire(member.split("|", 2)[2]).word for member in due.leases]
            words += [
                self.rehint(member.split("|", 2)[2], depth=depth).word for member in due.ready
            ]
        raise AssertionError("the sweep finds no end")

    # Reading the store

    def key(self, part: str) -> str:
        return self.bench.store.keys.part(self.ref, part)

    def field(self, name: str) -> str | None:
        found = self.bench.redis.hget(self.key("session"), name)
        return None if found is None else str(found)

    @property
    def status(self) -> str:
        return str(self.field("status"))

    @property
    def reason(self) -> dict[str, Any]:
        return dict(json.loads(self.field("reason") or "{}"))

    def records(self, part: str) -> dict[str, dict[str, Any]]:
        found = self.bench.redis.hgetall(self.key(part))
        return {address: json.loads(text) for address, text in found.items()}

    def state(self, address: str) -> str:
        text = self.bench.redis.hget(self.key("steps"), address)
        return str(json.loads(str(text))["state"]) if text else "pending"

    def turn(self, id_: str) -> dict[str, Any]:
        return self.records("turns").get(id_, {})

    def members(self, part: str) -> set[str]:
        return set(self.bench.store.members(self.ref, part))

    @property
    def live(self) -> set[str]:
        return self.members("live")

    def ready(self) -> list[str]:
        return sorted(address for address in self.live if self.state(address) == "ready")

    def ledger(self) -> list[tuple[str, int, int, str]]:
        lines = [json.loads(line) for line in self.bench.store.lines(self.ref, "ledger", 0, -1)]
        return [(e["loop"], e["run"], e["iteration"], e["verdict"]) for e in lines]

    def events(self) -> list[tuple[str, str]]:
        entries = self.bench.redis.xrange(self.key("events"))
        return [(fields["t"], fields["a"]) for _, fields in entries]

    def counters(self) -> dict[str, int]:
        names = ("steps", "iterations", "attempts_failed", "attempts_lost", "phase_retries")
        return {name: int(self.field(name) or 0) for name in names}

    def warnings(self) -> list[str]:
        return self.bench.store.lines(self.ref, "warnings", 0, -1)

    def ended_well(self, status: str = "completed") -> None:
        """The session ended so, told of everything once, and leaves nothing that stays for ever."""
        assert self.status == status
        assert_told_once(self)
        assert_nothing_left(self)

    def _newest(self, name: str) -> int:
        return int(str(self.bench.redis.hget(self.key("runs"), name) or 1))

    def _began(self, node: Step | Loop) -> bool:
        run = self._newest(node.id)
        first = node.id if run == 1 else f"{node.id}~{run}"
        return self.state(first) != "pending" or bool(self.turn(f"{node.id}~{run}"))

    def _done(self, node: Step | Loop) -> bool:
        run = self._newest(node.id)
        turn = self.turn(f"{node.id}~{run}")
        if turn:
            passed = isinstance(node, Loop) and node.on_fail is OnFail.CONTINUE
            good = turn["verdict"] in ("accept", "skipped")
            return good or (passed and turn["verdict"] != "cancelled")
        record = self.records("steps").get(node.id if run == 1 else f"{node.id}~{run}", {})
        if isinstance(node, Loop) or record.get("verdict") == "terminate":
            return False
        critical = node.critical and node.action is not Action.CHECK
        passed = record.get("state") == "failed" and not critical
        return passed or record.get("state") in ("succeeded", "skipped")


def usage(cost_micros: int = 0, tokens_in: int = 0, tokens_out: int = 0) -> dict[str, int]:
    """The usage that an attempt reports."""
    return {"cost_micros": cost_micros, "tokens_in": tokens_in, "tokens_out": tokens_out}


def held(grant: Grant) -> dict[str, Any]:
    return {
        "address": grant.address, "fence": grant.fence, "nonce": grant.nonce, "lease_ms": LEASE_MS,
    }  # fmt: skip


def assert_told_once(drive: Drive) -> None:
    """Every step that ended says so once, in the word of its record; every loop closed once."""
    told = Counter(drive.events())
    for address, record in drive.records("steps").items():
        ends = told["step.settled", address] + told["step.cancelled", address]
        assert ends == (record["state"] not in ("ready", "running", "parked")), (address, ends)
        claims = told["step.claimed", address] + told["step.parked", address]
        assert claims == record.get("fence", 0), (address, claims, record)
    for id_, turn in drive.records("turns").items():
        if id_:
            assert told["loop.closed", id_] == (turn["state"] == "closed"), id_


def assert_nothing_left(drive: Drive) -> None:
    """Nothing of an ended session is due, alive, or without a TTL."""
    redis, store = drive.bench.redis, drive.bench.store
    for part in ("live", "running", "parked", "open", "hinted", "waiting"):
        assert not drive.members(part), part
    for part in ("leases", "ready"):
        assert not [m for m in drive.bench.scores(part) if m.startswith(drive.ref.member)], part
    own = [str(key) for key in redis.keys(store.keys.base(drive.ref) + "*")]
    for key in [*own, store.keys.id(drive.ref.id)]:
        assert int(redis.ttl(key)) > 0, f"{key} stays for ever"
