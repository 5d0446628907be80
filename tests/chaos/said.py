"""What was promised of conversations, transcripts, differences and budgets, as checks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from app.core.program import Action, Step
from app.history.transcript import SAME
from leadhand.models.views.step import Event, TranscriptEntry
from tests.chaos.records import Body, Record

_LEAVES = tuple(
    f"step.{word}" for word in ("settled", "released", "expired", "retried", "cancelled", "parked")
)
#: Characters of its prompt that a body records.
_TOLD_MOST = 1500


def spoken(record: Record, bodies: Sequence[Body]) -> Iterator[str]:
    """A conversation has one speaker at a time, who goes on from what was said last."""
    yield from _Talks(record, bodies).told()
    yield from _at_once(record, bodies)


class _Talks:
    """Follows the conversations of a session through its events."""

    def __init__(self, record: Record, bodies: Sequence[Body]) -> None:
        self._record = record
        self._by_run = {(body.address, body.fence): body for body in bodies}
        self._speakers: dict[str, str] = {}
        #: The last thread of each; None after it was sent back, until its next speaker shows it.
        self._stands: dict[str, str | None] = {}
        self._known = {""}

    def told(self) -> Iterator[str]:
        for event in self._record.events:
            if event.type == "session.status" and event.fields.get("after"):
                self._stands = dict.fromkeys(_conversations(self._record))
            step = _step(self._record, event)
            if step is not None and step.conversation is not None:
                yield from self._take(event, step.conversation)

    def _take(self, event: Event, talk: str) -> Iterator[str]:
        address = str(event.address)
        if event.type == "step.claimed":
            yield from self._begun(event, talk)
        if event.type in _LEAVES and self._speakers.get(talk) == address:
            del self._speakers[talk]
        if event.type == "step.settled":
            yield from self._left(event, talk)

    def _begun(self, event: Event, talk: str) -> Iterator[str]:
        address = str(event.address)
        if talk in self._speakers:
            yield f"{address} speaks in {talk} while {self._speakers[talk]} does ({event.id})"
        self._speakers[talk] = address
        body = self._body(event)
        if body is None:
            return
        stands = self._stands.get(talk, "")
        if stands is None and body.resumed not in self._known:
            yield f"{address} went on with {body.resumed!r}, which nobody left"
        elif stands is not None and body.resumed != stands:
            yield f"{address} went on with {body.resumed!r}, it stood at {stands!r}"
        self._stands[talk] = body.resumed

    def _left(self, event: Event, talk: str) -> Iterator[str]:
        outcome = self._record.outcomes.get(str(event.address))
        if outcome is None or outcome.thread is None:
            return
        thread = outcome.thread.id or ""
        self._stands[talk] = thread
        self._known.add(thread)
        body = self._body(event)
        if body is not None and body.thread != thread:
            yield f"{event.address} left {body.thread!r}, recorded is {thread!r}"

    def _body(self, event: Event) -> Body | None:
        return self._by_run.get((str(event.address), int(str(event.fields.get("fence", 0)))))


def _conversations(record: Record) -> set[str]:
    steps = (node for _, node in record.program.walk() if isinstance(node, Step))
    return {step.conversation for step in steps if step.conversation is not None}


def _step(record: Record, event: Event) -> Step | None:
    """The step that an event is about."""
    if not event.type.startswith("step.") or event.address is None:
        return None
    return record.program.step(event.address)


def _at_once(record: Record, bodies: Sequence[Body]) -> Iterator[str]:
    """Whether two bodies spoke at once, neither of which was lost."""
    lost = _lost(record)
    latest: dict[str, Body] = {}
    for body in sorted(bodies, key=lambda body: body.began):
        talk = record.program.step(body.address).conversation
        if talk is None or (body.address, body.fence) in lost:
            continue
        before = latest.get(talk)
        if before is not None and before.ended is not None and body.began < before.ended:
            yield f"{body.address} began to speak in {talk} before {before.address} had ended"
        latest[talk] = body


def _lost(record: Record) -> set[tuple[str, int]]:
    """The attempts whose lease passed: what their bodies do then, nobody can know."""
    fences: dict[str, int] = {}
    lost = set()
    for event in record.events:
        address = event.address or ""
        if event.type == "step.claimed":
            fences[address] = int(str(event.fields["fence"]))
        if event.type == "step.expired":
            lost.add((address, fences[address]))
    return lost


def written(record: Record, bodies: Sequence[Body]) -> Iterator[str]:
    """The transcript is complete, and in the order in which things came to their end."""
    added = [event for event in record.events if event.type == "transcript.added"]
    told = [(event.address, event.fields["seq"], event.fields["role"]) for event in added]
    if told != [(entry.address, entry.seq, entry.role) for entry in record.transcript]:
        yield f"it has {len(record.transcript)} records, its events tell of {len(told)}, or others"
    spoke = [str(event.address) for event in record.events if _speaks(record, event)]
    answers = [entry for entry in record.transcript if entry.role == "assistant"]
    if spoke != [entry.address for entry in answers]:
        wrong = Counter(spoke) - Counter(entry.address for entry in answers)
        yield f"those who answered were {len(spoke)}, it has {len(answers)}; {dict(wrong)}"
    for entry in record.transcript:
        there = [body for body in bodies if body.address == entry.address]
        is_agent = record.program.step(entry.address).action is Action.AGENT
        if entry.role == "assistant" and is_agent:
            yield from _heard_there(entry, {body.said for body in there if body.said})
        if entry.role == "user":
            yield from _heard_there(entry, {body.told for body in there if body.told})


def _heard_there(entry: TranscriptEntry, texts: Collection[str]) -> Iterator[str]:
    """Whether a record is what one of the bodies there said, or was told."""
    known = {text.strip() for text in texts}
    text = entry.text.strip()
    if text.startswith(SAME):  # of what was given again only the end is there
        again = text.removeprefix(SAME).strip()
        text = next((heard for heard in known if heard.endswith(again)), text)
    if known and len(entry.text) < _TOLD_MOST and text not in known:
        yield f"{entry.address} has {entry.text!r} as {entry.role}, its bodies know of {known}"


def _speaks(record: Record, event: Event) -> bool:
    step = _step(record, event)
    outcome = record.outcomes.get(str(event.address))
    if step is None or event.type != "step.settled" or outcome is None or outcome.passed_on:
        return False
    if not event.fields.get("text"):  # no worker told what it came to, as where its time was over
        return False
    if outcome.word == "skipped" or step.action in (Action.HUMAN, Action.TOOL):
        return False
    return step.action is Action.AGENT or step.conversation is not None


def seen(record: Record, bodies: Sequence[Body]) -> Iterator[str]:
    """Each difference that is kept has an owner, and shows what that wrote."""
    order = dict(record.kept)
    if list(order) != [address for address, _ in record.kept]:
        yield f"some stand in its order twice: {record.kept}"
    sizes = {address: found.size for address, found in record.differences.items()}
    if order != sizes:
        yield f"it keeps {sizes}, in order are {order}"
    for address in sizes:
        if record.steps.get(address) is None or record.program.step(address).action not in (
            *(Action.AGENT, Action.CHECK, Action.BREAK, Action.DECIDE),  # a check may write, too
            Action.JUDGE,  # which names what somebody wrote while checks ran
        ):
            yield f"the difference of {address!r} has no owner"
    for event in record.events:
        if event.type == "step.settled" and event.address and not record.count("diffs_dropped"):
            yield from _shown(record, event, bodies)


def _shown(record: Record, event: Event, bodies: Sequence[Body]) -> Iterator[str]:
    address = str(event.address)
    outcome = record.outcomes.get(address)
    if outcome is None or outcome.diff is None:
        return
    found = record.differences.get(outcome.diff)
    if outcome.diff != address or found is None:
        yield f"{address} made a difference that is not kept: {outcome.diff!r}"
        return
    for body in bodies:
        mine = (body.address, body.fence) == (address, event.fields.get("fence"))
        if mine and body.line and f"+{body.line}" not in found.view.patch:
            yield f"the difference of {address} does not show what it wrote"


def spent(record: Record, bodies: Sequence[Body], below: Sequence[Body]) -> Iterator[str]:
    """The cost is that of the attempts that were recorded, and of no more than there were."""
    settled = {
        (event.address, event.fields.get("fence"))
        for event in record.events
        if event.type == "step.settled"
    }
    sure = sum(
        body.micros
        for body in bodies
        if body.ended is not None and (body.address, body.fence) in settled
    )
    most = sum(body.micros for body in (*bodies, *below))
    if not sure <= record.count("cost_micros") <= most:
        yield f"it cost {record.count('cost_micros')}, its bodies between {sure} and {most}"
    budget = json.loads(record.fields.get("budget") or "{}")
    if record.reason is None or record.reason.code != "budget" or "wall_ms" in budget:
        return
    used = {name: record.count(name) for name in budget}
    used["tokens"] = record.count("tokens_in") + record.count("tokens_out")
    if all(used[name] < limit for name, limit in budget.items()):
        yield f"its budget of {budget} ended it when it had used {used}"
