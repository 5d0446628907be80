"""What was promised, each as a check of what a run left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from redis import Redis

from app.core.addresses import block_of, iteration_in, path_of, turn_of
from app.core.program import Action, Loop, Step, checker_tool, is_before_work, needs_of
from app.engine import Engine
from app.store.keys import GLOBAL_PARTS
from leadhand.models.views.step import Event
from tests.chaos.driving import Driven
from tests.chaos.planned import as_drawn, planned
from tests.chaos.records import Body, Record
from tests.chaos.said import seen, spent, spoken, written

#: What may follow what in the events of one address; `over` is followed by nothing.
_NEXT: dict[tuple[str, str], str] = {
    ("", "step.ready"): "ready",
    ("", "step.settled"): "over",  # passed over without a worker
    ("ready", "step.settled"): "over",
    ("ready", "step.claimed"): "running",
    ("ready", "step.cancelled"): "over",
    ("ready", "step.blocked"): "ready",
    ("running", "step.settled"): "over",
    ("running", "step.cancelled"): "over",
    ("running", "step.parked"): "parked",
    ("parked", "step.settled"): "over",
    ("parked", "step.cancelled"): "over",
    ("parked", "step.released"): "back",  # answered: the next attempt compares the folder
    **{("running", f"step.{word}"): "back" for word in ("released", "expired", "retried")},
    ("back", "step.retried"): "back",
    ("back", "step.ready"): "ready",
    ("back", "step.cancelled"): "over",
    ("back", "step.settled"): "over",
}
_BODIES = (Action.AGENT, Action.CHECK, Action.BREAK, Action.DECIDE)
#: Numbers, indexes and settings, which are kept; whatever else has no TTL has been forgotten.
_KEPT = ("errands", "sessions", "workers", "swept", "epoch", "limits", "rates", "tokens", "status:",
         "store", "secret", "program:", "users:", "token-uses", "owned:")  # fmt: skip
#: Messages are hints: what of them is left over is no fault.
_OF_THE_BROKER = ("message_stray", "queue_unconsumed")
#: How late a slot of a pace may be taken, and is still that slot.
LATE_MS = 3000
_EMPTY = ("leases", "ready", "holds", "tickets", "called", "waits", "hooks")


class Broken(NamedTuple):
    """A promise that was not kept."""

    promise: str
    whom: str
    told: str


def of_session(
    record: Record, bodies: Sequence[Body], below: Sequence[Body] = ()
) -> Iterator[Broken]:
    """All that one session must show; `below` are the bodies of the sessions below it."""
    for check in (_ended, _once, _joined, _counted):
        for told in check(record):
            yield Broken(_PROMISE[check.__name__], record.ref.id, told)
    for told in _accounted(record, bodies):
        yield Broken("what is recorded is what the bodies did", record.ref.id, told)
    for promise, found in (
        ("a conversation goes on from its end, one speaker at a time", spoken(record, bodies)),
        ("the transcript is complete and in order", written(record, bodies)),
        ("a difference is somebody's, and shows it", seen(record, bodies)),
        ("what is spent is counted once", spent(record, bodies, below)),
    ):
        for told in found:
            yield Broken(promise, record.ref.id, told)


_PROMISE = {
    "_ended": "every session ends, and says why",
    "_once": "each step has one recorded outcome",
    "_joined": "no join fires early or twice",
    "_counted": "counters are what happened",
}


def _ended(record: Record) -> Iterator[str]:
    if record.status not in ("completed", "failed", "exited", "aborted"):
        live = {a: s.state for a, s in record.steps.items() if s.state in ("ready", "running")}
        yield f"it is {record.status}; {live}"
    elif record.reason is None:
        yield f"it is {record.status} without a reason"


def _once(record: Record) -> Iterator[str]:
    states: dict[str, str] = {}
    fences: Counter[str] = Counter()
    for event in record.events:
        address = event.address or ""
        if not event.type.startswith("step."):
            continue
        before = states.get(address, "")
        after = _NEXT.get((before, event.type))
        if after is None:
            yield f"{address}: {event.type} after {before or 'nothing'} ({event.id})"
        states[address] = after or before
        yield from _fenced(event, address, fences)
    for address, step in record.steps.items():
        over = step.state not in ("ready", "running", "parked")
        if over != (states.get(address) == "over"):
            yield f"{address} is {step.state}, its events say {states.get(address)}"


def _fenced(event: Event, address: str, fences: Counter[str]) -> Iterator[str]:
    fence = event.fields.get("fence")
    if event.type in ("step.claimed", "step.parked"):
        fences[address] += 1
    if isinstance(fence, int) and fence != fences[address]:
        yield f"{address}: {event.type} under fence {fence}, the last one is {fences[address]}"


def _joined(record: Record) -> Iterator[str]:
    done: set[tuple[str, str]] = set()
    begun: set[str] = set()
    for event in record.events:
        address = event.address or ""
        if event.type in ("step.settled", "loop.closed") and address:
            done.add((block_of(address), _name(address)))
        if event.type in ("step.ready", "loop.opened") and address not in begun:
            begun.add(address)
            if address.rpartition("/")[2].rpartition("~")[2] != "1" and "~" in address:
                done.discard((block_of(address), _name(address)))  # its next run is to be met
            yield from _met(record, address, done)


def _met(record: Record, address: str, done: set[tuple[str, str]]) -> Iterator[str]:
    """Whether all that a step or loop needs was over before it began."""
    node = address.rpartition("#")[0] if "#" in address.rpartition("/")[2] else address
    block = block_of(node)
    path = path_of(turn_of(block))
    outer = record.program.node(path) if path else None
    body = outer.body if isinstance(outer, Loop) else record.program.body
    kept = _kept(record, block)
    missing = [n for n in needs_of(body)[_name(node)] if (block, n) not in done and n not in kept]
    if missing:
        yield f"{address} began before {', '.join(missing)} was over"


def _kept(record: Record, block: str) -> Collection[str]:
    """What counts as done in a block that was opened when its session was sent back."""
    turn = record.turns.get(turn_of(block)) if block else None
    if turn is None or turn.origin is None or turn.origin.opened != iteration_in(block):
        return ()
    return turn.origin.kept


def _name(address: str) -> str:
    return path_of(address.rpartition("/")[2])


def _counted(record: Record) -> Iterator[str]:
    # What was passed over without a worker says so, and counts as no step; nor does a baseline.
    settled = [e for e in record.events if e.type == "step.settled" and e.fields.get("fence")]
    held = [e for e in settled if not is_before_work(record.program.step(str(e.address)))]
    lost = [e for e in record.events if e.type == "step.expired" and e.fields.get("why") == "lost"]
    steps = record.steps.values()
    iterations = Counter((e.loop, e.run, e.iteration) for e in record.ledger)
    for name, count in (
        ("steps", len(held)),
        ("iterations", sum(not entry.recheck for entry in record.ledger)),
        ("attempts_lost", len(lost)),
        ("attempts_lost", sum(step.lost for step in steps)),
        ("attempts_failed", sum(step.failed for step in steps)),
    ):
        if record.count(name) != count:
            yield f"{name} is {record.count(name)}, it should be {count}"
    outermost = [key for key, times in iterations.items() if times > 1 and "/" not in key[0]]
    if outermost:
        yield f"the ledger has {outermost} twice"


def _accounted(record: Record, bodies: Sequence[Body]) -> Iterator[str]:
    claimed = {(e.address, e.fields["fence"]) for e in record.events if e.type == "step.claimed"}
    runs = Counter((body.address, body.fence) for body in bodies)
    by_run = {(body.address, body.fence): body for body in bodies}
    for (address, fence), times in runs.items():
        if times > 1:
            yield f"{address}: {times} bodies under fence {fence}"
        if (address, fence) not in claimed:
            yield f"{address}: a body under fence {fence}, which nobody was granted"
    for body in bodies:
        if body.key != f"{body.session}:{body.address}":
            yield f"{body.address}: its key is {body.key}"
    for event in record.events:
        if event.type == "step.settled" and event.address:
            body_ = by_run.get((event.address, int(str(event.fields.get("fence", 0)))))
            yield from _agrees(record, event, body_)


#: In the text of a check before the work that needed no body.
_AS_BEFORE = "as it ran in this state already"


def _agrees(record: Record, event: Event, body: Body | None) -> Iterator[str]:
    """Whether an outcome is what its body says of itself."""
    address = str(event.address)
    step = record.program.step(address)
    outcome = record.outcomes.get(address)
    code = outcome.reason.code if outcome and outcome.reason else ""
    if not _has_body(step) or event.fields["word"] == "skipped" or outcome is None:
        return
    if code in ("lost", "timeout", "deadline") or outcome.passed_on is not None:
        return
    if code == "contested" and body is None:
        return  # somebody wrote into the folder after a person's answer counted
    if body is None and is_before_work(step) and _AS_BEFORE in str(outcome.text):
        return  # the same command ran already in another step before the work
    if body is None or body.ended is None:
        never = "began" if body is None else "ended"
        yield f"{address}: an outcome of a body that never {never}"
        return
    said = outcome.word == "succeeded" if step.action is Action.AGENT else (
        outcome.verdict == "accept"
    )  # fmt: skip
    if said != body.good and not is_before_work(step):
        yield f"{address}: recorded as {outcome.word} {outcome.verdict}, its body says {body.good}"


def _has_body(step: Step) -> bool:
    """Whether a process of its own carries the step out and gives account of itself."""
    return step.action in _BODIES and checker_tool(step) is None


def of_pace(records: Collection[Record], key: str, per_minute: float) -> Iterator[Broken]:
    """That no more began with a limited key than its pace allows, at any time."""
    begun = sorted(
        event.at_ms
        for record in records
        for event in record.events
        if event.type == "step.claimed" and key in record.program.step(str(event.address)).limits
    )
    gap = 60_000 / per_minute
    for first, last in combinations(range(len(begun)), 2):
        took = begun[last] - begun[first]
        if last - first > (took + LATE_MS) / gap + 1:
            yield Broken("a pace is kept", key, f"{last - first + 1} began within {took} ms")
            return


def of_plan(
    record: Record, below: Mapping[str, Record], bodies: Mapping[str, Sequence[Body]]
) -> Iterator[Broken]:
    """All that the plan of a session must show, if it has one."""
    for told in planned(record, below, bodies):
        yield Broken(
            "a plan is what its sessions and their reports made of it", record.ref.id, told
        )


def of_client(
    driven: Driven, record: Record, bodies: Sequence[Body], below: Mapping[str, Record]
) -> Iterator[Broken]:
    """What was told to who asked for the session; the bodies are those below it, too."""
    me = record.ref.id
    for told in driven.troubles:
        yield Broken("who asks is answered", me, told)
    for told in _as_foretold(driven, record, below):
        yield Broken("sessions end as their bodies make them end", me, told)
    document = driven.wanted.document or {}
    for told in as_drawn(document, record, below) if document.get("kind") == "plan" else ():
        yield Broken("a task comes to what its session makes of it", me, told)
    for told in _at_rest(driven, record, bodies):
        yield Broken("an acknowledged stop starts nothing", me, told)


def of_answers(driven: Driven, records: Mapping[str, Record]) -> Iterator[Broken]:
    """One answer to each question, and it is the recorded one."""
    for (session, address, _), taken in driven.answers.items():
        if len(taken) > 1:
            yield Broken(
                "racing answers have one winner", session, f"{address}: {taken} were taken"
            )
        said = records[session].outcomes.get(address) if session in records else None
        if taken and (said is None or said.text != taken[0]):
            yield Broken("racing answers have one winner", session, f"{taken} is not what {address}"
                         f" came to: {said}")  # fmt: skip


def _as_foretold(driven: Driven, record: Record, below: Mapping[str, Record]) -> Iterator[str]:
    end, steer = driven.wanted.end, driven.wanted.steer
    by_force = {"abort": "aborted", "exit": "exited"}.get(str(steer))
    if steer == "race" or record.status == by_force or record.poisoned:
        return
    if driven.spent and record.status == "aborted":
        return
    if record.plan is not None and any(child.poisoned for child in below.values()):
        return
    code = record.reason.code if record.reason else None
    if (record.status, code) != (end.status, end.code):
        yield f"{record.status} ({code}) instead of {end.status} ({end.code}): {record.reason}"
    # Bodies count the iterations in which the checks run again on the same work, too.
    rechecks = sum(entry.recheck for entry in record.ledger)
    iterations = None if end.iterations is None else end.iterations - rechecks
    for name, count in (("iterations", iterations), ("phase_retries", end.phase_retries)):
        if count is not None and record.count(name) != count and not driven.sent_back:
            yield f"{record.count(name)} {name} instead of {count}"


def _at_rest(driven: Driven, record: Record, bodies: Sequence[Body]) -> Iterator[str]:
    stopped = False
    for event in record.events:
        if event.type == "session.status":
            stopped = event.fields["status"] == "stopped"
        if event.type == "session.ended":
            stopped = True
        if event.type == "step.claimed" and stopped:
            yield f"{event.address} was claimed in a session at rest ({event.id})"
    for rest in driven.rests:
        for body in bodies:
            if rest.since < body.began < (rest.until or float("inf")):
                yield f"{body.address} began {body.began - rest.since:.2f} s after '{rest.status}'"


def of_store(redis: Redis, prefix: str = "lh") -> Iterator[Broken]:
    """That nothing is left which has no end."""
    for part in _EMPTY:
        key = f"{prefix}:{part}"
        if redis.exists(key):
            yield Broken("nothing is left behind", key, _shown(redis, key))
    for errand in redis.zrange(f"{prefix}:errands", 0, -1):
        if not str(errand).startswith("forget|"):
            yield Broken("nothing is left behind", f"{prefix}:errands", str(errand))
    kept = {f"{prefix}:{part}" for part in GLOBAL_PARTS}
    for found in redis.scan_iter(f"{prefix}:*"):
        key = str(found)
        is_kept = key in kept or key.startswith(tuple(f"{prefix}:{name}" for name in _KEPT))
        if not is_kept and int(str(redis.ttl(key))) < 0:
            yield Broken("no key without a deadline", key, "it has no TTL")


def of_users(redis: Redis) -> Iterator[Broken]:
    """That no process lacked a right, as far as the server remembers: since its last start."""
    for entry in redis.acl_log():
        if entry["reason"] != "auth":
            yield Broken("each user has its rights", str(entry["username"]), str(entry["object"]))


def of_audit(engine: Engine) -> Iterator[Broken]:
    """That `leadhand fsck` has nothing to say of what lies in Redis."""
    cursor: str | None = None
    while True:
        view = engine.audit.run(cursor=cursor)
        for finding in view.items:
            if finding.kind not in _OF_THE_BROKER:
                whom = finding.session or "all sessions"
                yield Broken("an audit finds nothing", whom, f"{finding.kind}: {finding.what}")
        cursor = view.next
        if cursor is None:
            return


def _shown(redis: Redis, key: str) -> str:
    if redis.type(key) == "zset":
        return str(redis.zrange(key, 0, 4, withscores=True))
    return str(redis.hgetall(key))
