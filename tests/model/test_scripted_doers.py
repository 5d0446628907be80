"""Sessions of scripted doers, honest and not, against an oracle that runs the untouched tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from math import comb
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import pytest

from app.fleet.overview import read_statistics
from tests.effort import few_or_all, seeds
from tests.engine.folders.sessions import Sessions
from tests.unit.workers.folders.repositories import git
from workers.processes.environment import with_bytecode_in

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


#: A test that fails at a known rate: each run draws the next number of the session's own.
FLAKY = """\
from pathlib import Path
from random import Random


def test_flips():
    with Path({runs!r}).open("a") as runs:
        runs.write("x")
        number = runs.tell()
    assert Random(f"{seed} {{number}}").random() >= {rate}
"""
FLIPS = "tests.test_flaky::test_flips"


class Flaky(NamedTuple):
    """How often the flaky test fails, and how often a red run is repeated."""

    rate: float
    reruns: int


class Plan(NamedTuple):
    """What a session is made of."""

    doer: Doer
    limit: int
    worktree: bool
    others: tuple[str, ...]
    is_protected: bool
    #: None without a flaky test; only honest doers in worktrees have one.
    flaky: Flaky | None

    @property
    def kinds(self) -> set[object]:
        """What is to occur among the few sessions of each run."""
        where = "worktree" if self.worktree else "folder"
        protected = ("protected", self.is_protected, self.doer.trick)
        flaky = ("flaky", self.flaky and self.flaky.reruns)
        mends = ("mends", self.doer.mends)
        by = ("others", self.others, where, self.doer.trick is None)
        return {protected, by, flaky, mends}

    @property
    def runs(self) -> int:
        """About how often pytest runs, which takes most of a session's time."""
        before, (_, trick, mends) = int(self.others != ONCE), self.doer
        if trick is not None:
            is_seen = self.is_protected and trick != PLANTED
            return before + (0 if is_seen else self.limit if trick in NEVER_GREEN else 1)
        each = 1 if self.flaky is None else 1 + self.flaky.reruns
        return before + each * min(self.limit, mends or self.limit)


def plan_of(seed: int) -> Plan:
    random = Random(seed)
    doer, limit = doer_of(random), random.choice([1, 2, 3])
    worktree = random.random() < 0.8
    others = random.choice(OTHERS)
    is_protected = random.random() < 0.5
    is_flaky = doer.trick is None and worktree and random.random() < 0.7
    flaky = Flaky(random.choice([0.2, 0.5, 0.8]), random.choice([0, 1, 2]))
    return Plan(doer, limit, worktree, others, is_protected, flaky if is_flaky else None)


def few_of(seeds_: range, most: int) -> list[int]:
    """Chooses seeds so that each kind occurs, and again: greedy covers of the cheapest sessions."""
    plans = {seed: plan_of(seed) for seed in seeds_}
    kinds = {seed: plan.kinds for seed, plan in plans.items()}
    chosen, left = list[int](), set[object]()
    while len(chosen) < most:
        left = left or set[object]().union(*kinds.values())
        worth = {
            seed: len(kinds[seed] & left) / (1 + 2 * plan.runs)
            for seed, plan in plans.items() if seed not in chosen
        }  # fmt: skip
        chosen.append(max(worth, key=lambda seed: worth[seed]))
        left -= kinds[chosen[-1]]
    return chosen


@pytest.fixture
def sessions(store_url: str, tmp_path: Path, bytecode: Path) -> Iterator[Sessions]:
    sessions = Sessions(store_url, tmp_path, bytecode=bytecode)
    yield sessions
    sessions.attempts.close()


@pytest.fixture(scope="module")
def made_repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repo = tmp_path_factory.mktemp("made") / "repo"
    (repo / "tests").mkdir(parents=True)
    (repo / "calc.py").write_text(BROKEN)
    (repo / "tests/test_calc.py").write_text(TESTS)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    return repo


@pytest.fixture(scope="module")
def bytecode(made_repo: Path) -> Path:
    """That of pytest, which takes seconds to compile."""
    made = made_repo.parent / "pycache"
    env = with_bytecode_in({"PATH": os.environ["PATH"]}, made)
    subprocess.run(PYTEST, shell=True, cwd=made_repo, env=env, capture_output=True)
    return made


@pytest.fixture
def repo(made_repo: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made_repo, tmp_path / "repo")


