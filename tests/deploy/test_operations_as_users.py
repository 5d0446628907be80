"""Every operation of the API, carried out with the users of the fleet's Redis and no other."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from api import create_app
from app import folders
from app.core.addresses import SessionRef
from app.core.artifacts import Artifact
from app.core.folders import plan_branch
from app.core.outcomes import Outcome
from app.engine import Engine
from app.security.signatures import BODY_SCOPES, Caller, mint
from app.settings import Settings
from app.store.examination import API, BROKER, SCRIPTS, STATE
from app.store.store import Store, connect
from app.sweep import sweep
from leadhand.contract.operations import OPERATIONS
from tasks.canvas import Canvas
from tasks.celery_app import make_celery
from tasks.steps import register
from tests.deploy.compose import Topology, new_environment
from tests.deploy.talking import as_user, refusals
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World
from tests.session_driving import claim, end, ref_of
from workers.artifacts import SCOPES
from workers.attempt.settle import park

OPERATOR, SECRET = "the operator's own", "signs capabilities"
LOOP = {
    "kind": "loop",
    "task": "x",
    "doer": {"command": "true"},
    "baseline": False,
    "checkers": ["true"],
}
FLOW = '{"steps": [{"type": "human", "label": "ask", "question": "Which?"}]}'
DATA = b"0123456789"
DIGEST = hashlib.sha256(DATA).hexdigest()


class Walk:
    """An API and a worker with their own users; remembers which operations were carried out."""

    def __init__(self, fleet: Topology, folder: Path) -> None:
        self.fleet, self.folder = fleet, folder
        self.before = counted(fleet)
        worktrees, flows = folder / "worktrees", folder / "flows"
        flows.mkdir()
        (flows / "ask.json").write_text(FLOW)
        self.worker = World(self._url("worker"), worktrees=worktrees, secret=SECRET)
        settings = Settings(
            api_token=OPERATOR, secret=SECRET, redis_url=self._url("api"), flows=(flows,),
            broker_url=self._url("broker", 1), worktrees=worktrees, artifacts=folder / "artifacts",
        )  # fmt: skip
        self.celery = make_celery(settings)
        register(self.celery)
        store = Store(connect(settings.redis_url), clock=lambda: self.worker.now)
        self.engine = Engine(store, Canvas(self.celery), settings)
        self.app = create_app(settings, self.engine)
        self.rules = {rule.endpoint: rule for rule in self.app.url_map.iter_rules()}
        self.done: set[str] = set()
        self.worker.worker("here", str(folder))

    def _url(self, user: str, database: int = 0) -> str:
        password = self.fleet.environment[f"REDIS_{user.upper()}_PASSWORD"]
        return f"redis://{user}:{password}@127.0.0.1:{self.fleet.ports['6379']}/{database}"

    def close(self) -> None:
        self.app.fanout.close()
        self.celery.close()
        self.engine.store.close()
        self.worker.engine.store.close()

    def do(
        self, endpoint: str, body: object = None, *, by: str = OPERATOR, query: str = "",
        **path: str,
    ) -> Any:  # fmt: skip
        """Carry out an operation; returns its response, parsed if that is JSON."""
        method = OPERATIONS[endpoint].method
        url = self.app.url_map.bind("localhost").build(endpoint, path, method=method)
        answer = self.app.test_client().open(
            url + query, method=method, headers={"Authorization": f"Bearer {by}"}, json=body
        )
        assert answer.status_code < 300, f"{endpoint}: {answer.status_code} {answer.text[:500]}"
        self.done.add(endpoint)
        return json.loads(answer.data) if answer.is_json and answer.data else answer.data

    def submit(self, document: Mapping[str, object] = LOOP) -> str:
        return str(self.do("sessions.submit", document)["id"])

    def attempt(self, session: SessionRef, address: str) -> str:
        """The token of the body of a step that a worker has claimed."""
        grant = self.worker.grant(session, address)
        caller = Caller(session.id, address, grant.fence, (*BODY_SCOPES, *SCOPES))
        return mint(caller, secret=SECRET)


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    fleet = Topology(tmp_path, new_environment())
    walk: Walk | None = None
    try:
        fleet.up("redis")
        walk = Walk(fleet, tmp_path)
        yield walk
    finally:
        if walk is not None:
            walk.close()
        fleet.close()


def test_every_operation_is_carried_out_with_the_rights_of_its_user(walk: Walk) -> None:
    for noun in (
        fleet_and_store, reads, verbs, copies, questions, inbox, shared, artifacts, local_work,
        guards, plan_draft, plan_tasks, own_folders, plan_folders, flows, stacks, tokens, many,
    ):  # fmt: skip
        noun(walk)
        for engine in (walk.engine, walk.worker.engine):
            walk.worker.now += 2_000
            sweep(engine)
    assert sorted(OPERATIONS.keys() - walk.done) == [], "let the walk do these"
    assert refusals(walk.fleet) == []
    assert sorted(sent(walk) - examined()) == [], "let the examination at start try these"


def counted(fleet: Topology) -> dict[str, int]:
    """How often the server has carried out each command."""
    with as_user(fleet, "operator") as client:
        stats = client.info("commandstats").items()
    return {name.removeprefix("cmdstat_"): told["calls"] for name, told in stats}


def sent(walk: Walk) -> set[str]:
    """The commands that the walk needed, without those of connections and of the test."""
    now = counted(walk.fleet)
    optional = {"function|list", "function|delete", "script|load", "evalsha"}
    others = {"auth", "hello", "client|setinfo", "ping", "select", "acl|log"}
    return {name for name in now if now[name] > walk.before.get(name, 0)} - others - optional


def examined() -> set[str]:
    """The commands that an API or a worker tries when it starts."""
    tried = [*STATE, *API, *BROKER, *(one for way in SCRIPTS for one in way)]
    pairs = [command.lower().split()[:2] for command in tried]
    return {words[0] for words in pairs} | {"|".join(words) for words in pairs}


def fleet_and_store(walk: Walk) -> None:
    for endpoint in ("health.alive", "description.document", "description.page"):
        walk.do(endpoint)
    walk.do("store.accept", {"new": True})
    for endpoint in (
        "health.ready", "store.show", "workers.listed", "agents.listed", "tools.listed",
        "fleet.queues", "fleet.fleet", "fleet.metrics", "statistics.of_period", "sign_in.link",
    ):  # fmt: skip
        walk.do(endpoint, *([{}] if endpoint == "sign_in.link" else []))
    walk.do("limits.put", {"concurrency": 2}, kind="agent", name="claude")
    walk.do("limits.listed")
    walk.do("limits.one", kind="agent", name="claude")
    walk.do("limits.delete", kind="agent", name="claude")
    walk.do("fleet.fsck", {"repair": True})


def reads(walk: Walk) -> None:
    session = walk.submit()
    end(walk.worker.engine, session)
    for verb in (
        "one", "result", "steps", "ledger", "diffs", "output", "receipt", "explain", "tree",
        "transcript", "export",
    ):  # fmt: skip
        walk.do(f"sessions.{verb}", session=session)
    walk.do("events.of_session", session=session)
    walk.do("attention.changes")
    walk.do("drawings.one", session=session)
    walk.do("sessions.listed")
    walk.do("sessions.annotate", {"title": "t", "archived": True}, session=session)
    walk.do("sessions.delete", session=session)


def verbs(walk: Walk) -> None:
    session = walk.submit()
    walk.do("sessions.stop", {}, session=session)
    walk.do("sessions.rehome", {"place": "here"}, session=session)
    walk.do("sessions.resume", {}, session=session)
    walk.do("sessions.exit", {"reason": "no way"}, session=session)
    walk.do("sessions.abort", {}, session=walk.submit())
    graph = {"kind": "graph", "steps": [{"name": "a", "tool": "echo"}]}
    skipped, failed = walk.submit(graph), walk.submit(graph)
    walk.do("sessions.skip", {"step": "a"}, session=skipped)
    ref = ref_of(walk.worker.engine, failed)
    grant = claim(walk.worker.engine, failed)
    walk.worker.engine.attempts.refuse(ref, grant, why="it cannot be done")
    walk.do("sessions.retry", {"step": "a"}, session=failed)


def copies(walk: Walk) -> None:
    session = walk.submit()
    end(walk.worker.engine, session, "failed")
    walk.do("sessions.fork", {}, session=session)
    walk.do("sessions.rerun", {}, session=session)


def questions(walk: Walk) -> None:
    step = {"type": "human", "label": "ask", "question": "Which colour?"}
    session = walk.submit({"kind": "flow", "name": "q", "steps": [step]})
    engine = walk.worker.engine
    assert (
        park(engine, engine.attempts.work(ref_of(engine, session), claim(engine, session))) is None
    )
    assert walk.do("questions.listed")["items"]
    assert walk.do("attention.listed")["items"]
    walk.do("sessions.answers", {"text": "green"}, session=session)
    assert session not in [one["session"]["id"] for one in walk.do("attention.listed")["items"]]
    walk.do("sessions.explain", session=session)


def inbox(walk: Walk) -> None:
    parent = SessionRef(*[walk.submit()] * 2)
    token = walk.attempt(parent, "loop~1[1]/do")
    child = SessionRef(walk.do("sessions.submit", LOOP, by=token)["id"], parent.id)
    body = walk.attempt(child, "loop~1[1]/do")
    message = {"status": "failure", "message": "it does not build"}
    walk.do("inbox.notify_parent", message, by=body, session=child.id)
    walk.do("inbox.hint", {"text": "look again"}, session=parent.id)
    walk.do("inbox.listed", session=parent.id)
    walk.do("inbox.take", {}, session=parent.id)


def shared(walk: Walk) -> None:
    session = walk.submit()
    lock = walk.do("locks.acquire", {"name": "db", "holder": "ann"}, session=session)
    walk.do("locks.listed", session=session)
    renewed = {"holder": "ann", "fence": lock["fence"]}
    walk.do("locks.renew", renewed, session=session, lock="db")
    walk.do("locks.release", session=session, lock="db", query="?holder=ann")
    walk.do("kv.put", {"value": 1}, session=session, key="k")
    walk.do("kv.listed", session=session)
    walk.do("kv.one", session=session, key="k")
    walk.do("kv.delete", session=session, key="k")


def artifacts(walk: Walk) -> None:
    id_ = walk.submit({"kind": "graph", "steps": [{"name": "search", "tool": "echo"}]})
    ref = SessionRef(id_, id_)
    grant = walk.worker.grant(ref, "search")
    token = mint(Caller(id_, "search", grant.fence, SCOPES), secret=SECRET)
    part = {"at": 0, "size": len(DATA), "data": base64.b64encode(DATA).decode()}
    walk.do("artifacts.put", part, by=token, session=id_, digest=DIGEST)
    kept = Artifact(name="value", digest=DIGEST, size=len(DATA), media_type="application/json")
    walk.worker.settle(ref, grant, Outcome(word="succeeded", artifacts=(kept,)))
    walk.do("artifacts.listed", session=id_)
    assert walk.do("artifacts.read", session=id_, digest=DIGEST) == DATA


def local_work(walk: Walk) -> None:
    id_ = walk.submit({"kind": "graph", "steps": [{"name": "a", "tool": "local:do"}]})
    claimed = {"worker": "w1", "nonce": "nonce-0001"}
    step = walk.do("work.claim", claimed, session=id_)["grant"]
    attempt = {name: step[name] for name in ("address", "fence", "nonce")}
    walk.do("work.beat", attempt, session=id_)
    walk.do("work.settle", {**attempt, "outcome": "succeeded", "value": 1}, session=id_)


def guards(walk: Walk) -> None:
    walk.do("guards.stop", {"stop": "one"}, agent="s-1")
    walk.do("guards.listed")
    walk.do("guards.event", {"event": "prompt"}, agent="s-1")
    walk.do("guards.reset", {})


def plan_draft(walk: Walk) -> None:
    for verb, body in (("changes", {"text": "merge the two"}), ("approve", {})):
        plan = PlanWorld(walk.worker, [{"id": "a"}, {"id": "b"}], refine=True)
        plan.draft("drafting~1[1]/decompose")
        walk.do("plans.one", session=plan.id)
        walk.do("plans.edit", {"operations": [{"op": "drop", "id": "b"}]}, session=plan.id)
        walk.do(f"plans.{verb}", body, session=plan.id)


def plan_tasks(walk: Walk) -> None:
    plan = PlanWorld(walk.worker, [{"id": "a"}, {"id": "b", "dependencies": ["a"]}])
    plan.begin()
    walk.do("plans.tasks", session=plan.id)
    walk.do("plans.task", session=plan.id, task="a")
    child = plan.child("a")
    token = walk.attempt(child, "loop~1[1]/do")
    walk.do("plans.own_task", by=token, session=child.id)
    proposed = {"task": {"id": "c", "title": "C"}}
    report = {"status": "in_progress", "proposals": [proposed]}
    walk.do("plans.report", report, by=token, session=child.id)
    [proposal] = walk.do("plans.one", session=plan.id)["proposals"]
    walk.do("plans.decide", {"accept": True}, session=plan.id, proposal=proposal["id"])


def own_folders(walk: Walk) -> None:
    place = walk.folder / "plain"
    place.mkdir()
    session = walk.submit({**LOOP, "worktree": True, "cwd": str(place), "place": "here"})
    ref, world = SessionRef(session, session), walk.worker
    world.settle(ref, world.grant(ref, "workspace"))
    folders.record_own(world.engine, {"session": session, "kind": "copy"})
    world.turn(ref, 1, "accept", check="check.true")
    world.settle(ref, world.grant(ref, "keep"))
    walk.do("worktrees.listed", session=session)
    walk.do("worktrees.all")
    walk.do("worktrees.apply", {"force": True}, session=session)
    walk.do("worktrees.audit", {})
    walk.do("worktrees.clean", {"force": True}, session=session)


def plan_folders(walk: Walk) -> None:
    folder, world = walk.folder / "repository", walk.worker
    folder.mkdir()
    plan = PlanWorld(world, [{"id": "a"}], cwd=str(folder))
    value: JsonValue = {
        "kind": "worktree", "shelf": str(walk.folder / plan.id), "merge": True,
        "target": f"refs/heads/{plan_branch(plan.id)}", "home": "refs/heads/main",
    }  # fmt: skip
    grant = world.grant(plan.ref, "workspace")
    world.settle(plan.ref, grant, Outcome(word="succeeded", value=value))
    plan.begin()
    for path in ("merges", "listed"):
        walk.do(f"worktrees.{path}", session=plan.id)
    walk.do("worktrees.diff", {"unmerged": True}, session=plan.id)
    walk.do("worktrees.apply_plan", {"branch": "main"}, session=plan.id)


def flows(walk: Walk) -> None:
    walk.do("flows.listed")
    walk.do("flows.one", name="ask")
    walk.do("flows.run", {}, name="ask")
    walk.do("flows.validate", {"name": "ask", **json.loads(FLOW)})


def stacks(walk: Walk) -> None:
    new = {"job_name": "web", "workflow_name": "release", "first_step_id": "build"}
    first, second = (
        walk.do("stacks.start", new, stack="s")["workflow"]["session_id"] for _ in range(2)
    )
    walk.do("stacks.listed")
    walk.do("stacks.one", stack="s")
    walk.do("stacks.workflows", stack="s")
    walk.do("stacks.workflow", stack="s", workflow=first)
    walk.do("stacks.outputs", stack="s", workflow=first)
    for verb, body in (
        ("step_start", {"step_id": "build"}), ("step_complete", {"step_id": "build"}),
        ("quality_attempt", {"step_id": "build"}), ("advance", {"step_id": "t", "entry_index": 1}),
        ("complete", {}), ("load", {"force": True}), ("abort", {}),
    ):  # fmt: skip
        walk.do(f"stacks.{verb}", body, stack="s", workflow=second)
    walk.do("stacks.delete", stack="s", workflow=first)
    walk.do("stacks.move", {"to": "t", "folder": "/moved"}, stack="s")


def tokens(walk: Walk) -> None:
    made = walk.do("tokens.create", {"name": "ci", "scopes": ["read"]})
    walk.do("sessions.listed", by=made["token"])
    walk.do("tokens.listed")
    walk.do("tokens.revoke", token=made["id"])


def many(walk: Walk) -> None:
    walk.do("sessions.batch", {"items": [{"document": LOOP}]})
    body = {"verb": "stop", "filter": {"kind": "loop"}, "dry_run": False}
    walk.do("sessions.bulk", body)
