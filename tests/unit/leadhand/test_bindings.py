"""A state folder is opened by the user who made it, where it was made, and nowhere else."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from leadhand.local import bindings
from leadhand.local.bindings import begin_import, finish_import, require_bound
from leadhand.local.errors import FolderNotBound, FolderUnfit, UserStateUnfit
from leadhand.models.git_tracking import is_tracked

Env = dict[str, str]


@pytest.fixture
def env(tmp_path: Path) -> Env:
    return {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(tmp_path / "state")}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_a_new_folder_is_bound_once_and_keeps_its_secrets(home: Path, env: Env) -> None:
    first = require_bound(home, env)
    assert require_bound(home, env) == first
    assert first.secret != first.api_token


def test_secrets_are_outside_the_folder_and_closed_to_others(
    home: Path, env: Env, tmp_path: Path
) -> None:
    binding = require_bound(home, env)
    held = "".join(path.read_text() for path in home.rglob("*") if path.is_file())
    assert binding.secret not in held
    [record] = (tmp_path / "state/leadhand/folders").glob("*.json")
    assert (mode(record), mode(record.parent), mode(record.parent.parent)) == (0o600, 0o700, 0o700)


def test_ten_commands_at_once_bind_a_folder_once(home: Path, env: Env) -> None:
    script = (
        "import os, pathlib, sys; from leadhand.local.bindings import require_bound; "
        "print(require_bound(pathlib.Path(sys.argv[1]), os.environ).secret)"
    )
    begun = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", script, str(home)],
            env={**os.environ, **env}, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(10)
    ]  # fmt: skip
    assert len({one.communicate()[0] for one in begun}) == 1


def test_a_copy_is_refused_and_names_the_original(home: Path, env: Env, tmp_path: Path) -> None:
    require_bound(home, env)
    (home / "redis").mkdir()
    shutil.copytree(home, tmp_path / "copy")
    with pytest.raises(FolderNotBound, match=f"a copy of '{home}'"):
        require_bound(tmp_path / "copy", env)


def test_a_copy_in_the_place_of_the_original_is_refused(home: Path, env: Env) -> None:
    require_bound(home, env)
    (home / "redis").mkdir()
    home.rename(home.with_name("original"))
    shutil.copytree(home.with_name("original"), home)
    with pytest.raises(FolderNotBound, match="restored in its place"):
        require_bound(home, env)


def test_a_moved_folder_is_recognised(home: Path, env: Env) -> None:
    binding = require_bound(home, env)
    moved = home.rename(home.with_name("moved"))
    assert require_bound(moved, env).secret == binding.secret
    assert require_bound(moved, env).home == str(moved)


def test_a_folder_whose_device_got_another_number_is_recognised(home: Path, env: Env) -> None:
    binding = require_bound(home, env)
    records = Path(env["XDG_STATE_HOME"]) / "leadhand/folders"
    other = binding.model_copy(update={"device": binding.device + 1})
    [record] = records.glob("*.json")
    record.write_text(other.model_dump_json())
    assert require_bound(home, env) == binding


def test_another_user_is_refused(home: Path, env: Env, tmp_path: Path) -> None:
    require_bound(home, env)
    (home / "redis").mkdir()
    with pytest.raises(FolderNotBound, match="not created by this user on this machine"):
        require_bound(home, {**env, "XDG_STATE_HOME": str(tmp_path / "other")})


def test_a_folder_of_an_earlier_version_is_refused_until_it_is_imported(
    home: Path, env: Env
) -> None:
    home.mkdir()
    (home / "secrets.json").write_text('{"secret": "old", "api_token": "known to all"}')
    with pytest.raises(FolderNotBound, match=r"earlier version.*`leadhand import`"):
        require_bound(home, env)
    assert begin_import(home, env).importing
    with pytest.raises(FolderNotBound, match="run `leadhand import` again"):
        require_bound(home, env)
    finish_import(home, env)
    binding = require_bound(home, env)
    assert (binding.secret, binding.importing) == ("old", False)
    assert binding.api_token != "known to all"
    assert not (home / "secrets.json").exists()


def test_a_copy_that_is_imported_keeps_the_secret_of_its_sessions(
    home: Path, env: Env, tmp_path: Path
) -> None:
    binding = require_bound(home, env)
    shutil.copytree(home, tmp_path / "copy")
    imported = begin_import(tmp_path / "copy", env)
    assert imported.secret == binding.secret
    assert require_bound(home, env) == binding


@pytest.mark.parametrize("name", ["log", "redis", "log/redis.log", "redis/appendonlydir"])
def test_a_folder_that_holds_links_is_not_imported(home: Path, env: Env, name: str) -> None:
    (home / name).parent.mkdir(parents=True)
    (home / name).symlink_to(home.parent)
    with pytest.raises(FolderNotBound, match="symbolic link"):
        begin_import(home, env)
    with pytest.raises(FolderNotBound):
        require_bound(home, env)


def test_an_import_forgets_the_program_that_the_folder_names(home: Path, env: Env) -> None:
    (home / "redis").mkdir(parents=True)
    (home / "redis/server.json").write_text('{"path": "/tmp/theirs"}')
    assert begin_import(home, env).importing
    assert not (home / "redis/server.json").exists()


def test_a_binding_that_was_killed_half_way_begins_again(home: Path, env: Env) -> None:
    home.mkdir()
    (home / "id").write_text("")
    (home / "id.123").write_text("half")
    assert require_bound(home, env).secret


@pytest.mark.parametrize("content", ["", "../../x", "0" * 31, "A" * 32, "0" * 32 + "\n/x"])
def test_an_id_that_is_none_binds_nothing(home: Path, env: Env, content: str) -> None:
    home.mkdir()
    (home / "id").write_text(content)
    (home / "redis").mkdir()
    with pytest.raises(FolderNotBound):
        require_bound(home, env)


def test_a_link_is_refused_and_its_target_left_alone(home: Path, env: Env, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o755)
    before = mode(tmp_path / "target")
    home.symlink_to(tmp_path / "target")
    with pytest.raises(FolderUnfit, match="symbolic link"):
        require_bound(home, env)
    assert (mode(tmp_path / "target"), list((tmp_path / "target").iterdir())) == (before, [])


def test_what_git_tracks_is_refused_in_a_bound_folder_too(home: Path, env: Env) -> None:
    require_bound(home, env)
    git(home.parent, "init", "-q")
    assert not require_bound(home, env).importing
    git(home.parent, "add", "-f", ".leadhand")
    with pytest.raises(FolderNotBound, match="git rm -r --cached"):
        require_bound(home, env)


def test_asking_git_runs_nothing_that_the_repository_configures(
    home: Path, env: Env, tmp_path: Path
) -> None:
    git(home.parent, "init", "-q")
    ran = tmp_path / "ran"
    hook = home.parent / "monitor"
    hook.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
    hook.chmod(0o755)
    home.mkdir()
    (home / "state").write_text("x")
    git(home.parent, "add", "-f", ".leadhand")
    git(home.parent, "config", "core.fsmonitor", str(hook))
    git(home.parent, "config", "core.pager", str(hook))
    assert is_tracked(home, {**env, "GIT_DIR": str(tmp_path / "nowhere")})
    assert not ran.exists()


def test_a_user_without_a_writable_home_is_told_the_setting(home: Path, env: Env) -> None:
    with pytest.raises(UserStateUnfit, match="LEADHAND_HOME"):
        require_bound(home, {"PATH": env["PATH"], "HOME": "/proc"})
    assert not home.exists()


def test_a_linked_folder_of_bindings_is_refused(home: Path, env: Env, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state/leadhand").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserStateUnfit, match="symbolic link"):
        require_bound(home, env)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(home: Path, env: Env) -> None:
    require_bound(home, env)
    os.chown(home, 65534, 65534)
    with pytest.raises(FolderUnfit, match="belongs to user 65534"):
        require_bound(home, env)


def test_a_folder_that_is_found_bound_meanwhile_is_not_bound_again(home: Path, env: Env) -> None:
    binding = require_bound(home, env)
    records = Path(env["XDG_STATE_HOME"]) / "leadhand/folders"
    assert bindings._bind_new(home, records) == binding