def is_mended(repo: Path, branch: str) -> bool:
    """Whether the untouched tests pass on the branch's calc.py: the oracle, without Leadhand."""
    calc, names = ModuleType("calc"), dict[str, Any]()
    exec(git(repo, "show", f"{branch}:calc.py"), vars(calc))
    with patch.dict(sys.modules, calc=calc):
        exec(git(repo, "show", "main:tests/test_calc.py"), names)
    tests = [one for name, one in names.items() if name.startswith("test_")]
    try:
        return [one() for one in tests] == [None, None]
    except AssertionError:
        return False


class Case(NamedTuple):
    """How a session has ended."""

    session: str
    status: str
    reason: str
    accepted: bool


def run(sessions: Sessions, repo: Path, plan: Plan, seed: int) -> Case:
    tests: dict[str, object] = {"name": "tests", "command": PYTEST}
    if plan.flaky is not None:
        tests["reruns"] = plan.flaky.reruns
        text = FLAKY.format(runs=str(repo.parent / "runs"), seed=seed, rate=plan.flaky.rate)
        (repo / "tests/test_flaky.py").write_text(text)
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "a flaky test")
    checkers = [tests, *plan.others]
    Random(seed).shuffle(checkers)
    session = sessions.submit(
        repo, doer={"command": plan.doer.script}, checkers=checkers, max_iterations=plan.limit,
        worktree=plan.worktree, no_progress=0, protected=PROTECTED if plan.is_protected else [],
        baseline=plan.others != ONCE,  # the first round is to be one after a doer
    )  # fmt: skip
    view = sessions.engine.queries.session(session)
    accepted = sessions.engine.queries.result(session).verdict == "accept"
    return Case(session, view.status, str(view.reason and view.reason.code), accepted)


def verdicts_with_flaky_test(plan: Plan, flaky: Flaky, seed: int) -> list[str]:
    """What the tests say in each iteration: accept, retry or flaky; without Leadhand."""
    number, verdicts = int(plan.others != ONCE), list[str]()  # it ran once before the work

    def is_red(*, mended: bool) -> bool:
        nonlocal number
        number += 1
        flips = Random(f"{seed} {number}").random() < flaky.rate
        return flips or not mended

    for iteration in range(1, plan.limit + 1):
        mended = plan.doer.mends is not None and iteration >= plan.doer.mends
        runs = [is_red(mended=mended)]
        runs += [is_red(mended=mended) for _ in range(flaky.reruns * runs[0])]
        verdicts.append("flaky" if len({*runs}) == 2 else "retry" if runs[0] else "accept")
        if verdicts[-1] == "accept" or (verdicts[-1] == "flaky" and plan.others):
            break  # a flaky check abstains, and the others accept
    return verdicts


def check_flaky(sessions: Sessions, case: Case, plan: Plan, flaky: Flaky, seed: int) -> None:
    expected = verdicts_with_flaky_test(plan, flaky, seed)
    entries = sessions.engine.queries.ledger(case.session).items
    checks = [one for entry in entries for one in entry.checks if one["name"] == "tests"]
    assert ["flaky" if "flaky" in one else one["verdict"] for one in checks] == expected
    assert all(one["flaky"] == [FLIPS] for one in checks if "flaky" in one)
    accepts = expected[-1] == "accept" or (expected[-1] == "flaky" and bool(plan.others))
    assert (case.accepted, case.reason == "tampered") == (accepts, False)


FEW = few_of(range(500), 40)


