"""What is committed, judged and shown is the work of the doer, and not that of its checkers."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.core.addresses import SessionRef
from app.errors import InvalidDocument
from leadhand.models.views.result import ChangedByCheckers
from tests.engine.folders.sessions import DOCUMENT, Sessions
from tests.unit.workers.folders.repositories import git, make_repository
from tests.waiting import wait_until
from workers.attempt.settle import Settler
from workers.folders.snapshots import Worktree
from workers.git.cleaning import WorktreeRescue
from workers.git.git import Git
from workers.git.own_folders import Home, discard_folder
from workers.processes.nested_repositories import LARGE

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    git(repo, "reset", "-q", "--hard")
    return repo


def submit(sessions: Sessions, cwd: Path, checker: str, **more: object) -> str:
    given = {"doer": {"command": "echo work > a.txt"}, "checkers": [checker], "worktree": True}
    return sessions.submit(cwd, **{**given, **more})


@pytest.mark.parametrize("prefix", ["", "sub"])
def test_edits_of_a_checker_are_not_committed_as_the_doers(
    sessions: Sessions, repo: Path, prefix: str
) -> None:
    mutant = "echo mutant >> a.txt; touch probe.txt"
    doer = {"command": "echo work > a.txt; echo above > above.txt"}
    if prefix:
        doer = {"command": "echo work > a.txt; echo above > ../above.txt"}
    session = submit(sessions, repo / prefix, mutant, doer=doer)
    assert sessions.status(session) == "completed", sessions.reason(session)
    branch = f"leadhand/{session}"
    changed = git(repo, "diff", "--name-only", f"main..{branch}").splitlines()
    assert changed == sorted(["above.txt", f"{prefix}/a.txt".removeprefix("/")])
    assert git(repo, "show", f"{branch}:{prefix}/a.txt".replace(":/", ":")) == "work"
    diffs = {one.by: one.patch for one in sessions.engine.queries.diffs(session, limit=9).items}
    assert "+mutant" in diffs["checkers"]
    WorktreeRescue(sessions.engine).rescue()
    assert git(repo, "rev-list", "--count", f"main..{branch}") == "1"


MUTANT = "echo mutant >> a.txt; touch probe.txt; rm sub/three.txt; mkdir d; echo x > d/x"
CHANGED = ["a.txt", "d/x", "probe.txt", "sub/three.txt"]


def test_changes_of_checkers_are_recorded_and_put_back_in_a_worktree(
    sessions: Sessions, repo: Path
) -> None:
    session = submit(sessions, repo, MUTANT)
    folder = sessions.folder(session)
    assert git(folder, "status", "--porcelain") == ""
    assert (folder / "a.txt").read_text() == "work\n"
    (entry,) = sessions.engine.queries.ledger(session).items
    assert entry.changed_by_checkers == ChangedByCheckers(files=CHANGED, count=4, put_back=True)
    diffs = {one.by: one for one in sessions.engine.queries.diffs(session, limit=9).items}
    assert "+work" in diffs["doer"].patch
    assert "+mutant" in diffs["checkers"].patch
    assert "mutant" not in diffs["doer"].patch
    (warning,) = (one for one in sessions.warnings(session) if "judged" in one)
    assert warning.startswith("4 files were changed while checkers judged the work: a.txt, d/x")
    assert warning.endswith("the work of the doer was put back")


def test_next_doer_finds_the_work_and_not_the_changes_of_checkers(
    sessions: Sessions, repo: Path
) -> None:
    doer = {"command": "test ! -e probe.txt && echo line >> a.txt"}
    checker = "touch probe.txt; echo mutant >> a.txt; test $(grep -c line a.txt) = 2"
    session = submit(sessions, repo, checker, doer=doer)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert git(repo, "show", f"leadhand/{session}:a.txt") == "line\nline"


def test_nothing_is_put_back_in_a_users_folder(sessions: Sessions, repo: Path) -> None:
    session = submit(sessions, repo, "echo saved >> one.txt; touch probe.txt", worktree=False,
                     baseline=False)  # fmt: skip
    assert (repo / "one.txt").read_text() == "one.txt\nsaved\nsaved\n"  # with the recheck
    assert (repo / "probe.txt").exists()
    entry = sessions.engine.queries.ledger(session).items[0]
    changed = ChangedByCheckers(files=["one.txt", "probe.txt"], count=2, put_back=False)
    assert entry.changed_by_checkers == changed
    assert any("it was left as it is" in one for one in sessions.warnings(session))


def test_round_that_was_killed_while_it_was_put_back_is_recorded_whole(
    sessions: Sessions, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back, calls = Worktree.put_back, list[str]()

    def killed_half_way(tree: Worktree, digest: str) -> None:
        calls.append(digest)
        if len(calls) == 1:
            (sessions.folder(str(killed)) / "probe.txt").unlink()
            raise RuntimeError("killed")
        put_back(tree, digest)

    given = {
        "kind": "loop", "task": "t", "cwd": str(repo), "doer": {"command": "echo work > a.txt"},
        "checkers": [MUTANT], "worktree": True, "baseline": False,
    }  # fmt: skip
    document = DOCUMENT.validate_python(given)
    killed = sessions.engine.submit.document(document, free=True).session
    monkeypatch.setattr(Worktree, "put_back", killed_half_way)
    monkeypatch.setattr(Settler, "run_guarded", lambda _, __, carry_out: carry_out())
    with pytest.raises(RuntimeError, match="killed"):
        sessions.carry_out(killed)
    sessions.world.later(120_000)
    sessions.carry_out(killed)
    entry = sessions.engine.queries.ledger(killed).items[0]
    assert entry.changed_by_checkers == ChangedByCheckers(files=CHANGED, count=4, put_back=True)
    assert git(repo, "show", f"leadhand/{killed}:a.txt") == "work"


def test_tests_and_files_that_configure_a_checker_are_named_if_the_loop_has_changed_them(
    sessions: Sessions, repo: Path
) -> None:
    """Also those of an earlier iteration: the work of a loop is all since it began."""
    doer = {
        "command": "if test -e conftest.py; then echo x > a.txt; else echo x > conftest.py;"
        " mkdir tests; echo x > tests/data.json; fi"
    }
    session = submit(sessions, repo, "test -e a.txt", doer=doer)
    first, second = sessions.engine.queries.ledger(session).items
    assert (first.verdict, second.verdict) == ("retry", "accept")
    assert second.tests_changed == ["tests/data.json"]
    assert second.checker_changed == ["conftest.py"]


def test_judge_is_shown_the_diff_of_the_loops_work(sessions: Sessions, repo: Path) -> None:
    doer = {"command": "if test -e one; then echo second > two; else echo first > one; fi"}
    (repo.parent / "agents.toml").write_text(
        "[agents.reads]\n"
        """command = ["sh", "-c", 'case "$(cat)" in *BEGIN*+first*+second*END*) echo ACCEPT;;"""
        """ *) echo RETRY;; esac']\n"""
    )
    asks = {"prompt": "Is it good?", "agent": "reads"}
    session = submit(sessions, repo / "sub", "", doer=doer, checkers=[asks])
    verdicts = [one.verdict for one in sessions.engine.queries.ledger(session).items]
    assert verdicts == ["retry", "accept"]


