"""Lets git take the files of a repository inside a worktree, such as a doer makes by `git init`.

Git records of such a repository its commit only, which no other repository has, and takes none
without a commit. But it takes the files of a folder of which its index has a file already.
Submodules, which `.gitmodules` names, are left to git: those from before the first doer, as a doer
could name its own repository there, whose files nothing would see then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

#: Runs git in a folder, with an index, and returns its output.
Run = Callable[..., str]
#: A file that does not exist, so that `git add --all` takes it out of the index again.
_SEED = ".leadhand-nested"
_GITLINK = "160000"
_SUBMODULE = re.compile(r'^\s*path\s*=\s*"?(.+?)"?\s*$', re.MULTILINE)
#: How deep repositories may be within each other.
_DEPTH = 20
#: Patterns of files and folders, wherever they are.
BY_PRODUCTS = (
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".venv", ".env",
    "*.pyc", "htmlcov", ".coverage",
)  # fmt: skip
#: Untracked files of more bytes are no work either.
LARGE = 50_000_000


def open_nested(run: Run, folder: Path, submodules: Collection[str]) -> list[str]:
    """Prepares an index so that `git add --all` takes the files of nested repositories.

    Returns their names; a later call finds only further ones. These names, and those of submodules,
    are paths from the top of the worktree.
    """
    prefix = run("rev-parse", "--show-prefix").split("\n")[0]
    left = {one.removeprefix(prefix) for one in submodules if one.startswith(prefix)}
    found: list[str] = []
    for _ in range(_DEPTH):
        links = [one for one, _ in checked_out_in(run, folder) if one not in left]
        if links:
            run("update-index", "--force-remove", "--", *links)
        names = [one for one in nested_in(run) if one not in (*left, *found)]
        if not names:
            break
        empty = run("hash-object", "-w", "--stdin").strip()
        for name in names:
            seed = f"100644,{empty},{prefix}{name}/{_SEED}"
            run("update-index", "--add", "--cacheinfo", seed)
        found += names
    return [f"{prefix}{one}" for one in found]


def submodules_of(gitmodules: str) -> frozenset[str]:
    r"""The submodules that a `.gitmodules` names, by their paths from the top of the worktree.

    >>> submodules_of('[submodule "a"]\n\tpath = lib/a\n\turl = x\n')
    frozenset({'lib/a'})
    """
    return frozenset(_SUBMODULE.findall(gitmodules))


def checked_out_in(run: Run, folder: Path) -> Iterator[tuple[str, str]]:
    """Lists the repositories in a folder of which the index has the commit, with that commit."""
    for line in run("ls-files", "--stage", "-z").split("\0"):
        facts, _, name = line.partition("\t")
        if facts.startswith(_GITLINK) and (folder / name / ".git").exists():
            yield name, facts.split()[1]


def nested_in(run: Run) -> list[str]:
    """Lists the repositories in a folder of which the index has nothing, without ignored ones."""
    listed = run("ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return [one.removesuffix("/") for one in listed if one.endswith("/")]


def is_large(path: Path) -> bool:
    """Whether an untracked file is too large to be work."""
    try:
        return path.lstat().st_size > LARGE
    except OSError:
        return False


def is_by_product(path: str) -> bool:
    """Whether a path names a by-product, or something in one.

    >>> is_by_product("src/__pycache__/a.txt"), is_by_product("src/a.py")
    (True, False)
    """
    parts = PurePosixPath(path).parts
    return any(fnmatchcase(part, pattern) for part in parts for pattern in BY_PRODUCTS)
