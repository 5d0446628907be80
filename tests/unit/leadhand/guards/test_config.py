"""Where a guard's configuration is looked for, and a project's guard that was removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadhand.cli.approvals import approve, is_trusted, lost_guard
from leadhand.cli.guards.config import Loaded, load_config
from leadhand.models.approvals import digest_of

GUARD = "[guard.gates.build]\ncommand = 'make'\n"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    folders = {"HOME": "home", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
    return {name: str(tmp_path / folder) for name, folder in folders.items()}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "src" / "deep").mkdir(parents=True)
    return repository


def approved(folder: Path, env: dict[str, str]) -> Loaded:
    (folder / "leadhand.toml").write_text(GUARD)
    loaded = load_config(folder, env)
    assert loaded.file is not None
    approve({loaded.file: digest_of(loaded.text)}, env)
    assert is_trusted(loaded, env)
    assert lost_guard(loaded, env) is None
    return loaded


def test_subfolder_of_a_repository_has_the_guard_of_its_root(
    repository: Path, env: dict[str, str]
) -> None:
    approved(repository, env)
    loaded = load_config(repository / "src" / "deep", env)
    assert (loaded.file, loaded.folder) == (repository / "leadhand.toml", repository)
    assert is_trusted(loaded, env)
    (repository / "src" / "leadhand.toml").write_text(GUARD)
    nearest = load_config(repository / "src" / "deep", env)
    assert nearest.folder == repository / "src"
    assert not is_trusted(nearest, env)


def test_file_above_the_repository_or_outside_of_one_is_not_used(
    repository: Path, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "leadhand.toml").write_text(GUARD)
    assert load_config(repository / "src", env).file is None
    plain = tmp_path / "plain"
    plain.mkdir()
    assert load_config(plain, env).file is None


def test_file_above_the_home_folder_is_not_used(repository: Path, env: dict[str, str]) -> None:
    (repository / "leadhand.toml").write_text(GUARD)
    env["HOME"] = str(repository / "src")
    assert load_config(repository / "src" / "deep", env).file is None


@pytest.mark.parametrize("text", [None, "", "[other]\n"])
def test_approved_guard_that_was_removed_is_noticed(
    repository: Path, env: dict[str, str], text: str | None
) -> None:
    file = repository / "leadhand.toml"
    approved(repository, env)
    file.unlink() if text is None else file.write_text(text)
    own = Path(env["XDG_CONFIG_HOME"]) / "leadhand" / "leadhand.toml"
    own.parent.mkdir(parents=True)
    own.write_text(GUARD)
    assert lost_guard(load_config(repository, env), env) == file
    assert lost_guard(load_config(repository / "src", env), env) == file


def test_approved_link_that_was_removed_is_noticed(repository: Path, env: dict[str, str]) -> None:
    target = repository / "src" / "guard.toml"
    target.write_text(GUARD)
    file = repository / "leadhand.toml"
    file.symlink_to(target)
    approved(repository, env)
    file.unlink()
    assert lost_guard(load_config(repository, env), env) == file


def test_folder_that_never_had_a_guard_has_lost_none(
    repository: Path, env: dict[str, str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    approved(other, env)
    assert lost_guard(load_config(repository, env), env) is None
