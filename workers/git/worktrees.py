"""Makes and checks the git worktree of a task, and commits what its session left in it.

Each function may be called again after a kill at any point. None drops a change that is in no
commit, or a commit that no other branch has.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from workers.git.git import DIFF, Git, GitFailed, WorkspaceRefused, identity, locks_of, names_of
from workers.git.layout import Record, Shelf, read_record, remove_record, write_record
from workers.git.repository import find_in_progress, quit_in_progress, refuse_in_progress, tip_of
from workers.processes.nested_repositories import (
    BY_PRODUCTS,
    is_large,
    open_nested,
    submodules_of,
)

#: The message of the commit with what an ended session left.
UNFINISHED = "leadhand: unfinished"
_HEADS = "refs/heads/"
#: The files that say exactly what a project depends on.
_LOCK_FILES = (
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock",
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml", "requirements.txt",
    "requirements.lock", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock", "mix.lock",
)  # fmt: skip


class Place(NamedTuple):
    """A run of a task, and where its worktree belongs."""

    shelf: Shelf
    plan: str
    task: str
    run: int

    @property
    def path(self) -> Path:
        """Return the path of the worktree of this run of a task."""
        return self.shelf.path(self.plan, self.task, self.run)


def make(git: Git, place: Place, wanted: Record) -> Record:
    """Makes the worktree of a task's run, on the task's branch, and returns its record.

    `git` works in the origin folder, under the lock of the repository. The branch starts from the
    wanted base, by default the tip of the target; that of an earlier run is taken over with what
    that run left.
    """
    path, record = place.path, read_record(place.path)
    if record is None:
        if path.exists():
            raise WorkspaceRefused(f"{str(path)!r} is in the way; move it elsewhere")
        record = wanted.model_copy(update={"base": _base(git, place, wanted)})
        write_record(path, record)
    if record.ready and _branch_at(git, path) == record.branch:
        return record
    if record.ready and path.exists():
        _require(git, path, record.branch)  # raises what is wrong with it
    is_new = tip(git, record.branch) is None
    try:
        _free_branch(git, place, record.branch)
        if is_new:
            git("branch", "--no-track", record.branch, record.base)
        _add(git, path, record.branch)
    except WorkspaceRefused:
        _undo(git, path, record, is_new=is_new)
        raise
    record = record.model_copy(update={"ready": True})
    write_record(path, record)
    return record


def make_branch(git: Git, branch: str, start: str) -> None:
    """Creates a branch at a commit, unless it exists."""
    if tip(git, branch) is None:
        git("branch", "--no-track", branch, tip_of(git, start))


def check(git: Git, path: Path, branch: str) -> None:
    """Raises WorkspaceRefused unless a worktree is where it was made, and on its branch.

    Removes the lock files that a git which was killed left in it.
    """
    if not path.is_dir():
        raise WorkspaceRefused(
            f"the worktree {str(path)!r} is gone; its commits are on the branch {branch!r}; retry"
            " the step that makes it"
        )
    git.remove_stale(locks_of(path, branch))
    _require(git, path, branch)


def keep(git: Git, path: Path, message: str) -> str:
    """Commits all changes in a worktree to its branch; returns the newest commit."""
    here = git.at_own(path)
    if has_changes(here):
        record = read_record(path)
        base = record.base if record is not None and record.base else "HEAD"
        open_nested(here, path, submodules_of(here.ask("show", f"{base}:.gitmodules") or ""))
        add_all(here, record.leave_out if record is not None else None)
        if here.ask(*DIFF, "--cached", "--quiet") is None:
            here(*identity(here), "commit", "--quiet", "--no-verify", "--message", message)
    return here("rev-parse", "HEAD")


def add_all(here: Git, leave_out: Sequence[str] | None = None) -> None:
    """Brings the index up to date, without by-products and large files that git does not track.

    `leave_out` are the patterns of by-products, if they are not the default ones.
    """
    patterns = BY_PRODUCTS if leave_out is None else leave_out
    found = _ignored(here, *(f"--exclude={pattern}" for pattern in patterns))
    # Git takes no pathspec of what its own rules ignore, and adds nothing of it.
    known = _ignored(here, "--exclude-standard")
    folders = tuple(name for name in known if name.endswith("/"))
    left = (name for name in found if name not in known and not name.startswith(folders))
    excluded = (f":(exclude,literal){name}" for name in (*left, *large_files(here, patterns)))
    here("add", "--all", "--", ".", *excluded)


def large_files(here: Git, leave_out: Sequence[str]) -> list[str]:
    """Lists the files that no commit has because of their size."""
    return [name for name in others(here, leave_out) if is_large(here.folder / name)]


def others(here: Git, leave_out: Sequence[str], *options: str) -> list[str]:
    """Lists the files that git neither tracks nor ignores, without by-products."""
    rules = ("--exclude-standard", *(f"--exclude={pattern}" for pattern in leave_out))
    return names_of(here("ls-files", "-z", "--others", *rules, *options))


def _ignored(here: Git, *rules: str) -> list[str]:
    return names_of(here("ls-files", "-z", "--others", "--ignored", "--directory", *rules))


def has_changes(here: Git) -> bool:
    """Whether a worktree has uncommitted changes, untracked files included."""
    return bool(here("status", "--porcelain", "--untracked-files=normal"))


def keep_unfinished(git: Git, path: Path, branch: str) -> str:
    """Commits all that an ended session left in its worktree; returns the newest commit.

    Where its work was accepted and committed, the rest is not its work, and stays uncommitted.
    Raises WorkspaceRefused.
    """
    _require(git, path, branch)
    record = read_record(path)
    if record is not None and record.accepted:
        return git.at(path)("rev-parse", "HEAD")
    return keep(git, path, UNFINISHED)


def end_in_progress(git: Git, path: Path, branch: str) -> None:
    """Ends a rebase or bisect in a worktree and keeps its state on a separate branch.

    That is `BRANCH-unfinished`, or the next free name. The branch itself stays where it is.
    """
    if find_in_progress(git, path) is None:
        return
    commit = keep(git, path, UNFINISHED)
    if not is_on_a_ref(git, path):
        git("branch", "--no-track", _free_name(git, branch), commit)
    quit_in_progress(git, path)


def keep_beside(git: Git, path: Path, branch: str) -> str:
    """Commits what is left in the worktree of accepted work to a branch of its own; returns that.

    HEAD is on no branch afterwards.
    """
    git.at(path)("update-ref", "--no-deref", "HEAD", git.at(path)("rev-parse", "HEAD"))
    name = _free_name(git, branch)
    git("branch", "--no-track", name, keep(git, path, UNFINISHED))
    return name


def _free_name(git: Git, branch: str) -> str:
    """The first free name of a branch for what is not the work of another branch."""
    name, number = unfinished_branch(branch), 1
    while tip(git, name) is not None:
        number += 1
        name = f"{unfinished_branch(branch)}-{number}"
    return name


def unfinished_branch(branch: str) -> str:
    """Returns the name of the branch that keeps the state of an interrupted rebase."""
    return f"{branch}-unfinished"


def remove(git: Git, path: Path, *, force: bool = False) -> None:
    """Removes a worktree, or git's record of a missing one. Raises GitFailed if it has changes."""
    if path.exists():
        # Git removes none with filled submodules or untracked files, unless it is forced to.
        forced = ("--force",) if force else ()
        git("worktree", "remove", *forced, str(path))
    else:
        forget(git, path)


