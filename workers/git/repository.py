"""Finds the repository of a folder, and says why worktrees of it cannot be made. Reads only.

Its HEAD is on no branch meanwhile, and git lets no other worktree check out the branch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from app.core.folders import RESERVED
from app.fleet.inventory import program_of
from leadhand.models.git_settings import repository_top
from workers.git.git import Git, GitFailed, GitMissing, WorkspaceRefused
from workers.processes import environment

OTHERWISE = "or give `workspace: copy` or `workspace: shared`"
#: The first version with all commands that worktrees need.
OLDEST = (2, 17)
_VERSION = re.compile(r"(\d+)\.(\d+)")
_FILTER = re.compile(r"\bfilter=([^\s]+)")
#: The programs that sign commits, by the format of signatures, and the settings that name others.
_SIGNERS = {
    "openpgp": ("gpg.openpgp.program", "gpg.program", "gpg"),
    "x509": ("gpg.x509.program", "gpgsm"),
    "ssh": ("gpg.ssh.program", "ssh-keygen"),
}
_HEADS = "refs/heads/"
_REBASES = ("rebase-merge", "rebase-apply")


class Repository(NamedTuple):
    """A repository, as the worktrees of tasks start from it."""

    #: The working tree that the folder is in.
    top: Path
    #: The directory that all its worktrees share, with links resolved.
    common: Path
    #: The folder within the working tree; empty for its top.
    prefix: str
    #: The branch that is checked out, or a commit: tasks start from its tip.
    target: str


def find_repository(git: Git, otherwise: str = OTHERWISE) -> Repository | None:
    """Returns the repository of a folder; None if git tracks nothing of it.

    `otherwise` says in an error what to do instead of mending the repository.

    Raises WorkspaceRefused for one that worktrees cannot be made of.
    """
    folder = git.folder
    try:
        kind = git("rev-parse", "--is-bare-repository", "--is-inside-work-tree")
    except GitMissing:
        if repository_top(folder) is None:
            return None
        raise
    except GitFailed as error:
        if "not a git repository" in error.stderr and not (folder / ".git").exists():
            return None
        raise WorkspaceRefused(_why_not(folder, error, otherwise)) from None
    if kind.split() != ["false", "true"]:
        what = "is a bare repository" if kind.startswith("true") else "is inside a .git folder"
        raise WorkspaceRefused(
            f"{str(folder)!r} {what} and has no working tree; clone it and work there, {otherwise}"
        )
    prefix = git("rev-parse", "--show-prefix").rstrip("/")
    if prefix and not git("ls-files", "--", ".")[:1]:
        return None
    top = Path(git("rev-parse", "--show-toplevel"))
    common = (folder / git("rev-parse", "--git-common-dir")).resolve()
    refuse_rebase(git, top, otherwise)
    return Repository(top, common, prefix, _target(git, top, otherwise))


def _target(git: Git, top: Path, otherwise: str) -> str:
    commit = git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if commit is None:
        raise WorkspaceRefused(
            f"the repository {str(top)!r} has no commit to start from; commit something first, "
            f"{otherwise}"
        )
    return git.ask("symbolic-ref", "--quiet", "HEAD") or commit


def refuse_rebase(git: Git, top: Path, otherwise: str) -> None:
    """Raises WorkspaceRefused while a rebase is in progress in a working tree."""
    for name in ("rebase-merge", "rebase-apply"):
        if (git.folder / git("rev-parse", "--git-path", name)).exists():
            raise WorkspaceRefused(
                f"a rebase is in progress in {str(top)!r}; finish it (git rebase --continue) or "
                f"end it (git rebase --abort) first, {otherwise}"
            )


def await_locks(git: Git) -> None:
    """Waits until no other git has a working tree or its branch locked. Raises GitLocked.

    Git looks at some of these locks only after it has changed files of the tree.
    """
    branch = git.ask("symbolic-ref", "--quiet", "HEAD")
    names = ["index", "HEAD", "ORIG_HEAD", *([branch] if branch is not None else [])]
    options = [part for name in names for part in ("--git-path", f"{name}.lock")]
    git.await_locks(git.folder / one for one in git("rev-parse", *options).splitlines())


def _why_not(folder: Path, error: GitFailed, otherwise: str) -> str:
    if "dubious ownership" in error.stderr:
        return (
            f"the repository of {str(folder)!r} belongs to another user, and git does not trust it;"
            f" run `git config --global --add safe.directory` with its path, {otherwise}"
        )
    return f"the repository of {str(folder)!r} cannot be used: {error}; repair it, {otherwise}"


def tip_of(git: Git, target: str) -> str:
    """Returns the commit that a branch or tag points to. Raises WorkspaceRefused if none."""
    found = git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{target}^{{commit}}")
    if found is None:
        raise WorkspaceRefused(f"{target.removeprefix('refs/heads/')!r} is gone; create it again")
    return found


def count_uncommitted(git: Git) -> int:
    """Counts the uncommitted changes in the working tree, with untracked files and folders."""
    found = git.ask("status", "--porcelain", "--untracked-files=normal")
    return len(found.splitlines()) if found else 0


def is_ancestor(git: Git, one: str, other: str) -> bool:
    """Whether the commit `one` is in the history of the commit `other`, or the same."""
    return git.ask("merge-base", "--is-ancestor", one, other) is not None


def check_repository(git: Git, otherwise: str) -> None:
    """Raises WorkspaceRefused for what would stop a worktree later: `otherwise` says what to do.

    That is an old git, a branch in the way of Leadhand's, or a missing program of a filter.
    """
    _check_version(git, otherwise)
    if git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{RESERVED}") is not None:
        raise WorkspaceRefused(
            f"the branch {RESERVED!r} is in the way: worktrees work on branches named"
            f" {RESERVED}/ID; rename it (git branch -m {RESERVED} OTHER), {otherwise}"
        )
    for driver, program in _missing_filters(git):
        if program and git.ask("config", "--bool", f"filter.{driver}.required") == "true":
            raise WorkspaceRefused(
                f"files of the repository need the program {program!r} (git's filter {driver!r}),"
                f" which is not on this worker's PATH; install it, {otherwise}"
            )


def agent_warnings(git: Git, path: Path | None = None) -> list[str]:
    """Lists what an agent's own use of git in a worktree of this repository will meet.

    `path` is the worktree, if there is one already.
    """
    return [*_filter_warnings(git), *_signer_warnings(git), *_hook_warnings(git, path)]


def _check_version(git: Git, otherwise: str) -> None:
    text = git("version")
    found = _VERSION.search(text)
    if found is not None and (int(found[1]), int(found[2])) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise WorkspaceRefused(
            f"git is too old for worktrees ({text}); install {needed} or newer, {otherwise}"
        )


def _missing_filters(git: Git) -> Iterator[tuple[str, str]]:
    """The filters of tracked files that cannot run, and the missing program; '' for no command."""
    files = ":(top,glob)**/.gitattributes"
    lines = git.ask("grep", "-h", "--cached", "-I", "-E", "filter=", "--", files) or ""
    for driver in sorted(set(_FILTER.findall(lines))):
        commands = [
            command
            for part in ("process", "smudge", "clean")
            if (command := git.ask("config", f"filter.{driver}.{part}"))
        ]
        missing = next((one for one in map(program_of, commands) if _is_missing(git, one)), None)
        is_lacking = missing is not None or not commands
        if is_lacking and git.ask("ls-files", "--", f":(top,attr:filter={driver})"):
            yield driver, missing or ""


def _filter_warnings(git: Git) -> Iterator[str]:
    for driver, program in _missing_filters(git):
        why = f"{program!r} is not installed" if program else "it is not configured"
        more = " (git lfs install)" if driver == "lfs" and not program else ""
        yield (
            f"files of git's filter {driver!r} are in the worktree as they are stored, such as"
            f" pointers in place of contents: {why} on the worker{more}"
        )


def _signer_warnings(git: Git) -> Iterator[str]:
    if _setting_of_user(git, "commit.gpgSign", "bool") != "true":
        return
    *settings, program = _SIGNERS.get(git.ask("config", "gpg.format") or "", _SIGNERS["openpgp"])
    named = next((value for one in settings if (value := git.ask("config", one))), program)
    if _is_missing(git, program_of(named)):
        yield (
            f"commits are to be signed (commit.gpgSign), but {named!r} is not installed on the"
            " worker: an agent's own `git commit` fails; Leadhand's commits are not signed"
        )
        return
    yield (
        "commits are to be signed (commit.gpgSign): an agent's own `git commit` waits if"
        f" {named} asks for a passphrase; Leadhand's commits are not signed"
    )


def _hook_warnings(git: Git, path: Path | None) -> Iterator[str]:
    """Hooks in an ignored folder of the repository, which a worktree does not have."""
    hooks = _setting_of_user(git, "core.hooksPath", "path")
    if not hooks or Path(hooks).is_absolute():
        return
    top = Path(git("rev-parse", "--show-toplevel"))
    if not (top / hooks).is_dir() or (path is not None and (path / hooks).exists()):
        return
    if git.at(top).ask("check-ignore", "--quiet", "--", f"{hooks.rstrip('/')}/") is not None:
        yield (
            f"the hooks of the repository do not run in the worktree: git ignores {hooks!r}"
            " (core.hooksPath); name it in `copy` of [worktree] in leadhand.toml"
        )


def _setting_of_user(git: Git, name: str, kind: str) -> str | None:
    """A setting as agents find it: the last value is that of Leadhand's own calls of git."""
    values = (git.ask("config", f"--type={kind}", "--get-all", name) or "").splitlines()
    return values[-2] if len(values) > 1 else None


