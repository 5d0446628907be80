"""Bytecode that a doer plants for a module makes no check green, and is no tampering by itself."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.folders.sessions import Sessions
from tests.unit.workers.folders.repositories import git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

#: Writes bytecode of other source, for a file of this size and time, to where Python looks for it.
PLANT = """\
import importlib.util, os, sys
from importlib._bootstrap_external import _code_to_timestamp_pyc
file, source = sys.argv[1:]
status = os.stat(file)
code = compile(source, file, "exec")
path = importlib.util.cache_from_source(file)
os.makedirs(os.path.dirname(path), exist_ok=True)
with open(path, "wb") as pyc:
    pyc.write(_code_to_timestamp_pyc(code, int(status.st_mtime), status.st_size))
"""
SOUND = "from calc import add; assert add(2, 3) == 5"


@pytest.fixture
def sessions(store_url: str, tmp_path: Path) -> Iterator[Sessions]:
    (tmp_path / "plant.py").write_text(PLANT)
    sessions = Sessions(store_url, tmp_path)
    yield sessions
    sessions.attempts.close()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (repo / "test_calc.py").write_text(f"{SOUND}\n")
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    return repo


#: What a doer plants: other code under the module, and a test without its assertion.
PLANTED = {
    "calc.py": "def add(a, b): return a + b",
    "test_calc.py": "",
}
CHECK = f"{sys.executable} -c 'import test_calc'"


def run(sessions: Sessions, repo: Path, planted: str, check: str, *protected: str) -> str:
    plant = f'"{sys.executable}" ../plant.py {planted} "{PLANTED[planted]}"'
    return sessions.submit(
        repo, doer={"command": f"unset PYTHONPYCACHEPREFIX; {plant}"}, checkers=[check],
        protected=protected, max_iterations=1, baseline=False,
    )  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_bytecode_accepts_nothing(sessions: Sessions, repo: Path, planted: str) -> None:
    trusting = run(sessions, repo, planted, f"unset PYTHONPYCACHEPREFIX; {CHECK}")
    assert sessions.status(trusting) == "completed", "the trick works on a check without a prefix"
    session = run(sessions, repo, planted, CHECK, "test_calc.py", "calc.py")
    assert "max_iterations" in sessions.reason(session)


QUICK = {"callable": "quick:check", "quick": True}


@pytest.mark.parametrize(
    ("way", "check"),
    [("", CHECK), ("mkdir -p ../far; ln -s $PWD/../far $to; ", CHECK), ("", QUICK)],
)
def test_bytecode_planted_where_checks_keep_theirs_accepts_nothing(
    sessions: Sessions, repo: Path, way: str, check: object
) -> None:
    """The spill of a session is not hidden from its doer."""
    (repo / "quick.py").write_text("def check():\n    import test_calc\n    return True\n")
    git(repo, "add", "quick.py")
    plant = f'"{sys.executable}" ../plant.py calc.py "{PLANTED["calc.py"]}"'
    spill = 'cache=$(dirname "$(dirname "$LEADHAND_PROMPT_FILE")")/pycache'
    if check is QUICK:  # all sessions of a worker share it
        spill = 'cache=$(realpath "$(dirname "$LEADHAND_PROMPT_FILE")/../..")/pycache'
    to = 'to=$cache$(dirname "$PWD")/repo; mkdir -p "$(dirname "$to")"'
    session = sessions.submit(
        repo, doer={"command": f"{spill}; {to}; {way}PYTHONPYCACHEPREFIX=$cache {plant}"},
        checkers=[check], max_iterations=1, baseline=False,
    )  # fmt: skip
    assert "max_iterations" in sessions.reason(session)
    assert (repo / "calc.py").read_text().endswith("a - b\n")


def test_bytecode_in_place_of_a_protected_source_is_tampering(
    sessions: Sessions, repo: Path
) -> None:
    doer = "cp ../plant.py x.pyc; rm test_calc.py; mv x.pyc test_calc.pyc"
    session = sessions.submit(
        repo, doer={"command": doer}, checkers=["true"], protected=["test_*"], baseline=False
    )
    why = sessions.reason(session)
    assert "test_calc.py (deleted), test_calc.pyc (created)" in why


#: A module in place of the one that is judged, and how Python comes to run a planted file.
INSTEAD = (
    "import sys, types; one = types.ModuleType('calc'); one.add = lambda a, b: a + b;"
    " sys.modules['calc'] = one\n"
)
RUN_BY = {
    "sitecustomize.py": f"PYTHONPATH=. {sys.executable} -c 'import test_calc'",
    ".venv/evil.pth": f'{sys.executable} -c \'import site; site.addsitedir(".venv");'
    " import test_calc'",
}


@pytest.mark.parametrize(
    ("planted", "more", "end"),
    [
        ("sitecustomize.py", {}, "completed"),
        ("sitecustomize.py", {"protected": ["sitecustomize.py"]}, "tampered"),
        (".venv/evil.pth", {}, "completed"),
        (".venv/evil.pth", {"protected": [".venv/"]}, "tampered"),
        (".venv/evil.pth", {"clean": True}, "max_iterations"),
    ],
)
def test_file_that_python_runs_at_its_start_is_named_protected_or_not_in_a_clean_folder(
    sessions: Sessions, repo: Path, planted: str, more: dict[str, object], end: str
) -> None:
    (repo.parent / "planted").write_text(INSTEAD)
    doer = f"mkdir -p .venv; cp ../planted {planted}"
    checker = {"command": RUN_BY[planted], "clean": "clean" in more}
    session = sessions.submit(
        repo, doer={"command": doer}, checkers=[checker], max_iterations=1,
        protected=more.get("protected", ()),
    )  # fmt: skip
    if end != "completed":
        assert end in sessions.reason(session)
        return
    assert sessions.status(session) == "completed", sessions.reason(session)
    evidence = sessions.engine.queries.result(session).evidence
    assert evidence is not None
    assert evidence.checker_changed == ([planted] if planted == "sitecustomize.py" else [])