def test_by_products_are_no_work_unless_git_tracks_them(sessions: Sessions, repo: Path) -> None:
    (repo / ".env").write_text("tracked\n")
    git(repo, "add", "-f", ".env")
    git(repo, "commit", "-qm", "with .env")
    doer = {"command": "mkdir __pycache__; touch __pycache__/a.pyc; echo new > .env; touch a"}
    session = submit(
        sessions, repo, "mkdir .pytest_cache; touch .pytest_cache/x .coverage", doer=doer
    )
    (entry,) = sessions.engine.queries.ledger(session).items
    assert entry.changed_by_checkers is None
    changed = git(repo, "diff", "--name-only", f"main..leadhand/{session}").splitlines()
    assert changed == [".env", "a"]
    evidence = sessions.engine.queries.result(session).evidence
    assert evidence is not None
    assert evidence.left_out == [".coverage", ".pytest_cache/", "__pycache__/"]
    assert not any("by-products" in one for one in sessions.warnings(session))
    home = Home(repo.parent / "state", session, repo, "")
    git(repo, "merge", "-q", "--ff-only", f"leadhand/{session}")
    assert discard_folder(Git(repo), home, force=False).kept == ""


def test_documents_name_by_products_and_large_files_are_none_of_the_work(
    sessions: Sessions, repo: Path
) -> None:
    (repo / "tracked").write_bytes(bytes(LARGE + 1))
    git(repo, "add", "tracked")
    git(repo, "commit", "-qm", "large")
    more = f"head -c {LARGE + 1} /dev/zero > large; echo x >> tracked"
    doer = {"command": f"mkdir -p out/sub .leadhand; touch out/sub/x .env a .leadhand/x; {more}"}
    again = "echo x >> out/z; test $(wc -l < out/z) = 2"  # so that its first run is red
    checkers = ["touch out/y b.log", {"name": "again", "command": again, "reruns": 1}]
    session = submit(sessions, repo, "", checkers=checkers, doer=doer, leave_out=["out/", "*.log"])
    (entry,) = sessions.engine.queries.ledger(session).items
    assert [one["decided_by"] for one in entry.checks] == ["exit_code", "flaky"]
    assert entry.changed_by_checkers is None
    assert entry.left_out == ["b.log", "large", "out/"]
    changed = git(repo, "diff", "--name-only", f"main..leadhand/{session}").splitlines()
    assert changed == [".env", ".leadhand/x", "a", "tracked"]
    evidence = sessions.engine.queries.result(session).evidence
    assert evidence is not None
    assert evidence.left_out == entry.left_out


