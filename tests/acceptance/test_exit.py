"""`leadhand exit` from inside a step ends the session with a reason."""

from __future__ import annotations

import httpx2
import pytest

from tests.acceptance.project import Project
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance

THREE_PHASES = """
from leadhand import Workflow

wf = Workflow("three", doer="{doer}")
wf.phase("red", task="begin", checker="true")
wf.phase("green", task="go on", checker="{checker}", on_fail="continue")
wf.phase("blue", task="end", checker="true")
results = wf.run()
for name, r in results.items():
    if r.verdict == "exit":
        print(f"Workflow stopped at {{name}}: {{r.exit_reason}}")
print("ran:", *results, wf.phases[2].result)
"""


def test_exit_from_a_checker_ends_the_workflow_and_the_caller_sees_where_and_why(project: Project):
    checker = "leadhand exit 'event-driven: redesign it'"
    project.write("flow.py", THREE_PHASES.format(doer="true", checker=checker))
    ended = project.leadhand("workflow", "flow.py")
    assert ended.code == 2, ended.err
    assert "Workflow stopped at green: event-driven: redesign it" in ended.out
    assert "ran: red green None" in ended.out
    (session,) = project.sessions()
    assert (session["status"], session["reason"]["code"]) == ("exited", "exit")
    assert session["reason"]["text"] == "event-driven: redesign it"
    assert session["reason"]["at"] == "green~1[1]/check.leadhand"


def test_exit_from_a_doer_runs_no_checker(project: Project):
    doer = "leadhand exit 'no such module'; sleep 0.2; echo cleaned up"
    ended = project.leadhand("spawn", "t", "--doer", doer, "--checker", "touch checked", "--json",
                             "--no-baseline")  # fmt: skip
    assert ended.code == 2, ended.err
    result = ended.json()
    assert (result["verdict"], result["exit_reason"]) == ("exit", "no such module")
    assert result["status"] == "exited"
    assert not (project.folder / "checked").exists()


@pytest.mark.slow
def test_the_token_of_an_ended_body_opens_nothing_any_more(project: Project):
    note = "echo $LEADHAND_TOKEN > token; until test -e go; do sleep 0.05; done"
    session = project.detached("--doer", note, "--checker", "true")
    (token,) = wait_until(lambda: project.lines("token"), timeout=15)
    with project.api() as client, httpx2.Client(base_url=client.base_url) as body:
        body.headers["Authorization"] = f"Bearer {token}"
        assert body.get(f"/v1/sessions/{session}").status_code == 200
        assert body.get("/v1/sessions").status_code == 403
        assert body.post(f"/v1/sessions/{session}/abort", json={}).status_code == 403
        (project.folder / "go").touch()
        assert project.leadhand("wait", session).code == 0
        late = body.post(f"/v1/sessions/{session}/exit", json={"reason": "too late"})
        assert late.status_code == 401, late.text
        assert "has ended" in late.json()["detail"]
        assert body.get(f"/v1/sessions/{session}").status_code == 401
        assert client.get(f"/v1/sessions/{session}").json()["status"] == "completed"


def test_the_token_of_an_earlier_attempt_cannot_end_a_session_that_goes_on(project: Project):
    doer = "echo $LEADHAND_TOKEN >> token"
    checker = "touch checking; until test -e go; do sleep 0.05; done"
    session = project.detached("--doer", doer, "--checker", checker, "--no-baseline")
    wait_until(lambda: (project.folder / "checking").exists(), timeout=15)
    with project.api() as client:
        bearer = {"Authorization": f"Bearer {project.lines('token')[0]}"}
        path = f"/v1/sessions/{session}"
        late = client.post(f"{path}/exit", json={"reason": "too late"}, headers=bearer)
        assert late.status_code == 401, late.text
        assert client.get(path).json()["status"] == "active"


def test_exit_outside_a_session_says_that_it_is_none(project: Project):
    ended = project.leadhand("exit", "because")
    assert ended.code == 1
    assert "LEADHAND_SESSION not set" in ended.err
    ended = project.ended(
        project.start(["leadhand", "exit", "because"], LEADHAND_SESSION="deadbeef")
    )
    assert ended.code == 1
    assert "deadbeef" in ended.err
    assert "not found" in ended.err
