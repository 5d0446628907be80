"""Repositories for tests, and what must stay as it was in the user's working tree."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

ENV = {
    "PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/nonexistent",
    "GIT_OPTIONAL_LOCKS": "0", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
}  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=ENV, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository(folder: Path) -> Path:
    """A repository with a commit, a staged change, an unstaged one and an untracked file."""
    (folder / "sub").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name in ("one.txt", "two.txt", "sub/three.txt"):
        (folder / name).write_text(f"{name}\n")
    (folder / ".gitignore").write_text("ignored\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "one.txt").write_text("staged\n")
    git(folder, "add", "one.txt")
    (folder / "two.txt").write_text("unstaged\n")
    (folder / "untracked").write_text("mine\n")
    (folder / "ignored").write_text("mine too\n")
    return folder


def user_state(folder: Path) -> dict[str, str]:
    """Every file of the working tree, the index, HEAD and the user's branches, by digest."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts]
    files += [folder / ".git" / name for name in ("index", "HEAD", "config")]
    state = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}
    return state | {"main": git(folder, "rev-parse", "main")}
