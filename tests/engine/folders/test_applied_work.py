"""Applied work is checked again where the merged tree is not the one that was accepted."""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from app import folders
from app.core.addresses import SessionRef
from leadhand.models.views.plan import OwnFolderView, RecheckView
from tests.engine.folders.sessions import Sessions
from tests.unit.workers.folders.repositories import git, make_repository
from tests.waiting import wait_until
from workers.git.layout import Shelf

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

#: Two functions that must not both be there: each session adds one.
ALONE = "test $(ls | grep -c '^part') -le 1"
#: Begins what a checker does on merged work only.
IN_MERGE = "case $(pwd) in */.merge)"
#: Takes the lock of the repository, or fails.
TAKES = "import fcntl; fcntl.flock(open({lock!r}), fcntl.LOCK_EX | fcntl.LOCK_NB)"


class Repository:
    """A clean repository, and sessions with worktrees of it."""

    def __init__(self, sessions: Sessions, folder: Path) -> None:
        self.sessions, self.engine = sessions, sessions.engine
        self.folder = make_repository(folder / "repo")
        git(self.folder, "reset", "-q", "--hard")
        git(self.folder, "clean", "-qf")

    def spawn(self, command: str, *checkers: object, **more: object) -> str:
        """Run a session to its end; its work must be accepted."""
        session = self.sessions.submit(
            self.folder,
            **{"worktree": True, "doer": {"command": command}, "checkers": checkers, **more},
        )
        assert self.engine.queries.session(session).status == "completed", session
        return session

    def start(self, session: str, **how: object) -> str:
        return folders.apply(self.engine, session, force=False, **how).session  # type: ignore[arg-type]

    def apply(self, session: str, **how: object) -> OwnFolderView:
        self.sessions.carry_out(self.start(session, **how))
        view = self.engine.queries.session(session).worktree
        assert view is not None
        return view

    def commit(self, name: str) -> str:
        """Commit a file as the user does."""
        (self.folder / name).write_text("mine\n")
        git(self.folder, "add", name)
        git(self.folder, "commit", "-qm", name)
        return self.tip

    @property
    def tip(self) -> str:
        return git(self.folder, "rev-parse", "main")

    @property
    def lock_of_shelf(self) -> Path:
        root = self.engine.settings.worktrees_root
        return Shelf.of(root, self.folder / ".git").folder / "lock"

    @property
    def worktrees(self) -> int:
        return len(git(self.folder, "worktree", "list").splitlines())


def codes(repo: Repository, session: str) -> list[str]:
    """The reasons of a session's end, the root cause last."""
    found, reason = [], repo.engine.queries.result(session).reason
    while reason is not None:
        found.append(reason.code)
        reason = reason.beneath
    return found


@pytest.fixture
def repo(sessions: Sessions, tmp_path: Path) -> Repository:
    return Repository(sessions, tmp_path)


def test_work_that_is_green_alone_and_red_together_is_refused(repo: Repository) -> None:
    one, two = repo.spawn("touch part1", ALONE), repo.spawn("touch part2", ALONE)
    assert repo.apply(one).recheck == RecheckView(state="same")
    before, trees = repo.tip, repo.worktrees
    started = repo.start(two)
    repo.sessions.carry_out(started)
    view = repo.engine.queries.session(two).worktree
    assert view is not None
    assert view.applied is None
    assert "the merged work was not accepted by the checkers" in str(view.refused)
    assert view.recheck is not None
    assert (view.recheck.state, view.recheck.checks) == ("checked", {"test": "retry"})
    assert (repo.tip, repo.worktrees) == (before, trees)
    assert not (repo.folder / "part2").exists()
    assert "recheck_failed" in codes(repo, started)
    applied = repo.apply(two, mode="none")
    assert applied.recheck == RecheckView(
        state="unchecked", why="no checker was to run again (--recheck=none)"
    )
    assert "unchecked: no checker was to run" in str(applied.applied)
    assert (repo.folder / "part2").exists()


