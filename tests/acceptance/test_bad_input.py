"""Bad input, one line each: a clear word on what, where and the way out; nothing is left behind."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import httpx2
import pytest

from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from tests.acceptance.project import Ended, Guest, Project, pages

pytestmark = pytest.mark.acceptance

WORKFLOW = "from leadhand import Workflow\nwf = Workflow('w', doer='true')\n"
FILES = {
    "on_fail.py": WORKFLOW + "wf.phase('a', task='t', checker='true', on_fail='retry')\nwf.run()\n",
    "duplicate.py": WORKFLOW + "for _ in 1, 2:\n    wf.phase('a', task='t', checker='true')\n",
    "pipe.py": WORKFLOW + "wf.phase('a', task='t', checker='true', pipe='later')\nwf.run()\n",
    "negative.py": WORKFLOW + "wf.phase('a', task='t', checker='true', max_iterations=-1)\n",
    "syntax.py": WORKFLOW + "wf.phase('a',\n",
    "imports.py": WORKFLOW + "import no_such_module\n",
    "raises.py": WORKFLOW + "wf.phase('a', task='t', checker='true')\nraise KeyError('plan')\n",
    "idle.py": WORKFLOW + "wf.phase('a', task='t', checker='true')\n",
    "nobody.py": "from leadhand import Workflow\nwf = Workflow('w')\n"
    "wf.phase('a', task='t', checker='true')\nwf.run()\n",
}
#: A command, and what its one sentence names: the field or place, the value, the way out.
LINES: dict[str, tuple[str, ...]] = {
    "spawn t --checker true --agent nobody": ("--agent: ", '"nobody"', "agents.toml"),
    "spawn t --checker no-such-program --doer true": ("--checker: ", "no-such-program", "install"),
    "spawn t --checker ./check.sh --doer true": ("--checker: ", "./check.sh", "path"),
    "spawn t --checker true --doer true --cwd nowhere": ("--cwd is ", "nowhere", "create it"),
    "spawn t --checker true --doer true --max-iterations -1": ("--max-iterations is -1", "from 0"),
    "spawn t --checker true --doer true --max-iterations x": ("max-iterations", "'x'", "--help"),
    "spawn t --checker true --doer true --rule 2": ("--rule asks", "2", "there are 1"),
    "spawn t --checker true --doer true --rule most": ("--rule", "'most'", "all, any"),
    "spawn t --checker true --doer true --agent claude": ("doer", "agent", "not both"),
    "spawn t --checker '' --doer true": ("checker", "empty", "give a command"),
    "spawn '' --checker true --doer true": ("TASK is ", "''", "1"),
    "spawn t --checker true": ("--doer: ", "default agent", "give --doer or --agent"),
    "spawn t --doer true": ("--checker", "Missing", "--help"),
    "spown t": ("spown", "No such command", "did you mean 'spawn'?", "--help"),
    "spawn t --chekcer true": ("--chekcer", "Did you mean", "'--checker'"),
    "workflow nowhere.py": ("FILE", "nowhere.py", "--help"),
    "workflow on_fail.py": ("on_fail.py:3", "'retry'", "'retry:N'"),
    "workflow duplicate.py": ("duplicate.py:4", "'a'", "names must differ"),
    "workflow pipe.py": ("pipe.py:3", "'later'", "no phase is before this one"),
    "workflow negative.py": ("negative.py:3", "max_iterations is -1", "from 0 to 10000"),
    "workflow syntax.py": ("syntax.py:3", "SyntaxError", "closed"),
    "workflow imports.py": ("imports.py:3", "ModuleNotFoundError", "no_such_module"),
    "workflow raises.py": ("raises.py:4", "KeyError", "plan"),
    "workflow idle.py": ("idle.py", "no workflow", "call run()"),
    "workflow nobody.py": ("phases[0].doer", "default agent", "give --doer or --agent"),
    "show deadbeef": ("session", "'deadbeef'", "leadhand ls"),
    "wait deadbeef": ("session", "'deadbeef'", "leadhand ls"),
    "logs deadbeef": ("session", "'deadbeef'", "leadhand ls"),
    "watch deadbeef": ("session", "'deadbeef'", "leadhand ls"),
    "stop deadbeef": ("session", "'deadbeef'", "leadhand ls"),
    "abort ../../etc": ("session", "../../etc", "leadhand ls"),
    "rm deadbeef": ("session", "'deadbeef'", "leadhand ls"),
    "resume {done}": ("{done}", "completed", "stopped or failed"),
    "stop {done}": ("{done}", "completed", "ended"),
    "abort {done}": ("{done}", "completed", "ended"),
    "ls --status sleeping": ("--status: ", '"sleeping"', "'active'"),
    "spawn t --checker true --doer true --max-cost -1": ("--max-cost is -1",),
    "spawn t --checker true --doer true --place moon": ("--place: ", '"moon"', "workers are at"),
    "resume {done} --max-cost -1": ("--max-cost is -1",),
    "limit set agents:x --concurrency 1": ("'agents:x'", "agent:NAME"),
}
#: One command of each kind is a process, as its user starts it: refused by the command line, by a
#: user's file and by the API.
PROCESSES = ("spown t", "workflow raises.py", "resume {done}")


class World:
    """One folder, one session that is done, and all sessions that are known so far."""

    def __init__(self, project: Project, client: httpx2.Client) -> None:
        self.project = project
        self.client = client
        for name, text in FILES.items():
            project.write(name, text)
        self.done = project.detached("--doer", "true", "--checker", "true")
        assert project.leadhand_here("wait", self.done).code == 0
        self.known = self.sessions()

    def command(self, line: str) -> Ended:
        project = self.project
        leadhand = project.leadhand if line in PROCESSES else project.leadhand_here
        return leadhand(*shlex.split(line.format(done=self.done)))

    def sessions(self) -> list[str]:
        return [one["id"] for one in pages(self.client, "/v1/sessions")]

    def require_unchanged(self) -> None:
        assert self.sessions() == self.known


@pytest.fixture(scope="module")
def world(host: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    project = Guest(tmp_path_factory.mktemp("bad input"), host)
    with project.api() as client:
        yield World(project, client)
    project.close()


@pytest.mark.parametrize("line", LINES)
def test_a_bad_command_is_refused_in_one_sentence_with_the_way_out(world: World, line: str):
    ended = world.command(line)
    assert (ended.code, ended.out) == (1, ""), ended.err
    (sentence,) = ended.err.splitlines()
    assert sentence.startswith("leadhand: ")
    for part in LINES[line]:
        assert part.format(done=world.done) in sentence
    world.require_unchanged()


def test_ls_shows_nothing_that_was_refused(world: World):
    listed = [one["id"] for one in world.project.sessions()]
    world.command("spawn t --checker true --agent nobody")
    world.command("workflow nobody.py")
    assert [one["id"] for one in world.project.sessions()] == listed
    assert world.done in listed


def loop(folder: Path, **more: object) -> dict[str, object]:
    given = {"kind": "loop", "task": "t", "doer": {"command": "true"}, "checkers": ["true"]}
    return {**given, "cwd": str(folder), **more}


def workflow(*phases: dict[str, object]) -> dict[str, object]:
    usual = {"task": "t", "checkers": ["true"]}
    told = [{**usual, **phase} for phase in phases]
    return {"kind": "workflow", "name": "w", "doer": {"command": "true"}, "phases": told}


#: A document, its status, the field that is named, and a part of the way out.
DOCUMENTS: dict[str, tuple[object, int, str, str]] = {
    "unknown agent": ({"doer": {"agent": "nobody"}}, 422, "doer.agent", "agents.toml"),
    "no such checker": ({"checkers": ["no-such-program"]}, 422, "checkers[0]", "install"),
    "no such folder": ({"cwd": "/no/such/folder"}, 422, "cwd", "create it"),
    "relative folder": ({"cwd": "here"}, 422, "cwd", "absolute"),
    "negative limit": ({"max_iterations": -1}, 422, "max_iterations", "0"),
    "a limit that is text": ({"max_iterations": "3"}, 422, "max_iterations", "integer"),
    "unknown field": ({"max_iteration": 3}, 422, "max_iteration", "did you mean max_iterations?"),
    "unknown kind": ({"kind": "team"}, 422, "kind", "workflow"),
    "no task": ({"task": ""}, 422, "task", "1"),
    "no checker": ({"checkers": []}, 422, "checkers", "1"),
    "no doer": ({"doer": None}, 422, "doer", "name one"),
    "a rule beyond its checkers": ({"rule": 2}, 422, "rule", "there are 1"),
    "bad on_fail": (workflow({"name": "a", "on_fail": "retry"}), 422, "phases.0.on_fail", "stop"),
    "duplicate phase": (workflow({"name": "a"}, {"name": "a"}), 422, "phases", "differ"),
    "unknown pipe": (
        workflow({"name": "a", "pipe": "b"}),
        422,
        "phases",
        "no phase is before this one",
    ),
    "no object": ([1, 2], 422, "", "object"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_bad_document_is_refused_with_field_value_and_way_out(world: World, name: str):
    body, status, field, way_out = DOCUMENTS[name]
    if isinstance(body, dict) and "phases" not in body:
        body = loop(world.project.folder, **body)
    problem = require_problem(world.client.post("/v1/sessions", json=body), status)
    assert problem["field"] == field
    assert way_out in " ".join(str(problem[key]) for key in ("detail", "hint"))
    assert problem["value"] or name == "no doer"
    world.require_unchanged()


#: A request that is no good as such, and the status that it gets.
REQUESTS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "malformed JSON": ("POST", "/v1/sessions", {"content": b'{"kind": "loop",'}, 400),
    "another media type": ("POST", "/v1/sessions", {"data": {"kind": "loop"}}, 415),
    "too large": ("POST", "/v1/sessions", {"content": b" " * 5_000_000}, 413),
    "bad key": ("POST", "/v1/sessions", {"json": {}, "headers": {"Idempotency-Key": ""}}, 400),
    "unknown session": ("GET", "/v1/sessions/deadbeef", {}, 404),
    "unknown session's result": ("GET", "/v1/sessions/deadbeef/result", {}, 404),
    "unknown session's events": ("GET", "/v1/sessions/deadbeef/events", {}, 404),
    "unknown session's stop": ("POST", "/v1/sessions/deadbeef/stop", {"json": {}}, 404),
    "stop of a done one": ("POST", "/v1/sessions/{done}/stop", {"json": {}}, 409),
    "resume of a done one": ("POST", "/v1/sessions/{done}/resume", {"json": {}}, 409),
    "abort of a done one": ("POST", "/v1/sessions/{done}/abort", {"json": {}}, 409),
    "exit without reason": ("POST", "/v1/sessions/{done}/exit", {"json": {}}, 422),
    "unknown query": ("GET", "/v1/sessions?colour=red", {}, 422),
    "bad cursor": ("GET", "/v1/sessions?cursor=nonsense", {}, 422),
    "bad event id": ("GET", "/v1/sessions/{done}/events?after=x", {}, 422),
    "unknown path": ("GET", "/v1/nothing", {}, 404),
    "wrong method": ("PUT", "/v1/sessions", {"json": {}}, 405),
    "no token": ("GET", "/v1/sessions", {"headers": {"Authorization": ""}}, 401),
    "another's token": ("GET", "/v1/sessions", {"headers": {"Authorization": "Bearer x"}}, 401),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_bad_request_is_refused_as_a_problem(world: World, name: str):
    method, path, more, status = REQUESTS[name]
    if "content" in more:
        more = {**more, "headers": {"Content-Type": "application/json"}}
    answer = world.client.request(method, path.format(done=world.done), **more)
    problem = require_problem(answer, status)
    assert problem["title"]
    if status == 405:
        assert "POST" in answer.headers["allow"]
    world.require_unchanged()


def require_problem(answer: httpx2.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "Traceback" not in answer.text
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    return problem


#: The arguments of each command in a deleted folder; without an entry, the id of a session.
_NONE = (
    "agents doctor down flows inbox limit ls questions queues stats status store token tools top "
    "trust workers"
)
ARGUMENTS = dict.fromkeys(_NONE.split(), "") | {
    "answer": "ID x",
    "apply": "ID",
    "ask": "x --session ID",
    "exit": "why",
    "flow": "run nope",
    "fork": "ID --from do",
    "fsck": "",
    "graph": "run g.json",
    "guard": "install --agent claude",
    "hint": "ID x",
    "hook": "stop",
    "kv": "get x --session ID",
    "lock": "run x --session ID -- true",
    "note": "ID x",
    "notify": "x --session ID",
    "plan": "show ID",
    "rehome": "ID here",
    "rename": "ID x",
    "report": "done",
    "retry": "ID do",
    "skip": "ID do",
    "spawn": "x --doer true --checker true",
    "stack": "show",
    "worktree": "show ID",
    "workflow": "w.py",
}
#: They run until Ctrl-C, or end the services that other tests use.
_LEFT_OUT = {"api", "down", "mcp", "restart", "ui", "up", "worker"}


def test_a_deleted_folder_is_one_sentence_and_reading_commands_need_none(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    project = world.project
    id_ = project.detached("--doer", "true", "--checker", "true")
    for name in [name for name in os.environ if "LEADHAND" in name]:
        monkeypatch.delenv(name)
    for name in ("LEADHAND_HOME", "LEADHAND_LINGER", "LEADHAND_LEASE_S", "LEADHAND_DRAIN_S"):
        monkeypatch.setenv(name, project.env[name])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert [run(cli, [name, id_]) for name in ("wait", "show", "explain")] == [0, 0, 0]
    assert run(cli, ["status"]) == 0
    codes: dict[str, int] = {}
    for name in sorted({*cli.list_commands(click.Context(cli))} - _LEFT_OUT):
        words = [id_ if word == "ID" else word for word in ARGUMENTS.get(name, "ID").split()]
        codes[name] = run(cli, [name, *words])
        shown = capsys.readouterr()
        assert "internal error" not in shown.err + shown.out, (name, shown)
        assert codes[name] in (0, 1, 2, 3), name
        if name in ("ls", "spawn", "trust"):
            assert "the current folder was deleted" in shown.err, (name, shown)
    world.known = world.sessions()  # `rerun` and `fork` have made some
