"""The configuration of the MCP server that an agent gets."""

from __future__ import annotations

import json
import logging
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.agents import mcp_config


@pytest.fixture(autouse=True)
def looked_up_again() -> Iterator[None]:
    """What is installed is found out once in a process."""
    mcp_config.is_installed.cache_clear()
    yield
    mcp_config.is_installed.cache_clear()


def test_the_file_is_private_and_gone_afterwards(tmp_path) -> None:
    with mcp_config.config_file(tmp_path / "session" / "attempt", wanted=True) as name:
        path = Path(name)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        server = json.loads(path.read_text())["mcpServers"]["leadhand"]
        assert (server["command"], server["args"]) == (
            sys.executable, ["-P", "-m", "leadhand", "mcp"],
        )  # fmt: skip
        assert "TOKEN" not in path.read_text()
    assert not path.exists()


def test_the_file_is_gone_after_an_error_too(tmp_path) -> None:
    def fail() -> None:
        with mcp_config.config_file(tmp_path / "session" / "attempt", wanted=True):
            raise RuntimeError("the agent")

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / "session" / "attempt").iterdir()) == []


def test_codex_gets_toml_that_names_the_variables_and_holds_no_value() -> None:
    given = mcp_config.codex_args(wanted=True)
    assert set(given[::2]) == {"-c"}
    server = tomllib.loads("\n".join(given[1::2]))["mcp_servers"]["leadhand"]
    assert server["command"] == sys.executable
    assert {"LEADHAND_URL", "LEADHAND_TOKEN", "LEADHAND_SESSION", "LEADHAND_PLACE"} <= set(
        server["env_vars"]
    )


def test_an_agent_that_asks_for_neither_gets_neither(tmp_path) -> None:
    with mcp_config.config_file(tmp_path / "s" / "a", wanted=False) as name:
        assert name == ""
    assert not (tmp_path / "s").exists()
    assert mcp_config.codex_args(wanted=False) == ()


def test_without_the_sdk_agents_run_and_the_log_says_so_once(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    with caplog.at_level(logging.WARNING):
        assert mcp_config.codex_args(wanted=True) == ()
        for _ in range(2):
            with mcp_config.config_file(tmp_path / "s" / "a", wanted=True) as name:
                assert json.loads(Path(name).read_text()) == {"mcpServers": {}}
    assert [one.message for one in caplog.records] == [
        "agents run without Leadhand's MCP tools: leadhand[mcp] is not installed"
    ]
