"""Derives why a step waits, and what to do, from its record and its surroundings (pure)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from app.core.addresses import iso
from app.core.folders import is_folder, lies_below
from app.core.program import LOCAL
from app.core.records import StepRecord
from app.fleet.inventory import consumed_queues
from app.sessions.questions import answer_command
from leadhand.models.forms import parse_rules
from leadhand.models.local_work import LOST_AFTER_S
from leadhand.models.text import list_first
from leadhand.models.views.explain import Wait
from leadhand.models.views.fleet import WorkerView

#: The most holders of slots that are named.
_SHOWN = 5
#: The load of each core at which a machine counts as busy.
_BUSY = 2
#: What the queues of local steps begin with.
LOCAL_QUEUE = f"{LOCAL}@"


class Holder(NamedTuple):
    """A holder of a lock: a session's turn or attempt."""

    session: str
    root: str
    address: str
    since_ms: int | None
    #: The held lock: the wanted one, or that of a folder above or below.
    lock: str = ""


class Ahead(NamedTuple):
    """A session that is earlier in line, and the folder that it waits for."""

    session: str
    lock: str


class LockLink(NamedTuple):
    """A named lock of a cycle, and the attempt or session that holds it."""

    lock: str
    session: str
    address: str
    since_ms: int


class NamedWait(NamedTuple):
    """A named lock that an attempt or a session waits for, and what keeps the lock from it."""

    name: str
    #: The session that holds the lock or is before the waiter, and what it does.
    session: str
    text: str
    since_ms: int
    until_ms: int | None = None
    #: The locks whose holders wait for each other; empty if the wait can end by itself.
    cycle: tuple[LockLink, ...] = ()


class Trouble(NamedTuple):
    """A retry, a rate limit or an error that an agent reported and that did not end it."""

    text: str
    at_ms: int


class Around(NamedTuple):
    """The surroundings of a waiting step: session, queue, workers and locks."""

    session: str
    status: str
    place: str
    queue: str
    now_ms: int
    workers: Sequence[WorkerView]
    depth: int = 0
    holders: Sequence[Holder] = ()
    ahead: Ahead | None = None
    #: When the rate limit allows the next attempt, and the number of tickets before this one.
    slot_ms: float | None = None
    before: int = 0
    #: The queue or limited key in whose window other steps of its session are first.
    in_line: str = ""
    #: When its attempt wrote last; None where it has written nothing.
    output_ms: int | None = None
    #: The last retry, rate limit or error that its agent reported, and when.
    trouble: Trouble | None = None
    #: Whether the session is a plan.
    is_plan: bool = False
    #: Whether the step looks at the work before the first doer.
    before_work: bool = False
    #: The named lock that the running attempt waits for, and who holds it or is before it.
    named: NamedWait | None = None


#: What the loop waits for while a step looks at the work before the first doer.
LOOKS_FIRST = "it looks at the work before the first doer, which begins after that"


def wait_of(address: str, label: str, record: StepRecord, around: Around) -> Wait:
    """Explains why a step waits, or which worker runs it."""
    found = _of(record, around, address)
    return found.model_copy(
        update={
            "session": around.session,
            "address": address,
            "label": label,
            "state": record.state,
        }
    )


def _of(record: StepRecord, around: Around, address: str) -> Wait:
    if record.state == "running":
        return _wait_of_running(record, around)
    if record.state == "parked":
        return _wait_of_parked(record, around, address)
    if around.status != "active":
        return Wait(why=around.status, text=f"the session is {around.status}")
    return _wait_of_ready(record, around)


def _wait_of_running(record: StepRecord, around: Around) -> Wait:
    attempt = f"attempt {record.attempt} by {record.owner or 'a worker'}"
    if record.lease is not None and record.lease < around.now_ms:
        text = f"{attempt} missed its heartbeat; the next sweep reassigns it"
        return Wait(why="lost", text=text, since=_at(record.lease), next=["leadhand workers"])
    if around.named is not None:
        return wait_for_named_lock(around.named)
    until = f", until {iso(record.deadline)} at most" if record.deadline else ""
    heard = _heartbeat_age(record, around.now_ms) + _output_age(around)
    what = f"; {LOOKS_FIRST}" if around.before_work else ""
    return Wait(
        why="running",
        text=f"{attempt} is running{until}{heard}{what}",
        since=_at(record.since),
        until=_at(record.deadline),
        next=[f"leadhand logs -f --output {around.session}"],
    )


def wait_for_named_lock(named: NamedWait) -> Wait:
    """Explains why an attempt or a session waits for a named lock."""
    if named.cycle:
        return _wait_in_cycle(named)
    return Wait(
        why="lock",
        text=f"it waits for lock {named.name!r}: {named.text}",
        lock=f"lock:{named.name}",
        since=iso(named.since_ms),
        until=_at(named.until_ms),
        next=[f"leadhand explain {named.session}", f"leadhand lock list {named.session}"],
    )


