"""`leadhand agents try`: one agent is asked here, by the code that a worker uses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.project import BIN

AGENTS = f"""
[agents.echo]
command = [{sys.executable!r}, "-c", "import sys; print(repr(sys.stdin.read()))"]
[agents.broken]
command = ["sh", "-c", "echo no luck >&2; exit 7"]
[agents.keyless]
callable = "mine:speak"
needs_env = ["A_KEY_THAT_NOBODY_SET"]
"""


@pytest.fixture
def tried(tmp_path: Path):
    (tmp_path / "agents.toml").write_text(AGENTS)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "leadhand"), "agents", "try", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=25)

    return run


def test_it_answers(tried) -> None:
    ended = tried("echo", "--prompt", "Hello?", "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["word"], told["text"]) == ("succeeded", repr("Hello?\n"))


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["broken"], 3, "agent 'broken' exited with code 7: no luck"),
        (["keyless"], 1, "agent 'keyless' cannot be used here: the variable A_KEY_THAT_NOBODY_SET"),
        (["nobody"], 1, "agent 'nobody' is not known here; add it to agents.toml, or use 'broken'"),
        (["echo", "--model", "large"], 3, "cannot be given model 'large'; write model_args"),
    ],
)
def test_what_is_wrong_is_told(tried, arguments, code, says) -> None:
    ended = tried(*arguments)
    assert says in ended.stdout + ended.stderr
    assert ended.returncode == code
