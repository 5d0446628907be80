"""`leadhand plan`: started, refined at a terminal, edited in an editor, decided and reported."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.plans import plans
from app.security.signatures import BODY_SCOPES, Caller, mint
from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from leadhand.cli.plan_refining import PROMPT
from leadhand.client.client import Client
from leadhand.models.plans import PlanEdit
from tests.http_world import SECRET, TOKEN, Served, served
from tests.integration.client.plan_driving import DrivenPlan
from tests.integration.client.test_questions_command import at_terminal

pytestmark = pytest.mark.timeout(180)

TASKS: list[dict[str, Any]] = [
    {"id": "a", "title": "First"},
    {"id": "b", "title": "Second", "dependencies": ["a"], "description": "two\nlines"},
    {"id": "c", "title": "Third"},
]
PLAN = {
    "kind": "plan",
    "request": "Build it.",
    "doer": {"command": "true"},
    "baseline": False,
    "checkers": [{"name": "ok", "command": "true"}],
    "tasks": TASKS,
}


@pytest.fixture(scope="module")
def api(module_store_url: str) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


@pytest.fixture
def plan(api: Served) -> DrivenPlan:
    """A plan whose draft of three tasks waits for a person."""
    with Client(api.url, TOKEN) as client:
        found = DrivenPlan(api, client.submit(PLAN).id)
    found.draft(TASKS)
    return found


class Shell:
    """Runs commands in this process, without a terminal."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._patch = patch
        self._capsys = capsys

    def says(
        self, *arguments: str, code: int = 0, typed: str = "", env: Mapping[str, str] | None = None
    ) -> str:
        """Run a command; what it prints, or its error if it is to fail."""
        with self._patch.context() as patch:
            for name, text in (env or {}).items():
                patch.setenv(name, text)
            patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
            found = run(cli, arguments)
        out, err = self._capsys.readouterr()
        # The log of the API, which is a process of its own, is not captured here.
        assert found == code, (out, err)
        assert "Traceback" not in err
        return err if code else out

    def editor(self, *lines: str) -> str:
        """An editor that carries out these lines of Python; `text` is the content of the file."""
        script = self.folder / "editor.py"
        body = "\n".join(lines)
        script.write_text(
            "import pathlib, sys\nfile = pathlib.Path(sys.argv[-1])\n"
            f"text = file.read_text()\n{body}\nfile.write_text(text)\n"
        )
        return f"{sys.executable} {script}"


