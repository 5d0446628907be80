"""The gates of a stop, run as real processes in real folders, and their configuration."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from leadhand.cli.guards.config import ConfigUnfit, limits_of, load_config
from leadhand.cli.guards.gates import Gates, HookEnded
from leadhand.cli.guards.hooks import EventUnfit, parse_event
from leadhand.models.guards import GateResult, GuardConfig
from leadhand.settings import ClientSettings
from tests.waiting import wait_until


def gates(
    folder: Path,
    *,
    seconds: float = 30,
    ended: bool = False,
    event: Mapping[str, object] | None = None,
    **config: Any,
) -> tuple[GateResult, ...]:
    until = time.monotonic() + seconds
    env = {**os.environ, "LEADHAND_TOKEN": "secret"}
    made = GuardConfig.model_validate(config)
    return Gates(
        made, folder, env, event=event or {}, until=until, renew=lambda: None,
        is_ended=lambda: ended,
    ).run()  # fmt: skip


def outcomes(results: tuple[GateResult, ...]) -> dict[str, str]:
    return {one.name: one.outcome for one in results}


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    return tmp_path


def test_gates_run_in_order_until_one_fails(tmp_path: Path) -> None:
    results = gates(
        tmp_path,
        gates={
            "test": {"command": "echo t >> ran; exit 1"},
            "lint": {"command": "echo l >> ran"},
            "build": {"command": "echo b >> ran; echo fine"},
        },
    )
    assert outcomes(results) == {"build": "passed", "test": "failed"}
    assert (tmp_path / "ran").read_text() == "b\nt\n"
    assert results[1].output == "exit code 1, without output"
    assert (results[0].limit, results[1].limit) == (5, 3)


def test_progress_bar_leaves_its_last_frame_in_the_guidance(tmp_path: Path) -> None:
    bar = "for n in $(seq 3000); do printf '\\r\\033[32m%5d of 3000\\033[0m' $n; done; echo; exit 1"
    results = gates(tmp_path, gates={"test": {"command": f"echo 1 failed; {bar}"}})
    assert results[-1].output == "1 failed\n 3000 of 3000"


def test_own_gates_come_after_tests_or_in_the_order_of_the_file(tmp_path: Path) -> None:
    lint = {"lint": {"command": "true"}}
    assert list(outcomes(gates(tmp_path, gates=lint))) == [
        "build", "test", "lint", "docs", "pr", "review",
    ]  # fmt: skip
    assert list(outcomes(gates(tmp_path, gates=lint, order=["lint", "build"]))) == [
        "lint", "build",
    ]  # fmt: skip


def test_gate_without_a_command_is_passed_over_and_says_so(tmp_path: Path) -> None:
    results = gates(tmp_path)
    assert set(outcomes(results).values()) == {"skipped"}
    assert "it has no command" in results[0].output
    assert results[2].output == "the folder is not in a git repository"


def test_gate_does_not_get_the_tokens_of_a_body(tmp_path: Path) -> None:
    build = {"command": 'echo "<$LEADHAND_TOKEN>"; exit 1'}
    assert gates(tmp_path, gates={"build": build})[0].output == "<>"


def test_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    build = {"command": "seq 100000; exit 1"}
    output = gates(tmp_path, gates={"build": build})[0].output
    assert output.endswith("99999\n100000")
    assert len(output) <= 12_000


def is_over(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_gate_past_its_timeout_fails_and_its_processes_end(tmp_path: Path) -> None:
    build = {"command": "sleep 60 & echo $! > pid; echo begun; wait", "timeout_s": 1}
    (result,) = gates(tmp_path, gates={"build": build})
    assert result.outcome == "failed"
    assert "begun" in result.output
    assert "took longer than 1 s" in result.output
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: is_over(pid))


def test_gate_past_the_hooks_time_is_unfinished(tmp_path: Path) -> None:
    results = gates(tmp_path, seconds=0.5, gates={"build": {"command": "sleep 60"}})
    assert outcomes(results) == {"build": "unfinished"}


def test_end_of_the_hook_ends_its_gate(tmp_path: Path) -> None:
    with pytest.raises(HookEnded):
        gates(tmp_path, ended=True, gates={"build": {"command": "sleep 60"}})


@pytest.mark.parametrize(
    ("files", "outcome"),
    [
        ([], "passed"),
        (["a.py"], "failed"),
        (["a.py", "docs/a.md"], "passed"),
        (["src/b c.ts"], "failed"),
        (["data.bin"], "passed"),
    ],
)
def test_changed_code_needs_changed_documentation(
    repository: Path, files: list[str], outcome: str
) -> None:
    for name in files:
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("x")
    (result,) = gates(repository, order=["docs"])
    assert (result.outcome, result.blocks, result.limit) == (outcome, False, None)
    if outcome == "failed":
        assert result.output == files[0]


def test_gate_of_documentation_runs_no_program_of_the_repository(
    repository: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    inner = repository / "inner"
    inner.mkdir()
    for folder in (inner, repository):
        git(folder, "init", "-q")
        (folder / ".gitattributes").write_text("* filter=a=b.C\n")
        (folder / "a.py").write_text("x")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "one")
        git(folder, "config", "filter.a=b.C.clean", f"touch {marker}; cat")
        git(folder, "config", "filter.a=b.C.required", "true")
        (folder / "a.py").write_text("y")
    (result,) = gates(repository, order=["docs"])
    assert (result.outcome, result.output) == ("failed", "a.py")
    assert not marker.exists()
    git(repository, "status")
    assert marker.exists(), "the filter works"


def test_staged_documentation_counts(repository: Path) -> None:
    (repository / "a.py").write_text("x")
    (repository / "README.md").write_text("x")
    git(repository, "add", "README.md")
    assert outcomes(gates(repository, order=["docs"])) == {"docs": "passed"}


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            '{"number": 1, "state": "OPEN", "reviewDecision": ""}',
            {"pr": "passed", "review": "passed"},
        ),
        ('{"state": "OPEN", "openComments": 2}', {"pr": "passed", "review": "failed"}),
        (
            '{"state": "OPEN", "reviewDecision": "CHANGES_REQUESTED"}',
            {"pr": "passed", "review": "failed"},
        ),
        ('{"state": "MERGED"}', {"pr": "failed"}),
        ("no pull request", {"pr": "failed"}),
    ],
)
def test_pull_request_is_asked_once_by_gh(
    repository: Path, monkeypatch: pytest.MonkeyPatch, printed: str, expected: dict[str, str]
) -> None:
    tools = repository / "tools"
    tools.mkdir()
    gh = tools / "gh"
    gh.write_text(f"#!/bin/sh\necho asked >> {repository}/asked\necho '{printed}'\n")
    gh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    results = gates(repository, order=["pr", "review"])
    assert outcomes(results) == expected
    assert not any(one.blocks for one in results)
    assert (repository / "asked").read_text() == "asked\n"


def test_missing_gh_means_no_pull_request(repository: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (result,) = gates(repository, order=["pr"])
    assert (result.outcome, result.blocks) == ("failed", False)


def test_projects_file_wins_over_the_users_own(tmp_path: Path) -> None:
    own = tmp_path / "config" / "leadhand" / "leadhand.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[guard]\nglobal_max = 2\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    project = tmp_path / "project"
    project.mkdir()
    assert load_config(project, {}).file is None
    loaded = load_config(project, env)
    assert (loaded.file, loaded.is_own) == (own, True)
    assert limits_of(loaded.config, ClientSettings(), {}).stops == 2
    (project / "leadhand.toml").write_text("[guard]\nglobal_max = 3\n")
    loaded = load_config(project, env)
    assert (loaded.config.global_max, loaded.is_own) == (3, False)
    settings = ClientSettings(guard_global_max=4)
    limits = limits_of(loaded.config, settings, {"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "12"})
    assert (limits.stops, limits.blocks_in_a_row) == (4, 11)
    many = GuardConfig(max_blocks_in_a_row=20)
    assert limits_of(many, settings, {}).blocks_in_a_row == 7  # the agent overrides the ninth


@pytest.mark.parametrize(
    "text", ["[guard", "[guard]\nglobal_max = 0\n", "[guard.gates.build]\ncommandx = 'x'\n"]
)
def test_unfit_file_is_named_with_its_fault(tmp_path: Path, text: str) -> None:
    (tmp_path / "leadhand.toml").write_text(text)
    with pytest.raises(ConfigUnfit, match=r"leadhand\.toml"):
        load_config(tmp_path, {})


def test_events_of_an_agent_end_a_row_of_blocks() -> None:
    def read(name: str, **more: str) -> str | None:
        event = parse_event({"session_id": "s", "hook_event_name": name, **more}, {})
        found = event.as_agent_event()
        return None if found is None else found.event

    assert read("UserPromptSubmit", prompt_id="p") == "prompt"
    assert read("SessionEnd") == "end"
    assert read("Notification", notification_type="idle_prompt") == "idle"
    assert read("Notification", message="Claude is waiting for your input") == "idle"
    assert read("Notification", message="Claude needs your permission") is None
    assert read("Stop") is None
    with pytest.raises(EventUnfit):
        parse_event({}, {})


def test_gate_reads_the_hook_s_input_and_the_agent_s_last_message(tmp_path: Path) -> None:
    event = {"session_id": "s-1", "last_assistant_message": "all \N{SNOWMAN} done"}
    command = 'cat; cat "$LEADHAND_RESULT_FILE"; false'
    (result,) = gates(tmp_path, event=event, gates={"build": {"command": command}})
    assert result.output == f"{json.dumps(event)}all \N{SNOWMAN} done"
    command = "cat; echo ${LEADHAND_RESULT_FILE-none}; false"
    (result,) = gates(tmp_path, gates={"build": {"command": command}})
    assert result.output == "{}none"