def _wait_in_cycle(named: NamedWait) -> Wait:
    """Explains a deadlock of named locks: the holder that came last is the one to stop."""
    links = [
        f"{_describe_holder(Holder(link.session, '', link.address, link.since_ms))} holds"
        f" {link.lock!r}" + (f" and waits for {after.lock!r}" if after else "")
        for link, after in zip(named.cycle, (*named.cycle[1:], None), strict=True)
    ]
    last = max(named.cycle, key=lambda link: link.since_ms).session
    return Wait(
        why="lock",
        text=f"deadlock: it waits for lock {named.name!r}: {'; '.join(links)}. Stop one of them,"
        f" and take the locks in the same order everywhere",
        lock=f"lock:{named.name}",
        holders=list(dict.fromkeys(link.session for link in named.cycle)),
        since=iso(named.since_ms),
        next=[f"leadhand stop {last}", f"leadhand lock list {named.session}"],
    )


def _heartbeat_age(record: StepRecord, now_ms: int) -> str:
    """The age of the last heartbeat: a killed worker counts as running until its lease expires."""
    last = record.heard or record.since
    return "" if last is None else f"; last heartbeat {max(0, now_ms - last) // 1000} s ago"


def _output_age(around: Around) -> str:
    """The age of the last output: an agent that hangs has heartbeats, but no output."""
    if around.output_ms is None:
        return "; no output yet"
    trouble, at = "", around.trouble
    if at is not None:
        trouble = f"; last trouble {_seconds_ago(around, at.at_ms)}: {at.text}"
    return f"; last output {_seconds_ago(around, around.output_ms)}{trouble}"


def _seconds_ago(around: Around, at_ms: int) -> str:
    return f"{max(0, around.now_ms - at_ms) // 1000} s ago"


def _wait_of_parked(record: StepRecord, around: Around, address: str) -> Wait:
    parked = record.parked or {}
    until = parked.get("until_ms")
    until_at = iso(until) if isinstance(until, int) else None
    match parked.get("on"):
        case "human":
            question = str(parked.get("question") or "")
            rules = parse_rules(parked.get("rules"))
            answer = answer_command(around.session, address, rules, is_plan=around.is_plan)
            text = f"a person is asked: {question}"
            return Wait(why="human", text=text, until=until_at, question=question, next=[answer])
        case "child":
            child = str(parked.get("child"))
            text = f"waits for the end of child session {child}"
            return Wait(why="child", text=text, child=child, next=[f"leadhand explain {child}"])
        case "plan":
            text = "waits for the child sessions of its tasks, or for a decision about a proposal"
            return Wait(why="plan", text=text, next=[f"leadhand plan show {around.session}"])
        case "stop":
            text = f"a guard waits for its agent's next stop; without one it ends at {until_at}"
            return Wait(why="timer", text=text, until=until_at)
        case _:
            return Wait(why="timer", text=f"it continues at {until_at}", until=until_at)


def _wait_of_ready(record: StepRecord, around: Around) -> Wait:
    takers = [worker for worker in around.workers if around.queue in consumed_queues(worker)]
    if record.blocked is not None:
        return _wait_for_rate(record, around) if record.paced else _wait_for_lock(record, around)
    if record.due is not None and record.due > around.now_ms:
        return _wait_for_retry(record, around)
    if around.queue.startswith(LOCAL_QUEUE):
        return _wait_for_submitter(around)
    if not takers:
        return _wait_for_worker(around)
    if around.in_line:
        text = f"other steps of its session are before it in {around.in_line}"
        return Wait(why="window", text=text, queue=around.queue, next=["leadhand queues"])
    slots = sum(worker.concurrency for worker in takers)
    names = ", ".join(worker.name for worker in takers)
    messages = _count(around.depth, "message")
    text = f"{messages} queued on {around.queue}; workers: {names} ({_count(slots, 'slot')})"
    running = [one.session for worker in takers for one in worker.running]
    holders = [*dict.fromkeys(running)] if len(running) >= slots else []
    text += f", all held by {_named(holders)}" if holders else _why_not_yet(takers, len(running))
    return Wait(
        why="queue",
        text=text,
        queue=around.queue,
        holders=holders[:_SHOWN],
        since=_at(record.ready),
        next=["leadhand workers" if holders else "leadhand queues"],
    )


def _why_not_yet(takers: Sequence[WorkerView], running: int) -> str:
    """Says why a step waits although slots are free: a busy machine, or a process that starts."""
    free = sum(worker.concurrency for worker in takers) - running
    text = f"; {_count(free, 'slot')} free"
    busy = [one for one in takers if one.load and one.cores and one.load >= _BUSY * one.cores]
    if busy and len(busy) == len(takers):
        load, cores = busy[0].load, busy[0].cores
        return f"{text}, but the machine is busy (load {load} on {_count(cores or 1, 'core')})"
    kept = [one.idle_processes for one in takers if one.idle_processes is not None]
    starts = len(kept) == len(takers) and running >= sum(kept)
    return f"{text}, and a process for it is starting" if starts else text


