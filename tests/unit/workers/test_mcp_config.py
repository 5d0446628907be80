"""The configuration of the MCP server that an agent gets."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from workers.agents.command import codex_args, config_file


def test_the_file_is_private_and_gone_afterwards(tmp_path) -> None:
    with config_file(tmp_path / "session" / "attempt", wanted=True) as name:
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
        with config_file(tmp_path / "session" / "attempt", wanted=True):
            raise RuntimeError("the agent")

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / "session" / "attempt").iterdir()) == []


def test_codex_gets_toml_that_names_the_variables_and_holds_no_value() -> None:
    given = codex_args(wanted=True)
    assert set(given[::2]) == {"-c"}
    server = tomllib.loads("\n".join(given[1::2]))["mcp_servers"]["leadhand"]
    assert server["command"] == sys.executable
    assert {"LEADHAND_URL", "LEADHAND_TOKEN", "LEADHAND_SESSION", "LEADHAND_PLACE"} <= set(
        server["env_vars"]
    )


def test_an_agent_that_asks_for_neither_gets_neither(tmp_path) -> None:
    with config_file(tmp_path / "s" / "a", wanted=False) as name:
        assert name == ""
    assert not (tmp_path / "s").exists()
    assert codex_args(wanted=False) == ()
