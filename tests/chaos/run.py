"""One run of chaos from its seed: a fleet, its load, its faults, and what became of it all."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import psutil

from app import shared
from app.core.addresses import SessionRef
from leadhand.models.documents import LoopDocument
from tests.chaos.driving import Driver
from tests.chaos.faults import Breaker, Done, Fault, schedule
from tests.chaos.flow_load import AGENT
from tests.chaos.load import PACED, PER_MINUTE, Load, Wanted
from tests.chaos.merge_load import MERGED
from tests.chaos.merged import merged, of_folders
from tests.chaos.promises import (
    Broken,
    of_answers,
    of_audit,
    of_client,
    of_pace,
    of_plan,
    of_session,
    of_store,
    of_users,
)
from tests.chaos.records import Body, Record, account_of, with_children
from tests.chaos.stack import Stack
from tests.processes import words

Say = Callable[[str], None]
_OURS = re.compile(r"^\S+ \S+ (ERROR|CRITICAL) (api|app|leadhand|tasks|workers)\.")


class Plan(NamedTuple):
    """All that a run is made of; the same plan breaks the same things at the same times."""

    seed: int = 1
    minutes: float = 5.0
    sessions: int = 60
    every_s: float = 5.0
    workers: int = 3
    lease_s: float = 5.0
    #: How long the longest bodies take.
    longest_s: float = 8.0
    #: How long all sessions may take to end, once everything works again.
    patience_s: float = 300.0

    @property
    def faults(self) -> list[Fault]:
        rng = Random(f"faults of {self.seed}")
        return schedule(rng, seconds=self.minutes * 60, every_s=self.every_s, lease_s=self.lease_s)

    def load(self, stack: Stack) -> list[Wanted]:
        rng = Random(f"load of {self.seed}")
        load = Load(rng, stack.command, stack.folder, stack.places, longest_s=self.longest_s)
        return load.draw(self.sessions)

    @property
    def command(self) -> str:
        return (
            f"make chaos SEED={self.seed} MINUTES={self.minutes:g} SESSIONS={self.sessions}"
            f" EVERY={self.every_s:g} FLEET={self.workers} LEASE={self.lease_s:g}"
        )


class Found(NamedTuple):
    """What a run did, and which promises it saw broken."""

    faults: list[Done]
    records: list[Record]
    bodies: int
    broken: list[Broken]
    #: Seconds from the last fault's end until the last session's.
    settled_s: float
    #: How many sessions of a kind, steered in a way, ended how.
    ended: Mapping[str, int]


def run(plan: Plan, folder: Path, say: Say) -> Found:
    """Break a fleet as planned, wait for all of its sessions, and check what was promised."""
    stack = Stack(folder, workers=plan.workers, lease_s=plan.lease_s)
    with stack.running():
        say(f"the fleet is up in {folder}")
        shared.set_limit(stack.engine, "key:scarce", concurrency=2)
        shared.set_limit(stack.engine, PACED, per_minute=PER_MINUTE)
        driver = Driver(stack, plan.load(stack), over_s=plan.minutes * 60 * 0.7)
        breaker = Breaker(stack, plan.faults, say)
        driver.start()
        while breaker.look():
            time.sleep(0.1)
        healed = time.monotonic()
        say(f"  {breaker.now_s:6.1f} s  everything works again")
        _wait(plan, driver, breaker, say)
        settled_s = time.monotonic() - healed
        broken = list(_broken(stack, driver, breaker))
        records = _records(stack, driver)
        bodies = sum(map(len, account_of(stack.account).values()))
    broken += _left_behind(stack)
    return Found(breaker.done, records, bodies, broken, settled_s, _ended_how(driver, records))


def _wait(plan: Plan, driver: Driver, breaker: Breaker, say: Say) -> None:
    give_up, told = time.monotonic() + plan.patience_s, 0.0
    while driver.left and time.monotonic() < give_up:
        breaker.look()
        if time.monotonic() - told > 15:
            told = time.monotonic()
            say(f"  {breaker.now_s:6.1f} s  {driver.left} sessions have not ended")
        time.sleep(0.3)


def _records(stack: Stack, driver: Driver) -> list[Record]:
    asked = [one.session for one in driver.driven if one.session is not None]
    return [record for session in asked for record in with_children(stack.engine, session)]


def _broken(stack: Stack, driver: Driver, breaker: Breaker) -> Iterator[Broken]:
    for told in breaker.deserted:
        yield Broken("no process gives up", told.partition(" ")[0], told)
    yield from _idle_workers(stack)
    yield from _in_logs(stack)
    records = {record.ref.id: record for record in _records(stack, driver)}
    # Read last: so it has the body of each outcome and cost, also of sessions that still run.
    account = account_of(stack.account)
    for record in records.values():
        below = _below(record, records)
        beneath = _bodies(account, below)
        yield from of_session(record, account.get(record.ref.id, []), beneath)
        yield from of_plan(record, below, account)
    yield from of_pace(records.values(), PACED, PER_MINUTE)
    for one in driver.driven:
        yield from of_answers(one, records)
        if one.session in records:
            record = records[one.session]
            below = _below(record, records)
            yield from of_client(one, record, _bodies(account, [one.session, *below]), below)
            if one.wanted.kind == MERGED:
                found = merged(record, one.wanted.cwd, driver.before[one.wanted.number])
                yield from (Broken("accepted work lands once", one.session, told) for told in found)
        else:
            yield Broken("who asks is answered", str(one.session), f"{one.troubles}")
    _wait_for(lambda: not list(of_store(stack.server.client())), 20)
    yield from of_store(stack.server.client())
    yield from of_users(stack.server.client())
    yield from of_audit(stack.engine)
    for told in of_folders(stack.engine, stack.folder / "worktrees", stack.places):
        yield Broken("each worktree has its records", "worktrees", told)
    _wait_for(lambda: not stack.bodies(), 20)
    yield from _processes(stack.bodies(), "after all sessions had ended")


def _ended_how(driver: Driver, records: Sequence[Record]) -> Counter[str]:
    statuses = {record.ref.id: record.status for record in records}
    how = Counter[str]()
    for one in driver.driven:
        steer = f", {one.wanted.steer}" if one.wanted.steer else ""
        steer += " (went)" if one.sent_back else ""
        how[f"{one.wanted.kind}{steer}: {statuses.get(str(one.session))}"] += 1
    return how


def _below(record: Record, records: Mapping[str, Record]) -> dict[str, Record]:
    """All sessions below one."""
    found = dict[str, Record]()
    for child in record.children & records.keys():
        found[child] = records[child]
        found |= _below(records[child], records)
    return found


def _bodies(account: Mapping[str, Sequence[Body]], sessions: Iterable[str]) -> list[Body]:
    return [body for session in sessions for body in account.get(session, ())]


def _in_logs(stack: Stack) -> Iterator[Broken]:
    """Whatever goes wrong around them, our own processes meet nothing that they did not expect."""
    for member in stack.members:
        for line in member.log.read_text(errors="replace").splitlines():
            if _OURS.search(line):
                yield Broken("no fault of ours", member.name, line)


def _idle_workers(stack: Stack) -> Iterator[Broken]:
    """Each worker takes work again, whatever was done to its connections."""
    slept = {member.name: False for member in stack.workers}
    probes: list[str] = []

    def all_woke() -> bool:
        for place in stack.places:
            names = [name for name, woke in slept.items() if not woke and name.startswith(place)]
            probes.extend(_probe(stack, place, len(names)) for _ in range(4 * len(names)))
        ended = [_ended(stack, probe) for probe in probes]
        for owners in filter(None, ended):
            slept.update(dict.fromkeys(owners, True))
        probes[:] = [probe for probe, owners in zip(probes, ended, strict=True) if owners is None]
        return all(slept.values()) and not probes

    _wait_for(all_woke, 90, every_s=2)
    for name, woke in slept.items():
        if not woke:
            yield Broken("no worker stays deaf", name, "it took nothing for 90 s")


def _probe(stack: Stack, place: str, number: int) -> str:
    """A session without a folder that takes a moment, so that all slots are wanted."""
    document = LoopDocument.model_validate({
        "task": "probe", "doer": {"command": "sleep 1"},
        "baseline": False, "checkers": ["true"], "place": place,
    })  # fmt: skip
    return stack.engine.submit.document(document).session


def _ended(stack: Stack, session: str) -> set[str] | None:
    """Which workers carried it out; None while it runs."""
    if stack.engine.queries.session(session).status == "active":
        return None
    steps = stack.engine.store.steps(
        SessionRef(session, session),
        stack.engine.store.names(SessionRef(session, session), "steps"),
    )
    return {str(step.owner).partition("/")[0] for step in steps.values()}


def _left_behind(stack: Stack) -> list[Broken]:
    _wait_for(lambda: not stack.bodies(), 20)
    found = list(_processes(stack.bodies(), "after the fleet had ended"))
    for process in stack.bodies():
        process.kill()
    return found


def _processes(left: list[psutil.Process], when: str) -> Iterator[Broken]:
    for process in left:
        yield Broken("no process is left behind", str(process.pid), f"{words(process)} {when}")


def _wait_for(condition: Callable[[], bool], seconds: float, every_s: float = 0.2) -> None:
    give_up = time.monotonic() + seconds
    while not condition() and time.monotonic() < give_up:
        time.sleep(every_s)


def told_of(plan: Plan, found: Found) -> Iterator[str]:
    """The report, line by line."""
    yield ""
    yield "What was done"
    kinds = Counter(fault.kind for fault in found.faults)
    times = {kind: [f.at_s for f in found.faults if f.kind == kind] for kind in kinds}
    for kind, count in kinds.most_common():
        yield f"  {count:4} x {kind:24} at {', '.join(f'{at:.0f}' for at in times[kind])} s"
    yield f"  {len(found.faults):4} faults in all"
    yield "What came of it"
    for status, count in Counter(record.status for record in found.records).most_common():
        yield f"  {count:4} sessions {status}"
    steps = sum(record.count("steps") for record in found.records)
    lost = sum(record.count("attempts_lost") for record in found.records)
    yield f"  {steps:4} outcomes recorded, {found.bodies} bodies begun, {lost} attempts lost"
    said = sum(len(record.transcript) for record in found.records)
    kept = sum(len(record.differences) for record in found.records)
    talks = Counter(entry.agent for record in found.records for entry in record.transcript)
    yield f"  {said:4} records of what was said, {talks[AGENT]} of {AGENT}; {kept} differences"
    for kind, count in sorted(found.ended.items()):
        yield f"  {count:4} x {kind}"
    yield f"  all had ended {found.settled_s:.0f} s after everything worked again"
    yield from _verdict(plan, found)


def _verdict(plan: Plan, found: Found) -> Iterator[str]:
    for promise, whom, told in found.broken:
        yield f"BROKEN: {promise}: {whom}: {told}"
    count = len(found.broken)
    yield f"{count} promises were broken" if count else "No promise was broken."
    yield f"again: {plan.command}"
