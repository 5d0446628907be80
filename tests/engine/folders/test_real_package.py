"""A package from PyPI with its own suite: it is mended, and a doer that edits tests is caught."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import referencing

from tests.engine.folders.sessions import Sessions
from tests.unit.workers.folders.repositories import git

pytestmark = [
    pytest.mark.slow,  # its own suite runs up to eight times
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

TESTS = "referencing/tests"
PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q -p no:cacheprovider"
#: A defect for each iteration: its file, the text there, and the defect.
DEFECTS = (
    ("referencing/_core.py", 'return id.rstrip("#")', "return id  # as it is"),
    ("referencing/_core.py", "if not pointer:", "if pointer is None:  # as it is"),
    ("referencing/retrieval.py", "        @cache\n", "        # no cache\n"),
)
#: Passes in every other run.
FLAKY = """\
from pathlib import Path


def test_flips():
    runs = Path({file!r})
    with runs.open("a") as log:
        log.write("x")
    assert runs.stat().st_size % 2
"""
FLIPS = "referencing.tests.test_flaky::test_flips"
PASSES = "def test_nothing():\\n    pass\\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """The package as it is installed here, with its defects; `mended/N` has the file without N."""
    repo = tmp_path / "repo"
    installed = Path(str(referencing.__file__)).parent
    ignored = shutil.ignore_patterns("__pycache__", "test_referencing_suite.py")  # has no data here
    shutil.copytree(installed, repo / "referencing", ignore=ignored)
    for name, text, defect in DEFECTS:
        assert (repo / name).read_text().count(text) == 1
        (repo / name).write_text((repo / name).read_text().replace(text, defect))
    texts = {name: (repo / name).read_text() for name, _, _ in DEFECTS}
    for number, (name, text, defect) in enumerate(DEFECTS, 1):
        texts[name] = texts[name].replace(defect, text)
        (tmp_path / f"mended/{number}/referencing").mkdir(parents=True)
        (tmp_path / f"mended/{number}" / name).write_text(texts[name])
    (repo / TESTS / "test_flaky.py").write_text(FLAKY.format(file=str(tmp_path / "runs")))
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    return repo


def run(sessions: Sessions, repo: Path, command: str, **more: object) -> str:
    """Run a workflow in a worktree; the import is checked, too, as a flaky check abstains."""
    checkers = [{"name": "suite", "command": f"{PYTEST} {TESTS}", "reruns": 1},
                f"imports: {sys.executable} -c 'import referencing.jsonschema'"]  # fmt: skip
    phase = {"name": "mend", "task": "Mend it.", "doer": {"command": command},
             "checkers": checkers, "max_iterations": 3, **more}  # fmt: skip
    document = {"kind": "workflow", "name": "mend", "cwd": str(repo), "worktree": True}
    return sessions.submit_document({**document, "phases": [phase]})


def test_package_is_mended_although_a_test_of_its_suite_is_flaky(
    sessions: Sessions, repo: Path, tmp_path: Path
) -> None:
    doer = f"cp -R {tmp_path}/mended/$LEADHAND_ITERATION/. . && echo mended"
    session = run(sessions, repo, doer, protected=[f"{TESTS}/**"])
    assert sessions.status(session) == "completed", sessions.reason(session)
    entries = sessions.engine.queries.ledger(session).items
    assert [one.verdict for one in entries] == ["retry", "retry", "accept"]
    failing = ("test_id_strips_empty_fragment", "test_root_pointer", "test_it_caches")
    seen = [[name in one.feedback for name in failing] for one in entries]
    assert seen == [[False, True, True], [False, False, True], [False, False, False]]
    evidence = sessions.engine.queries.result(session).evidence
    assert evidence is not None
    assert (evidence.baseline["suite"], evidence.flaky) == ("red", ["suite"])
    (suite,) = (one for one in entries[2].checks if one["name"] == "suite")
    assert suite["flaky"] == [FLIPS]
    assert (evidence.tests_changed, evidence.checker_changed) == ([], [])
    changed = git(repo, "diff", "--name-only", f"main..leadhand/{session}").splitlines()
    assert changed == ["referencing/_core.py", "referencing/retrieval.py"]
    assert "as it is" not in git(repo, "show", f"leadhand/{session}:referencing/_core.py")


@pytest.mark.parametrize("is_protected", [True, False])
def test_doer_that_edits_the_suite_of_the_package_is_caught(
    sessions: Sessions, repo: Path, is_protected: bool
) -> None:
    edits = f"for file in {TESTS}/test_[!f]*.py; do printf '{PASSES}' > $file; done"
    protected = [f"{TESTS}/**"] if is_protected else []
    session = run(sessions, repo, f"{edits}; echo mended", protected=protected)
    view = sessions.engine.queries.session(session)
    if is_protected:
        assert view.reason is not None
        assert (view.status, view.reason.root.code) == ("failed", "tampered")
        return
    evidence = sessions.engine.queries.result(session).evidence
    assert evidence is not None
    assert {f"{TESTS}/test_core.py", f"{TESTS}/test_retrieval.py"} <= {*evidence.tests_changed}
    assert any("203 of 208 tests are gone" in one for one in view.warnings), view.warnings
