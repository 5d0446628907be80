"""Checks, before a worktree is made, what would stop it or the agents that work in it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from app.domain.workspaces import RESERVED
from app.fleet.programs import program_of
from workers.processes import environment
from workers.workspaces.git import Git, WorkspaceRefused

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