def test_work_that_the_doer_committed_stays_though_it_is_a_by_product(
    sessions: Sessions, repo: Path
) -> None:
    doer = {"command": "echo kept > .env; git add -f .env; git commit -qm env; touch a"}
    session = submit(sessions, repo, "true", doer=doer)
    assert git(repo, "show", f"leadhand/{session}:.env") == "kept"


def test_next_doer_in_a_subfolder_is_compared_with_the_state_of_that_folder(
    sessions: Sessions, repo: Path
) -> None:
    doer = {"command": "echo x >> a.txt"}
    session = submit(sessions, repo / "sub", "touch probe; test $(wc -l < a.txt) = 2", doer=doer)
    assert sessions.status(session) == "completed", sessions.reason(session)
    state = sessions.engine.attempts.folder_state(SessionRef(session, session))
    assert state.digest == Worktree(sessions.folder(session), repo.parent / "other").snapshot()


def test_configuration_that_the_doer_excludes_from_git_is_named(
    sessions: Sessions, repo: Path
) -> None:
    (repo / ".gitignore").write_text("pytest.ini\nmine/\n")
    git(repo, "commit", "-qam", "Ignore")
    (repo / "pytest.ini").write_text("[pytest]\n")
    exclude = 'echo conftest.py >> "$(git rev-parse --git-common-dir)/info/exclude"'
    doer = {"command": f"touch conftest.py a.txt; {exclude}"}
    session = submit(sessions, repo, "true", doer=doer, worktree=False)
    assert sessions.engine.queries.ledger(session).items[0].checker_changed == ["conftest.py"]


def test_changes_of_a_check_that_writes_are_work_and_are_judged(
    sessions: Sessions, repo: Path
) -> None:
    """They run one by one before the others, as they are listed."""
    checkers = [
        {"name": "late", "command": "grep -q 'work formatted twice' a.txt; touch probe"},
        {"name": "one", "command": "sed -i 's/$/ formatted/' a.txt", "writes": True},
        {"name": "two", "command": "sed -i 's/formatted/& twice/' a.txt", "writes": True},
    ]
    session = submit(sessions, repo, "", checkers=checkers)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert git(repo, "show", f"leadhand/{session}:a.txt") == "work formatted twice"
    (entry,) = sessions.engine.queries.ledger(session).items
    assert entry.changed_by_checkers == ChangedByCheckers(files=["probe"], count=1, put_back=True)


MARKS = {"command": "test ! -e probe && test ! -e late && touch probe", "isolated": True}


def test_isolated_check_runs_alone_on_the_work_of_the_doer(sessions: Sessions, repo: Path) -> None:
    """It finds nothing of the checks before it, and its own changes are put back too."""
    checkers = [
        {"name": "first", **MARKS},
        {"name": "beside", "command": "touch late; echo mutant >> a.txt"},
        {"name": "second", **MARKS, "command": f"{MARKS['command']} && grep -qx work a.txt"},
    ]
    session = submit(sessions, repo, "", checkers=checkers)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert git(sessions.folder(session), "status", "--porcelain") == ""
    (entry,) = sessions.engine.queries.ledger(session).items
    changed = ["a.txt", "late", "probe"]
    assert entry.changed_by_checkers == ChangedByCheckers(files=changed, count=3, put_back=True)
    diffs = [
        one for one in sessions.engine.queries.diffs(session, limit=9).items if one.by != "doer"
    ]
    assert [("late" in one.patch, "probe" in one.patch) for one in diffs].count((True, False)) == 1
    assert len(diffs) == 3
    evidence = sessions.engine.queries.result(session).evidence
    assert evidence is not None
    assert [one.ran for one in evidence.checks] == ["isolated", None, "isolated"]


#: Is stopped in the first run, with files that it has changed.
STOPPED = (
    "test ! -e probe && ! grep -q mutant a.txt; r=$?; touch probe; echo mutant >> a.txt;"
    " test -e {once} || {{ touch {once}; sleep 60; }}; exit $r"
)


