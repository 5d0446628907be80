"""Merging branches of tasks on real repositories: conflicts, resolutions, kills and repeats."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from app.core.folders import MERGE_FOLDER, Merge, branch_of, plan_branch
from tests.unit.workers.folders.repositories import git, make_repository, user_state
from workers.git import merging
from workers.git.git import Git, WorkspaceRefused
from workers.git.layout import Shelf
from workers.git.merging import Landed, Rebased

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
PLAN = "5e551045"


class Killed(BaseException):
    """The worker died here."""


class Case:
    """A repository with the branch of a plan, and branches of tasks."""

    def __init__(self, folder: Path) -> None:
        self.repo = make_repository(folder / "the user's repo")
        self.before = user_state(self.repo)
        git(self.repo, "branch", plan_branch(PLAN))
        self.git = Git(self.repo)
        self.shelf = Shelf.of(folder / "state", self.repo / ".git")
        self.path = self.shelf.of_plan(PLAN) / MERGE_FOLDER

    def wanted(self, task: str) -> Merge:
        return Merge(
            plan=PLAN, task=task, run=1, origin=str(self.repo), branch=branch_of(PLAN, task),
            target=f"refs/heads/{plan_branch(PLAN)}",
        )  # fmt: skip

    def commit(self, task: str, **files: str) -> str:
        """Commit files to a task's branch, which starts from `main`."""
        branch = branch_of(PLAN, task)
        folder = self.repo.parent / f"task-{task}"
        if not folder.exists():
            git(self.repo, "worktree", "add", "-q", "-b", branch, str(folder), "main")
        for name, text in files.items():
            (folder / f"{name}.txt").write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"{task}: {', '.join(files)}")
        return git(folder, "rev-parse", "HEAD")

    def rebase(self, task: str, left: Rebased | None = None) -> Rebased:
        with self.shelf.locked(threading.Event()) as lock:
            conflict = None if left is None else left.conflict
            return merging.rebase(self.git.holding(lock), self.path, self.wanted(task), conflict)

    def conclude(
        self,
        task: str,
        begun: Rebased,
        *,
        resolver: bool = False,
        leave_out: list[str] | None = None,
    ) -> Rebased:
        return merging.conclude(
            self.git, self.path, self.wanted(task), begun, resolver=resolver, leave_out=leave_out
        )

    def land(self, task: str, done: Rebased) -> Landed:
        return merging.land(self.git, self.path, self.wanted(task), done)

    def merge(self, task: str) -> str:
        done = self.conclude(task, self.rebase(task))
        landed = self.land(task, done)
        assert landed.commit == done.new, landed
        return str(landed.commit)

    @property
    def subjects(self) -> list[str]:
        """The subjects of the commits that the plan's branch has and `main` has not."""
        found = git(self.repo, "log", "--reverse", "--format=%s", f"main..{plan_branch(PLAN)}")
        return found.splitlines()

    def show(self, name: str) -> str:
        return git(self.repo, "show", f"{plan_branch(PLAN)}:{name}.txt")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def check_untouched(case: Case) -> None:
    assert user_state(case.repo) == case.before
    git(case.repo, "fsck", "--strict")


def test_two_tasks_land_on_top_of_each_other(case: Case) -> None:
    case.commit("a", a1="1", a2="2")
    case.commit("a", a2="3")
    case.commit("b", b="1")
    case.merge("a")
    case.merge("b")
    assert case.subjects == ["a: a1, a2", "a: a2", "b: b"]
    assert git(case.path, "status", "--porcelain") == ""
    check_untouched(case)


