"""What doctor finds, and how it says to mend it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadhand.cli.doctor import (
    agents,
    agents_faults,
    check_default_agent,
    clock_finding,
    disk_finding,
    folder_findings,
    python_finding,
    server_program,
    services,
    state_folder,
)
from leadhand.client.client import Client
from leadhand.local.user_state import prepare
from leadhand.models.views.fleet import AgentsFault, AgentView, WorkerView
from leadhand.settings import ClientSettings
from tests.scripted_api import TOKEN, scripted_api


def test_an_old_python_fails() -> None:
    assert python_finding((3, 10)).level == "fail"
    assert python_finding((3, 11)).level == "ok"


def test_a_full_disk_is_a_warning() -> None:
    assert disk_finding(10 * 1024**2).level == "warn"
    assert disk_finding(10 * 1024**3).level == "ok"


def test_clocks_that_differ_are_a_warning() -> None:
    assert [clock_finding(skew).level for skew in (-90.0, 5.0, 90.0)] == ["warn", "ok", "warn"]


def test_a_redis_is_found_or_named() -> None:
    assert server_program(None).level == "ok"
    assert "LEADHAND_REDIS_URL" in server_program("redis://somewhere").text


def test_a_state_folder_that_others_may_read_fails(home: Path) -> None:
    assert state_folder(home).level == "ok"
    prepare(home)
    assert state_folder(home).level == "ok"
    secret = home / "secrets.json"
    secret.write_text("{}")
    secret.chmod(0o644)
    finding = state_folder(home)
    assert (finding.level, finding.mend) == ("fail", f"chmod go= {secret}")
    secret.unlink()
    (home / ".gitignore").unlink()
    assert state_folder(home).level == "warn"


def test_agents_are_looked_for_where_they_are_named(tmp_path: Path) -> None:
    file = tmp_path / "agents.toml"
    file.write_text('[agents.mine]\ncommand = ["no-such-program", "{prompt}"]\n')
    found = {finding.text.split()[0]: finding for finding in agents([file])}
    assert (found["mine"].level, found["mine"].mend) == ("warn", "install it")
    assert {"claude", "codex"} <= found.keys()
    file.write_text("# mine\n[agents")
    broken = next(iter(agents([file])))
    assert (broken.level, broken.subject) == ("fail", "agents")
    assert broken.text.startswith(f"{file}, line 2: is not TOML: ")
    for odd in (b"agents = 3", b"", b"agents = {x = 3}"):
        file.write_bytes(odd)
        assert {finding.level for finding in agents([file])} <= {"ok", "warn"}
    [unread, *_] = agents([tmp_path])
    assert unread.text.startswith(f"{tmp_path}: cannot be read: ")
    assert {finding.level for finding in agents([tmp_path / "missing.toml"])} <= {"ok", "warn"}


def test_each_fault_of_a_file_of_agents_is_reported_once() -> None:
    one = AgentsFault(text="/f/agents.toml, line 9: agents.bad.command: why", agent="bad")
    workers = [WorkerView(name=name, place="here", agents_faults=[one]) for name in "ab"]
    [finding] = agents_faults(workers)
    assert (finding.level, finding.text) == ("fail", one.text)


def test_services_that_answer_are_told_with_their_workers(tmp_path: Path) -> None:
    with scripted_api() as (url, _):
        settings = ClientSettings(url=url, token=TOKEN)
        found = list(services(settings, tmp_path))
    assert [finding.subject for finding in found].count("mcp") == 1  # test_mcp.py has its results
    found = [finding for finding in found if finding.subject != "mcp"]
    assert [(finding.level, finding.subject) for finding in found] == [
        ("ok", "api"), ("warn", "store"), ("ok", "workers"), ("warn", "sweep"), ("warn", "queue"),
    ]  # fmt: skip
    *_, sweep, queue = found
    assert sweep.text == "overdue: 2 leases for 1m30s; is a sweeper running?"
    assert queue.text == "1 step in gpu, and no worker for them"


def test_services_that_do_not_answer_fail_with_the_way_out(tmp_path: Path) -> None:
    with scripted_api() as (url, _):
        settings = ClientSettings(url=url, token=TOKEN)
    [finding] = services(settings, tmp_path, patience_s=0.2)
    assert finding.level == "fail"
    assert "LEADHAND_URL" in finding.mend


def test_a_default_agent_that_can_be_used_nowhere_is_named() -> None:
    lame = AgentView(
        name="x", kind="command", command="x", default=True, why_not={"local": "no key"}
    )
    (finding,) = check_default_agent([lame])
    assert (finding.level, finding.subject) == ("warn", "agent")
    assert "default agent x cannot be used at any place: no key" in finding.text
    assert not list(check_default_agent([lame.model_copy(update={"usable_at": ["far"]})]))


KNOWN, DELETED = "5e551045", "0badcafe"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "worktrees"


def record(root: Path, session: str, origin: Path) -> Path:
    """A folder of a session, with the record beside it that a worker writes."""
    folder = root / "0123456789abcdef" / session / "tree"
    folder.mkdir(parents=True)
    facts = {"kind": "copy", "origin": str(origin), "task": "tree", "run": 1, "session": session}
    folder.with_name("tree.json").write_text(json.dumps(facts))
    return folder


def found(root: Path, work: Path, **worktree: object) -> list[str]:
    own = {"kind": "copy", "origin": str(work), **worktree} if worktree else None
    with scripted_api() as (url, script):
        script.add(KNOWN, "failed", about={"worktree": own})
        with Client(url, TOKEN) as client:
            findings = list(folder_findings(root, work, client))
    assert {one.level for one in findings} <= {"warn"}
    return [f"{one.text} -> {one.mend}" for one in findings]


def test_folder_of_a_session_that_was_deleted_is_named(root: Path) -> None:
    work = root.parent / "work"
    record(root, KNOWN, work)
    left = record(root, DELETED, work / "sub")
    [text] = found(root, work)
    assert text.startswith(f"{left} is of session {DELETED}, which the store does not have -> ")


def test_folder_of_another_installation_is_left_alone(root: Path) -> None:
    record(root, DELETED, root.parent / "other")
    assert found(root, root.parent / "work") == []


def test_folder_that_is_gone_is_named_until_it_is_cleaned(root: Path) -> None:
    work, gone = root.parent / "work", root / "0123456789abcdef" / KNOWN / "tree"
    [text] = found(root, work, folder=str(gone))
    assert text == (f"{gone} of session {KNOWN} is gone -> leadhand worktree clean {KNOWN} --force")
    assert found(root, work, folder=str(gone), cleaned=True) == []
    gone.mkdir(parents=True)
    assert found(root, work, folder=str(gone)) == []


def test_unreadable_record_is_passed_over(root: Path) -> None:
    work = root.parent / "work"
    record(root, DELETED, work).with_name("tree.json").write_text("[")
    assert found(root, work) == []
