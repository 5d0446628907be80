"""`leadhand stack` against a real API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from leadhand.cli import cli
from leadhand.cli.entrypoint import sentence
from tests.http_world import TOKEN, Served, served


@pytest.fixture(scope="module")
def api(module_store_url: str) -> Iterator[Served]:
    with served(module_store_url) as api:
        yield api


@pytest.fixture(autouse=True)
def folder(api: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEADHAND_URL", api.url)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["stack", *arguments], standalone_mode=False)


def ok(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exception is None, result.exception
    assert result.return_value == 0
    return result.output


def data(*arguments: str) -> Any:
    return json.loads(ok(*arguments, "--json"))


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exception is not None
    return sentence(result.exception, cli)


def start(workflow: str = "web/release", *more: str) -> str:
    change = data("start", workflow, "build", "--goal", "ship it", *more)
    return str(change["workflow"]["session_id"])


def test_workflow_sessions_are_started_advanced_and_ended():
    below, top = start(), start("web/fix", "--instance", "v2")
    assert ok("begin", "test") == f"{top}  web/fix  active  at test\n"
    assert [ok("attempt", "test") for _ in range(2)] == ["1\n", "2\n"]
    ok("done", "test", "--output", "report=a=b.txt", "--outputs", '{"n": [1]}', "--notes", "fine")
    assert json.loads(ok("outputs")) == {"n": [1], "report": "a=b.txt"}
    assert ok("advance", "deploy", "2", "--workflow", below).splitlines() == [
        f"{below}  web/release  active  at deploy",
        f"active: {top}  web/fix  active  at test",
    ]
    shown = [line.split() for line in ok("show").splitlines()]
    assert [line[0] for line in shown] == ["ID", top, below]
    assert shown[1][1:4] == ["web/fix", "test", "v2"]
    got = ok("get").splitlines()
    assert got[1] == "goal: ship it"
    assert got[3].split() == ["test", "completed", "2", "n,", "report"]
    assert ok("complete", "--workflow", below).startswith(f"{below}  web/release  completed")
    assert ok("abort", "no time").splitlines()[-1] == "the stack is empty"
    assert "reason: no time" in ok("get", top)
    assert [line.split()[2] for line in ok("ls").splitlines()[1:]] == ["aborted", "completed"]
    assert ok("ls", "--status", "active") == "no workflow sessions\n"
    assert ok("show").startswith("the stack is empty; start a workflow")


def test_a_session_is_loaded_from_its_file_and_removed_with_it(folder: Path):
    below = start()
    top = start()
    assert f"'{top}' is on top of the stack" in refused("load", below)
    assert ok("load", below, "--force").startswith(below)
    record = data("get", below) | {"session_id": "000000ff", "revision": 0}
    files = folder / ".deepwork" / "tmp"
    files.mkdir(parents=True)
    file = files / "session_000000ff.json"
    file.write_text(json.dumps(record))
    ok("load", "000000ff", "--force")
    ok("begin", "other")
    assert json.loads(file.read_text())["current_step_id"] == "other"
    ok("rm", "000000ff")
    assert not file.exists()
    assert refused("get", "000000ff").startswith("Session not found: 000000ff")


def test_named_stacks_are_apart_and_all_stacks_are_listed(folder: Path):
    start("web/one")
    start("web/two", "--stack", "shared.1")
    lines = [line.split() for line in ok("all").splitlines()]
    assert lines[1][:4] == ["shared.1", "1", "web/two", "build"]
    assert str(folder) in lines[2][-1]
    (folder / "sub").mkdir()
    assert data("show", "--folder", "sub")["depth"] == 0
    assert data("show", "--folder", "sub/..")["depth"] == 1


def test_wrong_input_is_named():
    text = "No active workflow session. Use start_workflow to begin one."
    assert refused("begin", "x").startswith(text)
    assert "has no '/'" in refused("start", "web", "build")
    assert "has no name" in refused("done", "x", "--output", "text")
    assert "is no JSON object" in refused("done", "x", "--outputs", "[]")
    assert "cannot name a stack" in refused("show", "--stack", "a b")
    assert "not found in active stack" in refused("complete", "--workflow", "00000000")


def test_agents_of_one_folder_keep_stacks_of_their_own(api: Served):
    common, first = start(), start("web/one", "--agent-session", "agent-1")
    second = start("web/two", "--agent-session", "agent:2")
    assert data("complete", "--agent-session", "agent-1")["workflow"]["session_id"] == first
    assert [one["session_id"] for one in data("show")["workflows"]] == [common]
    shown = data("show", "--agent-session", "agent:2")
    assert [one["session_id"] for one in shown["workflows"]] == [second]
    # REST names the agent session, too.
    headers = {"Authorization": f"Bearer {TOKEN}"}
    name = data("show")["name"]
    path = f"{api.url}/v1/stacks/{name}/workflows/active"
    answer = httpx2.get(path, params={"agent_session": "agent:2"}, headers=headers)
    assert answer.json()["session_id"] == second
    assert httpx2.get(path, params={"agent_session": "-"}, headers=headers).status_code == 422
    assert "no agent session" in refused("show", "--agent-session", "-")


def test_stack_of_a_moved_folder_is_moved_with_those_of_its_agents(tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    common = start("web/release", "--folder", str(old))
    of_agent = start("web/fix", "--folder", str(old), "--agent-session", "agent-1")
    assert "is that of" in ok("move", str(old), "--folder", str(new))
    assert data("get", "--folder", str(new))["session_id"] == common
    found = data("get", "--folder", str(new), "--agent-session", "agent-1")
    assert found["session_id"] == of_agent
    assert "has no stack" in refused("move", str(old), "--folder", str(new))
    start("web/again", "--folder", str(old))
    assert "exists already" in refused("move", str(old), "--folder", str(new))


def test_command_in_a_renamed_folder_uses_its_stack(tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    (old / ".deepwork" / "tmp").mkdir(parents=True)
    session = start("web/release", "--folder", str(old))
    old.rename(new)
    assert data("get", "--folder", str(new))["session_id"] == session
