"""Finds the changed files that a judgement depends on: tests, and what configures checkers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from pydantic import JsonValue

from workers.folders.worktree import Worktree

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

    def __init__(self, tree: Worktree, loop_run: str) -> None:
        self._tree = tree
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
