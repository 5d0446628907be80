"""Eight agents in a package from PyPI: two changes conflict in text, and two only in meaning."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.project import Project
from tests.unit.workers.folders.repositories import git, user_state
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

PACKAGE = "inflection==0.5.1"
SHA256 = "1a29730d366e996aaacffb2f1f1cb9593dc38e2ddd30c91250c6dde09ea9b417"

#: Four agents add a function with its test. `left` and `right` add a line at the same place.
#: `plain` makes a word uncountable, and `counts` tests that it is not: each passes alone. As a
#: resolver the agent keeps the lines of both sides, and otherwise does what a person advises.
DOER = r"""
import pathlib, re, sys
prompt = sys.stdin.read()
source = pathlib.Path("inflection/__init__.py")
text = source.read_text()


def after(anchor, line):
    assert anchor in text
    source.write_text(text.replace(anchor, anchor + line, 1))


if "# Merge the task" in prompt:
    if "conflicts in inflection/__init__.py" in prompt:
        lines = [one for one in text.splitlines() if one[:3] not in ("<<<", "===", ">>>")]
        source.write_text("\n".join(lines) + "\n")
    elif "the word is countable" in prompt:
        source.write_text(text.replace("    'pixel',\n", ""))
    sys.exit()
name = re.search("# Task (\w+)", prompt)[1]
test = pathlib.Path(f"test_{name}.py")
if name in ("left", "right"):
    after("_irregular('zombie', 'zombies')\n", f"_irregular('{name}foot', '{name}feet')\n")
    test.write_text(f"import inflection\n\n\ndef test_it():\n"
                    f"    assert inflection.pluralize('{name}foot') == '{name}feet'\n")
elif name == "plain":
    after("    'equipment',\n", "    'pixel',\n    'software',\n")
    test.write_text("import inflection\n\n\ndef test_it():\n"
                    "    assert inflection.pluralize('software') == 'software'\n")
elif name == "counts":
    test.write_text("import inflection\n\n\ndef test_it():\n"
                    "    assert inflection.pluralize('pixel') == 'pixels'\n")
else:
    module = pathlib.Path(f"inflection/{name}.py")
    module.write_text(f"def {name}(word):\n    return word[::-1]\n")
    test.write_text(f"from inflection.{name} import {name}\n\n\ndef test_it():\n"
                    f"    assert {name}('ab') == 'ba'\n")
"""
TASKS = ("one", "two", "three", "four", "left", "right", "plain", "counts")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the package, as pip downloads them."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "wanted.txt").write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    options = ["--no-deps", "--no-binary", ":all:", "--require-hashes", "-r", "wanted.txt"]
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--retries", "1", *options]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip("no package registry answers within 5 minutes")
    assert "DO NOT MATCH THE HASHES" not in done.stderr, done.stderr
    if done.returncode:
        pytest.skip(f"pip cannot download {PACKAGE}: {done.stderr.strip()[-200:]}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def make_clone(package: Path, folder: Path) -> Path:
    """A repository with the package, and with a change of its user that is not committed."""
    shutil.copytree(package, folder)
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", PACKAGE)
    with (folder / "README.rst").open("a") as readme:
        readme.write("My own note.\n")
    return folder


def start(project: Project, repo: Path, tmp_path: Path) -> str:
    (tmp_path / "doer.py").write_text(DOER)
    (tmp_path / "tasks.json").write_text(json.dumps([{"id": one, "title": one} for one in TASKS]))
    started = project.leadhand(
        "plan", "new", "Extend it", "--tasks", str(tmp_path / "tasks.json"), "--no-refine",
        "--detach", "--cwd", str(repo), "--retries", "0", "--at-once", "8",
        "--doer", f"{sys.executable} -P '{tmp_path / 'doer.py'}'",
        "--checker", f"suite: {sys.executable} -m pytest -q -p no:cacheprovider -p no:xdist",
    )  # fmt: skip
    assert started.code == 0, started
    return started.out.strip()


def test_all_that_is_accepted_lands_once(project: Project, package: Path, tmp_path: Path) -> None:
    repo = make_clone(package, tmp_path / "clone")
    before = user_state(repo)
    session = start(project, repo, tmp_path)

    def question() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = project.leadhand("questions", "--json").json()["items"]
        return [one for one in found if "could not be merged" in str(one["question"])]

    wait_until(question, timeout=600)
    (asked,) = question()
    assert "not accepted by the checkers" in asked["question"]
    answered = project.leadhand(
        "answer", asked["session"], "--choice", "again", "--field", "advice=the word is countable"
    )
    assert answered.code == 0, answered
    ended = project.leadhand("wait", session, timeout=300)
    assert ended.code == 0, ended
    tasks = project.leadhand("plan", "show", session, "--json").json()["tasks"]
    branch = f"leadhand/plan-{session}"
    for task in tasks:
        assert task["verified"], task
        assert git(repo, "merge-base", task["merge"]["commit"], branch) == task["merge"]["commit"]
    subjects = git(repo, "log", "--format=%s", f"main..{branch}").splitlines()
    assert sorted(one for one in subjects if not one.startswith("Resolve")) == [
        f"{name}: {name}" for name in sorted(TASKS)
    ]
    text = git(repo, "show", f"{branch}:inflection/__init__.py")
    assert [text.count(f"_irregular('{one}foot'") for one in ("left", "right")] == [1, 1]
    assert ("'pixel'" in text, text.count("'software'")) == (False, 1)
    git(repo, "fsck", "--strict")
    assert user_state(repo) == before
    check_suite(repo, branch, tmp_path / "merged")


def check_suite(repo: Path, branch: str, folder: Path) -> None:
    """The package's own tests and those of all agents pass in what was merged."""
    git(repo, "worktree", "add", "-q", "--detach", str(folder), branch)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert len(list(folder.glob("test_*.py"))) == 1 + len(TASKS)