@pytest.fixture
def shell(
    api: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:  # fmt: skip
    for name in [name for name in os.environ if name.startswith("LEADHAND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LEADHAND_URL", api.url)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Shell(tmp_path, monkeypatch, capsys)


def test_draft_is_refined_in_a_conversation_at_the_terminal(
    api: Served, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell.folder / "tasks.json").write_text(json.dumps(TASKS))
    rename = "text = text.replace('title = \"First\"', 'title = \"Very first\"')"
    monkeypatch.setenv("EDITOR", shell.editor(rename))
    new = ("plan", "new", "Build it.", "--tasks", "tasks.json", "--doer", "true", "--checker",
           "ok: true", "--label", "talk", "--workspace", "shared")  # fmt: skip
    with at_terminal(api, shell.folder, *new) as terminal:
        plan = DrivenPlan.labelled(api, "talk")
        plan.draft(TASKS)
        terminal.wait_for(PROMPT)
        assert "  2. b: Second" in terminal.seen
        terminal.type("what now\n")
        terminal.wait_for("'what now' is not understood")
        terminal.type("drop 1\n")
        terminal.wait_for("task b depends on it")
        terminal.type("drop 7\n")
        terminal.wait_for("the draft has no task '7'")
        terminal.type("drop 2\n")
        terminal.wait_for("task b is dropped")
        assert plan.ids() == ["a", "c"]
        terminal.type("edit\n")
        terminal.wait_for("1 change made")
        assert plan.task("a").title == "Very first"
        terminal.wait_for("  1. a: Very first")
        prompts = terminal.seen.count(PROMPT)
        terminal.type("change smaller tasks\n")
        terminal.wait_for("the team lead changes its draft")
        inputs = plan.draft([{"id": "small", "title": "Small"}])
        assert inputs["change"] == "smaller tasks"
        terminal.wait_for(PROMPT, times=prompts + 1)
        assert "  1. small: Small" in terminal.seen
        terminal.type("approve\n")
        terminal.wait_for("approved")
        plan.park("execute")
        assert plan.task("small").status == "in_progress"
        plan.engine.control.apply(plan.id, "abort", reason="enough")
        terminal.wait_for("enough")
        assert terminal.process.wait(timeout=30) == 2


def test_draft_that_is_decided_elsewhere_is_closed_at_the_terminal(
    api: Served, shell: Shell, plan: DrivenPlan
) -> None:
    with at_terminal(api, shell.folder, "wait", plan.id) as terminal:
        terminal.wait_for(PROMPT)
        plans.approve(plan.engine, plan.id, by="ann")
        terminal.wait_for("the draft is no longer open")
        plan.engine.control.apply(plan.id, "abort")
        assert terminal.process.wait(timeout=30) == 2


def test_draft_that_changed_since_it_was_shown_is_shown_again_and_not_approved(
    api: Served, shell: Shell, plan: DrivenPlan
) -> None:
    with at_terminal(api, shell.folder, "wait", plan.id) as terminal:
        terminal.wait_for(PROMPT)
        edited(plan, {"op": "drop", "id": "c"})
        terminal.type("approve\n")
        terminal.wait_for("not approved, the plan has changed meanwhile:")
        terminal.wait_for(PROMPT, times=2)
        assert plan.view.state == "refining"
        terminal.type("approve\n")
        terminal.wait_for("approved", times=2)
        plan.engine.control.apply(plan.id, "abort")
        assert terminal.process.wait(timeout=30) == 2


def test_empty_line_leaves_the_draft_open_and_says_how_to_decide(
    api: Served, shell: Shell, plan: DrivenPlan
) -> None:
    with at_terminal(api, shell.folder, "wait", plan.id) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("\n")
        terminal.wait_for(f"decide later with: leadhand plan show {plan.id}")
        assert plan.view.state == "refining"


def test_show_has_the_draft_and_the_commands_that_decide(shell: Shell, plan: DrivenPlan) -> None:
    text = shell.says("plan", "show", plan.id)
    assert "  2. b: Second\n     after a\n     two\n     lines\n" in text
    assert f"approve it with: leadhand plan approve {plan.id}" in text
    whole = json.loads(shell.says("plan", "show", plan.id, "--json"))
    assert (whole["state"], len(whole["tasks"])) == ("refining", 3)
    asked = shell.says("questions")
    assert f"  approve the plan with: leadhand plan approve {plan.id}" in asked
    assert f"  change it with: leadhand plan edit {plan.id}" in asked


def test_edit_sends_the_difference_of_the_edited_file(shell: Shell, plan: DrivenPlan) -> None:
    change = [
        "text = text.replace('title = \"Third\"', 'title = \"Third\"\\npriority = 0')",
        'text += \'[[tasks]]\\nid = "d"\\ntitle = "Fourth"\\ndependencies = ["c"]\\n\'',
    ]
    text = shell.says("plan", "edit", plan.id, env={"EDITOR": shell.editor(*change)})
    assert text == f"2 changes made; the plan of session {plan.id} is refining, version 2\n"
    assert (plan.ids(), plan.task("c").priority) == (["a", "b", "c", "d"], 0)
    same = shell.says("plan", "edit", plan.id, env={"EDITOR": shell.editor()})
    assert same == "nothing changed; the plan is at version 2\n"


def edited(plan: DrivenPlan, *operations: dict[str, Any]) -> None:
    edit = PlanEdit.model_validate({"operations": list(operations)})
    plans.edit(plan.engine, plan.id, edit, version=None, by="ann")


def editing_meanwhile(shell: Shell, plan: DrivenPlan, api: Served, operation: str) -> str:
    """An editor that changes the title of c, while another client carries out an operation."""
    path = f"{api.url}/v1/sessions/{plan.id}/plan"
    return shell.editor(
        "import json, urllib.request",
        f"body = json.dumps({{'operations': [{operation}]}}).encode()",
        f"headers = {{'Authorization': {'Bearer ' + TOKEN!r}, 'Content-Type': 'application/json'}}",
        f"request = urllib.request.Request({path!r}, body, headers, method='PATCH')",
        "urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)",
        "text = text.replace('\"Third\"', '\"Mine\"')",
    )


def test_edit_meanwhile_of_another_task_is_no_conflict(
    api: Served, shell: Shell, plan: DrivenPlan
) -> None:
    other = "{'op': 'change', 'id': 'a', 'title': 'Theirs'}"
    text = shell.says(
        "plan", "edit", plan.id, env={"EDITOR": editing_meanwhile(shell, plan, api, other)}
    )
    assert text.splitlines() == [
        "task a: title changed",
        f"1 change made; the plan of session {plan.id} is refining, version 3",
    ]
    assert (plan.task("a").title, plan.task("c").title) == ("Theirs", "Mine")


def test_edit_meanwhile_of_the_same_task_keeps_the_edited_file(
    api: Served, shell: Shell, plan: DrivenPlan
) -> None:
    same = "{'op': 'change', 'id': 'c', 'title': 'Theirs'}"
    editor = editing_meanwhile(shell, plan, api, same)
    text = shell.says("plan", "edit", plan.id, code=1, env={"EDITOR": editor})
    assert "has changed while you edited it, to version 2: task c: title changed" in text
    assert plan.task("c").title == "Theirs"
    kept = Path(text.rpartition(" --file ")[2].strip())
    assert '"Mine"' in kept.read_text()
    again = shell.says("plan", "edit", plan.id, "--file", str(kept), code=1)
    assert "is of version 1, and the plan is at version 2" in again
    kept.write_text(kept.read_text().replace("version = 1", "version = 2"))
    shell.says("plan", "edit", plan.id, "--file", str(kept))
    assert plan.task("c").title == "Mine"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("text = text.replace('title', 'titel')", "did you mean title?"),
        ("text += '[['", "is not TOML"),
        ("text = text.replace('\"a\"', '\"x\"', 1)", "depends on 'a', which is no task"),
        ("text = text.replace('[\"a\"]', '[\"c\"]') + 'rule = \"any\"'", "rule cannot be changed"),
    ],
)
def test_faulty_edit_is_kept_and_changes_nothing(
    shell: Shell, plan: DrivenPlan, line: str, why: str
) -> None:
    text = shell.says("plan", "edit", plan.id, code=1, env={"EDITOR": shell.editor(line)})
    assert why in text
    assert Path(text.rpartition(" --file ")[2].strip()).exists()
    assert plan.view.version == 1


