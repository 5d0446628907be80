"""A scripted API, and the command line in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from tests.scripted_api import TOKEN, Script, scripted_api

REFUSED = {"ok": False, "name": "ruff", "verdict": "retry", "feedback": "E501 Line too long"}
HISTORY = {
    "loop": "loop~1", "run": 1, "iteration": 1, "verdict": "retry", "work": "tried",
    "checks": [REFUSED],
}  # fmt: skip
Leadhand = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, that holds what others have called `app` and so on."""
    for name in ("app", "api", "tasks", "workers", "leadhand"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one was imported')\n")
    for name in [name for name in os.environ if name.startswith("LEADHAND_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted_api() as (url, script):
        monkeypatch.setenv("LEADHAND_URL", url)
        monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
        yield script


@pytest.fixture
def leadhand(capsys: pytest.CaptureFixture[str]) -> Leadhand:
    """Run a command in this process: its exit code, standard output and standard error."""

    def leadhand(*arguments: str) -> tuple[int, str, str]:
        code = run(cli, arguments)
        return (code, *capsys.readouterr())

    return leadhand
