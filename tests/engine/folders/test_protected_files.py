"""A doer that changes protected files ends its session as tampered, however it hides that."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.sessions.questions import list_questions_of_tree
from leadhand.models.documents import Protected
from leadhand.models.verdicts import ReasonCode
from tests.engine.folders.sessions import Sessions
from tests.unit.workers.folders.repositories import git, make_repository
from workers.folders import protected
from workers.folders.protected import ProtectedFolder, Protection, Records, Taken
from workers.processes.exit_outcome import failed_outcome

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

PROTECTED = ["tests/", "conftest.py", "pytest.ini"]


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    git(repo, "reset", "-q", "--hard")
    (repo / "tests" / "unit").mkdir(parents=True)
    for name in ("tests/test_a.py", "tests/unit/test_b.py", "conftest.py", "code.py"):
        (repo / name).write_text(f"# {name}\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "tests")
    return repo


def submit(sessions: Sessions, cwd: Path, command: str, **more: object) -> str:
    given = {"doer": {"command": command}, "checkers": ["true"], "protected": PROTECTED}
    return sessions.submit(cwd, **{**given, **more})


def tampered(sessions: Sessions, session: str) -> str:
    """The text of the reason of a session that ended as tampered."""
    view = sessions.engine.queries.session(session)
    assert view.status == "failed", view.reason
    assert view.reason is not None
    assert view.reason.code == "tampered", view.reason
    return view.reason.text


HIDE = "echo tests/ >> .gitignore; mkdir -p $(git rev-parse --git-path info);"
HIDE += " echo tests/ >> $(git rev-parse --git-path info/exclude); "
QUIETLY = "touch -r tests/test_a.py /tmp/$$; sed -i s/#/%/ tests/test_a.py;"
QUIETLY += " touch -r /tmp/$$ tests/test_a.py; rm /tmp/$$"
#: What a doer does, and what the reason names.
CHEATS = {
    "edits a test": ("echo x >> tests/test_a.py", "tests/test_a.py (changed)"),
    "fails after that": ("echo x >> tests/test_a.py; exit 3", "tests/test_a.py (changed)"),
    "deletes a test": ("rm tests/unit/test_b.py", "tests/unit/test_b.py (deleted)"),
    "renames a test": ("mv tests/test_a.py tests/a.py", "tests/a.py (created), tests/test_a.py"),
    "adds a conftest.py": (
        "mkdir lib; echo 'import os; os._exit(0)' > lib/conftest.py", "lib/conftest.py (created)",
    ),
    "adds a pytest.ini": ("echo '[pytest]' > pytest.ini", "pytest.ini (created)"),
    "ignores the test first": (f"{HIDE} echo x >> tests/test_a.py", "tests/test_a.py (changed)"),
    "adds an ignored test": (f"{HIDE} echo x >> tests/new.py", "tests/new.py (created)"),
    "keeps size and time": (QUIETLY, "tests/test_a.py (changed)"),
    "assumes it unchanged": (
        "git update-index --assume-unchanged tests/test_a.py; git config core.trustctime false;"
        " git config core.checkStat minimal; echo x >> tests/test_a.py",
        "tests/test_a.py (changed)",
    ),
    "commits it": ("echo x >> tests/test_a.py; git commit -qam x", "tests/test_a.py (changed)"),
    "links the file": (
        "mv tests/test_a.py moved.py; ln -s ../moved.py tests/test_a.py", "tests/test_a.py (chang",
    ),
    "links the folder": (
        "mv tests moved; ln -s moved tests", "tests/test_a.py (changed), tests/unit/test_b.py (ch",
    ),
    "links to another folder": (
        "mkdir .venv; touch .venv/conftest.py; ln -s .venv lib", "lib/conftest.py (created)",
    ),
    "hides a conftest.py among packages": (
        "mkdir node_modules; touch node_modules/conftest.py; ln -s node_modules lib",
        "lib/conftest.py (created)",
    ),
    "hides one in .leadhand": ("mkdir .leadhand; touch .leadhand/conftest.py", ".leadhand/conf"),
    "plants bytecode": ("echo x > tests/helper.pyc", "tests/helper.pyc (created)"),
    "makes it executable": ("chmod +x tests/test_a.py", "tests/test_a.py (changed)"),
    "replaces it by a pipe": ("rm conftest.py; mkfifo conftest.py", "conftest.py (changed)"),
}  # fmt: skip


#: Those that are tried in a worktree, too.
IN_WORKTREES = ("edits a test", "adds an ignored test", "assumes it unchanged", "links the folder")


@pytest.mark.parametrize(
    ("cheat", "worktree"),
    [*((name, False) for name in CHEATS), *((name, True) for name in IN_WORKTREES)],
)
def test_session_of_a_doer_that_changes_protected_files_ends_as_tampered(
    sessions: Sessions, repo: Path, cheat: str, worktree: bool
) -> None:
    command, named = CHEATS[cheat]
    session = submit(sessions, repo, command, worktree=worktree)
    assert named in tampered(sessions, session)
    (entry,) = sessions.engine.queries.ledger(session).items
    assert entry.verdict == "terminate"
    assert entry.reason is not None
    assert entry.reason.code == "tampered"
    steps = {one.address for one in sessions.engine.queries.steps(session, limit=99).items
             if one.state == "succeeded"}  # fmt: skip
    assert not any("check" in address for address in steps), "no checker runs what was planted"


#: What is no cheat.
HONEST = {
    "works": "echo work >> code.py",
    "writes a test elsewhere": "mkdir more; touch more/test_c.py",
    "leaves caches": "mkdir -p tests/__pycache__ tests/.pytest_cache; touch tests/.pytest_cache/x"
    " tests/__pycache__/test_a.cpython-311.pyc",
    "rewrites what it read": "cat tests/test_a.py > t; rm tests/test_a.py; cp t tests/test_a.py",
    "uses git": "echo x >> tests/test_a.py; git stash -q; git branch other; git gc -q",
    "installs packages": "mkdir -p env/lib node_modules/x; touch env/pyvenv.cfg"
    " env/lib/conftest.py node_modules/x/conftest.py",
    "ignores more": "echo '*.log' >> .gitignore; chmod g-w tests/test_a.py",
    "links a folder": "ln -s tests more; ln -s .. up",
}


@pytest.mark.parametrize(
    ("what", "worktree"),
    [*((name, False) for name in HONEST), ("works", True), ("uses git", True)],
)
def test_honest_doer_is_not_called_a_cheat(
    sessions: Sessions, repo: Path, what: str, worktree: bool
) -> None:
    session = submit(sessions, repo, HONEST[what], worktree=worktree)
    assert sessions.status(session) == "completed", sessions.reason(session)


def test_files_are_as_before_all_iterations(sessions: Sessions, repo: Path) -> None:
    doer = "test -e turn && echo x >> tests/test_a.py; touch turn"
    session = submit(sessions, repo, doer, checkers=["false"], worktree=True)
    assert "tests/test_a.py (changed)" in tampered(sessions, session)
    assert sessions.engine.queries.session(session).reason.at == "loop~1[2]/do"  # type: ignore[union-attr]


@pytest.mark.parametrize("on_fail", ["continue", "retry:2", "stop"])
def test_no_phase_follows_one_that_was_tampered_with(
    sessions: Sessions, repo: Path, on_fail: str
) -> None:
    first = {"name": "a", "task": "t", "checkers": ["true"], "protected": PROTECTED,
             "doer": {"command": "rm conftest.py"}, "on_fail": on_fail}  # fmt: skip
    second = {"name": "b", "task": "t", "checkers": ["true"], "doer": {"command": "touch second"}}
    session = sessions.submit_document(
        {"kind": "workflow", "name": "w", "cwd": str(repo), "phases": [first, second]}
    )
    assert "conftest.py (deleted)" in tampered(sessions, session)
    assert not (repo / "second").exists()


def test_new_files_are_allowed_where_the_pattern_says_so(sessions: Sessions, repo: Path) -> None:
    protected = [{"pattern": "tests/", "allow": ["create"]}, "conftest.py"]
    session = submit(sessions, repo, "touch tests/test_new.py", protected=protected)
    assert sessions.status(session) == "completed", sessions.reason(session)
    session = submit(sessions, repo, "touch tests/conftest.py", protected=protected)
    assert "tests/conftest.py (created)" in tampered(sessions, session)


def only_once(command: str) -> str:
    """A doer that cheats in its first run only."""
    return f"test -e turn || {{ touch turn; {command}; }}"


@pytest.mark.parametrize(
    ("cheat", "worktree"),
    [
        ("edits a test", True),
        ("edits a test", False),
        ("deletes a test", False),
        ("adds a conftest.py", False),
        ("links the file", False),
        ("links the folder", False),
        ("links to another folder", False),
        ("makes it executable", False),
    ],
)
def test_resume_puts_back_what_a_doer_has_changed(
    sessions: Sessions, repo: Path, cheat: str, worktree: bool
) -> None:
    session = submit(sessions, repo, only_once(CHEATS[cheat][0]), worktree=worktree)
    tampered(sessions, session)
    resume(sessions, session)
    assert sessions.status(session) == "completed", sessions.reason(session)
    folder = sessions.folder(session) if worktree else repo
    for name in ("tests/test_a.py", "tests/unit/test_b.py", "conftest.py"):
        assert (folder / name).read_text() == f"# {name}\n"
    assert any("put back before the doer" in one for one in sessions.warnings(session))


def resume(sessions: Sessions, session: str, **more: bool) -> None:
    sessions.engine.control.apply(session, "resume", **more)  # type: ignore[arg-type]
    sessions.carry_out(session)


def test_file_that_a_person_changed_since_is_taken_and_not_put_back(
    sessions: Sessions, repo: Path
) -> None:
    session = submit(sessions, repo, only_once("echo x >> tests/test_a.py; rm conftest.py"))
    tampered(sessions, session)
    (repo / "tests/test_a.py").write_text("# by a person\n")
    resume(sessions, session)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert (repo / "tests/test_a.py").read_text() == "# by a person\n"
    assert (repo / "conftest.py").exists()
    assert (
        "put back before the doer: conftest.py; protected files were taken as a person's, who"
        " changed them meanwhile: tests/test_a.py"
    ) in sessions.warnings(session)


def test_what_a_person_changed_is_protected_from_then_on(sessions: Sessions, repo: Path) -> None:
    doer = "test -e go && { rm go; git checkout -q tests; }; true"
    session = submit(sessions, repo, doer, checkers=["test -e done"])
    assert sessions.status(session) == "failed"
    (repo / "tests/test_a.py").write_text("# stricter\n")
    (repo / "conftest.py").unlink()
    (repo / "go").touch()
    sessions.engine.control.apply(session, "resume", max_iterations=20)
    sessions.carry_out(session)
    assert tampered(sessions, session).endswith(": tests/test_a.py (changed)")
    (repo / "done").touch()
    resume(sessions, session)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert (repo / "tests/test_a.py").read_text() == "# stricter\n", "as the person left it"


def test_change_of_a_doer_whose_end_nothing_compared_is_no_persons(
    sessions: Sessions, repo: Path, tmp_path: Path
) -> None:
    session = submit(sessions, repo, only_once("echo x >> tests/test_a.py"))
    (tmp_path / "spill" / session / "protected" / "tampered").unlink()
    resume(sessions, session)
    assert "tests/test_a.py (changed)" in tampered(sessions, session)


@pytest.mark.parametrize("worktree", [True, False])
def test_resume_may_take_what_a_doer_has_changed(
    sessions: Sessions, repo: Path, worktree: bool
) -> None:
    doer = only_once("echo x >> tests/test_a.py; touch pytest.ini")
    session = submit(sessions, repo, doer, worktree=worktree)
    tampered(sessions, session)
    resume(sessions, session, accept_protected=True)
    assert sessions.status(session) == "completed", sessions.reason(session)
    folder = sessions.folder(session) if worktree else repo
    assert (folder / "tests/test_a.py").read_text() == "# tests/test_a.py\nx\n"
    assert any("taken as they are now: pytest.ini" in one for one in sessions.warnings(session))


def test_flow_is_resumed_at_the_step_that_cheated(sessions: Sessions, repo: Path) -> None:
    steps = [llm("touch once$(ls | grep -c once)"), llm(only_once(EDIT))]
    session = submit_flow(sessions, repo, steps)
    tampered(sessions, session)
    resume(sessions, session, accept_protected=True)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert not (repo / "once1").exists(), "the first step does not run again"


def test_change_of_a_doer_that_was_stopped_is_told_from_a_persons(tmp_path: Path) -> None:
    folder, kept = tmp_path / "work", {"packed": "", "resumed": "compare"}
    folder.mkdir()
    for name in ("by_doer", "by_person"):
        (folder / name).write_text("first")
    patterns = (Protected(pattern="by_*"),)
    records = Records(
        folder,
        lambda _: Taken(kept["packed"], "compare" if kept["resumed"] else None),
        lambda _, packed: kept.update(packed=packed, resumed=""),
    )
    files = ProtectedFolder(records, tmp_path / "shelf", threading.Event())
    given = Protection(
        patterns=patterns, before=files.record(patterns, "protect").model_dump(mode="json")
    )

    def stopped(_: threading.Event) -> Outcome:
        (folder / "by_doer").write_text("cheat")
        return failed_outcome(ReasonCode.CANCELLED, "it was stopped")

    files.guard(given, "do", stopped)
    (folder / "by_person").write_text("second")
    kept["resumed"] = "compare"
    outcome = files.guard(given, "do", lambda _: Outcome(word="succeeded"))
    assert (outcome.reason, (folder / "by_doer").read_text()) == (None, "first")
    assert outcome.warning is not None
    assert outcome.warning.endswith("changed them meanwhile: by_person")


def test_stop_while_the_files_are_searched_takes_none_for_deleted(tmp_path: Path) -> None:
    folder, taken = tmp_path / "work", list[str]()
    folder.mkdir()
    (folder / "test_a.py").write_text("first")
    records = Records(
        folder, lambda _: Taken("", "compare"), lambda _, packed: taken.append(packed)
    )
    files = ProtectedFolder(records, tmp_path / "shelf", threading.Event())
    patterns = (Protected(pattern="test_*"),)
    given = Protection(
        patterns=patterns, before=files.record(patterns, "protect").model_dump(mode="json")
    )
    files.cancel.set()
    outcome = files.guard(given, "do", lambda _: pytest.fail("the doer has started"))
    assert outcome.reason is not None
    assert (outcome.reason.code, taken) == (ReasonCode.CANCELLED, [])


def test_retry_of_the_step_before_the_loop_accepts_the_files(
    sessions: Sessions, repo: Path
) -> None:
    session = submit(sessions, repo, only_once("echo x >> tests/test_a.py; touch pytest.ini"))
    tampered(sessions, session)
    sessions.engine.step_verbs.retry(session, "protect")
    sessions.carry_out(session)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert (repo / "tests/test_a.py").read_text() == "# tests/test_a.py\nx\n"


AGENTS = r"""
[agents.sh]
command = ["sh", "-c", "eval \"$1\"; echo ok", "sh", "{prompt}"]
[agents.no]
command = ["sh", "-c", "echo '{\"answer\": \"no\"}'", "{prompt}"]
[agents.cheat]
command = ["sh", "-c", "echo x >> tests/test_a.py; echo yes", "{prompt}"]
"""


def llm(command: str, **more: object) -> dict[str, object]:
    """A step of a flow whose agent runs its prompt."""
    message = {"type": "message", "role": "user", "content": [command]}
    return {"type": "llm", "agentType": "sh", "identifier": "a", "messages": [message], **more}


def submit_flow(sessions: Sessions, repo: Path, steps: object, **more: object) -> str:
    (repo.parent / "agents.toml").write_text(AGENTS)
    document = {"kind": "flow", "name": "f", "cwd": str(repo), "steps": steps, **more}
    return sessions.submit_document({"protected": PROTECTED, **document})


EDIT = "echo x >> tests/test_a.py"
DECIDES = {"identifier": "b", "question": "Is it so?"}
LATER = llm("touch later", label="later")
#: Where in a flow an agent cheats, and the step that does.
FLOWS: dict[str, tuple[list[object], str]] = {
    "at the top": ([llm(EDIT), LATER], "llm1"),
    "in a subfolder": ([llm("echo x >> ../conftest.py", working_folder="tests"), LATER], "llm1"),
    "in a loop that continues on failure": (
        [{"type": "startLoop", "maxIterations": 2, "label": "outer", "steps": [
            {"type": "startLoop", "maxIterations": 2, "label": "inner", "steps": [llm(EDIT)]}]},
         LATER],
        "outer~1[1]/inner~1[1]/llm1",
    ),
    "in a branch": (
        [{"type": "parallel", "branches": [
            {"steps": [llm(EDIT)]}, {"steps": [llm("true", identifier="b")]}]}, LATER],
        "parallel1-1-llm1",
    ),
    "where it decides": ([{"type": "if", "agentType": "cheat", **DECIDES, "then": [LATER]}], "if1"),
    "in the name of a step": (
        [{"type": "startLoop", "maxIterations": 1, "steps": [llm(EDIT, label="protect")]}],
        "loop1~1[1]/protect",
    ),
    "for each of a list": (
        [{"type": "tool", "tool": "agent:sh", "forEach": [EDIT, "true"], "atOnce": 1,
          "arguments": {"prompt": "${item}"}}, LATER],
        "tool1~1#1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("where", FLOWS)
def test_flow_ends_once_an_agent_has_changed_protected_files(
    sessions: Sessions, repo: Path, where: str
) -> None:
    steps, at = FLOWS[where]
    session = submit_flow(sessions, repo, steps)
    assert "(changed)" in tampered(sessions, session)
    assert sessions.engine.queries.session(session).reason.at == at  # type: ignore[union-attr]
    assert not (repo / "later").exists()


def test_flow_that_leaves_protected_files_alone_is_completed(
    sessions: Sessions, repo: Path
) -> None:
    steps = [
        {"type": "startLoop", "maxIterations": 2, "steps": [
            llm("touch work"), {"type": "break", "breakOn": "no", "agentType": "no", **DECIDES}]},
        {"type": "subflow", "flowNames": ["sub"]},
        LATER,
    ]  # fmt: skip
    session = submit_flow(sessions, repo, steps, flows={"sub": {"steps": [llm("touch sub")]}})
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert (repo / "sub").exists()


def test_subflow_has_the_protected_files_of_its_flow(sessions: Sessions, repo: Path) -> None:
    steps = [{"type": "subflow", "flowNames": ["sub"]}, LATER]
    session = submit_flow(sessions, repo, steps, flows={"sub": {"steps": [llm(EDIT)]}})
    (child,) = sessions.engine.store.children(SessionRef(session, session))
    assert "(changed)" in tampered(sessions, child)
    assert "(changed)" in tampered(sessions, session)


def ask(sessions: Sessions, repo: Path, doer: str, **more: object) -> str:
    return submit(sessions, repo, doer, on_protected="ask", **more)


def question(sessions: Sessions, session: str) -> str:
    view = sessions.engine.queries.session(session)
    assert view.status == "waiting", view.reason
    (asked,) = list_questions_of_tree(sessions.engine, session, limit=9).items
    return str(asked.question)


def answer(sessions: Sessions, session: str, text: str) -> None:
    sessions.engine.answers.give(session, text)
    sessions.carry_out(session)


def test_person_takes_a_change_for_the_rest_of_the_session(sessions: Sessions, repo: Path) -> None:
    doer = "echo x > tests/test_a.py; test -e turn && touch done; touch turn"
    checks = ["test -e done && grep -q x tests/test_a.py"]
    session = ask(sessions, repo, doer, checkers=checks, worktree=True)
    asked = question(sessions, session)
    assert asked.startswith("1 protected file was changed since the loop began: tests/test_a.py")
    assert "\n-# tests/test_a.py\n+x\n" in asked
    answer(sessions, session, "yes")
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert any("as a person allowed: tests/test_a.py" in w for w in sessions.warnings(session))
    (first, second) = sessions.engine.queries.ledger(session).items
    assert (first.verdict, second.verdict) == ("retry", "accept"), "it is asked once"


def test_refused_change_ends_the_session_before_any_check(sessions: Sessions, repo: Path) -> None:
    more = {"checkers": ["touch checked"], "baseline": False}
    session = ask(sessions, repo, only_once("rm conftest.py"), **more)
    answer(sessions, session, "no")
    assert tampered(sessions, session).endswith("conftest.py (deleted); the change was refused")
    assert not (repo / "checked").exists()
    resume(sessions, session)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert (repo / "conftest.py").exists()


def test_answer_counts_for_the_files_that_were_shown(sessions: Sessions, repo: Path) -> None:
    session = ask(sessions, repo, "echo x >> tests/test_a.py")
    (repo / "tests/test_a.py").write_text("import os; os._exit(0)\n")
    answer(sessions, session, "yes")
    assert "+import os; os._exit(0)" in question(sessions, session)
    (repo / "tests/test_a.py").write_text("again\n")
    answer(sessions, session, "yes")
    view = sessions.engine.queries.session(session)
    assert view.reason is not None
    assert (view.status, view.reason.root.code) == ("failed", "contested")


def test_no_person_is_asked_about_an_honest_doer(sessions: Sessions, repo: Path) -> None:
    session = ask(sessions, repo, "touch work")
    assert sessions.status(session) == "completed", sessions.reason(session)


@pytest.mark.parametrize(("times", "asks"), [(2, False), (99, False), (99, True)])
def test_files_that_cannot_be_read_are_read_again_and_then_the_check_is_down(
    sessions: Sessions, repo: Path, monkeypatch: pytest.MonkeyPatch, times: int, asks: bool
) -> None:
    """A failing disk is no cheat; but no checker runs, and the doer is not started again."""
    digest, failed = protected._digest, list[Path]()

    def fails(path: Path) -> str:
        if path.name == "conftest.py" and (repo / "done").exists() and len(failed) < times:
            failed.append(path)
            raise OSError(5, "Input/output error", str(path))
        return digest(path)

    monkeypatch.setattr(protected, "_digest", fails)
    monkeypatch.setattr(protected, "AGAIN_S", (0.0, 0.0, 0.0))
    session = submit(
        sessions, repo, "touch done; echo >> started", checkers=["touch checked"], doer_attempts=2,
        on_protected="ask" if asks else "terminate", baseline=False,
    )  # fmt: skip
    view = sessions.engine.queries.session(session)
    assert (repo / "started").read_text() == "\n"
    assert (repo / "checked").exists() == (times == 2)
    if times == 2:
        assert view.status == "completed", view.reason
        return
    assert view.reason is not None
    assert view.reason.code == "checker_down", view.reason
    assert "the protected files cannot be compared: " in view.reason.text