@pytest.mark.parametrize(
    "seed", seeds([*FEW, *(one for one in range(500) if one not in FEW)], few=len(FEW))
)
def test_session_is_accepted_only_for_work_that_was_done(
    sessions: Sessions, repo: Path, seed: int
) -> None:
    plan = plan_of(seed)
    case = run(sessions, repo, plan, seed)
    branch, trick = f"leadhand/{case.session}", plan.doer.trick
    stale = bool(plan.others) and not plan.worktree and case.reason != "tampered"
    if stale and plan.others in SAVED:  # nothing of the person's is lost, whatever comes of it
        name, line = SAVED[plan.others]
        assert {*(repo / name).read_text().splitlines()} == {line}
    if plan.flaky is not None:
        check_flaky(sessions, case, plan, plan.flaky, seed)
    elif trick is None:
        contested = stale and plan.others == KEEPS_CHANGING
        mended = plan.doer.mends is not None and plan.doer.mends <= plan.limit and not contested
        assert (case.accepted, case.status) == (mended, "completed" if mended else "failed")
        assert (case.reason == "contested") == contested
        assert case.reason != "tampered"
        entries = sessions.engine.queries.ledger(case.session).items
        assert sum(one.recheck for one in entries) == stale
    elif plan.is_protected and trick != PLANTED:
        assert (case.accepted, case.reason) == (False, "tampered")
    elif case.accepted:
        *_, entry = sessions.engine.queries.ledger(case.session).items
        assert {*entry.tests_changed, *entry.checker_changed} & GIVEN_AWAY[trick]
    if trick is None and case.accepted and plan.worktree:
        assert not is_mended(repo, "main")
        assert is_mended(repo, branch)
        changed = set(git(repo, "diff", "--name-only", f"main..{branch}").splitlines())
        assert changed - {"build/out", "NOTES.md"} == {"calc.py"}
        assert git(repo, "show", f"{branch}:calc.py") + "\n" == MENDED
    if plan.worktree:
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


#: A checker of two tests that fail at known rates, whatever a doer does.
RATES = {"seldom": 0.2, "often": 0.6}
DRAWS = """\
import sys
from random import Random

with open(sys.argv[1], "a") as runs:
    runs.write("x")
    random = Random(runs.tell())
print("1..2")
red = False
for number, (name, rate) in enumerate({rates}.items(), 1):
    fails = random.random() < rate
    red |= fails
    print("not ok" if fails else "ok", number, "-", name)
sys.exit(red)
"""
#: A rate outside of its interval by chance is less likely than one in a million.
CHANCE = 1e-6


def interval(count: int, rate: float) -> range:
    """The numbers of failures among so many runs that are not too unlikely at this rate."""
    likely = [comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(count + 1)]
    low = next(k for k in range(count + 1) if sum(likely[: k + 1]) > CHANCE / 2)
    high = next(k for k in range(count, -1, -1) if sum(likely[k:]) > CHANCE / 2)
    return range(low, high + 1)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", few_or_all(6, 200))
def test_tests_flip_at_the_rates_at_which_they_fail(
    sessions: Sessions, repo: Path, tmp_path: Path, rounds: int
) -> None:
    (tmp_path / "draws.py").write_text(DRAWS.format(rates=RATES))
    command = f"{sys.executable} -S {tmp_path / 'draws.py'} {tmp_path / 'runs'}"
    session = sessions.submit(
        repo, doer={"command": "true"}, max_iterations=rounds, no_progress=0, baseline=False,
        checkers=[{"name": "flips", "command": command, "reruns": 2}, "no: false"],
    )  # fmt: skip
    entries = sessions.engine.queries.ledger(session, limit=rounds).items
    checks = [check for one in entries for check in one.checks if check["name"] == "flips"]
    assert len(checks) == rounds
    number = 0  # of the draw, as in the checker
    again, flaky, proven = list[set[str]](), 0, 0
    for check in checks:
        drawn = [fails(number := number + 1)]
        drawn += [fails(number := number + 1) for _ in range(2 * bool(drawn[0]))]
        repeated = cast("list[dict[str, list[str]]]", check.get("runs") or [])
        runs = [{*one["failed"]} for one in repeated]
        assert runs == (drawn if drawn[0] else [])
        red = [bool(one) for one in drawn]
        assert ("flaky" in check) == (len({*red}) == 2)
        flaky, proven = flaky + ("flaky" in check), proven + (red == [True, False, True])
        again += runs[1:]
    for name, rate in RATES.items():
        assert sum(name in one for one in again) in interval(len(again), rate)
    fails_at = 1 - (1 - RATES["seldom"]) * (1 - RATES["often"])
    assert flaky in interval(rounds, fails_at * (1 - fails_at**2))
    today = datetime.now(UTC).date()
    counts = read_statistics(sessions.engine.store, today, today).checks
    found = sum(one.count for one in counts if one.verdict == "flaky")
    assert found == proven
    assert found in interval(rounds, fails_at**2 * (1 - fails_at))


def fails(number: int) -> set[str]:
    """The tests that fail in the draw of this number."""
    random = Random(number)
    return {name for name, rate in RATES.items() if random.random() < rate}
