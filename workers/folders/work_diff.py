"""Compares the folder before and after a doer, and finds ignored files and those that judge.

The first step after a stop compares too, whatever its action: otherwise the work of a script or a
checker would be reported as a change from outside. Its diff is not stored.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import JsonValue

from app.core.outcomes import Outcome
from app.core.program import Action
from app.redaction import without_keys
from app.sessions.attempts import FolderState, Work, loop_run_of
from workers.folders.git_state import GitState
from workers.folders.snapshots import Worktree

log = logging.getLogger(__name__)
#: The folder of the snapshots of a session, in its spill folder.
SNAPSHOTS = "work"
#: The most files of each kind that are named.
NAMED = 20
#: Names of files that configure a test runner, linter or build, and of scripts that start them.
_CONFIGURES = (
    "conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth",
    "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "tox.toml", "setup.cfg",
    "pyproject.toml", "noxfile.py", ".coveragerc", "mypy.ini", ".mypy.ini", "ruff.toml",
    ".ruff.toml", ".flake8", "package.json", "tsconfig*.json", "jest.config.*", "vitest.config.*",
    "playwright.config.*", "karma.conf.*", ".mocharc*", ".eslintrc*", "eslint.config.*",
    ".npmrc", ".yarnrc*", "pnpm-workspace.yaml", "go.work", "build.rs", "rust-toolchain*",
    "Makefile", "makefile", "GNUmakefile", "*.mk", "justfile", "Justfile", "Taskfile.y*ml",
    "Cargo.toml",
    "go.mod", "Rakefile", ".rspec", "phpunit.xml*", "pom.xml", "build.gradle*", "CMakeLists.txt",
    ".gitlab-ci.yml", "bitbucket-pipelines.yml", "azure-pipelines.yml", "Jenkinsfile",
    ".travis.yml", ".gitattributes", ".gitignore",
)  # fmt: skip
#: Folders of which each file does.
_CI_FOLDERS = ((".github", "workflows"), (".circleci",), (".ci",), (".cargo",))
#: Names of test files, and of folders of tests.
_TESTS = (
    "test_*", "*_test.*", "*.test.*", "*.spec.*", "*_spec.*", "*Test.*", "*Tests.*", "*Spec.*",
)  # fmt: skip
_TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec", "specs", "testdata"})


class Look:
    """The snapshot before one attempt, and the diff and digest after it."""

    def __init__(
        self,
        tree: Worktree,
        address: str,
        left: FolderState,
        *,
        keeps: bool = True,
        target: str | None = None,
        whole: Worktree | None = None,
    ) -> None:
        self._tree = tree
        #: The snapshots of all of the session's own worktree.
        self.whole = whole or tree
        self._keeps = keeps
        self._target = target
        self._address = address
        self._before = left.digest
        self._failure: Literal["slow", "unreadable"] | None = None
        self.changed = False
        #: The packed diff of the attempt; None without one, or without git.
        self.patch: str | None = None
        #: The state that checkers judge and that is committed, with the time of its snapshot.
        self.work: str | None = None
        #: The state of the folder before the attempt; None if it is unknown.
        self.before: str | None = None
        #: What had changed before the attempt, if the folder was compared.
        self.changed_files: list[str] = []
        if left.digest is None or left.compare or not tree.knows(left.digest):
            found = tree.snapshot()
            self.changed = (
                left.compare and None not in (found, left.digest) and found != left.digest
            )
            if self.changed:
                self.changed_files = tree.changed_names(left.digest, found)
            if not tree.knows(left.digest):
                self._before, self._failure = found, tree.failure
        self.before = self._before if whole is None else whole.snapshot()
        if left.compare and not keeps:  # also what a person has committed without a change
            self._record_git()
        if self.changed and not keeps:  # by a person, before a step that only judges
            self._record_work(tree.snapshot() if whole is None else self.before)

    def digest(self) -> str | None:
        """Compute the current digest of the working folder; None if that is too slow or fails."""
        return self._tree.snapshot()

    def add_diff(self, outcome: Outcome, secrets: Collection[str]) -> Outcome:
        """Add the folder's digest and a link to the diff to an outcome; stores the diff in `patch`.

        The secrets, and text that looks like a key, are removed from the diff.
        """
        after = self.digest()
        if self._keeps:
            self._record_git()
            self._record_work(after if self.whole is self._tree else self.whole.snapshot())
        if after is None:
            log.info("no digest of the folder")
            return outcome.model_copy(update={"no_diff": self._tree.failure})
        before = self._before
        if self._target is not None:
            before = self._tree.merge_base(self._target) or before
        text = self._tree.patch(before, after) if self._keeps else None
        if outcome.passed_on is not None:
            text = ""  # what differs is not the work of the doer, which was not started
        if not text:
            why = self._why_no_diff(after, text) if self._keeps else None
            return outcome.model_copy(update={"digest": after, "no_diff": why})
        self.patch = pack_diff(str(before), after, without_keys(text, secrets))
        return outcome.model_copy(update={"digest": after, "diff": self._address})

    def _record_git(self) -> None:
        if self.whole.is_own:
            GitState(self.whole).record()

    def _record_work(self, digest: str | None) -> None:
        self.work = f"{time.time_ns() // 1_000_000} {digest or ''}"

    def _why_no_diff(
        self, after: str, text: str | None
    ) -> Literal["no_git", "slow", "unreadable", "unchanged"] | None:
        """Why there is no diff between the two snapshots."""
        if not after.startswith("git:"):
            return self._tree.why_no_git()
        if self._before is None:
            return self._failure
        if not self._before.startswith("git:"):
            return self._tree.why_no_git()  # it was so before the doer
        return "unchanged" if text is not None else self._tree.failure


def start_diff(
    work: Work,
    left: FolderState,
    spill: Path,
    *,
    most: int,
    target: str | None = None,
    top: Path | None = None,
) -> Look:
    """Takes a snapshot of a step's folder before it runs; returns the object that adds the diff.

    With a `target` the diff is against the commit where the folder's branch left that one: what
    the session took over from others meanwhile is not its work. `top` is the session's own
    worktree or copy, which the folder may be within. A folder in no repository may have at most
    `most` bytes.
    """
    keeps = does_work(work)
    whole = None if top is None or top == work.cwd else session_tree(work, spill, top, most=most)
    return Look(
        session_tree(work, spill, top, folder=work.cwd, most=most),
        work.grant.address,
        left,
        keeps=keeps,
        target=target,
        whole=whole,
    )


def session_tree(
    work: Work,
    spill: Path,
    top: Path | None,
    *,
    folder: Path | None = None,
    most: int | None = None,
) -> Worktree:
    """Returns the session's snapshots of a folder: by default of its own (`top`), or of `cwd`."""
    where = folder or top or work.cwd
    assert where is not None
    shelf, by_products = spill / work.home.id / SNAPSHOTS, left_out(work.inputs)
    return Worktree(where, shelf, is_own=top is not None, most=most, leave_out=by_products)


