"""What was promised of plans, as checks of their event streams, sessions and reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.plans.tasks import MERGE, PlanRecord, TaskRecord
from tests.chaos.plan_load import Task, accepted_of, tasks_of
from tests.chaos.records import Body, Record, Reported

_WORKS = ("starting", "running")
#: The order of a task's states within one run.
_ORDER = ("waiting", "starting", "running", "merging", "done")
REPORTED = "reported"


class Seen(NamedTuple):
    """A task as the events show it."""

    state: str
    run: int
    fact: str | None
    session: str | None


@dataclass
class Replay:
    """The plan of a session as its events tell of it, change by change."""

    record: Record
    version: int = 0
    tasks: dict[str, Seen] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    #: The changes that are reports: version and child session.
    reports: list[tuple[int, str]] = field(default_factory=list)
    most_at_once: int = 0

    def __post_init__(self) -> None:
        plan = self.record.plan
        self._needs = {task.id: task.deps for task in plan.tasks} if plan is not None else {}
        for event in self.record.events:
            if event.type == "plan.changed":
                self._take(event.fields)

    def _take(self, fields: Mapping[str, Any]) -> None:
        if fields["version"] != self.version + 1:
            self.faults.append(f"version {fields['version']} follows {self.version}")
        self.version = fields["version"]
        if fields["what"] == REPORTED:
            self.reports.append((self.version, fields["by"]))
        begun = [told["id"] for told in fields.get("tasks") or () if self._change(told)]
        accepted = {id_ for id_, task in self.tasks.items() if task.fact == "accepted"}
        for id_ in begun:
            missing = set(self._needs.get(id_, ())) - accepted
            if missing:
                self.faults.append(f"task {id_} began before {', '.join(sorted(missing))} was over")
        for gone in fields.get("removed") or ():
            del self.tasks[gone]
        working = sum(task.state in _WORKS for task in self.tasks.values())
        self.most_at_once = max(self.most_at_once, working)

    def _change(self, told: Mapping[str, Any]) -> bool:
        """Take the new state of a task; whether its next run begins."""
        now = Seen(told["state"], told["run"], told.get("fact"), told.get("session"))
        before = self.tasks.get(told["id"], Seen("waiting", 0, None, None))
        self.tasks[told["id"]] = now
        begins, at = now.run > before.run, f"task {told['id']} in version {self.version}"
        if now.run not in (before.run, before.run + 1):
            self.faults.append(f"{at}: run {now.run} follows {before.run}")
        if begins and now.state != "starting":
            self.faults.append(f"{at}: run {now.run} begins as {now.state}")
        back = now.state != "waiting" and _ORDER.index(now.state) < _ORDER.index(before.state)
        if back and not begins:
            self.faults.append(f"{at}: {now.state} follows {before.state} in run {now.run}")
        return begins


def planned(
    record: Record, below: Mapping[str, Record], bodies: Mapping[str, Sequence[Body]]
) -> Iterator[str]:
    """All that the plan of a session must show; `below` are the sessions below it."""
    plan = record.plan
    if plan is None:
        if any(event.type == "plan.changed" for event in record.events):
            yield "its plan is gone"
        return
    replay = Replay(record)
    yield from replay.faults
    if replay.version != plan.version:
        yield f"it is at version {plan.version}, its events end at {replay.version}"
    stored = {one.id: Seen(one.state, one.run, one.fact, one.session) for one in plan.tasks}
    if replay.tasks != stored:
        yield f"its events tell of {replay.tasks}, stored is {stored}"
    for check in (_once, _summarized):
        yield from check(record, plan, below)
    yield from _reported(record, plan, replay, bodies)


def _once(record: Record, plan: PlanRecord, below: Mapping[str, Record]) -> Iterator[str]:
    """Each run of a task has one session of its own, and each session is of one run."""
    carried = Counter(
        (json.loads(below[child].fields["parent"])["task"], child)
        for child in record.children
        if child in below and not _is_merge(below[child])
    )
    for run, times in Counter(run for run, _ in carried).items():
        if times > 1:
            yield f"{run} was started {times} times"
    listed = {
        (f"{task.id}~{run.run}", run.session): task for task in plan.tasks for run in task.runs
    }
    is_over = record.status in ("completed", "failed")
    for one in carried.keys() - listed.keys() if is_over else ():
        yield f"{one[1]} carries out {one[0]}, which the plan does not know"
    for one in listed.keys() - carried.keys():
        yield f"{one[0]} was carried out by {one[1]}, which is no child"
    for task in plan.tasks:
        runs = [run.run for run in task.runs]
        if runs != sorted(set(runs)) or (is_over and len(runs) != task.run):
            yield f"{task.id} is in run {task.run}, its runs are {runs}"


def _is_merge(child: Record) -> bool:
    return str(json.loads(child.fields["parent"])["task"]).startswith(MERGE)


def _summarized(record: Record, plan: PlanRecord, below: Mapping[str, Record]) -> Iterator[str]:
    """The plan says of its tasks what their sessions came to, and its outcome says the same."""
    if record.status not in ("completed", "failed"):
        return
    for task in plan.tasks:
        yield from _ended_as_told(task, below)
    outcome = record.outcomes.get(plan.address)
    if outcome is None or not isinstance(outcome.value, dict):
        if record.reason is None or record.reason.code != "budget":
            yield f"its plan has no outcome: {outcome}"
        return
    facts = {task.id: task.fact for task in plan.tasks}
    bad = {one["id"] for one in _list(outcome.value, "failed")}
    open_ = set(_list(outcome.value, "open"))
    told = {**dict.fromkeys(bad, "bad"), **dict.fromkeys(open_, "open")}
    real = {
        id_: "open" if fact is None else "bad"
        for id_, fact in facts.items()
        if fact != "accepted"
    }  # fmt: skip
    accepted = sum(fact == "accepted" for fact in facts.values())
    if told != real or outcome.value["accepted"] != accepted:
        yield f"its summary is {outcome.value}, its tasks are {facts}"


def _list(value: Mapping[str, Any], name: str) -> list[Any]:
    return list(value.get(name) or ())


def _ended_as_told(task: TaskRecord, below: Mapping[str, Record]) -> Iterator[str]:
    for run in task.runs:
        status = below[run.session].status if run.session in below else "gone"
        if run.ended != status:
            yield f"{task.id}~{run.run} ended {run.ended}, its session is {status}"
    if not task.runs or task.state == "waiting":
        return
    last = task.runs[-1]
    wanted = "accepted" if last.ended == "completed" else last.ended
    if task.fact != wanted:
        yield f"{task.id} is {task.fact}, its last session ended {last.ended}"


def _reported(
    record: Record, plan: PlanRecord, replay: Replay, bodies: Mapping[str, Sequence[Body]]
) -> Iterator[str]:
    """Each report that was taken is in the plan once, in its own task; no other one is."""
    noted = Counter(
        (note.note, task.id) for task in plan.tasks for note in task.history if note.note
    )
    notices = Counter(m.text.partition(": ")[2] for m in record.inbox if m.kind == "report")
    sessions = {run.session: task.id for task in plan.tasks for run in task.runs}
    sent = {
        child: [one for body in bodies.get(child, ()) for one in body.reports] for child in sessions
    }
    for child, task in sessions.items():
        for one in sent[child]:
            yield from _taken_once(one, noted[one.notes, task], notices)
            yield from _in_its_place(one, child, task, set(noted), dict(replay.reports))
    for child, times in Counter(child for _, child in replay.reports).items():
        if times > len(sent.get(child, ())):
            yield f"{child} reported {times} times, its bodies {len(sent.get(child, ()))} times"
    known = {one.notes for reports in sent.values() for one in reports}
    for text in notices:
        if text.partition(": ")[2] not in known:
            yield f"the inbox has a report that nobody sent: {text!r}"


def _in_its_place(
    one: Reported, child: str, task: str, noted: set[tuple[str, str]], versions: dict[int, str]
) -> Iterator[str]:
    """Whether a report is in no other task, and was answered with the version that it made."""
    elsewhere = [other for note, other in noted if note == one.notes and other != task]
    if elsewhere:
        yield f"{one.notes!r} of {task} is in {elsewhere}"
    if one.version is not None and not one.repeated and versions.get(one.version) != child:
        yield f"{one.notes!r} was answered with version {one.version} of another"


def _taken_once(one: Reported, noted: int, notices: Counter[str]) -> Iterator[str]:
    told = notices[f"{one.status}: {one.notes}"]
    # An earlier try of one that was refused, or never answered, may have been taken.
    wanted = (1,) if one.code == 200 else (0, 1)
    if noted not in wanted or told != noted:
        yield f"{one.notes!r} ({one.code}) is {noted} times in the plan, {told} times in the inbox"


def as_drawn(
    document: Mapping[str, Any], record: Record, below: Mapping[str, Record]
) -> Iterator[str]:
    """Whether each task came to what it had to, by itself."""
    plan = record.plan
    if plan is None or record.status not in ("completed", "failed"):
        return
    if any(child.poisoned for child in below.values()):
        return
    tasks = tasks_of(document)
    accepted, blocked = accepted_of(tasks)
    stops = document["on_task_failure"] == "stop" and len(accepted) < len(tasks)
    if Replay(record).most_at_once > document["at_once"]:
        yield f"{Replay(record).most_at_once} worked at once"
    found = {task.id: task for task in plan.tasks}
    for task in tasks:
        if task.id not in found:
            if not stops:
                yield f"the plan has no task {task.id}"
            continue
        yield from _as_drawn(document, task, found[task.id], blocked, stops=stops)


def _as_drawn(
    document: Mapping[str, Any], task: Task, found: TaskRecord, blocked: set[str], *, stops: bool
) -> Iterator[str]:
    retries = document["task_retries"] if task.fact == "failed" else 0
    wanted: tuple[str | None, int] = (task.fact, 1 + retries)
    if task.id in blocked:
        wanted = (None, 0)
    came_to = (found.fact, found.run)
    if came_to != wanted and not (stops and found.fact is None):
        yield f"{task.id} came to {came_to}, it should be {wanted}"
