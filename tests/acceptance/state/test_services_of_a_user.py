"""All folders of a user share one set of services."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.acceptance.project import BIN, Project
from tests.acceptance.state.user import User
from tests.processes import runs, words
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]
LONG = 60.0
#: What the services of all folders of a user may take, in MB; docs/concepts.md states it.
MOST_MB = 330
WORK = ("--doer", "while ! test -e go; do sleep 0.05; done", "--checker", "true")


def memory_mb(family: list[psutil.Process]) -> float:
    """The memory of the processes, where shared pages count once in all."""
    return sum(process.memory_full_info().pss for process in family) / 1024**2


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_two_folders_and_a_worktree_share_one_set(user: User) -> None:
    one, two = user.project("one"), user.project("two")
    one.write("agents.toml", '[agents.mine]\ncommand = ["cat"]\n')
    git(one.folder, "init", "-q")
    git(one.folder, "add", "-A")
    git(one.folder, "commit", "-q", "-m", "all")
    git(one.folder, "worktree", "add", "-q", str(user.home / "tree"))
    tree = user.project("tree")
    assert one.state == two.state == tree.state
    assert one.state.is_relative_to(user.home / ".local/state/leadhand")
    first = one.detached(*WORK)
    alone = services_of(one)
    others = [project.detached(*WORK) for project in (two, tree)]
    pids = {process.pid for process in alone}
    # A process of a body counts until it has the variables of its step, also in the first list.
    wait_until(lambda: {process.pid for process in services_of(tree)} <= pids)
    assert memory_mb(services_of(tree)) < MOST_MB
    for project in (one, two, tree):
        project.write("go", "")
    for session in (first, *others):
        assert tree.leadhand("wait", session, timeout=LONG).code == 0
    assert not (one.folder / ".leadhand").exists()


def test_an_upgrade_with_sessions_at_work_leaves_them_at_work(user: User) -> None:
    """A newer command meets busy services of an older version: they finish what they have."""
    one = user.project("one")
    session = one.detached(*WORK)
    run = one.run
    (one.state / "run.json").write_text(json.dumps(run | {"version": "0.0.1"}))
    listed = one.leadhand("ls", timeout=LONG)
    assert "`leadhand restart` starts those of" in listed.err
    assert one.run["pid"] == run["pid"]
    restarted = one.leadhand("restart", timeout=LONG)
    assert restarted.code == 0, restarted.err
    assert "1 active session continues" in restarted.err
    assert one.run["pid"] != run["pid"]
    one.write("go", "")
    assert one.leadhand("wait", session, timeout=LONG).code == 0
    [shown] = one.leadhand("ls", "--json").json()["items"]
    assert shown["counters"]["attempts_failed"] == 0


def test_ls_lists_the_folder_and_those_beneath_it(user: User) -> None:
    one, two = user.project("one"), user.project("two")
    below = user.project("one/below")
    link = user.home / "link"
    link.symlink_to(one.folder)
    label = ("--label", "nightly", "--doer", "true", "--checker", "true")
    waits = ("--label", "nightly", *WORK)
    in_one, in_below, in_two = (p.detached(*waits) for p in (one, below, two))
    taken = one.leadhand("spawn", "again", "--detach", *label)
    assert taken.code == 1
    assert in_one in taken.err

    def listed(project: Project, *arguments: str) -> set[str]:
        found = project.leadhand("ls", "--json", *arguments, timeout=LONG).json()["items"]
        return {session["id"] for session in found}

    assert listed(one) == listed(one, "--folder", str(link)) == {in_one, in_below}
    assert listed(below) == {in_below}
    assert listed(two) == {in_two}
    assert listed(two, "--all") == listed(two, "--folder", str(user.home))
    assert listed(two, "--all") == {in_one, in_below, in_two}
    assert "/one/below" in one.leadhand("ls", "--all").out
    user.project("three")
    assert "or beneath it; --all lists" in user.project("three").leadhand("ls").out
    for project, session in ((one, in_one), (below, in_below), (two, in_two)):
        project.write("go", "")
        assert project.leadhand("wait", session, timeout=LONG).code == 0
    # A label is free again with the end of its session.
    assert one.leadhand("spawn", "again", *label, timeout=LONG).code == 0


def services_of(project: Project) -> list[psutil.Process]:
    """The services without the bodies that run."""
    (pid,) = {int(project.run["pid"])}
    head = psutil.Process(pid)
    family = [head, *head.children(recursive=True)]
    return [one for one in family if not _is_of_a_body(one)]


def _is_of_a_body(process: psutil.Process) -> bool:
    """Whether a process belongs to an attempt: a launcher, a doer, or what it started."""
    try:
        return any("LEADHAND_STEP=" in text for text in [f"{k}=" for k in process.environ()])
    except psutil.Error:
        return True


def test_down_ends_the_services_and_the_next_command_goes_on(user: User) -> None:
    one = user.project("one")
    assert one.leadhand("status").code == 2
    assert "no services run" in one.leadhand("down").out
    session = one.detached(*WORK)
    shown = one.leadhand("status", "--json").json()
    assert shown["running"]
    assert shown["folder"] == str(one.state)
    assert shown["linger_s"] == 10
    assert "they end 10 s after the last command" in one.leadhand("status").out
    family = one.tree()
    stays = one.begin("up")
    assert stays.stderr is not None
    assert any("this command keeps them running" in line for line in stays.stderr)
    ended = one.leadhand("down", timeout=LONG)
    assert ended.code == 0, ended.err
    left = one.ended(stays, timeout=LONG)
    assert (left.code, "another command has ended the services" in left.err) == (0, True), left
    assert one.leadhand("status").code == 2
    assert "1 active session continues when the services start again" in ended.err
    wait_until(lambda: not any(map(runs, family)), timeout=30)
    one.write("go", "")
    assert one.leadhand("wait", session, timeout=LONG).code == 0


def test_definitions_of_a_folder_apply_to_its_own_sessions_only(user: User) -> None:
    plain = user.project("plain")
    assert plain.leadhand("ls", timeout=LONG).code == 0
    defining = user.project("defining")
    defining.write("agents.toml", '[agents.mine]\ncommand = ["touch", "made"]\n')
    first = defining.leadhand("spawn", "make it", "--agent", "mine", "--checker", "test -e made")
    assert first.code == 0, first.err
    assert defining.state == plain.state
    assert defining.run == plain.run
    shown = defining.leadhand("status", timeout=LONG)
    assert f"agents, flows and tools: those of {defining.folder}" in shown.out
    refused = plain.leadhand("spawn", "make it", "--agent", "mine", "--checker", "test -e made")
    assert refused.code != 0
    assert "mine" in refused.err


def test_nothing_of_a_clone_starts_or_replaces_an_agent_before_it_is_trusted(user: User) -> None:
    clone = user.project("clone")
    clone.write("agents.toml", '[agents.claude]\ncommand = ["sh", "-c", "echo it > replaced"]\n')
    clone.write("tools.toml", "[mcp.files]\ncommand = \"sh\"\nargs = ['-c', 'touch started']\n")
    git(clone.folder, "init", "-q")
    spawn = ("spawn", "Work", "--agent", "claude", "--checker", "test -f replaced")
    assert clone.leadhand("ls", timeout=LONG).code == 0
    refused = clone.leadhand(*spawn, timeout=LONG)
    assert refused.code == 1
    assert f"`leadhand trust {clone.folder}`" in refused.err
    found = clone.leadhand("tools", timeout=LONG)
    assert f"`leadhand trust {clone.folder}`" in found.out
    asked = clone.leadhand("trust")
    assert (asked.code, "add --yes" in asked.err) == (1, True)
    assert not {"replaced", "started"} & {file.name for file in clone.folder.iterdir()}

    trusted = clone.leadhand("trust", "--yes")
    assert "echo it > replaced" in trusted.out
    wait_until(lambda: (clone.folder / "started").exists(), timeout=LONG)
    assert clone.leadhand(*spawn, timeout=LONG).code == 0
    assert clone.leadhand("trust", "--remove").out.startswith("withdrew ")
    wait_until(lambda: "`leadhand trust" in clone.leadhand("agents").out, timeout=LONG)
    assert clone.leadhand(*spawn, timeout=LONG).code == 1


def test_more_agents_than_cores_work_at_once(user: User) -> None:
    project = user.project("many")
    doer = f"touch at-work; while ! test -e {project.folder}/go; do sleep 0.1; done"
    for number in range(12):  # each in a folder of its own: doers in one folder exclude each other
        (project.folder / str(number)).mkdir()
    sessions = [
        project.detached("--doer", doer, "--checker", "true", "--cwd", str(number))
        for number in range(12)
    ]
    wait_until(lambda: len(list(project.folder.glob("*/at-work"))) == len(sessions), timeout=LONG)
    project.write("go", "")
    assert project.leadhand("wait", *sessions, timeout=LONG).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("word", ["api", "valkey"])
def test_command_says_which_service_is_stopped_and_goes_on_with_it(
    alone: Project, tmp_path: Path, word: str
) -> None:
    assert alone.leadhand("ls", timeout=LONG).code == 0
    stopped = [one for one in alone.tree() if is_service(one, word)]
    assert stopped
    for one in stopped:
        one.suspend()
    out = tmp_path / "out"
    with out.open("w") as file:
        command = alone.start([str(BIN / "leadhand"), "ls"], output=file)
        wait_until(lambda: "stopped" in out.read_text(), timeout=30)
        for one in stopped:
            one.resume()
        assert command.wait(LONG) == 0
    assert f"{'the API' if word == 'api' else 'Redis'} is stopped" in out.read_text()
    assert out.read_text().count("do not respond") == 1


def is_service(process: psutil.Process, word: str) -> bool:
    """Whether it is the API or the Redis server, and not its guard."""
    own = words(process)
    if "process_guard" in str(own):
        return False
    return own[-1:] == [word] or word in Path(next(iter(own), "")).name
