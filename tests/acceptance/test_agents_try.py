"""`leadhand agents try`: an agent runs one tool call on the running worker."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import real_agents
from tests.acceptance.conftest import MakeProject
from tests.acceptance.project import Ended, Project
from tests.acceptance.real_agents.test_real_agents import CODEX, MISSING, is_of_ours
from tests.model_server import Asked, ModelServer, Reply, Say, Use, model_server

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240), pytest.mark.slow]

AGENTS = f"""
[agents.echo]
command = [{sys.executable!r}, "-c", "import os, sys; print(repr(sys.stdin.read()), os.environ['MINE'])"]
env = ["MINE"]
[agents.broken]
command = ["sh", "-c", "echo no luck >&2; exit 7"]
[agents.stuck]
command = ["sh", "-c", "echo I am thinking; sleep 600"]
[agents.keyless]
command = ["sh", "-c", "true"]
needs_env = ["A_KEY_THAT_NOBODY_SET"]
[agents.absent]
command = ["no-such-program"]
"""  # noqa: E501


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory):
    """A folder whose services were started with another MINE than that of later commands."""
    project = Project(tmp_path_factory.mktemp("try"), MINE="of the worker")
    project.write("agents.toml", AGENTS)
    with project.up():
        project.env["MINE"] = "of the client"
        yield project
    project.close()


def tried(project: Project, *arguments: str, timeout: float = 120) -> Ended:
    return project.leadhand("agents", "try", *arguments, timeout=timeout)


def test_it_answers_with_the_environment_of_the_command(project: Project) -> None:
    ended = tried(project, "echo", "--prompt", "Hello?", "--json")
    assert ended.code == 0, ended.err
    told = ended.json()
    assert (told["word"], told["text"]) == ("succeeded", r"'Hello?\n' of the client")
    shown = tried(project, "echo", "--prompt", "Hello?").out.splitlines()
    assert shown[0] == r"'Hello?\n' of the client"
    assert shown[1].startswith("warning: agent ")
    assert "answered, but reported no tool call" in shown[1]
    assert shown[-1].startswith("answered after ")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["broken"], 3, "agent 'broken' exited with code 7: no luck"),
        (
            ["keyless"],
            1,
            "agent 'keyless' cannot be used at local: the variable A_KEY_THAT_NOBODY_SET",
        ),
        (["absent"], 1, "cannot be used at local: the program 'no-such-program' is not found"),
        (["nobody"], 1, "no worker knows agent 'nobody'; known: absent, broken"),
        (["echo", "--model", "large"], 1, "agent 'echo' takes no model; write model_args"),
        (["echo", "--place", "mars"], 1, "no worker at mars has it"),
        (["echo", "--cwd", "/no/such"], 1, "there is no such folder"),
        (["stuck", "--timeout", "1"], 3, "| I am thinking"),
    ],
)
def test_it_says_what_is_wrong_and_where(
    project: Project, arguments: list[str], code: int, says: str
) -> None:
    ended = tried(project, *arguments)
    assert says in ended.out + ended.err
    assert ended.code == code


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("agent", real_agents.PROGRAMS)
def test_a_real_agent_shows_its_tool_call_and_the_result(
    make_project: MakeProject, tmp_path: Path, agent: str
) -> None:
    def answer(asked: Asked) -> Reply:
        if not is_of_ours(asked):
            return Say("yes")
        return Say("It works, I am scripted.") if asked.results else Use("echo leadhand works")

    with model_server(answer) as model:
        given = environment(tmp_path, model)
        later = {name: given.pop(name) for name in (*GIVEN, "PATH") if name in given}
        project = make_project(**given)
        with project.up():
            project.env |= later  # exported after the services have started
            ended = tried(project, agent)
            lines = ended.out.splitlines()
            assert ended.code == 0, ended.out + ended.err
            assert lines[0].endswith(": echo leadhand works")
            assert lines[1].startswith("< leadhand works")
            assert "It works, I am scripted." in lines
            assert f"agent {agent!r} works: it answered, and its tools work" in lines
            assert "1 tool call;" in lines[-1]
            told = tried(project, agent, "--json").json()
            assert [call["failed"] for call in told["tools"]] == [False]


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("agent", real_agents.PROGRAMS)
def test_a_real_agent_whose_tool_calls_fail_is_not_fine(
    make_project: MakeProject, tmp_path: Path, agent: str
) -> None:
    count = Counter[str]()

    def answer(asked: Asked) -> Reply:
        count["asked"] += is_of_ours(asked)
        return Say("All is well.") if asked.results or not is_of_ours(asked) else Use("exit 3")

    with model_server(answer) as model:
        project = make_project(**environment(tmp_path, model))
        with project.up():
            ended = tried(project, agent)
    assert ended.code == 3, ended.out + ended.err
    assert "< failed: " in ended.out
    assert "its only tool call failed" in ended.out


#: Variables of the agents.
GIVEN = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CODEX_HOME")


def environment(folder: Path, model: ModelServer) -> dict[str, str]:
    """What the real agents need to ask the scripted model."""
    for name in ("codex", "tmp", "claude"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "codex" / "config.toml").write_text(CODEX.format(url=model.url))
    return {
        "PATH": os.pathsep.join(
            [str(real_agents.BIN), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "HOME": str(folder),
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "sk-ant-of-the-test-0123456789",
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "CODEX_HOME": str(folder / "codex"),
        "TMPDIR": str(folder / "tmp"),
        "OPENAI_API_KEY": "sk-of-the-test-0123456789",
    }