def _base(git: Git, place: Place, wanted: Record) -> str:
    """The commit that the branch starts from; for a later run, that of the first one."""
    for run in range(1, place.run):
        earlier = read_record(place.shelf.path(place.plan, place.task, run))
        if earlier is not None and earlier.base and tip(git, wanted.branch) is not None:
            return earlier.base
    return wanted.base or tip_of(git, wanted.target)


def _add(git: Git, path: Path, branch: str) -> None:
    if path.exists():  # it was never complete, so that no session has worked there
        shutil.rmtree(path)
    forget(git, path)
    git.writing(path)("worktree", "add", "--quiet", str(path), branch)


def _undo(git: Git, path: Path, record: Record, *, is_new: bool) -> None:
    """Remove what a failed creation left, unless it holds commits."""
    if record.ready:
        return
    shutil.rmtree(path, ignore_errors=True)
    remove_record(path)
    with suppress(GitFailed):
        forget(git, path)
        if is_new:
            git("update-ref", "-d", f"{_HEADS}{record.branch}", record.base)


def forget(git: Git, path: Path) -> None:
    """Removes git's metadata of a worktree whose folder no longer exists."""
    if any(one.path == path for one in list_worktrees(git)):
        git("worktree", "remove", "--force", "--force", str(path))


def _free_branch(git: Git, place: Place, branch: str) -> None:
    """Let go of the branch in the worktree of an earlier run, and keep what that run left."""
    for one in list_worktrees(git):
        if one.path == place.path:
            continue
        if not one.branch and one.path.is_relative_to(place.shelf.of_plan(place.plan)):
            found = find_in_progress(git, one.path)
            if found is not None and found.branch == branch:
                end_in_progress(git, one.path, branch)
        if one.branch != branch:
            continue
        if not one.path.is_relative_to(place.shelf.of_plan(place.plan)):
            raise WorkspaceRefused(
                f"the branch {branch!r} is checked out in {str(one.path)!r}; check out another one"
                " there"
            )
        if one.path.exists():
            commit = keep_unfinished(git, one.path, branch)
            git.at(one.path)("update-ref", "--no-deref", "HEAD", commit)
        else:
            forget(git, one.path)


def is_detached(git: Git, path: Path) -> bool:
    """Whether a worktree is on no branch, such as during a rebase."""
    return git.at(path).ask("symbolic-ref", "--quiet", "HEAD") is None


def is_on_a_ref(git: Git, path: Path) -> bool:
    """Whether any branch or tag contains the commit that a worktree has checked out."""
    # Others, such as those of a rebase or bisect in this worktree, go with it.
    kinds = ("refs/heads", "refs/tags", "refs/remotes", "refs/leadhand")
    return bool(git.at(path)("for-each-ref", "--count=1", "--contains=HEAD", *kinds))


