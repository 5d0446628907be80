"""Many children report into one plan at once while people edit it, over the API and real Redis.

The oracle replays the event stream: no version is missing, and the tasks, the sessions, the inbox
and the summary agree with what each child was answered.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from flask.testing import FlaskClient

from api import create_app
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.security.signatures import BODY_SCOPES, Caller, mint
from app.settings import Settings
from tests.chaos.planned import Replay, planned
from tests.chaos.records import Body, Reported, with_children
from tests.effort import few_or_all
from tests.engine.driving import LEASE_MS, Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World

TOKEN, SECRET = "the operator's own", "s"
PEOPLE = ("ann", "ben", "cyd", "dan", "eve")
EDITS, MANY = 3, 10_000
THREADS = 24


class Crowd:
    """A plan with its children, who work in threads, and the people who edit it."""

    def __init__(self, bench: Bench, children: int, at_once: int) -> None:
        self.world = World.of(bench)
        tasks = [self._task(number) for number in range(children)]
        self.plan = PlanWorld(self.world, tasks, at_once=at_once, task_retries=1)
        self.app = create_app(Settings(api_token=TOKEN, secret=SECRET), self.world.engine)
        self.bodies: dict[str, list[Body]] = {}
        #: Of each task the titles that edits gave it, by the versions that they made.
        self.titles: dict[str, dict[int, str]] = {}
        self.added: set[str] = set()
        #: The versions that edits have made, by the tags that they were sent with.
        self.edits: list[int] = []
        self.refused = 0
        #: One for each try of a person: they try as often as children come and go.
        self.tries = threading.Semaphore(len(PEOPLE))
        self._lock = threading.Lock()

    @staticmethod
    def _task(number: int) -> dict[str, Any]:
        needs = [f"t{number - 7}"] if number % 10 == 9 else []
        return {"id": f"t{number}", "dependencies": needs}

    def client(self, token: str = TOKEN) -> FlaskClient:
        found: FlaskClient = self.app.test_client()
        found.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {token}"
        return found

    # The children

    def carry_out(self, task: str) -> None:
        """One child: it reports, others try to report for it, and its loop ends."""
        self.tries.release()
        world, child = self.world, self.plan.child(task)
        random = Random(f"{task}~{self.plan.task(task).run}")
        (do,) = world.engine.store.members(child, "live")
        grant = world.grant(child, do)
        caller = Caller(child.id, do, grant.fence, BODY_SCOPES)
        token = mint(caller, secret=SECRET)
        reports = [self.report(child, token, "in_progress", f"{child.id} begins", random)]
        self.refuse(child, caller)
        word = random.choice(("completed", "completed", "failed"))
        reports.append(self.report(child, token, word, f"{child.id} ends", random))
        body = Body(child.id, do, grant.fence, 1, child.id, "task", 0.0, reports=tuple(reports))
        self.bodies.setdefault(child.id, []).append(body)
        world.settle(child, grant)
        self.expect(child, token, 401)
        check = f"{do.rpartition('/')[0]}/check.ok"
        answer = world.settle(child, world.grant(child, check))
        judge = world.judge(child, answer, check.rpartition("/")[0])
        verdict = "terminate" if word == "failed" else "accept"
        judged = Outcome.model_validate({"word": "succeeded", "verdict": verdict})
        world.settle(child, judge, judged)

    def report(
        self, child: SessionRef, token: str, status: str, notes: str, random: Random
    ) -> Reported:
        """Report, and sometimes send the same once more, as after an answer that was lost."""
        body = {"status": status, "notes": notes}
        answers = [
            self.client(token).post(f"/v1/sessions/{child.id}/reports", json=body)
            for _ in range(2 if random.random() < 0.3 else 1)
        ]
        assert [one.status_code for one in answers] == [200] * len(answers), answers[-1].text
        first, *again = [one.get_json() for one in answers]
        assert not first["repeated"]
        assert all(one["repeated"] for one in again)
        return Reported(notes, status, 200, first["version"])

    def refuse(self, child: SessionRef, caller: Caller) -> None:
        """Forged, foreign and old tokens are refused."""
        good = mint(caller, secret=SECRET)
        other = next(iter(self.bodies), None)
        self.expect(child, mint(caller, secret="guessed"), 401)
        self.expect(child, good[:-2] + ("00" if good[-2:] != "00" else "11"), 401)
        self.expect(child, mint(caller._replace(fence=caller.fence - 1), secret=SECRET), 401)
        self.expect(child, mint(caller._replace(fence=caller.fence + 1), secret=SECRET), 401)
        self.expect(child, mint(caller._replace(scopes=("read",)), secret=SECRET), 403)
        if other is not None:
            self.expect(SessionRef(other, self.plan.id), good, 403)
        answer = self.client(good).patch(f"/v1/sessions/{self.plan.id}/plan", json=DROP)
        assert answer.status_code == 403

    def expect(self, child: SessionRef, token: str, code: int) -> None:
        body = {"status": "completed", "notes": "by nobody"}
        answer = self.client(token).post(f"/v1/sessions/{child.id}/reports", json=body)
        assert answer.status_code == code, answer.text
        with self._lock:
            self.refused += 1

    # The people

    def edit(self, person: str) -> None:
        """Some edits, each repeated until the plan is the one that it was made for."""
        client, random = self.client(), Random(person)
        for number in range(EDITS):
            while self.tries.acquire():
                seen = client.get(f"/v1/sessions/{self.plan.id}/plan")
                waiting = [one["id"] for one in seen.get_json()["tasks"] if not one["run"]]
                if self.edited(client, seen.headers["ETag"], f"{person}{number}", waiting, random):
                    break

    def edited(
        self, client: FlaskClient, tag: str, name: str, waiting: list[str], random: Random
    ) -> bool:
        """One try; whether it was taken."""
        operation: dict[str, Any] = {"op": "add", "task": {"id": name, "title": name}}
        task = random.choice(waiting) if waiting and random.random() < 0.6 else None
        if task is not None:
            operation = {"op": "change", "id": task, "title": f"{name} {random.random()}"}
        answer = client.patch(
            f"/v1/sessions/{self.plan.id}/plan", json={"operations": [operation]},
            headers={"If-Match": tag},
        )  # fmt: skip
        if answer.status_code == 412:
            return False
        assert answer.status_code == 200, answer.text
        version = int(tag.strip('"').removeprefix("plan-")) + 1
        with self._lock:
            if task is not None:
                self.titles.setdefault(task, {})[version] = operation["title"]
            else:
                self.added.add(name)
            self.edits.append(version)
        return True

    # All of them

    def begin(self) -> None:
        """The team lead's worker dies twice: before its draft is settled, and before it parks."""
        world, plan = self.world, self.plan
        world.grant(plan.ref, "decompose")
        world.later(LEASE_MS + 1_000)
        (execute,) = world.settle(plan.ref, world.grant(plan.ref, "decompose"), plan.drafted).grants
        world.later(LEASE_MS + 1_000)
        plan.park(execute.address)

    def lose_some(self) -> None:
        """Some processes die before they send what they owe to other sessions."""
        transitions, random = self.world.engine.transitions, Random(1)
        deliver = transitions.deliver
        transitions.deliver = lambda owed: None if random.random() < 0.1 else deliver(owed)

    def run(self) -> None:
        self.begin()
        self.lose_some()
        people = [threading.Thread(target=self.edit, args=(one,)) for one in PEOPLE]
        for person in people:
            person.start()
        with ThreadPoolExecutor(THREADS) as pool:
            while not self.over:
                working = sorted(self.plan.at_work())
                if any(person.is_alive() for person in people):
                    self.hold_open(working, people)
                list(pool.map(self.carry_out, working))
                self.world.later(1_000)

    def hold_open(self, working: list[str], people: list[threading.Thread]) -> None:
        """Leave one child at work, so that the plan does not end before the last edit."""
        if len(working) > 1:
            working.pop()
            return
        self.tries.release(MANY)
        for person in people:
            person.join()

    @property
    def over(self) -> bool:
        return self.plan.record.state == "ended"

    def check(self) -> None:
        record, *others = with_children(self.world.engine, self.plan.id)
        below = {child.ref.id: child for child in others}
        assert list(planned(record, below, self.bodies)) == []
        assert Replay(record).most_at_once <= self.plan.document.at_once
        tasks = {one.id: one for one in self.plan.view.tasks}
        assert self.added <= tasks.keys()
        for task, titles in self.titles.items():
            assert tasks[task].title == titles[max(titles)]
        assert len(self.edits) == EDITS * len(PEOPLE)
        by_people = [e for e in record.events if e.fields.get("what") == "edited"]
        assert [e.fields["version"] for e in by_people] == sorted(self.edits)
        assert self.refused >= 6 * len(below)
        assert "by nobody" not in str(self.world.engine.store.plan(self.plan.ref))


DROP = {"operations": [{"op": "drop", "id": "t0"}]}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("children", few_or_all(12, 200))
def test_a_crowd_reports_into_one_plan_while_people_edit_it(bench: Bench, children: int) -> None:
    crowd = Crowd(bench, children, at_once=children // 2)
    crowd.run()
    crowd.check()
    crowd.app.fanout.close()
