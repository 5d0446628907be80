"""Which conversation a step is part of, and where it continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Thread
from app.core.program import Action, Step
from app.core.records import Grant
from app.sessions.attempts import Work
from workers.task import conversation_of


def work(address: str, thread: Thread | None, **inputs: Any) -> Work:
    step = Step(id="do", action=Action.AGENT, conversation="claude|green")
    grant = Grant(
        address=address, fence=1, nonce="n", attempt=1, lease=1, deadline=1, lost=0, failed=0,
        thread=thread,
    )  # fmt: skip
    ref = SessionRef("ab12cd34", "ab12cd34")
    return Work(ref, grant, step, inputs, None, Path("/"))  # type: ignore[arg-type]


@pytest.mark.parametrize("digest", ["", " 0a1b2c3d"])
@pytest.mark.parametrize(
    ("address", "continues"),
    [("green~1[2]/do", True), ("green~2[1]/do", False), ("green~11[2]/do", False)],
)
def test_a_run_of_a_loop_continues_only_its_own_conversation(
    address: str, continues: bool, digest: str
) -> None:
    left = Thread(conversation=f"claude|green@green~1{digest}", id="t1")
    found = conversation_of(work(address, left, continues=True, task="Write it."))
    assert str(found.name).startswith(f"claude|green@{address.partition('[')[0]} ")
    assert found.thread == (left if continues else None)


def test_the_name_of_a_loop_s_conversation_tells_tasks_apart() -> None:
    told: list[dict[str, Any]] = [
        {"task": "Write it."}, {"task": "Write more."}, {"lines": ["Write it."]},
        {"task": "Write it.", "file_scope": ["a.py"]}, {"task": "Write it.", "verify": ["pytest"]},
    ]  # fmt: skip
    names = [conversation_of(work("green~1[2]/do", None, continues=True, **one)) for one in told]
    assert len({one.name for one in names}) == len(told)
    same = {"task": "Write it.", "iteration": 7, "previous": {"feedback": "no"}}
    assert conversation_of(work("green~1[7]/do", None, continues=True, **same)) == names[0]


def test_a_step_of_a_flow_continues_the_session_s_conversation() -> None:
    left = Thread(conversation="claude|green", id="t1")
    assert conversation_of(work("loop~2[1]/do", left)) == ("claude|green", left)
