"""The hooks of a guard in an agent's settings, and `leadhand hook install` and `trust`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from leadhand.cli.guards.command import with_guard, without_guard

OTHERS = {
    "model": "x",
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "./notify.sh hook stop"}]}],
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "check"}]}],
    },
}
Leadhand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def leadhand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Leadhand:
    for name, folder in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        return run(cli, arguments), *capsys.readouterr()

    return call


def test_other_hooks_stay_and_an_install_twice_is_one() -> None:
    once = with_guard(OTHERS, "claude", "/a path/leadhand", 330)
    twice = with_guard(once, "claude", "/elsewhere/leadhand", 90)
    assert len(twice["hooks"]["Stop"]) == 2
    assert twice["hooks"]["Stop"][1]["hooks"][0] == {
        "type": "command", "command": "/elsewhere/leadhand hook stop --timeout 90", "timeout": 90,
        "statusMessage": "Leadhand runs the gates of this stop",
    }  # fmt: skip
    assert set(twice["hooks"]) == {
        "Stop", "PreToolUse", "UserPromptSubmit", "Notification", "SessionEnd",
    }  # fmt: skip
    assert without_guard(once) == without_guard(twice) == OTHERS


def test_hooks_for_messages_are_not_those_of_a_guard() -> None:
    command = {"type": "command", "command": "leadhand hook prompt --session 0000000a"}
    settings = {"hooks": {"UserPromptSubmit": [{"hooks": [command]}]}}
    assert without_guard(with_guard(settings, "claude", "leadhand", 60)) == settings


@pytest.mark.parametrize(
    ("agent", "scope", "file"),
    [
        ("claude", "local", ".claude/settings.local.json"),
        ("claude", "project", ".claude/settings.json"),
        ("claude", "user", "home/.claude/settings.json"),
        ("codex", "project", ".codex/hooks.json"),
        ("codex", "user", "home/.codex/hooks.json"),
    ],
)
def test_install_writes_the_settings_and_takes_them_back(
    leadhand: Leadhand, tmp_path: Path, agent: str, scope: str, file: str
) -> None:
    code, out, err = leadhand("hook", "install", agent, "--scope", scope, "--yes")
    assert (code, err) == (0, "")
    assert file in out
    stop = json.loads((tmp_path / file).read_text())["hooks"]["Stop"][0]["hooks"][0]
    assert stop["timeout"] == 110  # docs 20, pr 30, review 30, and 30 to spare
    assert stop["command"].endswith(" hook stop --timeout 110")
    assert leadhand("hook", "install", agent, "--scope", scope, "--remove")[0] == 0
    assert json.loads((tmp_path / file).read_text()) == {}


def test_remove_takes_the_hooks_out_of_the_file_that_a_link_names(
    leadhand: Leadhand, tmp_path: Path
) -> None:
    target = tmp_path / "dotfiles" / "settings.json"
    link = tmp_path / ".claude" / "settings.local.json"
    link.parent.mkdir()
    link.symlink_to(target)
    assert leadhand("hook", "install", "claude", "--yes")[0] == 0
    assert "Stop" in json.loads(target.read_text())["hooks"]
    assert leadhand("hook", "install", "claude", "--remove")[0] == 0
    assert link.is_symlink()
    assert json.loads(target.read_text()) == {}


def test_remove_keeps_an_empty_file_and_makes_none(leadhand: Leadhand, tmp_path: Path) -> None:
    file = tmp_path / ".claude" / "settings.local.json"
    assert leadhand("hook", "install", "claude", "--remove")[0] == 0
    assert not file.parent.exists()
    file.parent.mkdir()
    file.write_text("{}")
    assert leadhand("hook", "install", "claude", "--remove")[0] == 0
    assert json.loads(file.read_text()) == {}


def test_settings_that_are_no_json_are_not_touched(leadhand: Leadhand, tmp_path: Path) -> None:
    file = tmp_path / ".claude" / "settings.local.json"
    file.parent.mkdir()
    file.write_text("{ // mine")
    code, _, err = leadhand("hook", "install", "claude", "--yes")
    assert (code, "is not JSON" in err) == (1, True)
    assert file.read_text() == "{ // mine"


def test_commands_are_shown_and_nothing_is_written_without_a_yes(
    leadhand: Leadhand, tmp_path: Path
) -> None:
    (tmp_path / "leadhand.toml").write_text("[guard.gates.build]\ncommand = 'make all'\n")
    code, out, err = leadhand("hook", "install", "claude", stdin="n\n")
    assert (code, "build: make all" in out) == (1, True)
    assert "not approved" in err
    assert not (tmp_path / ".claude").exists()
    code, out, _ = leadhand("hook", "install", "claude", stdin="y\n")
    assert (code, "approved" in out) == (0, True)
    assert "May agents" not in leadhand("hook", "trust")[1]  # it is approved as it is


def test_trust_needs_a_file_of_the_folder(leadhand: Leadhand) -> None:
    code, _, err = leadhand("hook", "trust", "--yes")
    assert (code, "has no [guard]" in err) == (1, True)


def test_removed_guard_is_forgotten_only_with_a_yes(leadhand: Leadhand, tmp_path: Path) -> None:
    file = tmp_path / "leadhand.toml"
    file.write_text("[guard.gates.build]\ncommand = 'make all'\n")
    assert leadhand("hook", "trust", "--yes")[0] == 0
    file.unlink()
    code, out, err = leadhand("hook", "trust", stdin="n\n")
    assert (code, "has no [guard] any more" in out) == (1, True)
    assert "nothing was changed" in err
    assert leadhand("hook", "install", "claude", stdin="n\n")[0] == 1
    code, out, _ = leadhand("hook", "trust", stdin="y\n")
    assert (code, "agents may stop without it" in out) == (0, True)
    code, _, err = leadhand("hook", "trust", "--yes")
    assert (code, "has no [guard]" in err) == (1, True)