def left_out(inputs: Mapping[str, JsonValue]) -> tuple[str, ...] | None:
    """Returns the patterns of by-products in a step's inputs; None for the default ones."""
    patterns = inputs.get("leave_out")
    return tuple(map(str, patterns)) if isinstance(patterns, list) else None


def needs_snapshot(work: Work) -> bool:
    """Whether to compare the working folder before and after the step."""
    if work.cwd is None:
        return False
    return does_work(work) or work.grant.compare


def does_work(work: Work) -> bool:
    """Whether what the step changes is the work that is judged and committed.

    That is of a doer, of a check that writes, and of a tool in a folder of the session's own.
    """
    action = work.step.action
    if action is not Action.CHECK:
        is_tool = action is Action.TOOL and work.step.folder and work.workspace is not None
        return action is Action.AGENT or is_tool
    checker = work.inputs.get("checker")
    return isinstance(checker, dict) and checker.get("writes") is True


def pack_diff(before: str, after: str, text: str, *, by: str = "doer") -> str:
    """Packs a diff, its two digests and whose it is as base64 gzip text for Redis."""
    whole = json.dumps({"before": before, "after": after, "patch": text, "by": by}).encode()
    return base64.b64encode(gzip.compress(whole, mtime=0)).decode()


def judging_files(changed: Iterable[str]) -> dict[str, list[JsonValue]]:
    """Returns the first changed files of each kind; a kind without any is left out.

    >>> judging_files(["src/a.py", "tests/test_a.py", "conftest.py"])
    {'tests_changed': ['tests/test_a.py'], 'checker_changed': ['conftest.py']}
    """
    found: dict[str, list[JsonValue]] = {"tests_changed": [], "checker_changed": []}
    for name in changed:
        path = PurePosixPath(name)
        if _configures(path):
            found["checker_changed"].append(name)
        elif _is_test(path):
            found["tests_changed"].append(name)
    return {kind: files[:NAMED] for kind, files in found.items() if files}


class IgnoredFiles:
    """Files that git ignores and that a judgement depends on, as a loop's run has found them.

    The states of a folder do not have them, and a doer decides what is ignored.
    """

    def __init__(self, tree: Worktree, work: Work) -> None:
        self._tree = tree
        loop_run = f"{work.ref.id}:{loop_run_of(work.grant.address)}"
        digest = hashlib.blake2b(loop_run.encode(), digest_size=8).hexdigest()
        self._file = tree.shelf / f"ignored-{digest}"

    def record(self) -> None:
        """Record their digests, unless an attempt of the same run has recorded them."""
        with suppress(OSError):
            if not self._file.exists():
                part = self._file.with_suffix(".part")
                part.write_text(json.dumps(self._digests()))
                part.rename(self._file)

    def changed(self) -> list[str]:
        """Return the names of those that are not as recorded; none without a record."""
        try:
            before: dict[str, str] = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return []
        now = self._digests()
        return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))

    def _digests(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self._tree.ignored():
            if judging_files([name]):
                with suppress(OSError), (self._tree.folder / name).open("rb") as file:
                    found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return found


def _configures(path: PurePosixPath) -> bool:
    in_ci = any(path.parts[: len(one)] == one for one in _CI_FOLDERS)
    return in_ci or any(fnmatchcase(path.name, pattern) for pattern in _CONFIGURES)


def _is_test(path: PurePosixPath) -> bool:
    in_folder = not _TEST_FOLDERS.isdisjoint(path.parts[:-1])
    return in_folder or any(fnmatchcase(path.name, pattern) for pattern in _TESTS)
