"""What a run is judged by: Redis' records, event streams, and the bodies' own account."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from app.core.addresses import SessionRef
from app.core.messages import Message
from app.core.outcomes import Outcome
from app.core.program import Program
from app.core.records import StepRecord, TurnRecord
from app.engine import Engine
from app.plans.tasks import PlanRecord, parse_plan
from app.sessions.inbox import read_messages
from app.sessions.presenters import diff_view
from app.store.store import Store
from leadhand.models.verdicts import Reason
from leadhand.models.views.result import LedgerEntry
from leadhand.models.views.step import DiffView, Event, TranscriptEntry


class Reported(NamedTuple):
    """A report about a task, by the body that sent it."""

    notes: str
    status: str
    #: What the API answered; None if the body was killed before.
    code: int | None = None
    version: int | None = None
    repeated: bool = False


class Body(NamedTuple):
    """One run of a body, as it wrote it down itself."""

    session: str
    address: str
    fence: int
    pid: int
    key: str
    kind: str
    began: float
    ended: float | None = None
    good: bool | None = None
    #: What it answered, and the line that it left in its folder.
    said: str = ""
    line: str = ""
    #: Of an agent: the thread that it resumed, its prompt, the thread that it left, and its cost.
    resumed: str = ""
    told: str = ""
    thread: str = ""
    micros: int = 0
    reports: tuple[Reported, ...] = ()


class Difference(NamedTuple):
    """What a doer changed, as it is kept, and how long that is."""

    view: DiffView
    size: int


@dataclass(frozen=True)
class Record:
    """One session, as Redis has it."""

    ref: SessionRef
    fields: Mapping[str, str]
    program: Program
    steps: Mapping[str, StepRecord]
    events: list[Event]
    ledger: list[LedgerEntry]
    outcomes: Mapping[str, Outcome]
    children: frozenset[str]
    turns: Mapping[str, TurnRecord]
    transcript: list[TranscriptEntry]
    differences: Mapping[str, Difference]
    #: In which order they came, with their sizes.
    kept: list[tuple[str, int]]
    #: Of a plan.
    plan: PlanRecord | None
    inbox: list[Message]

    @property
    def status(self) -> str:
        return self.fields.get("status", "gone")

    @property
    def reason(self) -> Reason | None:
        text = self.fields.get("reason")
        return Reason.model_validate_json(text) if text else None

    def count(self, name: str) -> int:
        return int(self.fields.get(name, 0))

    @property
    def poisoned(self) -> bool:
        """Whether one of its steps was lost so often that it was given up."""
        return any(step.lost > 5 for step in self.steps.values())


def record_of(engine: Engine, ref: SessionRef) -> Record:
    """Everything about one session; its counters are no older than its events."""
    store = engine.store
    events: list[Event] = []
    while found := store.events({ref: events[-1].id if events else "0"}, limit=1000, block_ms=0):
        events += found[ref]
    fields = store.fields(ref)
    steps = store.steps(ref, store.names(ref, "steps"))
    lines = store.lines(ref, "ledger", 0, -1)
    return Record(
        ref,
        fields,
        engine.registry.program(fields["program"]),
        steps,
        events,
        [LedgerEntry.model_validate_json(line) for line in lines],
        {a: Outcome.model_validate_json(text) for a, text in store.outcomes(ref).items()},
        frozenset(store.children(ref)),
        store.turns(ref, store.names(ref, "turns")),
        [
            TranscriptEntry.model_validate(json.loads(line) | {"seq": seq, "at": ""})
            for seq, line in enumerate(store.lines(ref, "transcript", 0, -1), 1)
        ],
        *_differences(store, ref),
        parse_plan(store.plan(ref)),
        list(read_messages(store, ref)),
    )


def _differences(
    store: Store, ref: SessionRef
) -> tuple[dict[str, Difference], list[tuple[str, int]]]:
    names = store.names(ref, "diffs")
    values = store.values(ref, "diffs", names)
    order = [(str(address), int(size)) for address, size in json.loads(values.pop("", "[]"))]
    kept = {a: Difference(diff_view(a, text), len(text)) for a, text in values.items()}
    return kept, order


def with_children(engine: Engine, session: str) -> Iterator[Record]:
    """A session and all sessions below it."""
    ahead = [SessionRef(session, session)]
    while ahead:
        record = record_of(engine, ahead.pop())
        yield record
        ahead += [SessionRef(child, record.ref.root) for child in record.children]


def account_of(file: Path) -> dict[str, list[Body]]:
    """What each session's bodies wrote, in the order of their beginnings."""
    begun: dict[tuple[str, str, int, int], Body] = {}
    for line in map(json.loads, file.read_text().splitlines()):
        who = (line["session"], line["address"], line["fence"], line["pid"])
        if line["event"] == "begin":
            more = {name: line[name] for name in ("resumed", "told", "micros") if name in line}
            begun[who] = Body(*who, line["key"], line["kind"], line["at"], **more)
        elif line["event"] == "report":
            begun[who] = _with_report(begun[who], line)
        else:
            more = {name: line[name] for name in ("said", "line", "thread") if name in line}
            begun[who] = begun[who]._replace(ended=line["at"], good=line["good"], **more)
    account: dict[str, list[Body]] = defaultdict(list)
    for body in begun.values():
        account[body.session].append(body)
    return account


def _with_report(body: Body, line: Mapping[str, Any]) -> Body:
    """The body with a report that it sent, or with the answer to that."""
    told = Reported(**{name: line[name] for name in Reported._fields if name in line})
    others = tuple(one for one in body.reports if one.notes != told.notes)
    return body._replace(reports=(*others, told))
