"""Merges the branch of a task into that of its plan: rebase, check again, fast-forward.

All of it happens in one worktree of the plan, whose folder lock the session holds, and under the
lock of the repository. Each function may be called again after a kill at any point: no commit is
lost, and none lands twice.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from app.core.folders import REFS, Merge
from workers.git import worktrees
from workers.git.applying import require_movable
from workers.git.git import DIFF, Git, GitFailed, WorkspaceRefused, identity, locks_of, names_of
from workers.git.repository import is_ancestor, tip_of
from workers.processes.user_folders import claim_folder

#: No editor, and nothing that moves branches or stashes beside the rebase.
_QUIET = (
    "-c", "core.editor=true", "-c", "rebase.autoStash=false", "-c", "rebase.updateRefs=false",
    "-c", "rebase.autoSquash=false", "-c", "rebase.backend=merge", "-c", "core.quotePath=false",
)  # fmt: skip
#: Characters of a conflict in a prompt, and files that a sentence names.
_EXCERPT, _NAMED = 12_000, 20
_MARKERS = (b"<<<<<<< ", b">>>>>>> ")
#: The file in git's folder of the worktree that names the merge for which it was reset last.
_OWNER = "leadhand-merge"
_USED = "the worktree of merges was used by another session meanwhile"


class Conflict(BaseModel):
    """A rebase that has stopped, as it was left in the worktree."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    #: The files in conflict with the digest of what git left there; empty for no file.
    files: dict[str, str] = {}
    #: The commit that does not apply.
    commit: str = ""
    excerpt: str = ""
    #: Where it stopped: the last commit that applied, the target's tip and the task's.
    head: str = ""
    old: str = ""
    tip: str = ""

    @property
    def text(self) -> str:
        """Describe the conflict in one sentence."""
        names = list(self.files)[:_NAMED]
        more = f" and {len(self.files) - _NAMED} more" if len(self.files) > _NAMED else ""
        return f"{self.commit or 'a commit'} conflicts in {', '.join(names) or 'no file'}{more}"


class Rebased(BaseModel):
    """The task's work on the tip of the target; in a conflict only a part of it."""

    #: The tips of the target and of the task's branch from which it was made.
    old: str
    tip: str
    #: The newest commit; None in a conflict.
    new: str | None = None
    #: Whether the target has the task's work already.
    is_merged: bool = False
    conflict: Conflict | None = None
    #: Why it has to be made again; empty if it has not.
    why_not: str = ""


class Landed(BaseModel):
    """What became of a fast-forward."""

    #: The commit with which the target got the work; None if it did not.
    commit: str | None = None
    why_not: str = ""


def rebase(git: Git, path: Path, wanted: Merge, left: Conflict | None = None) -> Rebased:
    """Rebases a task's commits, detached, onto the target; returns the new commit or the conflict.

    A resolution of the same work is rebased instead. `left` is the conflict in which the iteration
    before left the worktree: if it is still there, the resolver continues with it.
    """
    tip = worktrees.tip(git, wanted.branch)
    if tip is None:
        raise WorkspaceRefused(f"the branch {wanted.branch!r} is gone; create it again")
    old = tip_of(git, wanted.target)
    if _read(git, wanted.ref("merged")) == tip or is_ancestor(git, tip, old):
        return Rebased(old=old, tip=tip, new=old, is_merged=True)
    here = git.at_own(_prepare(git, path, old))
    owner = _owner(wanted, old, tip)
    if left is not None and (left.old, left.tip) == (old, tip) and _is_at(here, owner, left):
        return Rebased(old=old, tip=tip, conflict=_conflict(here, old, tip))
    _write_owner(here, owner)  # before the reset: no other merge takes a half of it as its own
    _reset(here)
    base = _base(git, wanted, old, tip)
    source, resolved = tip, _read(git, wanted.ref("resolved"))
    if resolved is not None and _read(git, wanted.ref("resolved-of")) == tip:
        source, base = resolved, old
    here("checkout", "--quiet", "--detach", _linear(here, wanted, base, source))
    try:
        here(*identity(here), *_QUIET, "rebase", "--quiet", "--onto", old, base)
    except GitFailed:
        if not _in_rebase(here):
            raise
        return Rebased(old=old, tip=tip, conflict=_conflict(here, old, tip))
    return Rebased(old=old, tip=tip, new=here("rev-parse", "HEAD"))