def test_editor_that_fails_leaves_no_file(shell: Shell, plan: DrivenPlan) -> None:
    failing = shell.says("plan", "edit", plan.id, code=1, env={"EDITOR": "false"})
    assert "false" in failing
    assert not list(shell.folder.glob("leadhand-plan-*"))


def test_approval_and_change_are_each_given_once(shell: Shell, plan: DrivenPlan) -> None:
    assert shell.says("plan", "change", plan.id, "-", typed="fewer") == (
        f"the team lead of session {plan.id} changes its draft\n"
    )
    assert plan.draft(TASKS[:1])["change"] == "fewer"
    approved = shell.says("plan", "approve", plan.id)
    assert approved.startswith(f"approved; the plan of session {plan.id} is executing, version")
    again = shell.says("plan", "approve", plan.id, code=1)
    assert "does not accept this answer" in again


def test_task_is_retried_and_dropped_by_its_id_or_number(shell: Shell, plan: DrivenPlan) -> None:
    assert "task c is dropped" in shell.says("plan", "drop", plan.id, "3")
    plan.begin()
    refused = shell.says("plan", "retry", plan.id, "a", code=1)
    assert "only a task that failed can be retried" in refused
    assert "did you mean" not in refused
    unknown = shell.says("plan", "drop", plan.id, "bb", code=1)
    assert "has no task 'bb'; did you mean 'b'?" in unknown
    frozen = shell.says("plan", "drop", plan.id, "a", code=1)
    assert "it has started" in frozen


