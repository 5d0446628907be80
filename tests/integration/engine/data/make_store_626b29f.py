"""Writes store_626b29f.json.gz with the code of commit 626b29f: sessions in every state.

Run it in a checkout of that commit, with its packages installed and a Redis that is empty:

    git worktree add ../leadhand-626b29f 626b29f
    cd ../leadhand-626b29f
    PYTHONPATH=. python PATH/TO/make_store_626b29f.py redis://127.0.0.1:6379/0 store_626b29f.json.gz

A clock that the script moves makes all times the same in each run; ids and signatures differ. The
steps are claimed and settled here: no worker runs. `tests/integration/old_store.py` loads the file.
"""

# mypy: ignore-errors

from __future__ import annotations

import gzip
import json
import sys
import uuid
from pathlib import Path

import redis

from api import create_app
from app.engine import About, Engine
from app.outcomes import Outcome
from app.program import Action, Program, Step
from app.settings import Settings
from app.store import Store, connect
from app.sweeping import sweep
from tests.silent_engine import NobodyThere
from workers.looking import packed
from workers.parking import park

SECRET = "the secret that signed the data set of 626b29f"
OPERATOR = "the operator's token of the data set"
BEGIN_MS = 1_790_000_000_000
COMMAND = {"command": "true"}
PARKED = {Action.HUMAN, Action.WAIT, Action.CHILD}
FOLDERS = Path("/tmp/leadhand-data-set")
HOOK = {"url": "https://hooks.example.com/leadhand", "secret": "the receiver's own secret"}


class OldFleet:
    """The old API and engine on one Redis, and hands that carry out steps."""

    def __init__(self, url):
        self.now = BEGIN_MS
        self.names = {}
        settings = Settings(redis_url=url, secret=SECRET, api_token=OPERATOR)
        self.engine = Engine(Store(connect(url), clock=self.tick), NobodyThere(), settings)
        self.app = create_app(settings, self.engine)
        self.client = self.app.test_client()

    def tick(self):
        self.now += 7
        return self.now

    def later(self, ms):
        self.now += ms
        sweep(self.engine)

    def call(self, method, path, body=None, *, token=OPERATOR, key=None):
        headers = {"Authorization": f"Bearer {token}", **({"Idempotency-Key": key} if key else {})}
        answer = self.client.open(f"/v1{path}", method=method, json=body, headers=headers)
        assert answer.status_code < 300, (method, path, answer.data)
        return answer.json

    def submit(self, name, document, **how):
        self.names[name] = self.call("POST", "/sessions", document, **how)["id"]
        return self.names[name]

    def control(self, session, verb, **body):
        self.call("POST", f"/sessions/{session}/{verb}", body)

    def ref(self, session):
        return self.engine.store.ref(session)

    def ready(self, session):
        steps = self.engine.steps(session, limit=500).items
        return [step.address for step in steps if step.state == "ready"]

    def claim(self, session, address=None):
        address = address or self.ready(session)[0]
        nonce = uuid.uuid4().hex
        return self.engine.claim(self.ref(session), address, nonce=nonce, worker="old-worker/1")

    def grant(self, session, address=None):
        answer = self.claim(session, address)
        assert answer.word == "granted", answer
        return answer.grants[0]

    def settle(self, session, grant, *, patch=None, **more):
        """Settle a grant, and settle or park the quick steps that are granted with the reply."""
        grants = [grant]
        while grants:
            held = grants.pop(0)
            work = self.engine.work(self.ref(session), held)
            if work.step.action in PARKED:
                assert park(self.engine, work) is None
                continue
            outcome = Outcome.model_validate({**self._outcome(work), **more})
            take = ["n" + held.nonce]
            answer = self.engine.settle(
                work, outcome, take=take, worker="old-worker/1", patch=patch
            )
            grants += answer.grants

    def _outcome(self, work):
        told = {"cost_usd": 0.25, "input_tokens": 120, "output_tokens": 30}
        given = {"word": "succeeded", "text": f"# done at {work.grant.address}", "usage": told}
        if work.step.conversation is not None:
            talk = {"conversation": work.step.conversation, "id": f"t-{work.grant.fence}"}
            given |= {"thread": {**talk, "told": told}, "prompt": "what the agent was asked"}
        if work.step.action is not Action.AGENT:
            given["verdict"] = "accept"
        return given

    def carry_out(self, session, *verdicts):
        """Carry out as many ready steps, each with a verdict unless that is empty."""
        for verdict in verdicts:
            self.settle(session, self.grant(session), **({"verdict": verdict} if verdict else {}))


def folder(name):
    """Return a folder; the API requires that it exists when a session is created."""
    (FOLDERS / name).mkdir(parents=True, exist_ok=True)
    return str(FOLDERS / name)


def loop(**more):
    return {"kind": "loop", "task": "write it", "checker": "true", "doer": COMMAND, **more}


