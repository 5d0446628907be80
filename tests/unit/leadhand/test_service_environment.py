"""The environment of the embedded services: what is set, and what is not inherited."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from leadhand.local.environment import Stack, service_environment
from leadhand.local.processes import ROOT, only_ours, python_module, service_command

STACK = Stack(
    home=Path("/work/.leadhand"),
    redis_url="redis://:p@127.0.0.1:7000/0",
    broker_url="redis://:p@127.0.0.1:7000/1",
    secret="s",
    api_token="t",
    api_port=8000,
    supervisor_pid=42,
    agents_files=(Path("/work/agents.toml"), Path("/home/me/agents.toml")),
)


def test_stack_is_told_whole():
    told = service_environment(STACK, {"HOME": "/home/me"})
    assert told == {
        "HOME": "/home/me",
        "LEADHAND_CONCURRENCY": "16",
        "LEADHAND_IDLE_PROCESSES": "4",
        "LEADHAND_WORKTREES": "/home/me/.local/state/leadhand/worktrees",
        "LEADHAND_REDIS_URL": "redis://:p@127.0.0.1:7000/0",
        "LEADHAND_BROKER_URL": "redis://:p@127.0.0.1:7000/1",
        "LEADHAND_SECRET": "s",
        "LEADHAND_API_TOKEN": "t",
        "LEADHAND_API_BIND": "127.0.0.1:8000",
        "LEADHAND_API_URL": "http://127.0.0.1:8000",
        "LEADHAND_PLACE": "local",
        "LEADHAND_STATE_DIR": "/work/.leadhand",
        "LEADHAND_SPILL": "/work/.leadhand/spill",
        "LEADHAND_ARTIFACTS": "/work/.leadhand/artifacts",
        "LEADHAND_AGENTS": os.pathsep.join(["/work/agents.toml", "/home/me/agents.toml"]),
        "LEADHAND_FOLDER_DEFINITIONS": "agents,flows,tools",
        "LEADHAND_APPROVALS": "/home/me/.local/state/leadhand/hooks/trusted.json",
        "LEADHAND_WORKER_NAME": "embedded-42",
        "LEADHAND_SUPERVISOR_PID": "42",
    }


def test_what_the_user_names_replaces_what_folders_define(tmp_path: Path) -> None:
    base = {"XDG_STATE_HOME": str(tmp_path)}
    env = service_environment(STACK, base)
    assert env["LEADHAND_FOLDER_DEFINITIONS"] == "agents,flows,tools"
    assert env["LEADHAND_APPROVALS"] == str(tmp_path / "leadhand" / "hooks" / "trusted.json")
    named = service_environment(STACK, {**base, "LEADHAND_AGENTS": "/work/agents.toml"})
    assert named["LEADHAND_FOLDER_DEFINITIONS"] == "flows,tools"


def test_a_stack_says_when_its_redis_is_its_own_and_nobody_else_can():
    assert service_environment(STACK._replace(own_redis=True), {})["LEADHAND_OWN_REDIS"] == "1"
    assert "LEADHAND_OWN_REDIS" not in service_environment(STACK, {"LEADHAND_OWN_REDIS": "1"})


def test_settings_of_the_user_are_kept():
    given = {"LEADHAND_PLACE": "here", "LEADHAND_LEASE_S": "5", "PATH": "/bin"}
    assert given.items() <= service_environment(STACK, given).items()


def test_settings_of_another_stack_or_program_are_not():
    foreign = {"LEADHAND_URL": "u", "LEADHAND_SESSION": "s", "CELERY_BROKER_URL": "b"}
    assert not foreign.keys() & service_environment(STACK, foreign).keys()


def test_path_for_imports_of_the_user_is_ignored_but_left_to_his_commands():
    env = {"PYTHONPATH": "/somewhere"}
    assert python_module("api", env) == (sys.executable, "-P", "-E", "-m", "api")
    assert only_ours(env) == env


def test_path_for_imports_that_leads_to_this_package_is_cut_down_to_it():
    env = {"PYTHONPATH": os.pathsep.join(["/somewhere", str(ROOT)])}
    assert python_module("api", env) == (sys.executable, "-P", "-m", "api")
    assert only_ours(env) == {"PYTHONPATH": str(ROOT)}


def test_service_command_runs_the_one_entry():
    command = (sys.executable, "-P", "-E", "-m", "leadhand.serve", "worker")
    assert service_command("worker", {}) == command
