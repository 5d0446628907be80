"""Workflow files: how they run, and what a broken one reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.scripted_api import Script
from tests.unit.leadhand.cli.conftest import Leadhand

THREE_PHASES = """
from leadhand import Workflow

wf = Workflow("tdd")
wf.phase("red", task="t", checker="true")
wf.phase("green", task="t", checker="true", agent="claude")
results = wf.run()
for name, r in results.items():
    if r.verdict == "exit":
        print(f"Workflow stopped at {name}: {r.exit_reason}")
"""


def phase(name: str, verdict: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "passed": False, "verdict": verdict, "iterations": 1, **more}


def test_a_workflow_file_runs_and_its_results_are_summed_up(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES)
    exited = phase("red", "exit", exit_reason="no way")
    script.result = {"status": "exited", "verdict": "exit", "exit_reason": "no way",
                     "phases": [exited]}  # fmt: skip
    code, out, _ = leadhand("workflow", "tdd.py")
    assert code == 2
    assert "session 00000000: exit after 1 iteration: no way" in out
    assert "red    exit     1           1     no way" in out
    assert out.endswith("Workflow stopped at red: no way\n")


def test_a_workflow_file_may_guard_its_run_as_programs_do(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "steps.py").write_text("TASK = 'from beside'\n")
    (elsewhere / "flow").mkdir()
    (elsewhere / "flow" / "beside.py").write_text("TASK = 'from beside'\n")
    (elsewhere / "flow" / "tdd.py").write_text(
        "from leadhand import Workflow\nfrom beside import TASK\nwf = Workflow('w')\n"
        "wf.phase('p', task=TASK, checker='true')\n"
        "if __name__ == '__main__':\n    wf.run()\n"
    )
    assert leadhand("workflow", "flow/tdd.py")[0] == 0
    assert script.submitted[0]["phases"][0]["task"] == "from beside"


def test_the_command_line_may_name_another_doer(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES)
    leadhand("workflow", "tdd.py", "--doer", "mine")
    [document] = script.submitted
    assert document["doer"]["command"] == "mine"
    assert [phase["doer"] for phase in document["phases"]] == [None, None]


def test_the_command_line_may_name_folder_label_and_budget(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    text = THREE_PHASES.replace('"tdd")', '"tdd", budget={"steps": 9, "tokens": 5})')
    (elsewhere / "tdd.py").write_text(text)
    (elsewhere / "there").mkdir()
    options = "--cwd there --label mine --max-cost 1.5 --max-steps 3 --max-total-iterations 4"
    code, _, err = leadhand("workflow", "tdd.py", *options.split())
    assert code == 0, err
    [document] = script.submitted
    assert (document["cwd"], document["label"]) == (str(elsewhere / "there"), "mine")
    limits = {name: limit for name, limit in document["budget"].items() if limit is not None}
    assert limits == {"cost_usd": 1.5, "steps": 3, "iterations": 4, "tokens": 5}


def test_a_detached_workflow_prints_the_id_and_leaves_its_file(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(f"print('chatter')\n{THREE_PHASES}\nprint('too far')\n")
    script.ends = False
    code, out, err = leadhand("workflow", "tdd.py", "--detach")
    assert (code, out) == (0, "00000000\n")
    assert "chatter" in err
    assert "too far" not in err
    code, out, _ = leadhand("workflow", "tdd.py", "--detach", "--json")
    assert (code, json.loads(out)["id"]) == (0, "00000001")


def test_a_workflow_with_json_keeps_standard_output_clean(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES + "print('chatter')\n")
    code, out, err = leadhand("workflow", "tdd.py", "--json")
    assert (code, json.loads(out)["kind"]) == (0, "workflow")
    assert "chatter" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wf = (\n", "tdd.py:1: SyntaxError: '(' was never closed"),
        ("x = 1\n\ny = nothing\n", "tdd.py:3: NameError: name 'nothing' is not defined"),
        ("import leadhand.nothing\n", "tdd.py:1: ModuleNotFoundError"),
        (
            "from leadhand import Workflow\nwf = Workflow('w')\n"
            "wf.phase('p', task='t', checker='true', on_fail='maybe')\n",
            "tdd.py:3: phase 'p': on_fail is 'maybe'; use 'stop', 'continue' or 'retry:N'",
        ),
        ("x = 1\n", "tdd.py ran no workflow; call run() on one in it"),
        ("raise SystemExit('not today')\n", "not today"),
    ],
)
def test_a_broken_workflow_file_is_named_with_its_line(
    script: Script, leadhand: Leadhand, elsewhere: Path, text: str, said: str
) -> None:
    (elsewhere / "tdd.py").write_text(text)
    code, out, err = leadhand("workflow", "tdd.py")
    assert (code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1
    assert script.submitted == []


def test_workflow_submits_timeouts_attempts_and_conversation(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES)
    given = "--doer-timeout 60 --doer-attempts 3 --checker-timeout 5 --conversation continue"
    code, _, err = leadhand("workflow", "tdd.py", "--agent", "x", *given.split())
    assert code == 0, err
    [document] = script.submitted
    for phase in document["phases"]:
        assert (phase["timeout_s"], phase["doer_attempts"]) == (60, 3)
        assert [checker["timeout_s"] for checker in phase["checkers"]] == [5]
        assert phase["conversation"] == "continue"