def test_merge_that_the_checkers_accept_arrives_with_the_receipt(repo: Repository) -> None:
    session = repo.spawn("touch part1", {"name": "made", "command": f"{IN_MERGE} touch of-checker;"
                                         " esac; test -e part1"})  # fmt: skip
    repo.commit("mine.txt")
    view = repo.apply(session)
    assert view.recheck == RecheckView(state="checked", checks={"made": "accept"})
    assert "was merged into main as" in str(view.applied)
    assert str(view.applied).endswith("; checked again: made accept")
    assert {one.name for one in repo.folder.iterdir()} >= {"part1", "mine.txt"}
    assert not (repo.folder / "of-checker").exists()


def test_commit_of_a_person_in_the_worktree_is_checked_too(repo: Repository) -> None:
    session = repo.spawn("touch part1", ALONE)
    folder = Path(str(repo.engine.queries.session(session).cwd))
    (folder / "part2").touch()
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "by hand")
    before = repo.tip
    view = repo.apply(session)
    assert (view.applied, repo.tip) == (None, before)
    assert view.recheck is not None
    assert view.recheck.checks == {"test": "retry"}


@pytest.mark.parametrize("times", [1, 2])
def test_branch_that_moves_while_checkers_run_is_merged_and_checked_once_more(
    repo: Repository, times: int
) -> None:
    """They run while the lock of the repository is free."""
    lock = f"{repo.lock_of_shelf}"
    moves = f"{IN_MERGE} n=$(ls {repo.folder}/moved* 2>/dev/null | wc -l); test $n -ge {times} ||"
    moves += f" (cd {repo.folder} && touch moved$n && git add -A && git commit -qm moved);; esac"
    free = f"{IN_MERGE} {sys.executable} -c {shlex.quote(TAKES.format(lock=lock))};; esac"
    session = repo.spawn(
        "touch part1", {"name": "moves", "command": moves}, {"name": "free", "command": free}
    )
    repo.commit("mine.txt")
    started = repo.start(session)
    repo.sessions.carry_out(started)
    view = repo.engine.queries.session(session).worktree
    assert view is not None
    assert view.recheck is None or view.recheck.checks == {"moves": "accept", "free": "accept"}
    assert (repo.folder / "part1").exists() == (times == 1)
    if times == 1:
        assert "was merged into main" in str(view.applied)
    else:
        assert "has moved while the work was merged and checked, 2 times" in str(view.refused)
        assert "recheck_failed" in codes(repo, started)
    assert repo.worktrees == 2


def test_uncommitted_changes_are_named_and_in_the_way_only_of_the_same_files(
    repo: Repository,
) -> None:
    ran = repo.folder.parent / "ran"
    session = repo.spawn("echo work > one.txt", f"{IN_MERGE} touch {ran};; esac")
    repo.commit("mine.txt")
    (repo.folder / "one.txt").write_text("mine\n")
    view = repo.apply(session)
    assert "nothing was changed: one.txt would be overwritten" in str(view.refused)
    assert (view.recheck, ran.exists()) == (None, False)
    git(repo.folder, "checkout", "-q", "one.txt")
    (repo.folder / "two.txt").write_text("mine\n")
    (repo.folder / "mine.txt").write_text("staged\n")
    git(repo.folder, "add", "mine.txt")
    (repo.folder / "new.txt").write_text("mine\n")
    view = repo.apply(session)
    assert (repo.folder / "one.txt").read_text() == "work\n"
    assert [(repo.folder / one).read_text() for one in ("two.txt", "mine.txt", "new.txt")] == [
        "mine\n", "staged\n", "mine\n",
    ]  # fmt: skip
    assert str(view.applied).endswith(
        "your uncommitted changes were not checked with it: mine.txt, two.txt, new.txt"
    )


