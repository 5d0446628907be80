"""Which folder's definitions apply to a working folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadhand.local.user_state import defining_folder, state_folder
from leadhand.models.folder_settings import folder_with_definitions


def _write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


@pytest.mark.parametrize("name", ["agents.toml", "tools.toml", "flows/one.json", "tools/one.py"])
def test_a_folder_with_definitions_is_found(tmp_path: Path, name: str) -> None:
    _write(tmp_path / name)
    assert folder_with_definitions(tmp_path, None) == tmp_path


@pytest.mark.parametrize("name", ["flows/README.md", "tools/build.sh", "flows.json", "notes.toml"])
def test_other_files_define_nothing(tmp_path: Path, name: str) -> None:
    _write(tmp_path / name)
    assert folder_with_definitions(tmp_path, None) is None


def test_the_search_ends_at_the_root_of_the_repository(tmp_path: Path) -> None:
    _write(tmp_path / "agents.toml")
    beneath = tmp_path / "repository" / "a" / "b"
    beneath.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    assert folder_with_definitions(beneath, None) is None
    _write(tmp_path / "repository" / "agents.toml")
    assert folder_with_definitions(beneath, None) == tmp_path / "repository"
    _write(tmp_path / "repository" / "a" / "tools.toml")
    assert folder_with_definitions(beneath, None) == tmp_path / "repository" / "a"


def test_without_a_repository_only_the_folder_itself_counts(tmp_path: Path) -> None:
    _write(tmp_path / "agents.toml")
    (tmp_path / "a").mkdir()
    assert folder_with_definitions(tmp_path / "a", None) is None


def test_the_home_folder_defines_nothing(tmp_path: Path) -> None:
    _write(tmp_path / "agents.toml")
    (tmp_path / ".git").mkdir()
    (tmp_path / "a").mkdir()
    assert folder_with_definitions(tmp_path, tmp_path) is None
    assert folder_with_definitions(tmp_path / "a", tmp_path) is None


def test_all_folders_share_the_state_folder_of_their_user(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    _write(tmp_path / "defining" / "agents.toml")
    assert state_folder(env).name == "default"
    assert defining_folder(tmp_path / "defining", env) == tmp_path / "defining"
    assert defining_folder(tmp_path / "plain", env) is None