@pytest.mark.parametrize("prefix", ["", "sub"])
@pytest.mark.parametrize("kind", ["isolated", "lone"])
def test_changes_of_a_check_that_was_stopped_are_no_work(
    sessions: Sessions, repo: Path, tmp_path: Path, kind: str, prefix: str
) -> None:
    """They are put back before it runs once more."""
    command = ["sh", "-c", "echo work > a.txt"]
    (tmp_path / "agents.toml").write_text(f"[agents.writer]\ncommand = {json.dumps(command)}\n")
    once = tmp_path / "once"
    check = {"name": "c", "command": STOPPED.format(once=once), "isolated": kind == "isolated"}
    message = {"role": "user", "content": ["go"]}
    llm = {"type": "llm", "agentType": "writer", "identifier": "one", "messages": [message]}
    steps = [llm, {"type": "check", "label": "judge", "checker": check}]
    more: dict[str, dict[str, object]] = {
        "isolated": {
            "kind": "loop",
            "task": "t",
            "doer": {"agent": "writer"},
            "checkers": [check],
            "baseline": False,
        },
        "lone": {"kind": "flow", "name": "f", "steps": steps},
    }
    given = {**more[kind], "cwd": str(repo / prefix), "worktree": True}
    document = DOCUMENT.validate_python(given)
    session = sessions.engine.submit.document(document, free=True).session
    control = sessions.engine.control

    def stop() -> None:
        wait_until(once.exists)
        control.apply(session, "stop")

    stopper = threading.Thread(target=stop)
    stopper.start()
    sessions.carry_out(session)
    stopper.join()
    control.apply(session, "resume")
    sessions.carry_out(session)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert not any("while the session was stopped" in one for one in sessions.warnings(session))
    branch = f"leadhand/{session}"
    changed = git(repo, "diff", "--name-only", f"main..{branch}").splitlines()
    assert changed == [f"{prefix}/a.txt".removeprefix("/")]
    assert git(repo, "show", f"{branch}:{changed[0]}") == "work"
    evidence = sessions.engine.queries.result(session).evidence
    if kind == "isolated":
        assert evidence is not None
        assert [one.ran for one in evidence.checks] == ["isolated"]


ALONE = {"name": "alone", "command": "true", "isolated": True}
LOOP = {"kind": "loop", "task": "t", "checkers": ["true", ALONE]}
CHECK = {"type": "check", "checker": ALONE}
SUB = {"type": "subflow", "flowNames": ["sub"]}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (LOOP, "checkers[1].isolated"),
        ({"kind": "flow", "name": "f", "steps": [CHECK]}, "steps[0].checker.isolated"),
        (
            {"kind": "flow", "name": "f", "steps": [SUB], "flows": {"sub": {"steps": [CHECK]}}},
            "flows.sub.steps[0].checker.isolated",
        ),
        (
            {"kind": "graph", "steps": [{"name": "a", "session": LOOP}]},
            "steps[0].session.checkers[1].isolated",
        ),
    ],
)
def test_isolated_check_needs_a_folder_of_the_sessions_own(
    sessions: Sessions, repo: Path, document: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidDocument, match="worktree: true") as refused:
        sessions.submit_document({**document, "cwd": str(repo)})
    assert refused.value.field == field


PLANTED = (
    "mkdir .venv __pycache__; touch .venv/evil ignored __pycache__/a.pyc; echo work > a.txt;"
    ' rm "$(git rev-parse --show-toplevel)/sub/three.txt"'
)
CLEAN = (
    "test ! -e left && test ! -e .venv/evil && test ! -e ignored && test ! -e __pycache__"
    ' && grep -qx work a.txt && cd "$(git rev-parse --show-toplevel)" && test -e one.txt'
    " && test ! -e sub/three.txt && git log main && git status --porcelain | grep -q three"
)


@pytest.mark.parametrize("prefix", ["", "sub"])
@pytest.mark.parametrize("own", [True, False])
def test_clean_check_has_the_work_without_ignored_files(
    sessions: Sessions, repo: Path, prefix: str, own: bool
) -> None:
    leaves = "&& mkdir -p sub && touch left sub/left && echo mutant >> one.txt"
    checkers = [
        {"name": name, "command": f"{CLEAN} {leaves}", "clean": True} for name in ("one", "two")
    ]
    session = submit(
        sessions, repo / prefix, "", checkers=checkers, doer={"command": PLANTED}, worktree=own
    )
    assert sessions.status(session) == "completed", sessions.reason(session)
    (entry,) = sessions.engine.queries.ledger(session).items
    assert [one["ran"] for one in entry.checks] == ["clean", "clean"]
    assert entry.changed_by_checkers is None
    assert not (repo.parent / "spill" / session / "clean").exists()
    assert "spill" not in git(repo, "worktree", "list")


def test_clean_folder_is_prepared_once_for_each_state_of_the_lock_files(
    sessions: Sessions, repo: Path
) -> None:
    """What it has prepared stays; what checks leave goes, also what the doer lets git ignore."""
    repo.joinpath(".env").write_text("secret\n")
    repo.joinpath(".gitignore").write_text(".env\nvenv/\n")
    git(repo, "commit", "-qam", "Ignore")
    count = repo.parent / "count"
    prepare = (
        f"echo >> {count}; mkdir -p venv; cp .env venv/;"
        " if expr $PWD : .*clean/tree; then touch new; fi"
    )
    doer = {
        "command": "n=$(cat n 2>/dev/null | wc -l); echo >> n; echo planted >> .gitignore;"
        " test $n = 0 || echo >> uv.lock; touch venv/evil"
    }
    check = (
        "ls -A; test -e .env && test -e venv/.env && test ! -e venv/evil && test ! -e planted"
        " && test ! -e new && touch planted && test $(wc -l < n) = 4"
    )
    session = submit(
        sessions, repo, "", doer=doer, max_iterations=4, baseline=False,
        checkers=[{"name": "c", "command": check, "clean": True}],
        worktree={"copy": [".env"], "prepare": prepare},
    )  # fmt: skip
    assert sessions.status(session) == "completed", sessions.reason(session)
    # Once in the worktree; then in the clean folder for no lock file, and for each of three others.
    assert len(count.read_text().splitlines()) == 1 + 4
    assert not (repo.parent / "spill" / session / "clean").exists()


