"""A plan session without workers: the test takes each task's child session through its loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.records import Grant
from app.plans import plans
from app.plans.tasks import PlanRecord, TaskRecord, parse_plan
from leadhand.models.plans import PlanDocument, PlanEdit, TaskReport
from leadhand.models.views.plan import PlanView, TaskView
from tests.engine.world import World
from workers.attempt.settle import park

CHECK = "check.ok"


class PlanWorld:
    """A plan session, driven step by step."""

    def __init__(self, world: World, tasks: Sequence[Mapping[str, object]], **more: object):
        self.world = world
        given = [{"title": f"Do {task['id']}", **task} for task in tasks]
        fields = {
            "request": "Build it.",
            "baseline": False,
            "checkers": [{"name": "ok", "command": "true"}],
            "doer": {"command": "true"},
            "tasks": given,
            "refine": False,
            **more,
        }
        self.document = PlanDocument.model_validate(fields)
        self.engine = world.engine
        self.id = self.engine.submit.document(self.document).session
        self.ref = SessionRef(self.id, self.id)

    def draft(self, address: str = "decompose") -> None:
        """Carry out the draft step, whose tasks are given, and park the step after it."""
        grant = self.world.grant(self.ref, address)
        assert self.engine.attempts.work(self.ref, grant).inputs["given"] is not None
        outcome = self.drafted
        (granted,) = self.world.settle(self.ref, grant, outcome).grants
        self._park(granted)

    @property
    def drafted(self) -> Outcome:
        """The outcome of a draft: the given tasks."""
        dumped: list[JsonValue] = [
            one.model_dump(mode="json", exclude_defaults=True) for one in self.document.tasks or ()
        ]
        return Outcome(word="succeeded", value={"tasks": dumped})

    def park(self, address: str) -> None:
        """Park the refine or the execute step, as a worker does."""
        self._park(self.world.grant(self.ref, address))

    def _park(self, grant: Grant) -> None:
        assert park(self.engine, self.engine.attempts.work(self.ref, grant)) is None

    def begin(self) -> None:
        """Draft the tasks and let them start."""
        self.draft()

    @property
    def record(self) -> PlanRecord:
        found = parse_plan(self.engine.store.plan(self.ref))
        assert found is not None
        return found

    def task(self, task: str) -> TaskRecord:
        return next(one for one in self.record.tasks if one.id == task)

    @property
    def view(self) -> PlanView:
        return plans.show(self.engine, self.id)

    def seen(self, task: str) -> TaskView:
        return next(one for one in self.view.tasks if one.id == task)

    @property
    def status(self) -> str:
        return self.engine.queries.session(self.id).status

    def statuses(self) -> dict[str, str]:
        return {one.id: one.status for one in self.view.tasks}

    def child(self, task: str) -> SessionRef:
        session = self.task(task).session
        assert session is not None, task
        return SessionRef(session, self.id)

    def at_work(self) -> set[str]:
        """The tasks whose child sessions are active."""
        found = set[str]()
        for one in self.record.tasks:
            if one.state == "running" and one.session is not None:
                fields = self.engine.store.fields(SessionRef(one.session, self.id))
                found |= {one.id} if fields.get("status") == "active" else set()
        return found

    def finish(self, task: str) -> None:
        """Let the task's child session be accepted."""
        self._judge(task, "accept")

    def fail(self, task: str) -> None:
        """Let the task's child session end as failed."""
        self._judge(task, "terminate")

    def _judge(self, task: str, verdict: str) -> None:
        """Carry out the open iteration of a task's child session, whichever run that is in."""
        child, world = self.child(task), self.world
        (do,) = self.engine.store.members(child, "live")
        world.settle(child, world.grant(child, do))
        check = f"{do.rpartition('/')[0]}/{CHECK}"
        answer = world.settle(child, world.grant(child, check))
        judge = world.judge(child, answer, do.rpartition("/")[0])
        judged = Outcome.model_validate({"word": "succeeded", "verdict": verdict})
        world.settle(child, judge, judged)

    def exit(self, task: str) -> None:
        self.engine.control.apply(self.child(task).id, "exit", reason="no way")

    def resume_child(self, task: str) -> None:
        self.engine.control.apply(self.child(task).id, "resume")

    def report(self, task: str, status: str, **more: object) -> None:
        report = TaskReport.model_validate({"status": status, **more})
        plans.report(self.engine, self.child(task).id, report)

    def asked(self, task: str) -> SessionRef:
        """The session in which the team lead is asked about a task."""
        replan = self.task(task).replan
        assert replan is not None
        assert replan.session is not None
        return SessionRef(replan.session, self.id)

    def answer(self, task: str, *operations: JsonValue, why: str = "") -> None:
        value: JsonValue = {"operations": list(operations), "why": why}
        ref = self.asked(task)
        self.world.settle(
            ref, self.world.grant(ref, "replan"), Outcome(word="succeeded", value=value)
        )

    def edit(self, *operations: Mapping[str, object], version: int | None = None) -> PlanView:
        edit = PlanEdit.model_validate({"operations": list(operations)})
        return plans.edit(self.engine, self.id, edit, version=version, by="ann")
