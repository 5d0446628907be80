"""Where the services of a user keep their state."""

from __future__ import annotations

import os
import socket
import stat
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from leadhand.errors import SettingInvalid
from leadhand.local import file_locks, machine_id, user_state
from leadhand.local.bindings import require_bound
from leadhand.local.credentials import user_agents_files
from leadhand.local.errors import FolderNotBound, StackElsewhere, UserStateUnfit
from leadhand.local.running import require_here
from leadhand.local.user_settings import with_config
from leadhand.local.user_state import bindings_folder, state_folder, worktrees_folder

ONE, OTHER = "1" * 32, "2" * 32


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def no_machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container: its /etc/machine-id is a file that the test may write."""
    file = tmp_path / "machine-id"
    monkeypatch.setattr(machine_id.machine_id, "__kwdefaults__", {"system": file})
    return file


def test_all_folders_of_a_user_have_one(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.add(state_folder(env))
    [home] = found
    assert home.name == "default"
    assert home.parents[1] == tmp_path / "state" / "leadhand"


def test_machines_that_share_a_home_have_one_each(env: dict[str, str], no_machine_id: Path) -> None:
    found = []
    for name in (ONE, OTHER):
        no_machine_id.write_text(name + "\n")
        found.append(state_folder(env))
    assert [home.parent.name for home in found] == [ONE, OTHER]


@pytest.mark.parametrize("content", [None, "", "uninitialized\n"])
def test_a_container_without_an_id_makes_one_and_keeps_it(
    env: dict[str, str], no_machine_id: Path, content: str | None
) -> None:
    if content is not None:
        no_machine_id.write_text(content)
    made = state_folder(env)
    assert state_folder(env) == made
    kept = made.parents[1] / "machine-id"
    assert kept.read_text() == made.parent.name + "\n"
    assert [path.name for path in made.parents[1].iterdir()] == ["machine-id"]


def test_processes_that_make_the_id_at_once_agree(tmp_path: Path) -> None:
    found: list[str] = []
    together = threading.Barrier(8)

    def make() -> None:
        together.wait()
        found.append(machine_id._make(tmp_path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_each_redis_has_one_whatever_its_password(env: dict[str, str]) -> None:
    urls = ("", "redis://:a@host:6379/0", "redis://:b@host:6379/0", "redis://host:6379/1")
    names = [state_folder(env | {"LEADHAND_REDIS_URL": url}).name for url in urls]
    assert names[0] == "default"
    assert names[1] == names[2]
    assert len(set(names)) == 3


def test_leadhand_home_is_the_state_folder_itself(env: dict[str, str], tmp_path: Path) -> None:
    named = str(tmp_path / "mine")
    assert state_folder(env | {"LEADHAND_HOME": named}) == Path(named)


def test_the_folder_of_an_earlier_leadhand_home_is_named(
    env: dict[str, str], tmp_path: Path
) -> None:
    """LEADHAND_HOME named the folder that has `.leadhand`; that one is not changed."""
    (tmp_path / "work/.leadhand").mkdir(parents=True)
    mode = (tmp_path / "work").stat().st_mode
    with pytest.raises(FolderNotBound, match=r"itself, which is '.*/work/\.leadhand'"):
        require_bound(tmp_path / "work", env)
    assert (tmp_path / "work").stat().st_mode == mode


def test_without_a_home_the_sentence_names_leadhand_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UserStateUnfit, match="LEADHAND_HOME"):
        state_folder({})
    env = {"LEADHAND_HOME": str(tmp_path / "mine"), "PATH": os.environ["PATH"]}
    check_all_is_in(tmp_path / "mine", env)
    assert with_config(env) == env
    assert user_agents_files(env) == ()


def test_a_home_that_became_read_only_is_named(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plays a disk that was mounted again read-only; root may write everywhere else."""
    bindings_folder(env)
    monkeypatch.setattr(os, "access", lambda path, _mode: not str(path).startswith(str(tmp_path)))
    with pytest.raises(UserStateUnfit, match=r"read-only.*LEADHAND_HOME"):
        bindings_folder(env)


def test_a_misspelt_setting_is_named_without_its_value(tmp_path: Path) -> None:
    (tmp_path / "leadhand").mkdir()
    (tmp_path / "leadhand" / "config.toml").write_text('secrets = "hunter22"\n')
    with pytest.raises(SettingInvalid) as refused:
        with_config({"XDG_CONFIG_HOME": str(tmp_path)})
    assert "did you mean 'secret'?" in str(refused.value)
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "kernel", "is_here"),
    [("me", "k/1", True), ("other", "k/1", True), ("me", "", True), ("other", "k/2", False)],
)
def test_services_are_here_if_the_kernel_is_the_same_whatever_the_host_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, kernel: str, is_here: bool
) -> None:
    monkeypatch.setattr("leadhand.local.running.kernel_id", lambda: "k/1")
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    run = {"host": host, "kernel": kernel}
    with nullcontext() if is_here else pytest.raises(StackElsewhere):
        require_here(tmp_path, run)


def test_a_home_that_cannot_be_written_is_replaced_by_leadhand_home(tmp_path: Path) -> None:
    env = {"HOME": "/proc", "PATH": os.environ["PATH"]}
    with pytest.raises(UserStateUnfit, match="LEADHAND_HOME"):
        bindings_folder(env)
    check_all_is_in(tmp_path / "mine", env | {"LEADHAND_HOME": str(tmp_path / "mine")})


def test_a_home_without_file_locks_is_replaced_by_leadhand_home(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plays a network file system that refuses locks; none can be mounted in a test."""
    support = file_locks.require_support

    def refuse(folder: Path) -> None:
        if folder.is_relative_to(tmp_path / "state"):
            raise OSError(37, "No locks available")
        support(folder)

    monkeypatch.setattr(file_locks, "require_support", refuse)
    with pytest.raises(UserStateUnfit, match=r"no locks.*LEADHAND_HOME"):
        bindings_folder(env)
    check_all_is_in(tmp_path / "mine", env | {"LEADHAND_HOME": str(tmp_path / "mine")})


def check_all_is_in(named: Path, env: dict[str, str]) -> None:
    """The state folder can be bound, and all that belongs to the user is in it."""
    home = state_folder(env)
    assert home == named
    binding = require_bound(home, env)
    assert require_bound(home, env) == binding
    user = named / user_state.FALLBACK
    assert bindings_folder(env) == user / "folders"
    assert worktrees_folder(env) == user / "worktrees"
    assert stat.S_IMODE(user.stat().st_mode) == 0o700