@pytest.mark.parametrize("failures", [2, 9])
def test_clean_folder_that_cannot_be_prepared_is_tried_again_as_a_lost_check(
    sessions: Sessions, repo: Path, failures: int
) -> None:
    count = repo.parent / "count"
    prepare = (
        "if expr $PWD : .*clean/tree; then "
        f"echo >> {count}; test $(wc -l < {count}) -gt {failures}"
        " || { echo no net >&2; exit 7; }; fi"
    )
    checker = {"name": "c", "command": "true", "clean": True}
    session = submit(
        sessions, repo, "", checkers=[checker], baseline=False, worktree={"prepare": prepare}
    )
    for _ in range(5):
        sessions.world.later(60_000)
        sessions.carry_out(session)
    tries = len(count.read_text().splitlines())
    if failures == 2:
        assert (sessions.status(session), tries) == ("completed", 3), sessions.reason(session)
        return
    reason = sessions.engine.queries.session(session).reason
    assert reason is not None
    assert (reason.code, tries) == ("checker_down", 6), reason
    assert "exited with code 7" in reason.root.text
    assert "no net" in reason.root.text


def test_what_checks_plant_in_what_was_prepared_is_not_there_for_the_next(
    sessions: Sessions, repo: Path
) -> None:
    """Nor a file with a name that begins as that of a prepared one."""
    repo.joinpath(".gitignore").write_text("venv/\nconf*\n")
    git(repo, "commit", "-qam", "Ignore")
    count = repo.parent / "count"
    check = (
        "test ! -e venv/evil && grep -qx good venv/lib && test -e conf && test ! -e conftest.py"
        " && touch conftest.py && if test $(wc -l < n) = 1; then touch -r venv/lib time;"
        " echo evil > venv/lib; touch -r time venv/lib; false; fi && test $(wc -l < n) = 3"
    )
    session = submit(
        sessions, repo, "", doer={"command": "echo >> n"}, max_iterations=3, baseline=False,
        checkers=[{"name": "c", "command": check, "clean": True}],
        worktree={
            "prepare": f"echo >> {count}; mkdir -p venv; echo good > venv/lib; touch conf"
        },
    )  # fmt: skip
    assert sessions.status(session) == "completed", sessions.reason(session)
    # In the worktree; in the clean folder at first, and after the first check.
    assert len(count.read_text().splitlines()) == 3


MOVES = {
    "commits": ("git commit -qam x", {"the branch", "the index"}),
    "switches": ("git checkout -qb other-$$; git commit -qam x", {"HEAD", "the index"}),
    "detaches": ("git checkout -q --detach; git branch -qD $b", {"HEAD", "the branch"}),
    "merges": ("git merge -q --no-commit --no-ff side", {"an operation in progress"}),
}


@pytest.mark.parametrize(
    ("how", "when"),
    [*((one, "after") for one in MOVES), ("switches", "before"), ("commits", "isolated")],
)
def test_git_is_put_back_where_a_checker_moves_head(
    sessions: Sessions, repo: Path, how: str, when: str
) -> None:
    """What the doer has committed stays."""
    git(repo, "checkout", "-qb", "side")
    git(repo, "commit", "-q", "--allow-empty", "-m", "side")
    git(repo, "checkout", "-q", "main")
    command, moved = MOVES[how]
    doer = "echo one > a.txt; git add a.txt; git commit -qm mine; echo work >> a.txt; echo b > b"
    moves = {"command": f"b=$(git branch --show-current); {command}; git status >&2"}
    checkers = [moves, {"name": "alone", "command": "git symbolic-ref HEAD", "isolated": True}]
    session = submit(
        sessions, repo, "", doer={"command": doer}, baseline=when == "before",
        checkers=checkers if when == "isolated" else [moves],
    )  # fmt: skip
    assert sessions.status(session) == "completed", sessions.reason(session)
    branch, folder = f"leadhand/{session}", sessions.folder(session)
    assert git(folder, "symbolic-ref", "HEAD") == f"refs/heads/{branch}"
    assert git(repo, "log", "--format=%s", f"main..{branch}") == "t\nmine"
    assert git(repo, "show", f"{branch}:a.txt") == "one\nwork"
    assert git(folder, "status", "--porcelain") == ""
    (entry,) = sessions.engine.queries.ledger(session).items
    assert entry.changed_by_checkers is not None
    assert {one.split(" leadhand/")[0] for one in entry.changed_by_checkers.git} == moved
    assert any("changed what git has" in one for one in sessions.warnings(session))


