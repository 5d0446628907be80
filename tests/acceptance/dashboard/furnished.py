"""A store with sessions of each kind and state, as a team's dashboard has them on a morning."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Usage
from app.core.program import Action
from app.core.records import Grant
from app.sessions.outputs import Outputs
from app.settings import Settings
from leadhand.models.views.step import ToolCallView
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World
from tests.flows import flow, llm
from tests.silent_engine import loop
from workers.attempt.output_writer import Ring
from workers.attempt.settle import park
from workers.folders.work_diff import pack_diff
from workers.live_output import LiveOutput, Part

SECRET = "s"
MINUTE_MS = 60_000
TASKS: list[dict[str, object]] = [
    {"id": "slugs", "title": "Make slugs from titles", "description": "ASCII, lower case, unique"},
    {"id": "routes", "title": "Serve the slugs", "dependencies": ["slugs"]},
    {"id": "docs", "title": "Document the routes", "dependencies": ["routes"]},
    {"id": "bench", "title": "Measure the lookup", "description": "Ten million rows"},
]
PATCH = """\
diff --git a/app/slugs.py b/app/slugs.py
index 83db48f..bf12a4e 100644
--- a/app/slugs.py
+++ b/app/slugs.py
@@ -1,5 +1,9 @@
 import re
-def slug(title):
-    return title.lower()
+
+
+def slug(title: str) -> str:
+    words = re.findall(r"[a-z0-9]+", title.lower())
+    return "-".join(words) or "untitled"
+
 # end
diff --git a/tests/test_slugs.py b/tests/test_slugs.py
new file mode 100644
--- /dev/null
+++ b/tests/test_slugs.py
@@ -0,0 +1,3 @@
+from app.slugs import slug
+def test_slug():
+    assert slug("A b") == "a-b"
"""
WORK = """\
I made `slug()` and its test.

| case | result |
|---|---|
| `"A b"` | `a-b` |
| `""` | `untitled` |
"""
TRACE = """\
FAILED tests/test_slugs.py::test_unicode - AssertionError: 'caf' != 'cafe'
  assert slug("Café") == "cafe"
