"""Changed tests, and files that configure a checker's program, are known by their names."""

from __future__ import annotations

import pytest

from workers.folders.work_diff import judging_files

#: By the program that a checker runs: what configures it, its tests, and work.
FILES = {
    "pytest": (
        ["conftest.py", "lib/conftest.py", "pytest.ini", "setup.cfg", "pyproject.toml", "x.pth"],
        ["tests/test_a.py", "src/a_test.py", "tests/data/a.json"],
        ["src/a.py", "docs/contest.py"],
    ),
    "tox": (["tox.ini", "tox.toml", "noxfile.py"], ["test_a.py"], ["src/tox.py"]),
    "npm": (
        ["package.json", "web/package.json", ".npmrc", "vitest.config.ts", "jest.config.js"],
        ["src/a.test.ts", "src/a.spec.js", "src/__tests__/a.js"],
        ["src/a.ts"],
    ),
    "make": (["Makefile", "sub/GNUmakefile", "rules.mk"], ["test/a.c"], ["src/make.c"]),
    "cargo": (
        ["Cargo.toml", "crates/a/Cargo.toml", "build.rs", ".cargo/config.toml"],
        ["tests/a.rs"],
        ["src/lib.rs"],
    ),
    "go": (["go.mod", "go.work"], ["a_test.go", "pkg/testdata/in.txt"], ["a.go"]),
    "CI": (
        [".github/workflows/ci.yml", ".gitlab-ci.yml", ".circleci/config.yml", "Jenkinsfile"],
        [],
        [".github/ISSUE_TEMPLATE.md"],
    ),
}


@pytest.mark.parametrize("program", FILES)
def test_files_that_a_judgement_depends_on_are_not_taken_for_work(program: str) -> None:
    configures, tests, work = FILES[program]
    found = judging_files([*work, *configures, *tests])
    assert found.get("checker_changed", []) == configures
    assert found.get("tests_changed", []) == tests