def test_merge_of_the_doer_keeps_its_parent_though_a_checker_names_another(
    sessions: Sessions, repo: Path
) -> None:
    for name in ("side", "other"):
        git(repo, "checkout", "-qb", name, "main")
        git(repo, "commit", "-q", "--allow-empty", "-m", name)
    git(repo, "checkout", "-q", "main")
    doer = {"command": "git merge -q --no-commit --no-ff side; echo work >> a.txt"}
    check = "git rev-parse other > $(git rev-parse --git-path MERGE_HEAD)"
    session = submit(sessions, repo, check, doer=doer, baseline=False)
    assert sessions.status(session) == "completed", sessions.reason(session)
    merged = git(repo, "rev-parse", f"leadhand/{session}^2")
    assert merged == git(repo, "rev-parse", "side")


#: How git converts files, what each line of one is in the folder, and as git stores it.
CONVERSIONS: dict[str, tuple[dict[str, str], bytes, bytes]] = {
    "filter": ({"filter.x.clean": "base64", "filter.x.smudge": "base64 -d"}, b"x\n", b"eAo=\n"),
    "line ends": ({"core.autocrlf": "true", "core.safecrlf": "false"}, b"x\r\n", b"x\n"),
    "attributes": ({"core.safecrlf": "false"}, b"x\r\n", b"x\n"),
}


@pytest.mark.parametrize("how", CONVERSIONS)
def test_files_that_git_converts_are_put_back_as_they_are_in_the_folder(
    sessions: Sessions, repo: Path, how: str
) -> None:
    """They are no change if only their times are new, and are stored as git stores them."""
    settings, content, stored = CONVERSIONS[how]
    for name, value in settings.items():
        git(repo, "config", name, value)
    attributes = "text eol=crlf" if how == "attributes" else "filter=x"
    (repo / ".gitattributes").write_text(f"*.big {attributes}\n")
    for name in ("kept.big", "mutated.big", "work.big"):
        (repo / name).write_bytes(content)
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "Add files")
    doer = "touch kept.big; printf 'y\\n' > work.big; printf 'y\\n' > new.big"
    checks = [
        "touch kept.big; for i in mutated work new; do echo >> $i.big; done",
        {"name": "c", "command": f"cmp kept.big {repo}/kept.big && grep y new.big", "clean": True},
        {"name": "i", "command": f"cmp mutated.big {repo}/mutated.big", "isolated": True},
    ]
    session = submit(sessions, repo, "", doer={"command": doer}, checkers=checks)
    assert sessions.status(session) == "completed", sessions.reason(session)
    folder, branch = sessions.folder(session), f"leadhand/{session}"
    assert (folder / "mutated.big").read_bytes() == content
    assert (folder / "work.big").read_bytes() == b"y\n"
    (entry,) = sessions.engine.queries.ledger(session).items
    assert entry.changed_by_checkers is not None
    assert entry.changed_by_checkers.files == ["mutated.big", "new.big", "work.big"]
    diff = sessions.engine.queries.diffs(session, limit=9).items[-1].patch
    found = {line.split(" b/")[1] for line in diff.splitlines() if line.startswith("diff --git")}
    assert found == {"new.big", "work.big"}
    changed = git(repo, "diff", "--name-only", f"main..{branch}").splitlines()
    assert changed == ["new.big", "work.big"]
    as_git = b"eQo=\n" if how == "filter" else b"y\n"
    shown = subprocess.run(["git", "cat-file", "blob", f"{branch}:work.big"], cwd=repo,
                           check=True, capture_output=True)  # fmt: skip
    assert shown.stdout == as_git
    assert stored == subprocess.run(["git", "cat-file", "blob", f"{branch}:kept.big"], cwd=repo,
                                    check=True, capture_output=True).stdout  # fmt: skip
    assert git(folder, "status", "--porcelain") == ""


#: A tool of flows that writes a file.
MAKER = """\
import pathlib
def make():
    pathlib.Path('made.txt').write_text('made')
def plant():
    pathlib.Path('ignored').write_text('')
"""
MAKE = {"type": "tool", "tool": "maker:make"}
JUDGE = {"type": "check", "label": "judge", "checker": {"name": "judge", "command": MUTANT}}
WRITES = {
    "type": "llm", "agentType": "writer", "identifier": "one",
    "messages": [{"role": "user", "content": ["go"]}],
}  # fmt: skip


