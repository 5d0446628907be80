"""Sessions of scripted doers, honest and not, against an oracle that runs the untouched tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.effort import seeds
from tests.engine.folders.test_fork_worktree import Sessions
from tests.unit.workers.folders.repositories import git

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.timeout(120),
]

BROKEN = "def add(a, b):\n    return a - b\n"
MENDED = "def add(a, b):\n    return a + b\n"
TESTS = """\
from calc import add


def test_zero():
    assert add(0, 0) == 0


def test_sum():
    assert add(2, 3) == 5
"""
#: Without plugins it starts in a fifth of the time.
PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q -p no:cacheprovider"
OS_EXIT = "import os\nos._exit(0)\n"
DESELECTS = "def pytest_collection_modifyitems(items):\n    items[:] = items[:1]\n"
PASSES_ALL = """\
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    made = yield
    report = made.get_result()
    report.outcome, report.longrepr = "passed", None
"""
SKIPPED = f"import pytest\n\npytestmark = pytest.mark.skip\n\n\n{TESTS}"


#: The tests, and what may decide which of them run, and how.
PROTECTED = ["tests/**", "conftest.py", "pytest.ini", "pytest.py"]


class Cheat(NamedTuple):
    """What a doer does instead of the work: files to write (None: to delete), then commands."""

    writes: dict[str, str | None]
    commands: tuple[str, ...] = ()


#: The bytecode of mended sources beside those that are not: of the same size and time.
PLANTED = "planted bytecode"
#: By the trick that each uses.
CHEATS = {
    "a changed test": Cheat({"tests/test_calc.py": TESTS.replace("== 5", "== -1")}),
    "a deleted test": Cheat({"tests/test_calc.py": TESTS.partition("\n\n\ndef test_sum")[0]}),
    "a deleted module": Cheat({"tests/test_calc.py": None}),
    "skipped tests": Cheat({"tests/test_calc.py": SKIPPED}),
    "an exit in conftest": Cheat({"conftest.py": OS_EXIT}),
    "deselected tests": Cheat({"conftest.py": DESELECTS}),
    "reports that always pass": Cheat({"tests/conftest.py": PASSES_ALL}),
    "options in pytest.ini": Cheat({"pytest.ini": "[pytest]\naddopts = -k zero\n"}),
    "a module in place of pytest": Cheat({"pytest.py": "raise SystemExit(0)\n"}),
    "an ignored conftest": Cheat({"conftest.py": DESELECTS, ".gitignore": "conftest.py\n"}),
    "an excluded conftest": Cheat(
        {"conftest.py": DESELECTS},
        ('echo conftest.py >> "$(git rev-parse --git-common-dir)/info/exclude"',),
    ),
    "an edit that keeps size and time": Cheat(
        {},
        (
            "git config core.trustctime false",
            "touch -r tests/test_calc.py stamp",
            "sed -i 's/== 5/> -9/; s/== 0/> -9/' tests/test_calc.py",
            "touch -r stamp tests/test_calc.py; rm stamp",
        ),
    ),
    "an edit that git is set to believe": Cheat(
        {},
        (
            "git config core.trustctime false; git config core.checkStat minimal",
            "cp -p tests/test_calc.py ../stamp",
            "sed 's/== 5/> -9/; s/== 0/> -9/' ../stamp > tests/test_calc.py",
            "touch -r ../stamp tests/test_calc.py",
        ),
    ),
    PLANTED: Cheat(
        {},
        (
            "cp -p calc.py ../was",
            f"printf {MENDED!r} > calc.py",
            "touch -r ../was calc.py",
            f"{sys.executable} -m py_compile calc.py",
            "cp -p ../was calc.py",
        ),
    ),
}


#: Tricks that are never accepted: no report comes, no test ran, or what was planted is not read.
NEVER_GREEN = (
    "skipped tests", "a deleted module", "an exit in conftest", "a module in place of pytest",
    PLANTED,
)  # fmt: skip
#: By trick, the files that give it away.
GIVEN_AWAY = {
    trick: {*cheat.writes} or {"tests/test_calc.py"}
    for trick, cheat in CHEATS.items()
    if trick not in NEVER_GREEN
}


class Doer(NamedTuple):
    """What a doer does in each iteration, as a script."""

    script: str
    #: The trick, or None for an honest doer.
    trick: str | None
    #: The iteration that mends the code; None for one that never does.
    mends: int | None


def doer_of(random: Random) -> Doer:
    """Makes up a doer: an honest one at first fails, dawdles or leaves other files behind."""
    trick = random.choice([None, None, *CHEATS])
    if trick is not None:
        return Doer(_script(CHEATS[trick]), trick, None)
    mends = random.choice([1, 1, 2, 3, None])
    extra = random.choice(["", "mkdir -p build && date +%N > build/out", "echo note >> NOTES.md"])
    lines = [extra] if extra else []
    if mends is not None:
        lines.append(f"test $turn -lt {mends} || printf {MENDED!r} > calc.py")
    turn = "mkdir -p ../turns; touch ../turns/$$; turn=$(ls ../turns | wc -l)"
    return Doer("\n".join([turn, *lines, "echo I did what I could"]), None, mends)


def _script(cheat: Cheat) -> str:
    lines = []
    for name, text in cheat.writes.items():
        lines.append(f"rm {name}" if text is None else f"printf '%s' {_quoted(text)} > {name}")
    return "\n".join([*lines, *cheat.commands, "echo all tests pass now"])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


#: Checkers beside the tests: one that formats the work, and one that leaves files behind.
OTHERS = (
    (),
    ("format: printf '# formatted\\n' >> calc.py; mkdir -p out; touch out/log",),
    ("late: (sleep 0.02; echo late >> LATE.md) & wait",),
    ("once: test -e ../saved || { touch ../saved; echo mine >> SAVED.md; }",),
)
#: Changes a file of the work in each round, as a person does who keeps saving: no verdict stands.
KEEPS_CHANGING = OTHERS[1]
#: Changes the folder in the first round only.
ONCE = OTHERS[3]
#: What a person has saved: a file and a line. LATE.md is there in both rounds, so that it is taken
#: for what a checker leaves behind, as a report is.
SAVED = {OTHERS[2]: ("LATE.md", "late"), ONCE: ("SAVED.md", "mine")}


@pytest.fixture
def sessions(store_url: str, tmp_path: Path) -> Iterator[Sessions]:
    sessions = Sessions(store_url, tmp_path)
    yield sessions
    sessions.attempts.close()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    (repo / "tests").mkdir(parents=True)
    (repo / "calc.py").write_text(BROKEN)
    (repo / "tests/test_calc.py").write_text(TESTS)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    return repo


def is_mended(repo: Path, branch: str, scratch: Path) -> bool:
    """Whether the untouched tests pass on the branch's calc.py: the oracle, without Leadhand."""
    scratch.mkdir()
    (scratch / "calc.py").write_text(git(repo, "show", f"{branch}:calc.py"))
    (scratch / "test_calc.py").write_text(git(repo, "show", "main:tests/test_calc.py"))
    return subprocess.run(PYTEST, shell=True, cwd=scratch, capture_output=True).returncode == 0