def holder_of(git: Git, branch: str) -> Path | None:
    """Returns the worktree that has a branch checked out; None if none has."""
    return next((one.path for one in list_worktrees(git) if one.branch == branch), None)


class Listed(NamedTuple):
    """A worktree as git lists it."""

    path: Path
    branch: str


def list_worktrees(git: Git) -> list[Listed]:
    """Lists all worktrees of the repository."""
    found: list[Listed] = []
    for block in git("worktree", "list", "--porcelain").split("\n\n"):
        fields = dict(line.partition(" ")[::2] for line in block.splitlines())
        if "worktree" in fields:
            branch = fields.get("branch", "").removeprefix(_HEADS)
            found.append(Listed(Path(fields["worktree"]), branch))
    return found


def tip(git: Git, branch: str) -> str | None:
    """Returns the newest commit of a branch; None if there is no such branch."""
    return git.ask("rev-parse", "--verify", "--quiet", f"{_HEADS}{branch}^{{commit}}")


def _branch_at(git: Git, path: Path) -> str | None:
    """The branch that is checked out in a worktree; None if there is no worktree or no branch."""
    if not path.is_dir():
        return None
    here = git.at(path)
    top = here.ask("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != path.resolve():
        return None
    head = here.ask("symbolic-ref", "--quiet", "HEAD")
    return None if head is None else head.removeprefix(_HEADS)


def _require(git: Git, path: Path, branch: str) -> None:
    here = git.at(path)
    top = here.ask("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != path.resolve():
        raise WorkspaceRefused(
            f"{str(path)!r} is no git worktree any more; repair it with `git worktree repair`"
        )
    head = here.ask("symbolic-ref", "--quiet", "HEAD")
    if head is None:
        refuse_in_progress(git, path)
    if head != f"{_HEADS}{branch}":
        now = "no branch" if head is None else f"the branch {head.removeprefix(_HEADS)!r}"
        raise WorkspaceRefused(
            f"the worktree {str(path)!r} is on {now}; check out {branch!r} there first"
        )


def copy_ignored(git: Git, top: Path, tree: Path, names: Iterable[str]) -> list[str]:
    """Copies git-ignored files from a repository into its worktree; returns the missing names.

    Those that are there already stay as they are: the session may have changed them. Returns the
    names that the repository does not have. Raises WorkspaceRefused for a link, and for what git
    does not ignore: it would be committed with the work.
    """
    missing: list[str] = []
    for name in names:
        source, target = top / name, tree / name
        if not source.exists() and not source.is_symlink():
            missing.append(name)
            continue
        _check(git.at(tree), top, source, name)
        if target.exists():
            continue
        if not target.parent.resolve().is_relative_to(tree.resolve()):
            raise WorkspaceRefused(f"{name!r} is not copied: its folder is a link to elsewhere")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"{target.name}.leadhand-draft")
        _remove(draft)
        try:
            if source.is_dir():
                shutil.copytree(source, draft, symlinks=True)
            else:
                shutil.copy2(source, draft, follow_symlinks=False)
        except OSError as error:
            _remove(draft)
            raise WorkspaceRefused(f"{name!r} cannot be copied: {error}") from None
        draft.rename(target)
    return missing


def _check(git: Git, top: Path, source: Path, name: str) -> None:
    parts = [top.joinpath(*Path(name).parts[:n]) for n in range(1, len(Path(name).parts) + 1)]
    within = source.rglob("*") if source.is_dir() and not source.is_symlink() else ()
    link = next((one for one in (*parts, *within) if one.is_symlink()), None)
    if link is not None:
        raise WorkspaceRefused(
            f"{name!r} is not copied: {str(link.relative_to(top))!r} is a symbolic link; name files"
        )
    pattern = f"{name.rstrip('/')}/" if source.is_dir() else name
    if git.ask("check-ignore", "--quiet", "--", pattern) is None:
        raise WorkspaceRefused(
            f"{name!r} is not copied: git does not ignore it, so that it would be committed; add it"
            " to .gitignore and commit that"
        )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def preparation(folders: Sequence[Path], command: str) -> str:
    """Returns a digest of a preparation command and of the lock files in these folders."""
    mixed = hashlib.sha256(command.encode())
    for folder in folders:
        for name in _LOCK_FILES:
            file = folder / name
            if file.is_file():
                mixed.update(f"\0{name}\0".encode())
                mixed.update(file.read_bytes())
    return mixed.hexdigest()


def is_prepared(path: Path, digest: str) -> bool:
    """Whether a folder was prepared with this digest of command and lock files."""
    try:
        return _prepared_file(path).read_text() == digest
    except OSError:
        return False


def write_prepared(path: Path, digest: str) -> None:
    """Records the digest of command and lock files with which a folder was prepared."""
    _prepared_file(path).write_text(digest)


def forget_prepared(path: Path) -> None:
    """Deletes the record that a removed folder was prepared."""
    _prepared_file(path).unlink(missing_ok=True)


def _prepared_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.prepared")
