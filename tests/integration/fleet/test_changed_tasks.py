"""A task that changes within a run reaches an agent that continues its conversation."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.compiler import compile_document
from app.core.addresses import SessionRef
from app.core.program import Action, Loop, Program, Step
from app.sessions.rewind import Adoption, ResumePlan
from app.sessions.submit import About
from leadhand.models.documents import LoopDocument
from tests.fleet import Fleet
from tests.waiting import wait_until

#: Continues each conversation, and prints its prompt.
SCRIBE = """
import json, sys
before = sys.argv[2] if "--on" in sys.argv else "0"
print(json.dumps({"says": sys.stdin.read(), "id": str(int(before) + 1)}))
"""
AGENTS = f"""
[agents.scribe]
command = [{sys.executable!r}, "scribe.py"]
resume_args = ["--on", "{{thread}}"]
output = "lines"
answer = "says"
thread = "id"
"""
POEM, PROSE = "Write a poem.", "Write prose."
CHANGED = "# Changed Task\n\nThe task has changed since your last turn."
THIRD = "test $LEADHAND_ITERATION = 3"


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=6)
    (tmp_path / "scribe.py").write_text(SCRIBE)
    (tmp_path / "agents.toml").write_text(AGENTS)
    fleet.env |= {"LEADHAND_AGENTS": str(tmp_path / "agents.toml")}
    fleet.worker("one")
    yield fleet
    fleet.close()


def compiled(task: str, checker: str = THIRD, **more: Any) -> Program:
    """A loop that continues its conversation."""
    given = {"doer": {"agent": "scribe"}, "checkers": [checker], "conversation": "continue"}
    return compile_document(LoopDocument.model_validate({"task": task, **given, **more}))


def started(fleet: Fleet, program: Program) -> str:
    about = About(kind="loop", name="test", cwd=str(fleet.folder), place="local")
    return fleet.engine.submit.program(program, about).session


def asked(fleet: Fleet, session: str) -> list[str]:
    """What the agent was asked in each iteration, in order."""
    kept = fleet.engine.store.outcomes(SessionRef(session, session))
    turns = sorted(address for address in kept if address.endswith("]/do"))
    threads = [json.loads(kept[turn])["thread"]["id"] for turn in turns]
    assert threads == [str(n) for n in range(1, len(turns) + 1)], "it is one conversation"
    return [json.loads(kept[turn])["prompt"] for turn in turns]


def test_a_task_that_refers_to_a_step_is_repeated_in_the_iteration_in_which_it_changed(
    fleet: Fleet,
) -> None:
    command = f"test $LEADHAND_ITERATION = 1 && echo {POEM!r} || echo {PROSE!r}"
    inputs: dict[str, Any] = {"task": "Plan.", "doer": {"command": command}}
    plan = Step(id="plan", action=Action.AGENT, inputs=inputs)
    (loop,) = compiled("a task", THIRD, baseline=False).body
    assert isinstance(loop, Loop)
    do, *rest = loop.body
    assert isinstance(do, Step)
    refers = do.model_copy(update={"inputs": {**do.inputs, "task": "${plan.text}"}})
    body = (plan, refers, *rest)
    session = started(fleet, Program(body=(loop.model_copy(update={"body": body}),)))
    assert fleet.ended(session).status == "completed"
    first, second, third = asked(fleet, session)
    assert first.strip() == POEM
    assert second.startswith(CHANGED)
    assert f"\n\n{PROSE}\n\n# Previous Attempt\n\nIteration 1 of 3" in second
    assert third.startswith("# Previous Attempt\n\nIteration 2 of 3")
    assert PROSE not in third


@pytest.mark.parametrize(
    ("task", "scope", "told"),
    [
        (PROSE, [], f"\n\n{PROSE}\n\n# Previous Attempt"),
        (POEM, ["poems/"], f"\n\n{POEM}\n\n# File Scope\n\n- `poems/`\n\n# Previous Attempt"),
        (POEM, [], None),
    ],
)
@pytest.mark.slow
def test_a_program_that_a_resume_takes_over_tells_its_changed_task_or_file_scope(
    fleet: Fleet, task: str, scope: list[str], told: str | None
) -> None:
    go = fleet.folder / "go"
    checker = f"until test -e {go}; do sleep 0.05; done; {THIRD}"
    session = started(fleet, compiled(POEM, checker))
    ref = SessionRef(session, session)
    engine = fleet.engine
    wait_until(lambda: "loop~1[1]/do" in engine.store.outcomes(ref), timeout=60)
    engine.control.apply(session, "stop")
    wait_until(lambda: engine.queries.session(session).status == "stopped", timeout=60)
    go.touch()
    program = compiled(task, checker, file_scope=scope)

    def adopt(ref: SessionRef, _after: str | None) -> ResumePlan:
        fields = engine.store.fields(ref)
        signature = engine.registry.signature(
            ref, program.hash, cwd=fields["cwd"], place=fields["place"]
        )
        adopts = Adoption(program, signature, "", afresh=False)
        return ResumePlan(rewind=None, as_of=fields["updated"], adopts=adopts)

    engine.control.apply(session, "resume", planner=adopt)
    assert fleet.ended(session, timeout=60).status == "completed"
    first, second, third = asked(fleet, session)
    assert first.strip() == POEM
    assert (CHANGED in second) is (told is not None)
    assert told is None or told in second
    assert CHANGED not in third