@pytest.fixture
def flow(repo: Path, tmp_path: Path) -> dict[str, object]:
    """A flow without steps, whose agent adds a line to a file, and whose tool makes another."""
    line = ["sh", "-c", "echo line >> a.txt; cat a.txt"]
    (tmp_path / "agents.toml").write_text(f"[agents.writer]\ncommand = {json.dumps(line)}\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "maker.py").write_text(MAKER)
    return {"kind": "flow", "name": "f", "cwd": str(repo)}


@pytest.mark.parametrize("worktree", [True, False])
def test_changes_of_a_check_of_a_flow_are_no_work_of_the_agents_after_it(
    sessions: Sessions, repo: Path, flow: dict[str, object], worktree: bool
) -> None:
    steps = [WRITES, MAKE, JUDGE, WRITES]
    session = sessions.submit_document({**flow, "worktree": worktree, "steps": steps})
    assert sessions.status(session) == "completed", sessions.reason(session)
    (warning,) = (one for one in sessions.warnings(session) if "judged" in one)
    assert warning.startswith("4 files were changed while checkers judged the work: a.txt, d/x")
    assert warning.endswith("was put back" if worktree else "was left as it is")
    diffs = sessions.engine.queries.diffs(session, limit=9).items
    assert {one.by for one in diffs if "+mutant" in one.patch} == {"checkers"}
    if worktree:
        branch = f"leadhand/{session}"
        changed = git(repo, "diff", "--name-only", f"main..{branch}").splitlines()
        assert changed == ["a.txt", "made.txt"]
        assert git(repo, "show", f"{branch}:a.txt") == "line\nline"


def test_isolated_check_of_a_flow_has_the_work_and_nothing_else(
    sessions: Sessions, repo: Path, flow: dict[str, object]
) -> None:
    """What is no work of an agent or tool is put back before it, also in a subflow."""
    no = """touch probe.txt; echo '{"answer": "no"}'"""
    probes = {"type": "if", "command": no, "then": [{"type": "wait", "seconds": 1}]}
    alone = "test -e made.txt && test ! -e probe.txt && touch left"
    check = {"type": "check", "checker": {"name": "c", "command": alone, "isolated": True}}
    steps = [WRITES, MAKE, probes, check, SUB]
    flows = {"sub": {"steps": [probes, check]}}
    session = sessions.submit_document({**flow, "worktree": True, "steps": steps, "flows": flows})
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert git(sessions.folder(session), "status", "--porcelain") == ""
    (child,) = sessions.engine.store.children(SessionRef(session, session))
    for one in (session, child):
        (warning,) = (text for text in sessions.warnings(one) if "judged" in text)
        assert warning.startswith(
            "2 files were changed while checkers judged the work: left, probe"
        )


def test_session_of_a_graph_has_checks_that_need_its_folder(sessions: Sessions, repo: Path) -> None:
    checks = [ALONE, {"command": "true", "clean": True}]
    loop = {**LOOP, "checkers": checks, "protected": ["one.txt"], "worktree": True,
            "doer": {"command": "echo work > a.txt"}}  # fmt: skip
    graph = {"kind": "graph", "steps": [{"name": "a", "session": loop}]}
    with pytest.raises(ValidationError, match=r"steps\[0\]\.session.*give the graph a `cwd`"):
        DOCUMENT.validate_python(graph)
    session = sessions.submit_document({**graph, "cwd": str(repo)})
    assert sessions.status(session) == "completed", sessions.reason(session)
    (child,) = sessions.engine.store.children(SessionRef(session, session))
    evidence = sessions.engine.queries.result(child).evidence
    assert evidence is not None
    assert [one.ran for one in evidence.checks] == ["isolated", "clean"]


def test_isolated_check_of_a_subflow_beside_another_is_refused(
    sessions: Sessions, flow: dict[str, object]
) -> None:
    flows = {"one": {"steps": [SUB]}, "two": {"steps": [MAKE]}, "sub": {"steps": [CHECK]}}
    steps = [{"type": "subflow", "flowNames": ["two", "one"]}]
    with pytest.raises(InvalidDocument, match="isolated checks cannot run beside") as refused:
        sessions.submit_document({**flow, "worktree": True, "flows": flows, "steps": steps})
    assert refused.value.field == "steps[0].flowNames"


@pytest.mark.parametrize("worktree", [True, False])
def test_clean_check_of_a_flow_has_the_folder_as_it_finds_it_without_ignored_files(
    sessions: Sessions, repo: Path, flow: dict[str, object], worktree: bool
) -> None:
    """Also what no agent has written, and in a subflow."""
    planted = {"type": "tool", "tool": "maker:plant"}
    has = "test -e made.txt && test -e a.txt && test ! -e ignored && test ! -e left"
    command = f"{has} && git log main && touch left && echo mutant >> one.txt"
    check = {"type": "check", "checker": {"name": "c", "command": command, "clean": True}}
    steps = [WRITES, MAKE, planted, check, check, {"type": "subflow", "flowNames": ["sub"]}]
    session = sessions.submit_document(
        {**flow, "worktree": worktree, "steps": steps, "flows": {"sub": {"steps": [check]}}}
    )
    assert sessions.status(session) == "completed", sessions.reason(session)
    (child,) = sessions.engine.store.children(SessionRef(session, session))
    for one in (session, child):
        assert not any("judged" in text for text in sessions.warnings(one))
        assert not (repo.parent / "spill" / one / "clean").exists()


def test_clean_check_of_a_flow_needs_a_folder(sessions: Sessions) -> None:
    check = {"type": "check", "checker": {"command": "true", "clean": True}}
    with pytest.raises(InvalidDocument, match="clean checkers need a working folder") as refused:
        sessions.submit_document({"kind": "flow", "name": "f", "steps": [check]})
    assert refused.value.field == "steps[0].checker.clean"


def test_subflow_in_a_worktree_is_judged_and_committed_as_its_flow(
    sessions: Sessions, repo: Path, flow: dict[str, object]
) -> None:
    """What its checks change is put back, and what is written after its tools is no work."""
    inner = {"type": "subflow", "flowNames": ["inner"]}
    checks = {**JUDGE, "checker": {"name": "judge", "command": "touch other; test ! -e probe.txt"}}
    flows = {"sub": {"steps": [WRITES, JUDGE, inner]}, "inner": {"steps": [MAKE, checks]}}
    document = {
        **flow, "worktree": True, "flows": flows,
        "steps": [WRITES, {"type": "subflow", "flowNames": ["sub"]}],
    }  # fmt: skip
    session = sessions.submit_document(document, until="keep")
    folder = sessions.folder(session)
    assert git(folder, "status", "--porcelain") == "?? a.txt\n?? made.txt"
    (folder / "late.txt").touch()
    sessions.carry_out(session)
    assert sessions.status(session) == "completed", sessions.reason(session)
    branch = f"leadhand/{session}"
    assert git(repo, "diff", "--name-only", f"main..{branch}").splitlines() == ["a.txt", "made.txt"]
    assert git(repo, "show", f"{branch}:a.txt") == "line\nline"
    assert any("stays uncommitted in the worktree: late.txt" in one
               for one in sessions.warnings(session))  # fmt: skip
    (child,) = sessions.engine.store.children(SessionRef(session, session))
    (warning,) = (one for one in sessions.warnings(child) if "judged" in one)
    assert warning.endswith("the work of the doer was put back")
    (below,) = sessions.engine.store.children(SessionRef(child, session))
    (warning,) = (one for one in sessions.warnings(below) if "judged" in one)
    assert warning.startswith("1 file was changed while checkers judged the work: other;")


def test_check_of_a_subflow_beside_another_puts_nothing_back(
    sessions: Sessions, repo: Path, flow: dict[str, object]
) -> None:
    flows = {"one": {"steps": [JUDGE]}, "two": {"steps": [MAKE]}}
    steps = [WRITES, {"type": "subflow", "flowNames": ["one", "two"]}]
    session = sessions.submit_document({**flow, "worktree": True, "flows": flows, "steps": steps})
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert (sessions.folder(session) / "made.txt").exists()
    assert (sessions.folder(session) / "probe.txt").exists()


@pytest.mark.parametrize("is_beside", [True, False])
def test_sessions_of_a_forked_graph_put_back_what_no_other_writes_and_have_records_of_their_own(
    sessions: Sessions, repo: Path, tmp_path: Path, is_beside: bool
) -> None:
    """What one writes that may run beside another is no change by the checks of that."""
    (tmp_path / "agents.toml").write_text("[agents.first]\ncommand = ['echo', 'ok']\n")
    loop = {"kind": "loop", "task": "t", "checkers": ["touch probe.txt"], "baseline": False}
    hidden = {"command": "echo conftest.py > .gitignore; touch conftest.py"}
    call = {"name": "first", "tool": "agent:first", "arguments": {"prompt": "p"}}
    one = {"name": "one", "session": {**loop, "doer": hidden}, "depends_on": ["first"]}
    work = {"command": "echo work > a.txt"}
    two = {
        "name": "two",
        "session": {**loop, "doer": work},
        "depends_on": ["first" if is_beside else "one"],
    }
    graph = {"kind": "graph", "cwd": str(repo), "steps": [call, one, two]}
    fork = sessions.fork(sessions.submit_document(graph), "first")
    assert sessions.status(fork) == "completed", sessions.reason(fork)
    assert (sessions.folder(fork) / "probe.txt").exists() == is_beside
    assert (sessions.folder(fork) / "conftest.py").exists()
    assert (sessions.folder(fork) / "a.txt").exists()
    children = sessions.engine.store.children(SessionRef(fork, fork))
    ledgers = [sessions.engine.queries.ledger(child).items[-1] for child in children]
    named = sorted(len(one.checker_changed or ()) for one in ledgers)
    assert named == [0, 2]  # conftest.py and .gitignore, by the first one