def phase(name, **more):
    return {"name": name, "task": f"the task of {name}", "checker": "true", **more}


def llm(text="go on", identifier="main", **more):
    told = [{"role": "user", "content": [text]}]
    return {
        "type": "llm", "agentType": "writer", "identifier": identifier, "messages": told, **more,
    }  # fmt: skip


def ask(question, **more):
    who = {"agentType": "writer", "identifier": "main"}
    return {"type": "break", **who, "question": question, "breakOn": "yes", **more}


def flow(name, *steps, **more):
    return {"kind": "flow", "name": name, "steps": list(steps), **more}


NESTED = flow(
    "nested",
    {"type": "startLoop", "label": "chapters", "steps": [
        llm("plan", label="plan"),
        {"type": "startLoop", "label": "pages", "steps": [
            llm("write", label="page"), ask("is the chapter full?", label="chapter full"),
        ]},
        ask("is the book full?", label="book full"),
    ]},
)  # fmt: skip


def make_loops(fleet):
    """Make loops in every state."""
    fleet.submit("ready", loop(label="nothing of it has begun", priority="high"))
    half = fleet.submit("half", loop(cwd=folder("half"), max_iterations=4))
    fleet.carry_out(half, "", "retry", "")
    failing = fleet.submit("backing-off", flow("tries", llm("try"), attempts=3))
    fleet.settle(failing, fleet.grant(failing), word="failed", text="the model is overloaded")
    stopped = fleet.submit("stopped", loop(cwd=folder("stopped")))
    fleet.carry_out(stopped, "", "retry", "")
    fleet.control(stopped, "stop")
    completed = fleet.submit("completed", loop(budget={"cost_usd": 50, "steps": 90}))
    patch = "--- a/notes\n+++ b/notes\n@@ -1 +1 @@\n-old\n+new\n"
    fleet.settle(
        completed, fleet.grant(completed), patch=packed("git:1", "git:2", patch), digest="git:2"
    )
    fleet.carry_out(completed, "retry", "", "accept")
    exited = fleet.submit("exited", loop(label="was ended by a person"))
    fleet.carry_out(exited, "")
    fleet.control(exited, "exit", reason="good enough")
    aborted = fleet.submit("aborted", loop())
    fleet.control(aborted, "abort", reason="a mistake")
    failed = fleet.submit("failed", loop(max_iterations=1, webhook={**HOOK, "events": ["failed"]}))
    fleet.carry_out(failed, "", "retry")


def make_workflows(fleet):
    """Make workflows with pipes: one completed, one in its second phase, one that failed there."""
    phases = [phase("red"), phase("green", max_iterations=2), phase("blue", pipe_from=["red"])]
    document = {"kind": "workflow", "name": "tdd", "phases": phases, "doer": COMMAND}
    fleet.carry_out(fleet.submit("workflow-completed", document), *["", "accept"] * 3)
    fleet.carry_out(fleet.submit("workflow-second-phase", document), "", "accept", "", "retry")
    failed = fleet.submit("workflow-failed", document)
    fleet.carry_out(failed, "", "accept", *["", "retry"] * 2)


def make_flows(fleet):
    """Make flows: nested, rewound, with a person, conversations, a wait and a child."""
    nested = fleet.submit("nested-stopped", NESTED)
    fleet.carry_out(nested, "", "", "retry", "")
    fleet.control(nested, "stop")
    rewound = fleet.submit("nested-rewound", NESTED)
    fleet.carry_out(rewound, "", "", "accept", "retry", "", "")
    fleet.control(rewound, "stop")
    fleet.control(rewound, "resume", after="chapters~1[1]/plan")
    fleet.carry_out(rewound, "")
    person = {"type": "human", "label": "choose", "question": "which title?"}
    hook = {**HOOK, "events": ["waiting", "ended"]}
    asked = fleet.submit("person", flow("ask", llm("three titles"), person, llm(), webhook=hook))
    fleet.carry_out(asked, "")
    talk = fleet.submit(
        "conversation", flow("talk", llm("one"), llm("two"), llm("aside", "aside"), llm("three"))
    )
    fleet.carry_out(talk, "", "")
    pause = {"type": "wait", "seconds": 3600}
    fleet.carry_out(fleet.submit("wait", flow("pause", pause, llm())), "")
    part = {"steps": [llm("of the part"), llm("its end")]}
    below = {"type": "subflow", "label": "part", "flowNames": ["part"]}
    parent = fleet.submit("parent", flow("whole", below, llm("report"), flows={"part": part}))
    fleet.carry_out(parent, "")
    [child] = fleet.engine.store.children(fleet.ref(parent))
    fleet.names["child"] = child
    fleet.carry_out(child, "")


