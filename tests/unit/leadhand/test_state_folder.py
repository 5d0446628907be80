"""Where the services of a user keep their state."""

from __future__ import annotations

import os
import socket
import stat
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from leadhand.cli.doctor import findings
from leadhand.errors import SettingInvalid
from leadhand.local import processes, user_state
from leadhand.local.credentials import user_agents_files
from leadhand.local.environment import with_config
from leadhand.local.errors import FolderUnfit, StackElsewhere, UserStateUnfit
from leadhand.local.services import require_here
from leadhand.local.user_state import hooks_folder, state_folder, worktrees_folder

ONE, OTHER = "1" * 32, "2" * 32


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def no_machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A container: its /etc/machine-id is a file that the test may write."""
    file = tmp_path / "machine-id"
    monkeypatch.setattr(user_state.machine_id, "__kwdefaults__", {"system": file})
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
        found.append(user_state._make_machine_id(tmp_path))

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


@pytest.mark.parametrize("deep", ["", "a/b"])
def test_a_named_folder_in_a_git_work_tree_is_refused(
    env: dict[str, str], tmp_path: Path, deep: str
) -> None:
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    with pytest.raises(FolderUnfit, match=r"in the git work tree '.*/clone'"):
        state_folder(env | {"LEADHAND_HOME": str(tmp_path / "clone" / deep / "state")})


def test_the_users_own_folder_may_be_in_a_repository_of_settings(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    assert state_folder(env).is_relative_to(tmp_path)


def test_a_folder_with_files_that_others_may_open_is_refused_until_its_user_closes_it(
    tmp_path: Path,
) -> None:
    home = tmp_path / "state"
    home.mkdir(mode=0o755)
    user_state.prepare(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700, "an empty one is closed"
    home.chmod(0o750)
    with pytest.raises(FolderUnfit, match=r"mode 750.*chmod 700"):
        user_state.prepare(home)
    home.chmod(0o700)
    assert user_state.prepare(home) == home


def test_secrets_are_made_once_and_are_their_owners_only(tmp_path: Path) -> None:
    home = user_state.prepare(tmp_path / "state")
    made = user_state.read_secrets(home)
    assert user_state.read_secrets(home) == made
    assert len({*made}) == 2
    assert stat.S_IMODE((home / "secrets.json").stat().st_mode) == 0o600


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
    hooks_folder(env)
    monkeypatch.setattr(os, "access", lambda path, _mode: not str(path).startswith(str(tmp_path)))
    with pytest.raises(UserStateUnfit, match=r"read-only.*LEADHAND_HOME"):
        hooks_folder(env)


def test_a_misspelt_setting_is_named_without_its_value(tmp_path: Path) -> None:
    (tmp_path / "leadhand").mkdir()
    (tmp_path / "leadhand" / "config.toml").write_text('secrets = "hunter22"\n')
    with pytest.raises(SettingInvalid) as refused:
        with_config({"XDG_CONFIG_HOME": str(tmp_path)})
    assert "did you mean 'secret'?" in str(refused.value)
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('lease_s = "soon"', "LEADHAND_LEASE_S is 'soon': give a number from 0.5 to 3600"),
        ('roots = "/work"', "there is no such setting"),
    ],
)
def test_doctor_names_a_setting_of_the_services_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, why: str
) -> None:
    (tmp_path / "leadhand").mkdir()
    (tmp_path / "leadhand" / "config.toml").write_text(f"{line}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = list(findings())[-1]
    assert (found.level, found.subject) == ("fail", "environment")
    assert why in found.text


@pytest.mark.parametrize(
    ("host", "kernel", "is_here"),
    [("me", "k/1", True), ("other", "k/1", True), ("me", "", True), ("other", "k/2", False)],
)
def test_services_are_here_if_the_kernel_is_the_same_whatever_the_host_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, kernel: str, is_here: bool
) -> None:
    monkeypatch.setattr("leadhand.local.services.kernel_id", lambda: "k/1")
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    run = {"host": host, "kernel": kernel}
    with nullcontext() if is_here else pytest.raises(StackElsewhere):
        require_here(tmp_path, run)


def test_a_home_that_cannot_be_written_is_replaced_by_leadhand_home(tmp_path: Path) -> None:
    env = {"HOME": "/proc", "PATH": os.environ["PATH"]}
    with pytest.raises(UserStateUnfit, match="LEADHAND_HOME"):
        hooks_folder(env)
    check_all_is_in(tmp_path / "mine", env | {"LEADHAND_HOME": str(tmp_path / "mine")})


def test_a_home_without_file_locks_is_replaced_by_leadhand_home(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plays a network file system that refuses locks; none can be mounted in a test."""
    support = processes.require_support

    def refuse(folder: Path) -> None:
        if folder.is_relative_to(tmp_path / "state"):
            raise OSError(37, "No locks available")
        support(folder)

    monkeypatch.setattr(processes, "require_support", refuse)
    with pytest.raises(UserStateUnfit, match=r"no locks.*LEADHAND_HOME"):
        hooks_folder(env)
    check_all_is_in(tmp_path / "mine", env | {"LEADHAND_HOME": str(tmp_path / "mine")})


def check_all_is_in(named: Path, env: dict[str, str]) -> None:
    """The state folder can be used, and all that belongs to the user is in it."""
    assert state_folder(env) == named
    user_state.prepare(named)
    user = named / user_state.FALLBACK
    assert hooks_folder(env) == user / "hooks"
    assert worktrees_folder(env) == user / "worktrees"
    assert stat.S_IMODE(user.stat().st_mode) == 0o700
