"""One plan of eight tasks in many orders: whatever comes first, it says what its children came to.

One child fails, one exits with a reason, one is killed, one proposes a task, and one is resumed
after the plan went on. Which task does what, and in which order, is drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import pytest

from app.core.outcomes import Outcome
from app.plans import plans
from app.sessions.inbox import list_messages
from leadhand.models.verdicts import Reason, ReasonCode
from tests.effort import few_or_all
from tests.engine.driving import LEASE_MS, Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.test_fsck import audit
from tests.engine.world import World

FEW, ORDERS = range(10, 18), range(50)
AT_ONCE = 3
NEEDS: Mapping[str, tuple[str, ...]] = {
    "a": (), "b": (), "c": ("a",), "d": ("a", "b"), "e": ("b",), "f": ("c",), "g": ("d", "e"),
    "h": (),
}  # fmt: skip
ROLES = ("fails", "exits", "is killed", "proposes", "is resumed", "works", "works", "works")
MORE = {"task": {"id": "more", "title": "One more"}, "why": "the parser is missing"}
WHY, BROKE = "no way through", "it broke"
#: The reasons that the plan's notices and summary give; the whole chain is in the task.
SHOWN = {"accepted": "its session was accepted", "exited": WHY, "failed": "loop~1[1]/do failed"}


class Notice(NamedTuple):
    kind: str
    task: str
    text: str
    escalates: bool


@dataclass
class Order:
    """One order, with what the plan must say of it."""

    plan: PlanWorld
    random: Random
    roles: dict[str, str]
    #: What each task that has begun is still to do.
    ahead: dict[str, Iterator[None]] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    #: Whether the resume of a child came before the end of the plan.
    in_time: bool = True

    @property
    def over(self) -> bool:
        return self.plan.record.state == "ended"

    def run(self) -> None:
        self.plan.begin()
        while True:
            self.begin_new()
            if not self.ahead:
                return
            task = self.random.choice(sorted(self.ahead))
            if self.random.random() < 0.25:
                self.losing(task)
            else:
                self.go_on(task)

    def begin_new(self) -> None:
        """Take up the tasks that have started; no more than may work at once."""
        working = self.plan.at_work()
        resumed = {id_ for id_ in working if self.roles.get(id_) == "is resumed"}
        assert len(working - resumed) <= AT_ONCE
        for task in sorted(working - self.ahead.keys() - self.facts.keys()):
            self.facts[task] = ""
            self.ahead[task] = self.script(task)

    def go_on(self, task: str) -> None:
        if next(self.ahead[task], True):
            del self.ahead[task]

    def losing(self, task: str) -> None:
        """Go on with a task; all that it sends to others is lost, and swept later."""
        transitions = self.plan.engine.transitions
        deliver, transitions.deliver = transitions.deliver, lambda _: None
        self.go_on(task)
        transitions.deliver = deliver
        self.plan.world.later(1_000)

    # What a task does, step by step

    def script(self, task: str) -> Iterator[None]:
        role = self.roles.get(task, "works")
        self.report(task, "in_progress", f"{task} begins")
        yield
        if role == "proposes":
            yield from self.proposing(task)
        if role == "is killed":
            yield from self.killed(task)
        if role == "fails":
            self.report(task, "failed", f"{task} found no way")
            yield
            self.end(task, "failed", self.fail)
        elif role == "exits":
            self.report(task, "blocked", f"{task} needs a key")
            yield
            self.end(task, "exited", self.exit)
        elif role == "is resumed":
            yield from self.resumed(task)
        else:
            self.report(task, "completed", f"{task} is done")
            yield
            self.end(task, "accepted", self.plan.finish)

    def killed(self, task: str) -> Iterator[None]:
        """A worker dies with the attempt; another one takes the step when the lease is over."""
        child = self.plan.child(task)
        (do,) = self.plan.engine.store.members(child, "live")
        self.plan.world.grant(child, do)
        yield
        self.plan.world.later(LEASE_MS + 1_000)
        yield

    def proposing(self, task: str) -> Iterator[None]:
        self.report(task, "in_progress", f"{task} found a gap", proposals=[MORE])
        asked = f"proposes p1, task more: {MORE['why']}"
        self.notices.append(Notice("proposal", task, asked, escalates=True))
        yield
        self.ahead["decision"] = self.deciding()

    def deciding(self) -> Iterator[None]:
        """A person decides at a time of their own, and the plan waits for that."""
        yield
        plans.decide(self.plan.engine, self.plan.id, "p1", accept=True, by="ann")

    def resumed(self, task: str) -> Iterator[None]:
        """It fails, the plan goes on, and then somebody resumes its session."""
        self.end(task, "failed", self.fail)
        yield
        yield
        self.in_time = not self.over
        self.plan.resume_child(task)
        yield
        if self.in_time:
            self.end(task, "accepted", self.plan.finish)
        else:
            self.plan.finish(task)
            self.notices.append(
                Notice("end", task, "accepted after the plan had ended", escalates=False)
            )

    def report(self, task: str, status: str, notes: str, **more: Any) -> None:
        self.plan.report(task, status, notes=notes, **more)
        self.notices.append(Notice("report", task, f"{status}: {notes}", status == "blocked"))

    def fail(self, task: str) -> None:
        child, world = self.plan.child(task), self.plan.world
        (do,) = world.engine.store.members(child, "live")
        reason = Reason(code=ReasonCode.FAILED_STEP, text=BROKE)
        world.settle(child, world.grant(child, do), Outcome(word="failed", reason=reason))

    def exit(self, task: str) -> None:
        self.plan.engine.control.apply(self.plan.child(task).id, "exit", reason=WHY)

    def end(self, task: str, fact: str, act: Callable[[str], None]) -> None:
        act(task)
        self.facts[task] = fact
        good = fact == "accepted"
        self.notices.append(Notice("accepted" if good else "failed", task, SHOWN[fact], not good))

    # What came of it

    def check(self) -> None:
        plan = self.plan
        assert self.over
        tasks = {one.id: one for one in plan.record.tasks}
        assert set(tasks) == {*NEEDS, "more"} - ({"more"} if "more" not in self.facts else set())
        assert {id_: one.fact for id_, one in tasks.items() if one.fact} == self.facts
        assert all(one.run == (id_ in self.facts) for id_, one in tasks.items())
        assert plan.statuses() == {id_: self.status(id_) for id_ in tasks}
        for task, fact in self.facts.items():
            self.check_reason(task, fact)
        inbox = list_messages(plan.engine, plan.id, limit=200).items
        told = [(one.kind, *one.text.partition(": ")[::2], one.escalates) for one in inbox]
        assert told == [(n.kind, f"task {n.task}", n.text, n.escalates) for n in self.notices]
        self.check_summary([id_ for id_ in tasks if id_ not in self.facts])
        self.check_events()
        assert audit(plan.engine.audit.run).items == []

    def status(self, task: str) -> str:
        fact = self.facts.get(task)
        words = {"accepted": "completed", "failed": "failed", "exited": "blocked", None: "blocked"}
        return words[fact]

    def check_reason(self, task: str, fact: str) -> None:
        reason = self.plan.task(task).reason
        text = {"accepted": None, "exited": WHY, "failed": BROKE}[fact]
        root = list(reason.chain())[-1] if reason else None
        assert (root.text if root else None) == text
        assert (root.code if root else None) == {
            "accepted": None, "exited": "exit", "failed": "failed_step",
        }[fact]  # fmt: skip

    def check_summary(self, open_: list[str]) -> None:
        plan = self.plan
        text = plan.engine.store.outcomes(plan.ref)["execute"]
        value: Any = Outcome.model_validate_json(text).value
        accepted = [id_ for id_, fact in self.facts.items() if fact == "accepted"]
        bad = [one.id for one in plan.record.tasks if one.fact in ("failed", "exited")]
        assert value["accepted"] == len(accepted)
        assert value.get("open", []) == open_
        assert [one["id"] for one in value.get("failed", [])] == bad
        for one in value.get("failed", []):
            assert one["session"] == plan.child(one["id"]).id
            assert one["reason"] == SHOWN[self.facts[one["id"]]]
        assert {one["id"] for one in value["sessions"]} == self.facts.keys()
        view = plan.engine.queries.session(plan.id)
        assert view.status == ("failed" if open_ else "completed")
        if open_:
            assert view.reason is not None
            assert view.reason.code == "blocked_on"
            assert view.reason.text.endswith(": " + ", ".join(open_))

    def check_events(self) -> None:
        told = [f for _, f in self.plan.world.told(self.plan.ref, "plan.changed")]
        versions = [f["version"] for f in told if isinstance(f, dict)]
        assert versions == list(range(1, self.plan.record.version + 1))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", few_or_all(FEW, ORDERS))
def test_a_plan_says_what_its_children_came_to_in_any_order(bench: Bench, seeds: range) -> None:
    lost, orders = 0, set[tuple[str, ...]]()
    for seed in seeds:
        bench.restart()
        random = Random(seed)
        roles = dict(zip(NEEDS, random.sample(ROLES, len(ROLES)), strict=True))
        tasks = [{"id": id_, "dependencies": needs} for id_, needs in NEEDS.items()]
        plan = PlanWorld(World.of(bench), tasks, at_once=AT_ONCE, task_retries=0)
        order = Order(plan, random, roles)
        order.run()
        order.check()
        orders.add(tuple(f"{roles.get(id_)} {fact}" for id_, fact in order.facts.items()))
        lost += not order.in_time
    assert len(orders) > len(seeds) * 0.8
    assert 0 < lost < len(seeds) / 2
