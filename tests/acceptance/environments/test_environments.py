"""The environment of doers: what their shell has, what `--env` passes, and nothing at rest."""

from __future__ import annotations

import json
import sys

import pytest
import redis

from tests.acceptance.project import Project

pytestmark = pytest.mark.acceptance

#: An agent that keeps what it gets, and prints it too.
AGENT = """
import json, os, pathlib, sys
held = {name: value for name, value in os.environ.items() if not name.startswith("LEADHAND_")}
pathlib.Path("held.json").write_text(json.dumps(held))
print("I have", held.get("SECRET_KEY"), held.get("PASSED"))
print(held.get("PASSED"), file=sys.stderr)
"""
KEY, PASSED = "a-key-that-nobody-may-see", "a value\\nof two lines that nobody may see"


def held(project: Project) -> dict[str, str]:
    found: dict[str, str] = json.loads((project.folder / "held.json").read_text())
    (project.folder / "held.json").unlink()
    return found


def at_rest(project: Project) -> str:
    """All that is on disk of the services, but the work itself, and all that their Redis has."""
    url = str(project.run["redis_url"])
    texts = []
    with redis.Redis.from_url(url) as client:
        for number in (0, 1):
            client.select(number)
            texts += [str((key, client.dump(key))) for key in client.keys("*")]
            client.execute_command("SAVE")
    files = [file for file in project.state.rglob("*") if file.is_file()]
    return "\n".join([*texts, *(file.read_bytes().decode("latin-1") for file in files)])


@pytest.mark.timeout(150)
def test_key_exported_after_the_start_reaches_the_agent_and_nothing_else(alone: Project) -> None:
    alone.write("agent.py", AGENT)
    entry = f'[agents.keeper]\ncommand = ["{sys.executable}", "agent.py"]\n'
    alone.write("agents.toml", entry + 'env = ["SECRET_KEY", "UNSET"]\n')
    alone.env["UNSET"] = "of the shell that started the services"
    with alone.up() as api:
        del alone.env["UNSET"]
        alone.env |= {"SECRET_KEY": KEY, "OTHER": "not named", "VIRTUAL_ENV": "/a/venv"}
        alone.env["PATH"] += ":/a/path"
        alone.env["PASSED"] = PASSED
        alone.write("more.env", "# a comment\nexport FROM_FILE='in a file'\n")
        options = ("--env", "PASSED", "--env", "MODE=quick", "--env-file", "more.env")
        ended = alone.leadhand(
            "spawn", "keep", "--agent", "keeper", "--checker", "test $MODE = quick",
            "--cwd", str(alone.folder), "--json", *options, timeout=60,
        )  # fmt: skip
        assert ended.code == 0, ended
        found = held(alone)
        assert found["SECRET_KEY"] == KEY
        assert found["PASSED"] == PASSED
        assert (found["MODE"], found["FROM_FILE"]) == ("quick", "in a file")
        assert found["PATH"].endswith(":/a/path")
        assert found["VIRTUAL_ENV"] == "/a/venv"
        assert not {"OTHER", "UNSET"} & found.keys()
        session = ended.json()["session_id"]
        parts = ("export", "transcript", "events", "steps", "ledger", "output", "result")
        shown = [api.get(f"/v1/sessions/{session}/{part}").text for part in parts]
        texts = "\n".join([ended.out, ended.err, *shown, at_rest(alone)])
        assert "I have [redacted]" in texts
        for secret in (KEY, *PASSED.splitlines()):
            assert secret not in texts


@pytest.mark.timeout(120)
def test_passed_variables_and_the_path_of_the_shell_count_for_tools(alone: Project) -> None:
    greet = alone.write("bin/greet", "#!/bin/sh\necho hello $NAMED\n")
    greet.chmod(0o755)
    alone.write("tools.toml", '[tools.greet]\ncommand = ["greet"]\nneeds_env = ["NAMED"]\n')
    alone.write("g.json", '{"steps": [{"name": "hi", "tool": "greet"}]}')
    with alone.up():
        unfound = alone.leadhand("graph", "run", "g.json", "--env", "NAMED=you", timeout=60)
        assert unfound.code == 1
        assert "'greet' is not on the PATH of this shell" in unfound.err
        alone.env["PATH"] = f"{greet.parent}:{alone.env['PATH']}"
        bare = alone.leadhand("graph", "run", "g.json", timeout=60)
        assert bare.code == 3  # only the worker knows its own variables
        assert "the variable N" in bare.out
        found = alone.leadhand("graph", "run", "g.json", "--env", "NAMED=you", timeout=60)
        assert found.code == 0, found.err
        assert "hello you" in found.out


@pytest.mark.timeout(120)
def test_what_is_set_here_and_not_passed_is_said_once(alone: Project) -> None:
    claude = alone.write("bin/claude", f"#!{sys.executable}\nprint('ok')\n")
    claude.chmod(0o755)
    alone.write("agents.toml", '[agents.claude]\ncommand = ["claude"]\n')
    assert alone.leadhand("trust", "--yes").code == 0
    with alone.up():
        alone.env["ANTHROPIC_API_KEY"] = "sk-ant-secret-of-a-test"
        arguments = ("spawn", "t", "--agent", "claude", "--checker", "true")
        refused = alone.leadhand(*arguments, timeout=60)
        assert refused.code != 0
        assert "not on the PATH of this shell" in refused.err
        alone.env["PATH"] = f"{claude.parent}:{alone.env['PATH']}"
        ended = alone.leadhand(*arguments, timeout=60)
        assert ended.code == 0, ended.err
        assert ended.err.count("ANTHROPIC_API_KEY is set here") == 1
        assert "name it in env of [agents.claude]" in ended.err
        passed = alone.leadhand(*arguments, "--env", "ANTHROPIC_API_KEY", timeout=60)
        assert passed.code == 0, passed.err
        assert "ANTHROPIC_API_KEY" not in passed.err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--env", "1A=x"), "no name of a variable"),
        (("--env", "UNSET_HERE"), "not set here"),
        (("--env-file", "bad.env"), "pass it with --env"),
        (("--env", "A=" + "x" * 40_000), "at most 32768"),
    ],
)
def test_bad_variables_are_refused_before_anything_starts(
    alone: Project, options: tuple[str, ...], why: str
) -> None:
    alone.write("bad.env", "LD_PRELOAD=/evil.so\n")
    ended = alone.leadhand("spawn", "t", "--doer", "true", "--checker", "true", *options)
    assert ended.code == 1, ended
    assert why in " ".join(ended.err.split())
    assert not alone.run