PROPOSED = [{"id": "more", "title": "One more", "dependencies": ["a"]}]


def test_body_reports_and_its_proposal_is_decided(
    api: Served, shell: Shell, plan: DrivenPlan
) -> None:
    plan.begin()
    child, grant = plan.doer("a")
    token = mint(Caller(child.id, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)
    body = {"LEADHAND_SESSION": child.id, "LEADHAND_TOKEN": token}
    (shell.folder / "more.json").write_text(json.dumps(PROPOSED))
    said = shell.says(
        "report", "done", "--pr-url", "https://example.org/1", "--notes", "all of it",
        "--propose", "more.json", "--why", "it lacks", env=body,
    )  # fmt: skip
    assert said == f"task a of session {plan.id} is reported as completed\n"
    shown = shell.says("plan", "show", plan.id)
    assert "completed, unverified" in shown
    assert "  pull request: https://example.org/1" in shown
    assert f"there are proposals to decide: leadhand plan proposals {plan.id}" in shown
    listed = shell.says("plan", "proposals", plan.id)
    assert "p1  open  proposed by session" in listed
    assert "  why: it lacks" in listed
    accepted = shell.says("plan", "accept", plan.id, "p1")
    assert accepted.startswith("proposal p1 is accepted; the plan of session")
    assert "more" in plan.ids()
    refused = shell.says("plan", "refuse", plan.id, "p1", code=1)
    assert "proposal 'p1': it was accepted by operator" in refused
    assert shell.says("plan", "proposals", plan.id) == "no open proposals\n"
    wrong = shell.says("report", "nearly", code=1, env=body)
    assert "status" in wrong.lower()


def test_report_outside_a_session_says_where_it_belongs(shell: Shell) -> None:
    text = shell.says("report", "done", code=1)
    assert "LEADHAND_SESSION not set: only a doer or checker inside a session" in text


def test_session_of_another_kind_has_no_plan_to_show(api: Served, shell: Shell) -> None:
    session = api.submit()
    text = shell.says("plan", "show", session, code=1)
    assert text == (
        f"leadhand: session '{session}' has no plan: it is a loop; plans are of kind plan\n"
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("Build it.",), "checkers"),
        ((), "Missing argument 'REQUEST'"),
        (("Build it.", "--checker", "true", "--at-once", "0"), "--at-once"),
        (("Build it.", "--checker", "true", "--retries", "99"), "--retries"),
        (("Build it.", "--checker", "true", "--doer", "a", "--agent", "b"), "not both"),
        (("Build it.", "--checker", "true", "--tasks", "tasks.json"), "--tasks"),
        (("Build it.", "--checker", "true", "--tasks", "none.json"), "none.json"),
        (("  ", "--checker", "true"), "REQUEST"),
    ],
)
def test_faulty_options_are_refused_by_flag(
    shell: Shell, options: tuple[str, ...], why: str
) -> None:
    (shell.folder / "tasks.json").write_text('[{"id": "a", "title": "A", "checkers": ["no"]}]')
    assert why in shell.says("plan", "new", "--detach", *options, code=1)


def test_detached_plan_prints_its_session(api: Served, shell: Shell) -> None:
    new = ("plan", "new", "Build it.", "--unchecked", "--doer", "true", "--detach")
    session = shell.says(*new, "--no-refine", "--label", "p").strip()
    view = api.engine.queries.session(session)
    assert (view.kind, view.label) == ("plan", "p")
    assert json.loads(shell.says(*new, "--json"))["kind"] == "plan"
