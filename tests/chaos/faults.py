"""What goes wrong, and when: a schedule drawn from a seed, and the hand that carries it out."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import signal
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import psutil
from redis import Redis
from redis.exceptions import RedisError

from tests.chaos.killing_git import TIMES, ask
from tests.chaos.load import BRIEF_S
from tests.chaos.stack import Member, Stack
from tests.wire import Wire

#: Each kind with how often it comes.
KINDS = {
    "kill a pool process": 5,
    "kill a worker": 3,
    "kill all workers": 1,
    "kill in git": 4,
    "kill an API": 2,
    "kill all APIs": 1,
    "turn everything off": 1,
    "kill Redis": 3,
    "fill Redis": 2,
    "freeze a pool process": 3,
    "freeze a worker": 2,
    "freeze an API": 1,
    "freeze Redis": 1,
    "drain a worker": 2,
    "reset wires": 3,
    "hold up wires": 2,
    "black-hole wires": 3,
    "cut off": 2,
    "delete queues": 2,
    "forget the broker": 1,
    "double messages": 3,
    "shuffle messages": 2,
    "send old messages": 2,
}
#: What short runs do without: it takes as long as they do.
LONG = "turn everything off"
#: By then a step was not checked since its lease, its time and the grace after it were over.
_OFF_S = BRIEF_S + 10 + 3
_NO_POOL = "Could not start worker processes"


class Fault(NamedTuple):
    """One thing that goes wrong."""

    at_s: float
    kind: str
    #: Which of those that it may hit.
    pick: int
    #: How long it lasts, or until who was killed is started again.
    lasts_s: float


def schedule(rng: Random, *, seconds: float, every_s: float, lease_s: float) -> list[Fault]:
    """Faults for so long, one about each `every_s`; all kinds come before chance decides."""
    is_short = seconds / every_s < len(KINDS)
    kinds = [kind for kind in KINDS if not (is_short and kind == LONG)]
    weights = [KINDS[kind] for kind in kinds]
    first = rng.sample(kinds, len(kinds))
    drawn = iter(()) if is_short else iter(first)
    faults, at = [], 2.0
    while at < seconds:
        kind = next(drawn, None) or rng.choices(kinds, weights)[0]
        lasts = rng.uniform(0.2, 4.0)
        if kind.startswith(("freeze a ", "cut off")):
            lasts = lease_s + rng.uniform(1.0, 4.0)
        if kind == LONG:
            lasts += lease_s + _OFF_S
        if kind == "fill Redis":
            lasts += 2.0
        faults.append(Fault(round(at, 1), kind, rng.randrange(1000), round(lasts, 1)))
        at += every_s * rng.uniform(0.5, 1.5)
    return faults


class Done(NamedTuple):
    """What a fault came to."""

    at_s: float
    kind: str
    told: str


class Breaker:
    """Carries out a schedule, and mends in time what it broke."""

    def __init__(self, stack: Stack, faults: Sequence[Fault], say: Callable[[str], None]) -> None:
        self._stack = stack
        self._say = say
        self._began = time.monotonic()
        self._order = itertools.count()
        self._todo: list[tuple[float, int, Callable[[], None]]] = []
        self._old: list[tuple[str, str]] = []
        self._off_until_s = 0.0
        self.done: list[Done] = []
        self.deserted: list[str] = []
        for fault in faults:
            self._later(fault.at_s, lambda fault=fault: self._break(fault))  # type: ignore[misc]

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._began

    def look(self) -> bool:
        """Do what is due; whether there is more to come."""
        while self._todo and self._todo[0][0] <= self.now_s:
            heapq.heappop(self._todo)[2]()
        self._see_to_deserters()
        return bool(self._todo)

    def _later(self, at_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._todo, (at_s, next(self._order), action))

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._later(self.now_s + seconds, action)

    def _break(self, fault: Fault) -> None:
        try:
            told = self._carry_out(fault)
        except (RedisError, psutil.Error) as error:
            told = f"nothing, for {type(error).__name__}"
        self.done.append(Done(round(self.now_s, 1), fault.kind, told))
        self._say(f"  {self.now_s:6.1f} s  {fault.kind}: {told}")

    def _carry_out(self, fault: Fault) -> str:
        verb, _, rest = fault.kind.partition(" ")
        match verb:
            case "kill" if rest == "in git":
                when = TIMES[fault.pick % len(TIMES)]
                ask(self._stack.tools, when)
                return f"{when} its next call"
            case "kill" | "freeze" | "drain" if rest == "Redis":
                return self._hurt_redis(verb, fault)
            case "kill" | "drain" if rest != "a pool process":
                return self._kill(fault, signal.SIGKILL if verb == "kill" else signal.SIGTERM)
            case "turn":
                return self._turn_off(fault)
            case "fill":
                return self._fill(fault)
            case "kill" | "freeze":
                return self._hurt_process(verb, fault)
            case "reset" | "hold" | "black-hole" | "cut":
                return self._hurt_wires(verb, fault)
            case _:
                with self._stack.server.client(1) as broker:
                    return self._hurt_messages(verb, broker)

    # Processes

    def _hurt_redis(self, verb: str, fault: Fault) -> str:
        server = self._stack.server
        if verb == "freeze":
            server.signal(signal.SIGSTOP)
            self._after(fault.lasts_s, lambda: server.signal(signal.SIGCONT))
            return f"for {fault.lasts_s} s"
        if server.process is None or server.process.poll() is not None:
            return "nothing, it was down"
        server.signal(signal.SIGKILL)
        self._after(fault.lasts_s, server.start)
        return f"down for {fault.lasts_s} s"

    def _fill(self, fault: Fault) -> str:
        """Nothing may be written that takes room, as where the memory that it may have is used."""
        with self._stack.server.client() as store:
            store.config_set("maxmemory", 1)
        self._after(fault.lasts_s, self._make_room)
        return f"for {fault.lasts_s} s"

    def _make_room(self) -> None:
        """One that was started anew meanwhile has room; one that is held up hears of it later."""
        try:
            with self._stack.server.client() as store:
                store.config_set("maxmemory", 0)
        except RedisError:
            self._after(0.5, self._make_room)

    def _turn_off(self, fault: Fault) -> str:
        """Nobody is there, also who was to come back sooner; only Redis stays."""
        self._off_until_s = self.now_s + fault.lasts_s
        up = [member for member in self._stack.members if member.up]
        for member in up:
            member.signal(signal.SIGKILL)
            if not member.wanted_down:
                member.wanted_down = True
                self._after(fault.lasts_s, lambda member=member: self._start(member))  # type: ignore[misc]
        return f"{_names(up)}, back in {fault.lasts_s} s" if up else "nothing, none was up"

    def _kill(self, fault: Fault, number: int) -> str:
        members = self._stack.apis if "API" in fault.kind else self._stack.workers
        up = [member for member in members if member.up and not member.wanted_down]
        hit = up if " all " in fault.kind else up[fault.pick % len(up) :][:1] if up else []
        for member in hit:
            member.wanted_down = True
            member.signal(number)
            self._after(fault.lasts_s, lambda member=member: self._start(member))  # type: ignore[misc]
        return f"{_names(hit)}, back in {fault.lasts_s} s" if hit else "nothing, none was up"

    def _start(self, member: Member) -> None:
        if self.now_s < self._off_until_s:
            self._later(self._off_until_s, lambda: self._start(member))
        elif member.up:  # it drains still
            self._after(0.5, lambda: self._start(member))
        else:
            member.start()

    def _hurt_process(self, verb: str, fault: Fault) -> str:
        members = self._stack.apis if "API" in fault.kind else self._stack.workers
        up = [member for member in members if member.up]
        if not up:
            return "nothing, none was up"
        member = up[fault.pick % len(up)]
        targets = member.children()
        if "pool" not in fault.kind:
            assert member.process is not None
            targets = [psutil.Process(member.process.pid), *targets]
        elif targets:
            targets = [targets[fault.pick // 7 % len(targets)]]
        number = signal.SIGKILL if verb == "kill" else signal.SIGSTOP
        for target in targets:
            target.send_signal(number)
        if verb == "freeze":
            self._after(fault.lasts_s, lambda: _wake(targets))
        return f"{len(targets)} of {member.name}" + (
            f" for {fault.lasts_s} s" if verb == "freeze" else ""
        )

    def _see_to_deserters(self) -> None:
        """Restarts and reports each process that ended by itself, as any supervisor would.

        A worker may give up at its start, where a fault took its pool before it was ready.
        """
        for member in self._stack.members:
            if not member.up and not member.wanted_down:
                assert member.process is not None
                told = f"{member.name} ended by itself with {member.process.returncode}"
                self._say(f"  {self.now_s:6.1f} s  ! {told}")
                if not member.log.read_text(errors="replace")[-8000:].count(_NO_POOL):
                    self.deserted.append(f"{told} at {self.now_s:.1f} s")
                member.wanted_down = True
                self._after(1.0, lambda member=member: self._start(member))  # type: ignore[misc]

    # Wires

    def _hurt_wires(self, verb: str, fault: Fault) -> str:
        member = self._stack.members[fault.pick % len(self._stack.members)]
        which = ("store", "broker", "both")[fault.pick // 7 % 3]
        both = dict(zip(("store", "broker"), member.wires, strict=True))
        wires = list(member.wires) if which == "both" else [both[which]]
        told = f"{which} of {member.name}"
        match verb:
            case "reset":
                return f"{told}, {sum(wire.reset() for wire in wires)} connections"
            case "black-hole":
                return f"{told}, {sum(wire.black_hole() for wire in wires)} connections for good"
            case "hold":
                _each(wires, Wire.hold_up)
            case _:
                _each(wires, Wire.go_silent)
        self._after(fault.lasts_s, lambda: _each(wires, Wire.heal))
        return f"{told} for {fault.lasts_s} s"

    # Messages

    def _hurt_messages(self, verb: str, broker: Redis) -> str:
        queues = self._queues(broker)
        if verb == "forget":
            broker.flushdb()
            return f"{sum(map(len, queues.values()))} messages, and all of its keys"
        if verb == "send":
            for queue, message in self._old:
                broker.lpush(queue, message)
            return f"{len(self._old)} messages"
        for queue, messages in queues.items():
            self._hurt_queue(verb, broker, queue, messages)
        return f"{sum(map(len, queues.values()))} messages in {len(queues)} queues"

    def _hurt_queue(self, verb: str, broker: Redis, queue: str, messages: list[str]) -> None:
        with broker.pipeline() as pipe:
            if verb in ("delete", "shuffle"):
                pipe.delete(queue)
            if verb == "double":
                pipe.lpush(queue, *messages)
            if verb == "shuffle":
                pipe.lpush(queue, *Random(len(messages)).sample(messages, len(messages)))
            pipe.execute()

    def _queues(self, broker: Redis) -> dict[str, list[str]]:
        """What stands in each queue of steps; some of it is kept, to be sent again one day."""
        found: dict[str, list[str]] = {}
        for key in broker.scan_iter(_type="list"):
            if str(key).startswith(("agents", "checks", "tools")):
                found[str(key)] = list(map(str, broker.lrange(str(key), 0, -1)))
        kept = [(queue, message) for queue, messages in found.items() for message in messages]
        self._old = [*self._old, *kept][-50:]
        return {queue: messages for queue, messages in found.items() if messages}


def _wake(targets: Sequence[psutil.Process]) -> None:
    for target in targets:
        with contextlib.suppress(psutil.NoSuchProcess):  # it was killed while it was held
            target.send_signal(signal.SIGCONT)


def _each(wires: Sequence[Wire], action: Callable[[Wire], None]) -> None:
    for wire in wires:
        action(wire)


def _names(members: Sequence[Member]) -> str:
    return " and ".join(member.name for member in members)
