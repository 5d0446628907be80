"""A plan from the request to the last task, refined at a terminal, with real workers."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from leadhand.cli.plan_refining import PROMPT
from tests.acceptance.project import BIN, Project
from tests.integration.client.test_questions_command import Terminal

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

#: A team lead that answers first with no plan, then with three tasks, then as it is asked.
LEAD = """
import json, pathlib, sys
prompt, count = sys.stdin.read(), pathlib.Path("asked")
asked = int(count.read_text()) if count.exists() else 0
if "# Answer" not in prompt:
    print("It concerns three files.")
    sys.exit()
count.write_text(str(asked + 1))
names = ["one", "two", "three"] if "# What to change" not in prompt else ["one", "two"]
tasks = [{"id": name, "title": name, "dependencies": names[:n]} for n, name in enumerate(names)]
if "typing errors" in prompt:
    pathlib.Path("wanted").write_text(prompt)
print(json.dumps({"tasks": tasks}) if asked else "I would rather not.")
"""
DOER = 'touch "$LEADHAND_SESSION"; leadhand report done --notes "all of it"'


@pytest.mark.slow
def test_request_is_planned_refined_and_carried_out(alone: Project) -> None:
    project = alone  # its services read its own agents.toml
    project.write("lead.py", LEAD)
    project.write("agents.toml", '[agents.lead]\ncommand = ["python3", "lead.py"]\n')
    near, far = pty.openpty()
    options = ("--lead", "lead", "--doer", DOER, "--checker", 'mine: test -e "$LEADHAND_SESSION"')
    command = [str(BIN / "leadhand"), "plan", "new", "Write files", *options]
    process = subprocess.Popen(
        command, stdin=far, stdout=far, stderr=far, cwd=project.folder,
        env={**project.env, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        start_new_session=True,
    )  # fmt: skip
    os.close(far)
    terminal = Terminal(near, process)
    try:
        terminal.wait_for(PROMPT)
        assert "  3. three: three" in terminal.seen
        terminal.type("change two tasks, without typing errors\n")
        terminal.wait_for(PROMPT, times=2)
        terminal.type("approve\n")
        terminal.wait_for("2 tasks: 2 completed; 2 verified")
        assert process.wait(timeout=60) == 0
        assert "two tasks, without typing errors" in "\n".join(project.lines("wanted"))
        (plan,) = [one for one in project.sessions() if one["kind"] == "plan"]
        shown = project.leadhand("plan", "show", plan["id"], "--json", timeout=60).json()
    finally:
        process.kill()
        process.wait()
        os.close(near)
    assert [(one["id"], one["verified"], one["notes"]) for one in shown["tasks"]] == [
        ("one", True, "all of it"), ("two", True, "all of it"),
    ]  # fmt: skip
    # The folder is in no repository, so each task worked in a copy of it.
    assert all((Path(one["folder"]) / one["session"]).exists() for one in shown["tasks"])
    assert not any((project.folder / one["session"]).exists() for one in shown["tasks"])
    assert json.loads((project.folder / "asked").read_text()) == 3