def test_repeat_of_each_part_after_a_kill_lands_once(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", two="b\n")
    case.merge("a")
    case.rebase("b")
    git(case.path, "checkout", "-q", "--orphan", "mess")  # what a killed git may leave
    (case.path / "junk").write_text("junk")
    done = case.conclude("b", case.rebase("b"))
    assert case.conclude("b", done) == done
    assert case.land("b", done) == case.land("b", done) == Landed(commit=done.new)
    again = case.rebase("b")
    assert (again.is_merged, case.land("b", again).commit) == (True, done.new)
    assert case.subjects == ["a: one", "b: two"]
    check_untouched(case)


def test_kill_between_the_update_and_its_record_is_found_done(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.commit("a", one="a\n")
    done = case.conclude("a", case.rebase("a"))

    def kill(*_: object) -> str:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Merge, "ref", kill)
        with pytest.raises(Killed):
            case.land("a", done)
    assert case.subjects == ["a: one"]
    assert case.land("a", done).commit == done.new
    assert case.subjects == ["a: one"]
    check_untouched(case)


def test_target_that_moved_is_rebased_again(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", two="b\n")
    done = case.conclude("a", case.rebase("a"))
    case.merge("b")
    assert "has moved" in case.land("a", done).why_not
    case.merge("a")
    assert case.subjects == ["b: two", "a: one"]


def test_worktree_of_merges_has_the_files_of_its_commit_whatever_the_settings(case: Case) -> None:
    commit = git(case.repo, "rev-parse", "main")
    (case.repo / "link").symlink_to("one.txt")
    git(case.repo, "add", "link")
    git(case.repo, "commit", "-qm", "link", "link")
    for setting in ("fileMode=false", "trustctime=false", "checkStat=minimal", "symlinks=false"):
        git(case.repo, "config", *f"core.{setting}".split("="))
    with case.shelf.locked(threading.Event()):
        merging.check_out(case.git, case.path, commit)
    one, two = case.path / "one.txt", case.path / "two.txt"
    os.utime(one, (0, 0))
    git(case.path, "update-index", "--refresh")
    one.write_text("evil!!!\n")
    os.utime(one, (0, 0))
    two.chmod(0o755)
    git(case.path, "update-index", "--assume-unchanged", "sub/three.txt")
    (case.path / "sub" / "three.txt").write_text("evil")
    with case.shelf.locked(threading.Event()):
        merging.check_out(case.git, case.path, "main")
    assert one.read_text() == "one.txt\n"
    assert not os.access(two, os.X_OK)
    assert (case.path / "sub" / "three.txt").read_text() == "sub/three.txt\n"
    assert (case.path / "link").is_symlink()


def test_checks_of_another_tree_do_not_count(case: Case) -> None:
    case.commit("a", one="a\n")
    done = case.conclude("a", case.rebase("a"))
    git(case.path, "checkout", "-q", "main^{commit}")  # a session that was stopped lost its folder
    assert "used by another session" in case.land("a", done).why_not
    assert case.subjects == []


def test_merge_that_another_one_overtook_after_its_rebase_is_made_again(case: Case) -> None:
    """It was stopped, which freed the folder, and is resumed: its rebase does not run again."""
    case.commit("a", one="a\n")
    case.commit("b", two="b\n")
    begun = case.rebase("a")
    case.merge("b")
    stale = case.conclude("a", begun)
    assert (stale.new, stale.conflict) == (None, None)
    assert "used by another session" in stale.why_not
    assert case.subjects == ["b: two"]
    assert merging.merged_tip(case.git, PLAN, "a") is None  # so that no `clean` deletes the branch
    case.merge("a")
    assert case.subjects == ["b: two", "a: one"]


@pytest.mark.parametrize("lands", [True, False])
def test_merge_that_another_one_overtook_during_its_resolution_is_made_again(
    case: Case, *, lands: bool
) -> None:
    case.commit("a", one="a\n")
    case.commit("b", one="b\n")
    case.commit("c", two="c\n")
    case.merge("a")
    begun = case.rebase("b")
    assert begun.conflict is not None
    if lands:
        case.merge("c")
    else:
        case.conclude("c", case.rebase("c"))
    (case.path / "three.txt").write_text("what the resolver of b wrote\n")
    assert "used by another session" in case.conclude("b", begun, resolver=True).why_not
    again = case.rebase("b", begun)
    assert again.conflict is not None
    assert not (case.path / "three.txt").exists()
    (case.path / "one.txt").write_text("both\n")
    case.land("b", case.conclude("b", again, resolver=True))
    assert case.show("one") == "both"
    assert case.subjects == ["a: one", *(["c: two"] if lands else []), "b: one"]


def test_conflict_of_another_merge_at_the_same_commit_is_not_gone_on_with(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", one="b\n")
    case.commit("c", one="c\n")
    case.merge("a")
    begun = case.rebase("b")
    assert case.rebase("c").conflict is not None  # it stopped at the same commit
    again = case.rebase("b", begun)
    assert again.conflict is not None
    assert "(b: one)" in again.conflict.text


def test_checked_merge_that_another_one_overtook_does_not_land(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", two="b\n")
    done = case.conclude("a", case.rebase("a"))
    case.rebase("b")
    git(case.path, "checkout", "-q", str(done.new))
    assert "used by another session" in case.land("a", done).why_not
    assert case.subjects == []


def test_commit_that_the_rebase_did_not_make_is_not_taken_without_a_resolver(case: Case) -> None:
    case.commit("a", one="a\n")
    begun = case.rebase("a")
    git(case.path, "commit", "-q", "--allow-empty", "-m", "someone else's")
    assert "used by another session" in case.conclude("a", begun).why_not


def test_conflict_is_left_for_the_resolver_and_then_concluded(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", one="b\n", more="m\n")
    case.merge("a")
    begun = case.rebase("b")
    assert begun.conflict is not None
    assert list(begun.conflict.files) == ["one.txt"]
    assert "(b: one, more) conflicts in one.txt" in begun.conflict.text
    assert "<<<<<<<" in begun.conflict.excerpt
    assert case.conclude("b", begun, resolver=True).new is None  # nothing was resolved
    (case.path / "one.txt").write_text("a and b\n")
    for by_product in ("out", "__pycache__"):  # the second one only by default
        (case.path / by_product).mkdir()
        (case.path / by_product / "x.txt").touch()
    done = case.conclude("b", begun, resolver=True, leave_out=["out/"])
    case.land("b", done)
    assert (case.show("one"), case.show("more")) == ("a and b", "m")
    listed = git(case.repo, "ls-tree", "-r", "--name-only", plan_branch(PLAN)).splitlines()
    assert [one for one in listed if "x.txt" in one] == ["__pycache__/x.txt"]
    assert case.subjects == ["a: one", "b: one, more"]
    check_untouched(case)


def test_locks_that_the_resolvers_killed_git_left_do_not_stop_the_merge(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", one="b\n")
    case.merge("a")
    begun = case.rebase("b")
    (case.path / "one.txt").write_text("a and b\n")
    locks = [
        case.path / git(case.path, "rev-parse", "--git-path", name)
        for name in ("HEAD.lock", "index.lock", "REBASE_HEAD.lock")
    ]
    for lock in locks:
        lock.touch()
        os.utime(lock, (1, 1))
    case.land("b", case.conclude("b", begun, resolver=True))
    assert case.subjects == ["a: one", "b: one"]
    assert not any(lock.exists() for lock in locks)


def test_second_conflict_of_a_branch_is_resolved_on_top_of_the_first(case: Case) -> None:
    case.commit("a", one="a\n", two="a\n")
    case.commit("b", one="b\n")
    case.commit("b", two="b\n")
    case.merge("a")
    begun = case.rebase("b")
    (case.path / "one.txt").write_text("both\n")
    second = case.conclude("b", begun, resolver=True)
    assert second.conflict is not None
    assert list(second.conflict.files) == ["two.txt"]
    again = case.rebase("b", second)  # the next iteration goes on where this one stopped
    assert again.conflict == second.conflict
    (case.path / "two.txt").write_text("both\n")
    case.land("b", case.conclude("b", again, resolver=True))
    assert (case.show("one"), case.show("two")) == ("both", "both")
    assert case.subjects == ["a: one, two", "b: one", "b: two"]


def test_resolution_is_kept_for_the_next_attempt_until_the_task_changes(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", one="b\n")
    case.commit("c", two="c\n")
    case.merge("a")
    begun = case.rebase("b")
    (case.path / "one.txt").write_text("both\n")
    case.conclude("b", begun, resolver=True)
    case.merge("c")  # the checks took long, and another one landed
    done = case.conclude("b", case.rebase("b"))
    assert done.new is not None
    case.commit("b", one="b again\n")
    assert case.rebase("b").conflict is not None


def test_file_without_markers_must_be_resolved_by_a_change_or_git_add(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", two="b\n")
    git(case.repo.parent / "task-b", "rm", "-q", "one.txt")
    git(case.repo.parent / "task-b", "commit", "-qm", "b: rm")
    case.merge("a")
    begun = case.rebase("b")
    assert begun.conflict is not None
    assert case.conclude("b", begun, resolver=True).conflict is not None
    git(case.path, "add", "one.txt")
    assert case.conclude("b", begun, resolver=True).new is not None


def test_resolver_that_drops_the_work_is_refused(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", one="b\n")
    case.merge("a")
    begun = case.rebase("b")
    git(case.path, "rebase", "--abort")
    with pytest.raises(WorkspaceRefused, match="does not start from"):
        case.conclude("b", begun, resolver=True)
    git(case.path, "checkout", "-q", plan_branch(PLAN), "--detach")
    with pytest.raises(WorkspaceRefused, match="adds nothing to"):
        case.conclude("b", begun, resolver=True)


def merge_side(case: Case) -> None:
    """Task b merges a branch, and changes a file of its own in the merge."""
    task = case.repo.parent / "task-b"
    git(task, "checkout", "-q", "-b", "side", "main")
    (task / "side.txt").write_text("side\n")
    git(task, "add", "-A")
    git(task, "commit", "-qm", "side")
    git(task, "checkout", "-q", branch_of(PLAN, "b"))
    git(task, "merge", "-q", "--no-ff", "--no-commit", "side")
    (task / "two.txt").write_text("resolved in the merge\n")
    git(task, "commit", "-qam", "b: merge side")


def test_merge_commits_of_a_task_keep_what_was_resolved_in_them(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", more="b\n")
    merge_side(case)
    case.merge("a")
    case.merge("b")
    assert (case.show("two"), case.show("side")) == ("resolved in the merge", "side")
    assert (case.show("one"), case.show("more")) == ("a", "b")
    assert case.subjects == ["a: one", "Work of task b"]
    body = git(case.repo, "log", "-1", "--format=%b", plan_branch(PLAN))
    assert sorted(body.splitlines()) == ["- b: more", "- side"]
    check_untouched(case)


def test_merge_commit_of_a_next_run_lands_on_top_of_what_the_first_one_landed(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", more="b\n")
    case.merge("a")
    case.merge("b")
    merge_side(case)
    case.merge("b")
    assert case.show("two") == "resolved in the merge"
    assert case.subjects == ["a: one", "b: more", "Work of task b"]


def test_conflict_of_work_with_merge_commits_goes_to_the_resolver(case: Case) -> None:
    case.commit("a", two="a\n")
    case.commit("b", more="b\n")
    merge_side(case)
    case.merge("a")
    begun = case.rebase("b")
    assert begun.conflict is not None
    assert "(Work of task b) conflicts in two.txt" in begun.conflict.text
    (case.path / "two.txt").write_text("both\n")
    case.land("b", case.conclude("b", begun, resolver=True))
    assert (case.show("two"), case.show("side")) == ("both", "side")


def test_empty_result_is_refused_while_the_target_lacks_the_work(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", two="b\n")
    case.merge("a")
    begun = case.rebase("b")
    git(case.path, "checkout", "-q", "--detach", begun.old)
    with pytest.raises(WorkspaceRefused, match=r"rebased work adds nothing to .*would be lost"):
        case.conclude("b", begun.model_copy(update={"new": begun.old}))


def test_work_that_the_target_got_by_another_commit_counts_as_merged(case: Case) -> None:
    case.commit("a", one="same\n")
    case.commit("b", one="same\n")
    case.commit("c", one="later\n")
    case.merge("a")
    git(case.repo.parent / "task-c", "rebase", "-q", plan_branch(PLAN), "--strategy-option=theirs")
    case.merge("c")
    case.merge("b")
    assert case.subjects == ["a: one", "c: one"]


def test_target_that_somebody_checked_out_is_left_alone(case: Case, tmp_path: Path) -> None:
    case.commit("a", one="a\n")
    done = case.conclude("a", case.rebase("a"))
    git(case.repo, "worktree", "add", "-q", str(tmp_path / "other"), plan_branch(PLAN))
    with pytest.raises(WorkspaceRefused, match=r"is checked out in .*other"):
        case.land("a", done)
    assert case.subjects == []


def test_work_that_was_merged_before_a_next_run_does_not_land_twice(case: Case) -> None:
    case.commit("a", one="a\n")
    case.commit("b", one="b\n")
    case.merge("a")
    begun = case.rebase("b")
    (case.path / "one.txt").write_text("both\n")
    case.land("b", case.conclude("b", begun, resolver=True))
    case.commit("b", two="second run\n")
    case.merge("b")
    assert case.subjects == ["a: one", "b: one", "b: two"]
    assert case.show("one") == "both"


def test_no_diff_runs_a_program_of_the_repository(case: Case, tmp_path: Path) -> None:
    """Neither one that prints diffs nor one that converts files for them."""
    ran = tmp_path / "ran"
    git(case.repo, "config", "diff.external", f"touch '{ran}'")
    git(case.repo, "config", "diff.odd.textconv", f"touch '{ran}'; cat")
    git(case.repo, "config", "log.showSignature", "true")
    git(case.repo, "config", "gpg.program", f"touch '{ran}'")
    (case.repo / ".git" / "info").mkdir(exist_ok=True)
    (case.repo / ".git" / "info" / "attributes").write_text("* diff=odd\n")
    case.commit("one", shared="first")
    case.commit("two", shared="second")
    assert "+first" in merging.diff(case.git, "main", branch_of(PLAN, "one"))
    case.merge("one")
    left = case.rebase("two")
    assert left.conflict is not None
    assert "first" in left.conflict.excerpt
    (case.path / "shared.txt").write_text("both")
    case.conclude("two", case.rebase("two", left), resolver=True)
    assert not ran.exists()