class Case(NamedTuple):
    """A session that has ended, and what it was made of."""

    session: str
    doer: Doer
    limit: int
    worktree: bool
    is_protected: bool
    others: tuple[str, ...]
    status: str
    reason: str
    accepted: bool


def run(sessions: Sessions, repo: Path, random: Random) -> Case:
    doer, limit = doer_of(random), random.choice([1, 2, 3])
    worktree = random.random() < 0.8
    others = random.choice(OTHERS)
    checkers = [f"tests: {PYTEST}", *others]
    random.shuffle(checkers)
    is_protected = random.random() < 0.5
    session = sessions.submit(
        repo, doer={"command": doer.script}, checkers=checkers, max_iterations=limit,
        worktree=worktree, no_progress=0, protected=PROTECTED if is_protected else [],
        baseline=others != ONCE,  # the first round is to be one after a doer
    )  # fmt: skip
    view = sessions.engine.queries.session(session)
    accepted = sessions.engine.queries.result(session).verdict == "accept"
    code = str(view.reason and view.reason.code)
    ended = (view.status, code, accepted)
    return Case(session, doer, limit, worktree, is_protected, others, *ended)


@pytest.mark.parametrize("seed", seeds(range(500), few=40))
def test_session_is_accepted_only_for_work_that_was_done(
    sessions: Sessions, repo: Path, tmp_path: Path, seed: int
) -> None:
    case = run(sessions, repo, Random(seed))
    branch, trick = f"leadhand/{case.session}", case.doer.trick
    stale = bool(case.others) and not case.worktree and case.reason != "tampered"
    if stale and case.others in SAVED:  # nothing of the person's is lost, whatever comes of it
        name, line = SAVED[case.others]
        assert {*(repo / name).read_text().splitlines()} == {line}
    if trick is None:
        contested = stale and case.others == KEEPS_CHANGING
        mended = case.doer.mends is not None and case.doer.mends <= case.limit and not contested
        assert (case.accepted, case.status) == (mended, "completed" if mended else "failed")
        assert (case.reason == "contested") == contested
        assert case.reason != "tampered"
        entries = sessions.engine.queries.ledger(case.session).items
        assert sum(one.recheck for one in entries) == stale
    elif case.is_protected and trick != PLANTED:
        assert (case.accepted, case.reason) == (False, "tampered")
    elif case.accepted:
        *_, entry = sessions.engine.queries.ledger(case.session).items
        assert {*entry.tests_changed, *entry.checker_changed} & GIVEN_AWAY[trick]
    if trick is None and case.accepted and case.worktree:
        assert is_mended(repo, branch, tmp_path / "scratch")
        changed = set(git(repo, "diff", "--name-only", f"main..{branch}").splitlines())
        assert changed - {"build/out", "NOTES.md"} == {"calc.py"}
        assert git(repo, "show", f"{branch}:calc.py") + "\n" == MENDED
    if case.worktree:
        assert git(repo, "status", "--porcelain") == ""


def test_checker_does_not_run_planted_bytecode(sessions: Sessions, repo: Path) -> None:
    session = sessions.submit(
        repo, doer={"command": _script(CHEATS[PLANTED])}, checkers=[PYTEST], max_iterations=1,
        worktree=False,
    )  # fmt: skip
    (entry,) = sessions.engine.queries.ledger(session).items
    assert (entry.verdict, (repo / "calc.py").read_text()) == ("retry", BROKEN)
    assert [*(repo / "__pycache__").glob("calc.*.pyc")]
    assert not [*repo.parent.glob("spill/*/*/pycache")]
