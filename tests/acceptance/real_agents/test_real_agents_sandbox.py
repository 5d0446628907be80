"""The real codex where its own sandbox starts no command: the step fails and names the sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.outcomes import Outcome
from tests import real_agents
from tests.acceptance.real_agents.test_real_agents import World, agent_step, pytestmark, world
from tests.model_server import Say, Use

__all__ = ["pytestmark", "world"]

#: What bubblewrap 0.8 prints where Codex keeps no helper programs: it cannot start one of them.
#: Codex reads the help first, and uses its own bubblewrap if an option is missing there.
BROKEN_BWRAP = """#!/bin/sh
case "$1" in --help) echo "--perms --as-pid-1 --bind-fd --ro-bind-fd --size"; exit 0 ;; esac
echo "bwrap: execvp codex-linux-sandbox: No such file or directory" >&2
exit 1
"""
#: Codex runs no bubblewrap from a folder that its commands may write to, such as a temporary one.
MAY_BREAK = not real_agents.FOLDER.is_relative_to(tempfile.gettempdir())


@pytest.fixture
def broken_bwrap() -> Iterator[Path]:
    """A folder for the PATH with a bubblewrap that starts nothing."""
    with tempfile.TemporaryDirectory(dir=real_agents.FOLDER) as folder:
        program = Path(folder, "bwrap")
        program.write_text(BROKEN_BWRAP)
        program.chmod(0o755)
        yield program.parent


def outcome_of_a_write(world: World, **env: str) -> Outcome:
    """How a step ends in which Codex writes made.txt, with CODEX_HOME in the temporary folder."""
    world.scripted(
        lambda asked: Say("It is written.") if asked.results else Use("echo x > made.txt")
    )
    world.fleet.worker("one", TMPDIR=str(world.folder), **env)
    session = world.run(agent_step("do", "Write it.", "codex", critical=False))
    assert world.ended(session) == "completed"
    return world.outcome(session, "do")


def assert_sandbox_named(outcome: Outcome) -> None:
    assert outcome.word == "failed"
    assert outcome.reason is not None
    assert outcome.reason.text.startswith("agent 'codex' failed: its sandbox started none of")


@pytest.mark.slow
def test_a_codex_without_a_working_sandbox_does_not_read_succeeded(world) -> None:
    """With CODEX_HOME in the temporary directory, bubblewrap 0.8 on the PATH breaks its sandbox.

    Where the sandbox works nevertheless, the step succeeds, and its work is there.
    """
    outcome = outcome_of_a_write(world)
    if (world.folder / "made.txt").exists():
        assert outcome.word == "succeeded"
    else:
        assert_sandbox_named(outcome)


@pytest.mark.skipif(not MAY_BREAK, reason="the agents are installed in a temporary folder")
@pytest.mark.slow
def test_commands_that_codex_does_not_report_fail_the_step(world, broken_bwrap: Path) -> None:
    path = f"{broken_bwrap}{os.pathsep}{world.fleet.env['PATH']}"
    outcome = outcome_of_a_write(world, PATH=path)
    assert not (world.folder / "made.txt").exists()
    assert_sandbox_named(outcome)
