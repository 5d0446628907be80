"""What doctor finds, and how it says to mend it."""

from __future__ import annotations

from pathlib import Path

from leadhand.cli.checkup import (
    agents,
    clock_finding,
    default_agent,
    disk_finding,
    python_finding,
    server_program,
    services,
    state_folder,
)
from leadhand.home import prepare
from leadhand.settings import ClientSettings
from leadhand.views import AgentView
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
    file.write_text("[agents")
    assert next(iter(agents([file]))).level == "fail"


def test_services_that_answer_are_told_with_their_workers(tmp_path: Path) -> None:
    with scripted_api() as (url, _):
        settings = ClientSettings(url=url, token=TOKEN)
        found = list(services(settings, tmp_path))
    assert [(finding.level, finding.subject) for finding in found] == [
        ("ok", "api"), ("ok", "workers"), ("warn", "sweep"), ("warn", "queue"),
    ]  # fmt: skip
    *_, sweep, queue = found
    assert sweep.text == "overdue: 2 leases for 1m30s; is a sweeper there?"
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
    (finding,) = default_agent([lame])
    assert (finding.level, finding.subject) == ("warn", "agent")
    assert "default agent x can be used nowhere: no key" in finding.text
    assert not list(default_agent([lame.model_copy(update={"usable_at": ["far"]})]))