1 failed, 12 passed in 0.41s
"""


class Furnished(NamedTuple):
    """The sessions by what they show."""

    world: World
    failed: str
    asking: str
    running: str
    done: str
    stopped: str
    flow_run: str
    plan: str
    draft: str

    @property
    def settings(self) -> Settings:
        """Settings of an API on this store."""
        return self.world.engine.settings


def furnish(url: str, flows: Path) -> Furnished:
    """Fill the store. The clock of the world ends at the present."""
    world = World(url)
    world.now = int(time.time() * 1000) - 300 * MINUTE_MS
    (flows / "review.json").write_text(
        json.dumps(
            {
                "description": "Reads a change and writes a review",
                "steps": [llm("Review ${inputs.change} in ${inputs.rounds} rounds")],
                "inputs": {"change": None},
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "rounds": {"type": "integer", "minimum": 1, "default": 2},
                        "strict": {"type": "boolean", "default": False},
                        "files": {"type": "array", "default": [], "description": "Only these"},
                    },
                },
            }
        )
    )
    (flows / "broken.json").write_text(json.dumps({"steps": [{"type": "llmm"}]}))
    for place in ("local", "gpu"):
        world.worker(place, "/work")
    done = _loop(world, ("retry", "accept"), task="Make slugs from titles", label="slugs")
    failed = _loop(
        world, ("retry", "retry"), task="Keep accents out of slugs", max_iterations=2,
        checkers=[
            {"name": "tests", "command": "pytest -q"}, {"name": "lint", "command": "ruff check"},
        ],
    )  # fmt: skip
    stopped = _loop(world, ("retry",), task="Rewrite the importer in small steps")
    world.engine.control.apply(stopped, "stop")
    plan = PlanWorld(world, TASKS, proposals="ask", label="slugs for the API")
    plan.begin()
    world.now += MINUTE_MS
    plan.finish("slugs")
    plan.fail("bench")
    draft = PlanWorld(world, TASKS, refine=True, label="slugs, second try")
    draft.draft("drafting~1[1]/decompose")
    world.now = int(time.time() * 1000) - 20 * MINUTE_MS
    running = _running(world)
    asking = _asking(world)
    flow_run = _flow(world)
    world.now = int(time.time() * 1000)
    return Furnished(
        world, failed, asking, running, done, stopped, flow_run, plan.id, draft.id
    )  # fmt: skip


def _ref(session: str) -> SessionRef:
    return SessionRef(session, session)


def _loop(world: World, verdicts: Sequence[str], **more: object) -> str:
    session = world.engine.submit.document(loop(**{"max_iterations": 5, **more})).session
    for verdict in verdicts:
        iterate(world, _ref(session), verdict)
    return session


def iterate(world: World, ref: SessionRef, verdict: str) -> None:
    """Carry out an iteration: the doer changes files, each check judges, and the judge decides."""
    judged: list[dict[str, str]] = []
    while (granted := _next(world, ref)) is not None:
        work = world.engine.attempts.work(ref, granted)
        world.now += 2 * MINUTE_MS
        if work.step.action is Action.AGENT:
            _do(world, ref, granted)
            continue
        feedback = TRACE if verdict == "retry" else ""
        name = work.step.label or work.step.id
        judged.append({"name": name, "verdict": verdict, "feedback": feedback})
        given = {"word": "succeeded", "verdict": verdict, "text": feedback}
        answer = world.settle(ref, granted, Outcome.model_validate(given))
        for judge in answer.grants:
            decided = {"word": "succeeded", "verdict": verdict, "value": {"checks": judged}}
            world.settle(ref, judge, Outcome.model_validate(decided))
            return


def _next(world: World, ref: SessionRef) -> Grant | None:
    steps = world.engine.queries.steps(ref.id, limit=200).items
    found = next((one.address for one in steps if one.state == "ready"), None)
    return None if found is None else world.grant(ref, found)


def _do(world: World, ref: SessionRef, grant: Grant) -> None:
    calls = tuple(
        ToolCallView(name=name, input=text, result="ok", failed=name == "bash")
        for name, text in (("edit", "app/slugs.py"), ("bash", "pytest -q"))
    )
    outcome = Outcome(
        word="succeeded", text=WORK, digest=f"git:{grant.nonce}", prompt="Make the tests pass.",
        tools=calls, usage=Usage(cost_usd=0.42, input_tokens=18_400, output_tokens=2_100),
        started_ms=world.now - 90_000, ended_ms=world.now,
    )  # fmt: skip
    world.engine.attempts.settle(
        world.engine.attempts.work(ref, grant), outcome, take=(), worker="w", changed=True,
        patch=pack_diff("git:a", "git:b", PATCH),
    )  # fmt: skip


def _running(world: World) -> str:
    session = _loop(world, ("retry",), task="Speed up the search", budget={"steps": 8})
    ref = _ref(session)
    granted = _next(world, ref)
    assert granted is not None
    ring = Ring(ref, granted, LiveOutput())
    lines = [Part(1, "stdout", "collecting ...\n12 passed, 1 running\n", 0),
             Part(2, "stderr", "warning: slow query\n", 0)]  # fmt: skip
    assert ring.append(Outputs(world.engine.store).append, lines).word == "kept"
    return session


def _asking(world: World) -> str:
    form = {
        "type": "object",
        "properties": {
            "target": {"type": "string", "enum": ["staging", "production"], "title": "Target"},
            "why": {"type": "string", "format": "multiline", "title": "Why now?"},
        },
        "required": ["target"],
    }
    step = {"type": "human", "label": "ship", "question": "Ship **v2.1** now?", "form": form}
    session = str(world.engine.submit.document(flow(step)).session)
    granted = _next(world, _ref(session))
    assert granted is not None
    assert park(world.engine, world.engine.attempts.work(_ref(session), granted)) is None
    return session


def _flow(world: World) -> str:
    return str(world.engine.submit.document(flow(llm("Review it"), llm("Sum it up"))).session)