def _is_missing(git: Git, program: str | None) -> bool:
    """Whether git cannot find a program; False for a command that only a shell understands."""
    if program is None:
        return False
    own = git.ask("--exec-path") or ""
    path = environment.clean(environment.inherited()).get("PATH", os.defpath)
    return shutil.which(program, path=f"{own}{os.pathsep}{path}") is None


class InProgress(NamedTuple):
    """What was left in the middle."""

    #: `rebase` or `bisect`.
    what: str
    #: The branch that was checked out before.
    branch: str


def find_in_progress(git: Git, path: Path) -> InProgress | None:
    """Returns the rebase or bisect in progress in a worktree; None if there is none."""
    here = git.at(path)
    if not path.is_dir() or here.ask("rev-parse", "--git-dir") is None:
        return None
    for name in _REBASES:
        branch = _read(here, f"{name}/head-name")
        if branch is not None:
            return InProgress("rebase", branch.removeprefix(_HEADS))
    branch = _read(here, "BISECT_START")
    return None if branch is None else InProgress("bisect", branch.removeprefix(_HEADS))


def refuse_in_progress(git: Git, path: Path) -> None:
    """Raises WorkspaceRefused while a rebase or bisect is in progress in a worktree."""
    found = find_in_progress(git, path)
    if found is None:
        return
    how = "finish it (git rebase --continue) or end it (git rebase --abort)"
    if found.what == "bisect":
        how = "end it (git bisect reset)"
    raise WorkspaceRefused(f"a {found.what} is in progress in {str(path)!r}; {how} first")


def quit_in_progress(git: Git, path: Path) -> None:
    """End a rebase or bisect; files and HEAD stay as they are. Raises GitFailed."""
    found, here = find_in_progress(git, path), git.at(path)
    if found is not None and found.what == "bisect":
        here("bisect", "reset", "HEAD")
    elif found is not None:
        here.ask("rebase", "--quit")
        for name in _REBASES:  # a git that was killed may have left too little for --quit
            shutil.rmtree(_path(here, name), ignore_errors=True)


def _read(here: Git, name: str) -> str | None:
    try:
        return _path(here, name).read_text().strip() or None
    except OSError:
        return None


def _path(here: Git, name: str) -> Path:
    return here.folder / here("rev-parse", "--git-path", name)