@pytest.mark.parametrize("mode", ["commands", "all"])
def test_agents_are_asked_again_only_on_demand(repo: Repository, mode: str, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    (tmp_path / "agents.toml").write_text(
        f"[agents.critic]\ncommand = ['sh', '-c', 'echo x >> {asked}; echo ACCEPT', '{{prompt}}']\n"
    )
    (repo.folder / "rubric.md").write_text(
        "## Gates\n\n- `test -e part1`\n\n## Criteria\n\n- It is good.\n"
    )
    repo.commit("rubric.md")
    (repo.folder / "rubric.md").write_text(
        "## Gates\n\n- `test -e part1`\n\n## Criteria\n\n- It is good.\n"
    )
    rubric = {"name": "rubric", "rubric": "rubric.md", "agent": "critic"}
    session = repo.spawn("touch part1", "agent(critic): Is it good?", rubric)
    only = repo.spawn("touch part3", "agent(critic): Is it good?")
    repo.commit("mine.txt")
    before = len(asked.read_text().splitlines())
    first, second = repo.apply(session, mode=mode).recheck, repo.apply(only, mode=mode).recheck
    times = len(asked.read_text().splitlines()) - before
    if mode == "all":
        both: dict[str, str | None] = {"critic": "accept", "rubric": "accept"}
        assert first == RecheckView(state="checked", checks=both)
        assert second == RecheckView(state="checked", checks={"critic": "accept"})
        assert times == 3
    else:
        assert first == RecheckView(
            state="checked", checks={"rubric": "accept"}, left_out=["critic"]
        )
        assert second is not None
        assert (second.state, "only agents judged it" in second.why, times) == (
            "unchecked", True, 0,
        )  # fmt: skip


def test_merged_work_gets_the_files_and_the_preparation_of_the_session(repo: Repository) -> None:
    (repo.folder / "ignored").write_text("a key\n")
    (repo.folder / ".gitignore").write_text("ignored\nprepared\n")
    git(repo.folder, "commit", "-qam", "ignore")
    session = repo.spawn(
        "touch part1", "test -e ignored && test -e prepared",
        worktree={"copy": ["ignored"], "prepare": "touch prepared"},
    )  # fmt: skip
    repo.commit("mine.txt")
    assert repo.apply(session).recheck == RecheckView(state="checked", checks={"test": "accept"})


def test_copy_is_brought_back_unchecked(sessions: Sessions, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    session = sessions.submit(folder, worktree=True, doer={"command": "touch new"})
    sessions.carry_out(folders.apply(sessions.engine, session, force=True).session)
    view = sessions.engine.queries.session(session).worktree
    assert view is not None
    assert view.recheck is not None
    assert (view.recheck.state, (folder / "new").exists()) == ("unchecked", True)
    assert "1 written, 0 removed; unchecked: a copy" in str(view.applied)


def test_work_of_a_flow_without_checkers_arrives_unchecked(
    repo: Repository, tmp_path: Path
) -> None:
    (tmp_path / "agents.toml").write_text("[agents.writer]\ncommand = ['touch', 'new']\n")
    message = {"role": "user", "content": ["go"]}
    step = {"type": "llm", "agentType": "writer", "identifier": "one", "messages": [message]}
    flow = {"kind": "flow", "name": "f", "cwd": str(repo.folder), "worktree": True, "steps": [step]}
    view = repo.apply(repo.sessions.submit_document(flow))
    assert view.recheck is not None
    assert (view.recheck.state, view.recheck.why) == ("unchecked", "the session has no checkers")
    assert "unchecked: the session has no checkers" in str(view.applied)
    assert (repo.folder / "new").exists()


#: Makes a repository in each way: with a commit, without one, one within another, and one of which
#: the worktree's own branch gets the commit.
NESTS = """
new() { mkdir -p $1; (cd $1; git init -q; echo $1 > file; echo no > ignored); }
new with; (cd with; git add file; git -c user.name=a -c user.email=a@b commit -qm 1)
new without
new with/within
new linked; (cd linked; git add file; git -c user.name=a -c user.email=a@b commit -qm 1)
git add linked; git -c user.name=a -c user.email=a@b commit -qm link
new hidden; (cd hidden; git add file; git -c user.name=a -c user.email=a@b commit -qm 1)
printf '[submodule "hidden"]\n\tpath = hidden\n\turl = ./hidden\n' > .gitmodules
"""


def test_repository_that_the_doer_makes_arrives_as_files(repo: Repository) -> None:
    names = ["with", "without", "with/within", "linked", "hidden"]
    clean = {"command": "test -e without/file && test -e with/within/file", "clean": True}
    beside = {"name": "made", "command": "test -e without/file; rm with/file"}
    session = repo.spawn(NESTS, beside, clean)
    warnings = repo.engine.queries.session(session).warnings
    assert any("whose files are in the commit without their history: " in one for one in warnings)
    view = repo.apply(session)
    assert "main was fast-forwarded" in str(view.applied)
    assert [(repo.folder / one / "file").read_text() for one in names] == [
        f"{one}\n" for one in names
    ]
    assert "160000" not in git(repo.folder, "ls-files", "--stage")
    assert not [*repo.folder.glob("*/ignored")]


def test_users_folder_with_a_repository_without_a_commit_has_a_digest(
    repo: Repository,
) -> None:
    session = repo.spawn("git init -q nested; touch nested/file part1", ALONE, worktree=False)
    (entry,) = repo.engine.queries.diffs(session, limit=10, cursor=None).items
    assert "part1" in entry.patch
    assert "nested" not in entry.patch


def test_isolated_and_clean_checkers_judge_merged_work_as_they_judge_work(
    repo: Repository,
) -> None:
    """Those of files that a filter converts are as they are in the folder."""
    (repo.folder / ".gitattributes").write_text("low filter=case\n")
    (repo.folder / "low").write_text("hello\n")
    for name, way in (("clean", "a-z A-Z"), ("smudge", "A-Z a-z")):
        git(repo.folder, "config", f"filter.case.{name}", f"tr {way}")
    git(repo.folder, "add", ".gitattributes", "low")
    git(repo.folder, "commit", "-qm", "filtered")
    mutates = {"name": "beside", "command": f"{IN_MERGE} touch beside;; esac"}
    command = "test ! -e beside && test -e part && grep -qx hello low && touch beside"
    alone = [{"name": kind, "command": command, kind: True} for kind in ("isolated", "clean")]
    session = repo.spawn("touch part", mutates, *alone)
    repo.commit("mine")
    view = repo.apply(session)
    assert view.recheck is not None
    accepted = dict.fromkeys(("beside", "isolated", "clean"), "accept")
    assert view.recheck.checks == accepted, view.refused
    assert git(repo.folder, "status", "--porcelain") == ""


def test_apply_in_a_subfolder_that_was_stopped_still_judges_the_merged_work(
    repo: Repository, tmp_path: Path
) -> None:
    """What has changed there meanwhile is no work, and the work is that of the whole merge."""
    armed, once, sessions = tmp_path / "armed", tmp_path / "once", repo.sessions
    stops = f"! test -e {armed} || test -e {once} || {{ touch {once} left; sleep 60; }}"
    clean = {
        "name": "clean",
        "command": "! test -e left -o -e saved && test -e ../sub/part",
        "clean": True,
    }
    session = sessions.submit(
        repo.folder / "sub", worktree=True, doer={"command": "touch part"}, baseline=False,
        checkers=[{"name": "stops", "command": stops}, clean],
    )  # fmt: skip
    repo.commit("mine")
    armed.touch()
    started = repo.start(session)

    def stop() -> None:
        wait_until(once.exists)
        repo.engine.control.apply(started, "stop")

    stopper = threading.Thread(target=stop)
    stopper.start()
    sessions.carry_out(started)
    stopper.join()
    (sessions.folder(started) / "saved").touch()
    state = partial(repo.engine.attempts.folder_state, SessionRef(started, started))
    judged = state().work
    repo.engine.control.apply(started, "resume")
    sessions.carry_out(started)
    view = repo.engine.queries.session(session).worktree
    assert view is not None
    assert view.recheck is not None
    assert view.recheck.checks == {"stops": "accept", "clean": "accept"}, view.refused
    assert (repo.folder / "sub" / "part").exists()
    assert state().work == judged