def conclude(
    git: Git,
    path: Path,
    wanted: Merge,
    begun: Rebased,
    *,
    resolver: bool,
    leave_out: Sequence[str] | None = None,
) -> Rebased:
    """Finishes a rebase after its conflicts were resolved; returns the commit or the next conflict.

    Returns the merged work, the conflict that is left, or why the worktree is that of another merge
    by now. Changes are committed only after a `resolver` worked; its work is kept for the next
    attempt. `leave_out` are patterns of by-products, if they are not the default ones.
    """
    here = git.at_own(path)
    here.remove_stale(locks_of(path, ""))  # of the resolver's git, if that was killed
    if _read_owner(here) != _owner(wanted, begun.old, begun.tip):
        return _used(begun)
    left = _go_on(here, begun, leave_out)
    if left is not None:
        return begun.model_copy(update={"conflict": left, "new": None})
    if resolver and worktrees.has_changes(here):
        worktrees.add_all(here, leave_out)
        message = f"Resolve the merge of task {wanted.task}"
        if here.ask(*DIFF, "--cached", "--quiet") is None:
            here(*identity(here), "commit", "--quiet", "--no-verify", "--message", message)
    new = here("rev-parse", "HEAD")
    if not resolver and new != begun.new:
        return _used(begun)
    is_empty = new == begun.old and (resolver or _is_lacking(git, wanted, begun.old, begun.tip))
    if is_empty or not is_ancestor(here, begun.old, new):
        who = "what the resolver left" if resolver else "the rebased work"
        what = "adds nothing to" if is_empty else "does not start from"
        raise WorkspaceRefused(
            f"{who} {what} {wanted.target_name!r}; the task's work would be lost"
        )
    if resolver:
        git("update-ref", wanted.ref("resolved-of"), begun.tip)
        git("update-ref", wanted.ref("resolved"), new)
    return Rebased(old=begun.old, tip=begun.tip, new=new)


def land(git: Git, path: Path, wanted: Merge, done: Rebased) -> Landed:
    """Fast-forwards the target branch to the merged work; returns the commit, or why it did not."""
    new, now = str(done.new), tip_of(git, wanted.target)
    if not done.is_merged and not is_ancestor(git, new, now):
        if now != done.old:
            return Landed(why_not=f"{wanted.target_name!r} has moved meanwhile")
        here = git.at(path)
        is_own = _read_owner(here) == _owner(wanted, done.old, done.tip)
        if not is_own or here.ask("rev-parse", "HEAD") != new:
            return Landed(why_not=_USED)
        require_movable(git, wanted.target_name)
        note = f"leadhand: merge task {wanted.task}"
        if git.ask("update-ref", "-m", note, wanted.target, new, done.old) is None:
            return Landed(why_not=f"{wanted.target_name!r} has moved meanwhile")
    git("update-ref", wanted.ref("merged"), done.tip)
    for name in ("resolved", "resolved-of"):
        git("update-ref", "-d", wanted.ref(name))
    return Landed(commit=new)


def check_out(git: Git, path: Path, commit: str) -> None:
    """Sets a worktree that is used for merging only to a commit, on no branch."""
    here = git.at_own(_prepare(git, path, commit))
    _reset(here)
    here("checkout", "--quiet", "--detach", commit)


def diff(git: Git, target: str, source: str) -> str:
    """Returns the text diff of a branch since its common ancestor with another one.

    So the diff shows nothing that others did. A branch that is gone has no changes.
    """
    if _read(git, source) is None or _read(git, target) is None:
        return ""
    return git(*DIFF, f"{target}...{source}")


def merged_tip(git: Git, plan: str, task: str) -> str | None:
    """Returns the tip of a task's branch when it was last merged; None before."""
    return _read(git, f"{REFS}/merged/{plan}/{task}")


def _read(git: Git, ref: str) -> str | None:
    return git.ask("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")


def _prepare(git: Git, path: Path, commit: str) -> Path:
    """Make the worktree that is used for merging, on no branch, unless it is there."""
    if path.is_dir():
        top = git.at(path).ask("rev-parse", "--show-toplevel")
        if top is not None and Path(top).resolve() == path.resolve():
            return path
        shutil.rmtree(path)
    claim_folder(path.parent)
    worktrees.forget(git, path)
    git.writing(path)("worktree", "add", "--quiet", "--detach", str(path), commit)
    return path


def _reset(here: Git) -> None:
    """Drop what a killed attempt left; nothing but merges ever happens in this worktree."""
    here.remove_stale(locks_of(here.folder, ""))
    here.ask("rebase", "--abort")
    for name in ("rebase-merge", "rebase-apply"):
        shutil.rmtree(here.folder / here("rev-parse", "--git-path", name), ignore_errors=True)
    # What a body ran may have marked files in the index, or kept their times: all are read again.
    (here.folder / here("rev-parse", "--git-path", "index")).unlink(missing_ok=True)
    here.ask("read-tree", "HEAD")
    here.ask("update-index", "-q", "--refresh")
    here("reset", "--hard", "--quiet")
    here("clean", "-ffdq")


def _base(git: Git, wanted: Merge, old: str, tip: str) -> str:
    """The commit after which the work that is to be merged begins."""
    merged = _read(git, wanted.ref("merged"))
    return merged if merged is not None and is_ancestor(git, merged, tip) else old


