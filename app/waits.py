"""Pure: why a step waits, from its record and from what stands around it, and what can be done."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from app.pictures import iso
from app.records import StepRecord
from app.views import Wait, WorkerView


class Holder(NamedTuple):
    """Who has a lock: a session's turn or attempt, since when."""

    session: str
    root: str
    address: str
    since_ms: int | None


class Around(NamedTuple):
    """What stands around a step that waits."""

    session: str
    status: str
    place: str
    queue: str
    now_ms: int
    workers: Sequence[WorkerView]
    depth: int = 0
    holders: Sequence[Holder] = ()
    #: When the next attempt may begin with what it waits for, and how many stand before it there.
    slot_ms: float | None = None
    before: int = 0
    #: The queue or the limited key for which others of its session go first.
    in_line: str = ""


def wait_of(address: str, label: str, record: StepRecord, around: Around) -> Wait:
    """Why this step of a session does not go on, or who works on it."""
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
        return _running(record, around)
    if record.state == "parked":
        return _parked(record, around, address)
    if around.status != "active":
        return Wait(why=around.status, text=f"the session is {around.status}")
    return _ready(record, around)


def _running(record: StepRecord, around: Around) -> Wait:
    attempt = f"attempt {record.attempt} by {record.owner or 'a worker'}"
    if record.lease is not None and record.lease < around.now_ms:
        text = f"{attempt} is not heard of; the next sweep gives it to another"
        return Wait(why="lost", text=text, since=_at(record.lease), next=["leadhand workers"])
    until = f", until {iso(record.deadline)} at most" if record.deadline else ""
    heard = _heard(record, around.now_ms)
    return Wait(
        why="running",
        text=f"{attempt} works on it{until}{heard}",
        since=_at(record.since),
        until=_at(record.deadline),
        next=[f"leadhand logs {around.session}"],
    )


def _heard(record: StepRecord, now_ms: int) -> str:
    """When its worker told of itself last: who was killed is at work until its lease is over."""
    last = record.heard or record.since
    return "" if last is None else f"; last heard of {max(0, now_ms - last) // 1000} s ago"


def _parked(record: StepRecord, around: Around, address: str) -> Wait:
    parked = record.parked or {}
    until = parked.get("until_ms")
    until_at = iso(until) if isinstance(until, int) else None
    match parked.get("on"):
        case "human":
            question = str(parked.get("question") or "")
            answer = f"leadhand answer {around.session} {shlex.quote(address)} TEXT"
            text = f"a person is asked: {question}"
            return Wait(why="human", text=text, until=until_at, question=question, next=[answer])
        case "child":
            child = str(parked.get("child"))
            text = f"child session {child} is to end"
            return Wait(why="child", text=text, child=child, next=[f"leadhand explain {child}"])
        case _:
            return Wait(why="timer", text=f"it goes on at {until_at}", until=until_at)


def _ready(record: StepRecord, around: Around) -> Wait:
    takers = [worker for worker in around.workers if around.queue in worker.queues]
    if record.blocked is not None:
        return _paced(record, around) if record.paced else _locked(record, around)
    if record.due is not None and record.due > around.now_ms:
        return _early(record, around)
    if not takers:
        return _nobody(around)
    if around.in_line:
        text = f"others of its session stand before it in {around.in_line}"
        return Wait(why="window", text=text, queue=around.queue, next=["leadhand queues"])
    slots = sum(worker.concurrency for worker in takers)
    names = ", ".join(worker.name for worker in takers)
    text = f"{around.depth} messages stand in {around.queue}, taken by {names} ({slots} at once)"
    since = _at(record.ready)
    return Wait(why="queue", text=text, queue=around.queue, since=since, next=["leadhand queues"])


def _locked(record: StepRecord, around: Around) -> Wait:
    lock = str(record.blocked)
    others = list(dict.fromkeys(holder.session for holder in around.holders))
    if not others:
        text = f"{lock} has just come free; its turn is called"
        return Wait(why="lock", text=text, lock=lock, next=["leadhand limit list"])
    held = "; ".join(_held(holder) for holder in around.holders[:5])
    roots = {holder.root for holder in around.holders}
    shared = lock.startswith("folder:") and len(others) > 1 and len(roots) == 1
    tree = f", of the tree of {roots.pop()}, which share it" if shared else ""
    return Wait(
        why="lock",
        text=f"{lock} is held by {held}{tree}",
        lock=lock,
        holders=others[:5],
        since=_at(around.holders[0].since_ms),
        next=[f"leadhand explain {session}" for session in others[:5] if session != around.session]
        or ["leadhand limit list"],
    )


def _paced(record: StepRecord, around: Around) -> Wait:
    slot = None if around.slot_ms is None else round(around.slot_ms)
    ahead = slot if slot is not None and slot > around.now_ms else None
    text = "only so many of its kind may begin in a minute"
    text += f"; the next one at {_at(ahead)}" if ahead else "; the next one is called"
    text += f"; {around.before} before it in line" if around.before else ""
    return Wait(
        why="rate",
        text=text,
        lock=record.blocked,
        until=None if around.before else _at(ahead),
        next=["leadhand limit list"],
    )


def _held(holder: Holder) -> str:
    since = f" since {iso(holder.since_ms)}" if holder.since_ms else ""
    where = f" ({holder.address})" if holder.address else ""
    return f"session {holder.session}{where}{since}"


def _early(record: StepRecord, around: Around) -> Wait:
    until = _at(record.due)
    last = f": {record.failure}" if record.failure else ""
    text = f"attempt {record.attempt} failed{last}; the next one begins at {until}"
    return Wait(why="retry", text=text, until=until, next=[f"leadhand logs {around.session}"])


def _nobody(around: Around) -> Wait:
    places = sorted({worker.place for worker in around.workers})
    if around.place and around.place not in places:
        start = f"start one there (leadhand worker --place {around.place})"
        moves = [f"leadhand rehome {around.session} {shlex.quote(place)}" for place in places]
        text = f"no worker is at place {around.place}; {start}, or move it"
        return Wait(
            why="place_gone", text=text, queue=around.queue, next=moves or ["leadhand workers"]
        )
    text = f"no worker takes from {around.queue}; start one that does"
    return Wait(why="no_worker", text=text, queue=around.queue, next=["leadhand workers"])


def _at(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)
