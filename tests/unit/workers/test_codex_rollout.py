"""A Codex that prints no command leaves in its rollout file why its sandbox started none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.workers.test_hearing import CODEX, Heard, lines, message, turn

THREAD = "01a20437-c900-7671-b0e1-b89580331d7c"
STARTED = {"type": "thread.started", "thread_id": THREAD}
#: What Codex 0.169 prints of such a turn: none of its commands.
SILENT = lines(STARTED, message("It is written."), turn(10, 1))
TURN = {"type": "event_msg", "payload": {"type": "task_started"}}
BWRAP = "bwrap: execvp codex-linux-sandbox: No such file or directory\n"


def ran(output: object, name: str = "exec_command") -> list[object]:
    """The two lines of a rollout file that one call of a tool leaves."""
    call = {"type": "function_call", "name": name, "call_id": f"call {output}", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": f"call {output}", "output": output}
    return [{"type": "response_item", "payload": one} for one in (call, result)]


def by_exec(text: str, code: int = 1) -> str:
    return (
        f"Chunk ID: 1\nWall time: 0.0000 seconds\nProcess exited with code {code}\nOutput:\n{text}"
    )


def rollout(home: Path, *items: object, day: str = "2026/11/22") -> Path:
    folder = home / "sessions" / day
    folder.mkdir(parents=True)
    path = folder / f"rollout-2026-11-22T17-04-54-{THREAD}.jsonl"
    path.write_text(lines(*items))
    return path


@pytest.mark.parametrize(
    "output",
    [
        by_exec(BWRAP),
        BWRAP,
        json.dumps({"output": BWRAP, "metadata": {"exit_code": 1}}),
        [{"type": "text", "text": by_exec(BWRAP)}],
    ],
)
def test_unreported_commands_that_the_sandbox_did_not_start_fail_the_turn(
    tmp_path: Path, output: object
) -> None:
    rollout(tmp_path, TURN, *ran(output), *ran("Plan updated", "update_plan"))
    heard = Heard(CODEX, SILENT, tmp_path, codex_home=tmp_path)
    assert "its sandbox started none of its commands (bwrap: execvp codex-linux" in heard.error
    assert heard.final


@pytest.mark.parametrize(
    "items",
    [
        [TURN],
        [TURN, *ran(by_exec("/bin/bash: line 1: /etc/x: Read-only file system\n"))],
        [TURN, *ran(by_exec(BWRAP)), *ran(by_exec("one line\n", code=0))],
        [TURN, *ran(by_exec("see\nbwrap: in its second line\n"))],
        [TURN, *ran(by_exec(BWRAP)), TURN],
        [{}, [], None, "text", {"payload": []}, TURN],
    ],
    ids=["no call", "started and denied", "one worked", "not first", "an earlier turn", "odd"],
)
def test_turn_is_believed_unless_all_of_its_commands_were_not_started(
    tmp_path: Path, items: list[object]
) -> None:
    rollout(tmp_path, *items)
    assert Heard(CODEX, SILENT, tmp_path, codex_home=tmp_path).answer == "It is written."


def test_a_thread_of_an_earlier_day_is_found(tmp_path: Path) -> None:
    (tmp_path / "sessions" / "2026" / "12" / "01").mkdir(parents=True)
    rollout(tmp_path, TURN, *ran(by_exec(BWRAP)), day="2025/01/31")
    assert "its sandbox" in Heard(CODEX, SILENT, tmp_path, codex_home=tmp_path).error


def test_a_file_that_cannot_be_read_leaves_the_turn_as_it_is(tmp_path: Path) -> None:
    path = rollout(tmp_path, TURN, *ran(by_exec(BWRAP)))
    other = path.rename(tmp_path / "other")
    assert Heard(CODEX, SILENT, tmp_path, codex_home=tmp_path).error == ""
    path.symlink_to(other)
    assert Heard(CODEX, SILENT, tmp_path, codex_home=tmp_path).error == ""
    path.unlink()
    os.mkfifo(path)  # no writer: to open it as a file is would wait for ever
    assert Heard(CODEX, SILENT, tmp_path, codex_home=tmp_path).error == ""
    assert Heard(CODEX, SILENT, tmp_path, codex_home=tmp_path / "none").error == ""
    odd = SILENT.replace(THREAD, "../*")
    assert Heard(CODEX, odd, tmp_path, codex_home=tmp_path).error == ""