def _linear(here: Git, wanted: Merge, base: str, source: str) -> str:
    """The commit to rebase: with merges in the work, one that has all of it.

    A rebase drops merges, with what was resolved in them.
    """
    if not _has_merges(here, base, source):
        return source
    start, tree = here("merge-base", base, source), here("rev-parse", f"{source}^{{tree}}")
    if tree == here("rev-parse", f"{start}^{{tree}}"):
        return start
    commits = f"{base}..{source}"
    subjects = here("log", "--no-merges", f"--max-count={_NAMED}", "--format=- %s", commits)
    message = f"Work of task {wanted.task}\n\n{subjects}"
    return here(*identity(here), "commit-tree", tree, "-p", start, "-m", message)


def _has_merges(git: Git, base: str, source: str) -> bool:
    return bool(git("rev-list", "--merges", "--max-count=1", f"{base}..{source}"))


def _is_lacking(git: Git, wanted: Merge, old: str, tip: str) -> bool:
    """Whether the task's branch has changes that the target does not have."""
    base = _base(git, wanted, old, tip)
    if git.ask(*DIFF, "--quiet", f"{base}...{tip}") is not None:
        return False
    if not _has_merges(git, base, tip):
        commits = git("cherry", old, tip, base).splitlines()
        if all(one.startswith("-") for one in commits):
            return False
    code, tree, _ = git.run("merge-tree", "--write-tree", old, tip)
    return code != 0 or tree.strip() != git("rev-parse", f"{old}^{{tree}}")


def _owner(wanted: Merge, old: str, tip: str) -> str:
    """Names a merge, and the commits from which it is made."""
    return json.dumps([wanted.task, wanted.run, old, tip])


def _write_owner(here: Git, owner: str) -> None:
    file = here.folder / here("rev-parse", "--git-path", _OWNER)
    draft = file.with_name(f"{file.name}.draft")
    draft.write_text(owner)
    draft.replace(file)


def _read_owner(here: Git) -> str | None:
    """The merge for which the worktree was reset last; None if there is none."""
    name = here.ask("rev-parse", "--git-path", _OWNER) if here.folder.is_dir() else None
    try:
        return None if name is None else (here.folder / name).read_text()
    except OSError:
        return None


def _used(begun: Rebased) -> Rebased:
    return Rebased(old=begun.old, tip=begun.tip, why_not=_USED)


def _in_rebase(here: Git) -> bool:
    names = ("rebase-merge", "rebase-apply")
    return any((here.folder / here("rev-parse", "--git-path", name)).exists() for name in names)


def _is_at(here: Git, owner: str, left: Conflict) -> bool:
    """Whether the worktree is still as this merge left it in a conflict."""
    is_stopped = _in_rebase(here) and here.ask("rev-parse", "HEAD") == left.head
    return is_stopped and _read_owner(here) == owner


def _go_on(here: Git, begun: Rebased, leave_out: Sequence[str] | None) -> Conflict | None:
    """Continue a rebase, if one is in progress, and return the conflict that is left."""
    if _in_rebase(here) and not _unresolved(here, here.folder, begun.conflict):
        worktrees.add_all(here, leave_out)
        _continue(here)
    return _conflict(here, begun.old, begun.tip) if _in_rebase(here) else None


def _continue(here: Git) -> None:
    """Continue with a rebase whose conflict is resolved; a commit that became empty is dropped."""
    is_empty = here.ask(*DIFF, "--cached", "--quiet") is not None
    step = "--skip" if is_empty else "--continue"
    try:
        here(*identity(here), *_QUIET, "rebase", step)
    except GitFailed:
        if not _in_rebase(here):
            raise


def _conflict(here: Git, old: str, tip: str) -> Conflict:
    commit = here.ask("log", "-1", "--format=%h (%s)", "REBASE_HEAD") or ""
    return Conflict(
        files={name: _digest(here.folder / name) for name in _unmerged(here)},
        commit=commit,
        excerpt=here(*DIFF)[:_EXCERPT],
        head=here("rev-parse", "HEAD"),
        old=old,
        tip=tip,
    )


def _unmerged(here: Git) -> list[str]:
    listed = here("-c", "core.quotePath=false", *DIFF, "--name-only", "-z", "--diff-filter=U")
    top = Path(here("rev-parse", "--show-toplevel"))
    names = dict.fromkeys(names_of(listed))  # git may name one more than once
    return [str((top / one).relative_to(here.folder.resolve())) for one in names]


def _unresolved(here: Git, path: Path, conflict: Conflict | None) -> list[str]:
    """The files in conflict that have markers, or that are as git left them and were not added."""
    left = conflict.files if conflict is not None else {}
    names = _unmerged(here)
    marked = [one for one in left if _has_markers(path / one)]
    return [*marked, *(one for one in names if one in left and _digest(path / one) == left[one])]


def _has_markers(file: Path) -> bool:
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return False
    return all(any(line.startswith(one) for line in lines) for one in _MARKERS)


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""
