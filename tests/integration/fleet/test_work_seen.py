"""What doers changed in their folder, seen by real workers, and over a stop."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet import Fleet
from tests.waiting import wait_until

#: What no difference may show, though a doer writes it into a file.
KEY = "sk-ant-0123456789abcdefghij"

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.timeout(120),
]


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=2)
    fleet.worker("one")
    yield fleet
    fleet.close()


@pytest.fixture
def repo(fleet: Fleet) -> Path:
    repo = fleet.folder / "repo"
    repo.mkdir()
    (repo / "log").write_text("begun\n")
    commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]
    for command in (["init", "-q"], ["add", "-A"], commit):
        subprocess.run(["git", *command], cwd=repo, check=True)
    return repo


def digest_of(fleet: Fleet, session: str, iteration: int) -> str:
    ref = fleet.engine.store.ref(session)
    assert ref is not None
    (text,) = fleet.engine.store.values(ref, "out", [f"loop~1[{iteration}]/do"]).values()
    return str(json.loads(text).get("digest"))


def test_each_iteration_keeps_what_it_changed(fleet: Fleet, repo: Path) -> None:
    enough = '[ "$(wc -l < log)" -gt 3 ]'
    session = fleet.loop(
        f"echo $LEADHAND_ITERATION {KEY} $LEADHAND_TOKEN >> log", enough, cwd=str(repo)
    )
    assert fleet.ended(session, timeout=60).iterations == 3
    page = fleet.engine.queries.diffs(session)
    assert [(d.loop, d.iteration) for d in page.items] == [("loop", n) for n in (1, 2, 3)]
    for diff in page.items:
        added = [line for line in diff.patch.splitlines() if line.startswith("+")]
        assert added == ["+++ b/log", f"+{diff.iteration} [redacted] [redacted]"]
        assert digest_of(fleet, session, diff.iteration) == diff.after
    assert f"1 {KEY} lhc1." in (repo / "log").read_text(), "the work itself is left as it is"
    assert page.items[0].after == page.items[1].before
    assert [d.iteration for d in fleet.engine.queries.diffs(session, iteration=2).items] == [2]
    assert subprocess.run(
        ["git", "status", "--porcelain"], cwd=repo, capture_output=True, check=True
    ).stdout == b" M log\n"  # fmt: skip


def test_a_folder_in_no_repository_has_digests_and_diffs(fleet: Fleet) -> None:
    folder = fleet.folder / "plain"
    folder.mkdir()
    session = fleet.loop("date +%N >> log", '[ "$(wc -l < log)" -gt 1 ]', cwd=str(folder))
    fleet.ended(session, timeout=60)
    first, second = (digest_of(fleet, session, n) for n in (1, 2))
    assert first != second
    assert [d.after for d in fleet.engine.queries.diffs(session).items] == [first, second]
    assert not (folder / ".git").exists()


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.slow
def test_a_change_while_it_was_stopped_is_noted(fleet: Fleet, repo: Path, changed: bool) -> None:
    stay = fleet.script("stay.py", (
        "import os, pathlib, time\n"
        "log = pathlib.Path('log')\n"
        "log.write_text(log.read_text() + 'half\\n')\n"
        "while not pathlib.Path('../go').exists() and os.environ['LEADHAND_ITERATION'] == '2':\n"
        "    time.sleep(0.05)\n"
    ))  # fmt: skip
    doer = stay.replace("stay.py", str(fleet.folder / "stay.py"))
    enough = '[ "$(wc -l < log)" -gt 3 ]'
    session = fleet.loop(doer, enough, cwd=str(repo))
    wait_until(lambda: (repo / "log").read_text().count("half") == 2, timeout=60)
    fleet.engine.control.apply(session, "stop")
    wait_until(lambda: fleet.engine.queries.session(session).status == "stopped", timeout=30)
    if changed:
        (repo / "other").write_text("somebody's\n")
    (fleet.folder / "go").touch()
    fleet.engine.control.apply(session, "resume")
    result = fleet.ended(session, timeout=60)
    noted = "the working folder changed while the session was stopped"
    assert (noted in result.warnings) == changed
    (second,) = fleet.engine.queries.diffs(session, iteration=2).items
    assert ("+somebody's" in second.patch) == changed