def _named(sessions: Sequence[str]) -> str:
    """The sessions, the first ones by their ids.

    >>> _named(["a"]), _named(list("abcdefg"))
    ('session a', 'sessions a, b, c, d, e and 2 more')
    """
    return f"session{'s' if len(sessions) > 1 else ''} {list_first(sessions, _SHOWN)}"


def _wait_for_lock(record: StepRecord, around: Around) -> Wait:
    lock = str(record.blocked)
    others = list(dict.fromkeys(holder.session for holder in around.holders))
    if not others:
        return _wait_for_free_lock(lock, around.ahead)
    first = around.holders[0].lock or lock
    blocking = [holder for holder in around.holders[:5] if holder.lock == first]
    held = "; ".join(map(_describe_holder, blocking))
    roots = {holder.root for holder in around.holders}
    shared = is_folder(lock) and len(others) > 1 and len(roots) == 1
    folder = lock if first == lock else f"{lock} {_relation(lock, first)}, which"
    tree = f", of the tree of {roots.pop()}, which share it" if shared else ""
    return Wait(
        why="lock",
        text=f"{folder} is held by {held}{tree}",
        lock=lock,
        holders=others[:5],
        since=_at(around.holders[0].since_ms),
        next=[f"leadhand explain {session}" for session in others[:5] if session != around.session]
        or ["leadhand limit list"],
    )


def _wait_for_free_lock(lock: str, ahead: Ahead | None) -> Wait:
    if ahead is None:
        text = f"{lock} has just become free; the step starts soon"
        return Wait(why="lock", text=text, lock=lock, next=["leadhand limit list"])
    which = "contains it" if lies_below(lock, ahead.lock) else "is inside it"
    text = f"{lock} is free, but session {ahead.session} was first and waits for {ahead.lock},"
    more = [f"leadhand explain {ahead.session}"]
    return Wait(why="lock", text=f"{text} which {which}", lock=lock, next=more)


def _relation(lock: str, held: str) -> str:
    """Text for the relation of a folder to a held one."""
    return f"is inside {held}" if lies_below(lock, held) else f"contains {held}"


def _wait_for_rate(record: StepRecord, around: Around) -> Wait:
    slot = None if around.slot_ms is None else round(around.slot_ms)
    ahead = slot if slot is not None and slot > around.now_ms else None
    text = "a rate limit allows only so many attempts per minute"
    text += f"; the next one at {_at(ahead)}" if ahead else "; the next one may start now"
    text += f"; {around.before} before it in line" if around.before else ""
    return Wait(
        why="rate",
        text=text,
        lock=record.blocked,
        until=None if around.before else _at(ahead),
        next=["leadhand limit list"],
    )


def _describe_holder(holder: Holder) -> str:
    since = f" since {iso(holder.since_ms)}" if holder.since_ms else ""
    where = f" ({holder.address})" if holder.address else ""
    return f"session {holder.session}{where}{since}"


def _wait_for_retry(record: StepRecord, around: Around) -> Wait:
    until = _at(record.due)
    last = f": {record.failure}" if record.failure else ""
    text = f"attempt {record.attempt} failed{last}; the next one starts at {until}"
    return Wait(why="retry", text=text, until=until, next=[f"leadhand logs {around.session}"])


def _wait_for_submitter(around: Around) -> Wait:
    text = (
        "the program that submitted the session carries out this step, and has not claimed it;"
        f" without a call of such a program for {LOST_AFTER_S:.0f} s the session is stopped"
    )
    nxt = [f"leadhand stop {around.session}"]
    return Wait(why="no_worker", text=text, queue=around.queue, next=nxt)


def _wait_for_worker(around: Around) -> Wait:
    places = sorted({worker.place for worker in around.workers})
    if around.place and around.place not in places:
        start = f"start one there (leadhand worker --place {around.place})"
        moves = [f"leadhand rehome {around.session} {shlex.quote(place)}" for place in places]
        text = f"no worker is at place {around.place}; {start}, or move it"
        return Wait(
            why="place_gone", text=text, queue=around.queue, next=moves or ["leadhand workers"]
        )
    idle = [worker for worker in around.workers if around.queue in worker.queues]
    names = ", ".join(worker.name for worker in idle)
    text = f"no worker consumes {around.queue}; start one that does"
    if idle and all(worker.troubles for worker in idle):
        text = f"no worker consumes {around.queue}; {names} does again when its trouble is over"
    elif idle:
        text = f"no worker consumes {around.queue}; {names} should, but does not: restart it"
    return Wait(why="no_worker", text=text, queue=around.queue, next=["leadhand workers"])


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _at(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)
