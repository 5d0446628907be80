"""Brings ignored files into a session's own worktree, and remembers for what it was prepared."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from workers.workspaces.git import Git, WorkspaceRefused

#: The files that say exactly what a project depends on.
_LOCK_FILES = (
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock",
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml", "requirements.txt",
    "requirements.lock", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock", "mix.lock",
)  # fmt: skip


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
