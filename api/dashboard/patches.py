"""Splits a git diff into files and lines, and lists the branches of a plan (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from leadhand.models.views.plan import TaskView

#: Lines of a file that one page shows.
LINES = 500
_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_KINDS = {"+": "add", "-": "del", "@": "hunk", "\\": "note"}
#: What git writes about a file before its first hunk.
_ABOUT = ("index ", "--- ", "+++ ", "diff --git", "new file", "deleted file", "similarity", "old ")


class FilePatch(NamedTuple):
    """The part of a diff that is about one file."""

    #: Its number in the diff, from 0.
    number: int
    name: str
    lines: list[str]
    added: int
    removed: int


class Line(NamedTuple):
    """A line of a diff, with its numbers before and after."""

    kind: str
    before: int | None
    after: int | None
    text: str


def files_of(patch: str) -> list[FilePatch]:
    r"""Splits a git diff into its files.

    >>> patch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"
    >>> [(one.name, one.added, one.removed) for one in files_of(patch)]
    [('x', 1, 1)]
    """
    parts: list[list[str]] = []
    for line in patch.removesuffix("\n").split(
        "\n"
    ):  # git ends lines so, and content has other ends
        if line.startswith("diff --git ") or not parts:
            parts.append([])
        parts[-1].append(line)
    return [_file(number, lines) for number, lines in enumerate(parts) if any(lines)]


def numbered(file: FilePatch, *, start: int = 0, limit: int = LINES) -> Iterator[Line]:
    """Yields at most `limit` lines of a file's diff from position `start`, with line numbers."""
    before = after = 0
    in_hunk = False
    for number, text in enumerate(file.lines):
        hunk = _HUNK.match(text)
        if hunk is not None:
            before, after, in_hunk = int(hunk[1]), int(hunk[2]), True
        kind = _KINDS.get(text[:1], "same") if in_hunk or not text.startswith(_ABOUT) else "about"
        left = before if kind in ("del", "same") and in_hunk else None
        right = after if kind in ("add", "same") and in_hunk else None
        if start <= number < start + limit:
            yield Line(kind, left, right, text)
        before += left is not None
        after += right is not None


def _file(number: int, lines: list[str]) -> FilePatch:
    head = lines[0]
    first = next((n for n, line in enumerate(lines) if _HUNK.match(line)), len(lines))
    about, body = lines[:first], lines[first:]
    name = next((line[4:] for line in about if line.startswith("+++ ")), "")
    if not name or name == "/dev/null":
        name = next((line[4:] for line in about if line.startswith("--- ")), "")
    if not name or name == "/dev/null":
        name = head.rpartition(" ")[2] if head.startswith("diff --git") else "the rest of the diff"
    return FilePatch(
        number=number,
        name=re.sub(r"^[ab]/", "", name.strip('"')),
        lines=lines,
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
    )


class Branch(NamedTuple):
    """The branch of a task."""

    task: TaskView
    name: str
    #: `at work`, `not merged`, `merging`, `merged`, or `failed`.
    state: str
    #: Once it is merged: the branch that got the work, and the commit there.
    into: str = ""
    commit: str = ""

    @property
    def is_merged(self) -> bool:
        """Whether the work of this branch is merged into another one."""
        return self.state == "merged"


def branches_of(tasks: Sequence[TaskView]) -> list[Branch]:
    """Returns the branches of all tasks that have one; those that are not merged come first."""
    found = [_branch(task, task.branch) for task in tasks if task.branch]
    return sorted(found, key=lambda one: one.is_merged)


def _branch(task: TaskView, name: str) -> Branch:
    merge = task.merge
    if merge is not None:
        return Branch(task, name, merge.state, merge.into or "", merge.commit or "")
    return Branch(task, name, "at work" if task.status == "in_progress" else "not merged")