def make_fan_out(fleet):
    """Make a session in the middle of a for_each that is wider than the window of hints."""
    first = Step(id="list", action=Action.AGENT, inputs={"task": "list them"})
    each = Step(
        id="each", action=Action.AGENT, for_each="${list.value}", inputs={"task": "${item}"}
    )
    end = Step(id="end", action=Action.AGENT, inputs={"task": "sum up"})
    program = Program(body=(first, each, end))
    session = fleet.engine.start(program, About(kind="loop", name="x")).session
    fleet.names["fan-out"] = session
    fleet.settle(session, fleet.grant(session), value=[f"part {n}" for n in range(20)])
    fleet.carry_out(session, "", "")
    passed_over = fleet.submit(
        "warned", flow("warned", llm("may fail", continueOnFailure=True), llm("goes on"))
    )
    fleet.settle(passed_over, fleet.grant(passed_over), word="failed", retryable=False)


def make_undelivered(fleet):
    """Make a child that has ended, and whose parent has not heard of it."""
    last = {"steps": [llm("of the last part")]}
    below = {"type": "subflow", "label": "last", "flowNames": ["last"]}
    parent = fleet.submit("unheard", flow("unheard", below, llm(), flows={"last": last}))
    fleet.carry_out(parent, "")
    [child] = fleet.engine.store.children(fleet.ref(parent))
    fleet.names["child-completed"] = child
    deliver, fleet.engine.transitions.errand = fleet.engine.transitions.errand, lambda _: None
    fleet.carry_out(child, "")
    fleet.engine.transitions.errand = deliver


def make_contention(fleet):
    """Make limits, locks that are held, and steps that wait for them."""
    fleet.call("PUT", "/limits/key/model", {"concurrency": 1, "per_minute": 600})
    fleet.call("PUT", "/limits/agent/writer", {"concurrency": 9})
    held = {"cwd": folder("shared"), "concurrency_key": "model"}
    fleet.claim(fleet.submit("running", loop(**held)))
    for name, wanted in (("waits-for-folder", {"cwd": held["cwd"]}),
                         ("waits-for-key", {"concurrency_key": "model"})):  # fmt: skip
        assert fleet.claim(fleet.submit(name, loop(**wanted))).word == "refused"


def make_tokens(fleet):
    """Make a token, and sessions that it owns; returns what a client would have kept."""
    scopes = ["read", "submit", "control", "exec:free"]
    body = {"name": "ci", "scopes": scopes, "quotas": {"max_sessions": 5, "steps_per_day": 100}}
    token = fleet.call("POST", "/tokens", body, key="the token of ci")["token"]
    reader = fleet.call("POST", "/tokens", {"name": "reader", "scopes": ["read"]})["token"]
    document = loop(label="by a key")
    owned = fleet.submit("owned", document, token=token, key="once")
    fleet.carry_out(owned, "")
    return {"token": token, "reader": reader, "key": "once", "document": document}


def audit(fleet):
    """Let the old audit look at everything."""
    found, cursor = [], None
    while True:
        page = fleet.engine.fsck(cursor=cursor)
        found += [one.model_dump(mode="json") for one in page.items]
        cursor = page.next
        if cursor is None:
            return found


def dump(client):
    """Return each key with its type, its remaining time in ms and its value."""
    readers = {
        "string": client.get,
        "hash": client.hgetall,
        "set": lambda key: sorted(client.smembers(key)),
        "list": lambda key: client.lrange(key, 0, -1),
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        "stream": client.xrange,
    }
    keys = {}
    for key in sorted(client.scan_iter(count=1000)):
        kind, left = client.type(key), client.pttl(key)
        value = readers[kind](key)
        keys[key] = {"type": kind, "pttl": left if left > 0 else None, "value": value}
    return keys


def main(url, target):
    with redis.Redis.from_url(url, decode_responses=True) as client:
        assert client.dbsize() == 0, "the Redis is not empty"
        fleet = OldFleet(url)
        make_loops(fleet)
        make_workflows(fleet)
        make_flows(fleet)
        make_fan_out(fleet)
        make_contention(fleet)
        kept = make_tokens(fleet)
        fleet.engine.store.mark()
        fleet.later(2_000)
        make_undelivered(fleet)
        told = {"place": "local", "roots": [], "seen_ms": fleet.now}
        fleet.engine.store.fleet().tell_of_worker("old-worker", json.dumps(told))
        content = {
            "version": "626b29f",
            "secret": SECRET,
            "operator": OPERATOR,
            "now_ms": fleet.now,
            "sessions": fleet.names,
            "kept": kept,
            "audit": audit(fleet),
            "views": {
                name: fleet.call("GET", f"/sessions/{id_}") for name, id_ in fleet.names.items()
            },
            "keys": dump(client),
        }
        fleet.app.fanout.close()
    packed = gzip.compress(json.dumps(content, sort_keys=True).encode(), mtime=0)
    Path(target).write_bytes(packed)
    assert not content["audit"], content["audit"]


if __name__ == "__main__":
    main(*sys.argv[1:])
