"""Steps of flows on a real worker: what did not run, and when the gates of a rubric run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import Fleet
from tests.flows import flow, loop
from tests.redis_users import of_broker

#: Each gate notes that it ran, outside of the folder; the second one fails.
RUBRIC = "## Gates\n\n- `echo one >> ../log`\n- `echo two >> ../log && false`\n"
#: After the second iteration it has seen enough.
DECIDES = """
lines=$(grep -c . ../log)
if [ "$lines" = 4 ]; then echo '{"answer": "yes"}'; else echo '{"answer": "no"}'; fi
"""
NO = """echo '{"answer": "no"}'"""
ALWAYS = {"type": "break", "command": """echo '{"answer": "yes"}'""", "breakOn": "yes"}


@pytest.fixture
def fleet(tmp_path: Path, store_url: str) -> Iterator[Fleet]:
    (tmp_path / "work").mkdir()
    broker = of_broker(store_url)
    fleet = Fleet(tmp_path, store_url, broker, lease_s=5)
    fleet.worker("one")
    yield fleet
    fleet.close()


def completed(fleet: Fleet, *steps: dict[str, Any]) -> dict[str, Any]:
    """What each step came to."""
    session = fleet.engine.submit.document(flow(*steps, cwd=str(fleet.folder / "work"))).session
    result = fleet.ended(session, timeout=40)
    assert result.status == "completed", result
    ref = fleet.engine.registry.ref(session)
    found = fleet.engine.store.outcomes(ref).items()
    return {address: json.loads(text) for address, text in found}


def echo(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": "echo", "arguments": {"is": text}, **more}


@pytest.mark.timeout(90)
def test_what_a_skipped_step_came_to_is_that_it_did_not_run(fleet: Fleet) -> None:
    inside = [echo("x", label="maybe"), loop(echo("y"), ALWAYS, label="turns")]
    found = completed(
        fleet,
        {"type": "if", "command": NO, "then": inside},
        echo("${steps.maybe}", label="first"),
        echo("${steps.turns}", label="second"),
    )
    assert found["first"]["value"] == {"is": "(did not run)"}
    assert found["second"]["value"] == {"is": "(did not run)"}


@pytest.mark.timeout(90)
def test_all_gates_of_a_flows_rubric_run_in_each_iteration(fleet: Fleet) -> None:
    (fleet.folder / "work/R.md").write_text(RUBRIC)
    check = {"type": "check", "checker": "rubric: R.md", "continueOnFailure": True}
    completed(fleet, loop(check, {"type": "break", "command": DECIDES, "breakOn": "yes"}))
    ran = (fleet.folder / "log").read_text().split()
    assert ran == ["one", "two", "one", "two"]


@pytest.mark.timeout(90)
@pytest.mark.slow
def test_a_step_in_many_loops_with_long_labels_is_carried_out(fleet: Fleet) -> None:
    step: dict[str, Any] = {"type": "check", "checker": "true", "label": "z" * 40}
    for letter in "edcba":
        step = loop(step, ALWAYS, label=letter * 40)
    assert max(map(len, completed(fleet, step))) > 255  # no file's name is as long
