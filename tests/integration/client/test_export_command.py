"""`leadhand export`, `rm --force` and the filters of `ls`, against a real API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from tests.http_world import TOKEN, Served, served
from tests.session_driving import claim, end, run_iteration

Leadhand = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def api(module_store_url) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


@pytest.fixture
def leadhand(api, monkeypatch, capsys) -> Leadhand:
    monkeypatch.setenv("LEADHAND_URL", api.url)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)

    def leadhand(*arguments: str) -> tuple[int, str, str]:
        code = run(cli, arguments)
        return (code, *capsys.readouterr())

    return leadhand


def test_all_that_is_kept_goes_to_standard_output(api, leadhand):
    session = api.submit()
    run_iteration(api.engine, session, "retry")
    code, out, _ = leadhand("export", session)
    assert code == 0
    assert json.loads(out)["session"]["id"] == session
    code, out, _ = leadhand("export", session, "--part", "ledger")
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["retry"]


def test_a_file_is_replaced_whole_or_not_at_all(api, leadhand, tmp_path: Path):
    session = api.submit()
    target = tmp_path / "kept.json"
    target.write_text("before")
    code, out, err = leadhand("export", session, "--to", str(target))
    assert (code, out) == (0, "")
    assert str(target) in err
    assert json.loads(target.read_text())["session"]["id"] == session
    assert leadhand("export", "deadbeef", "--to", str(target))[0] == 1
    assert session in target.read_text()
    code, _, err = leadhand("export", session, "--to", str(tmp_path / "no folder" / "x"))
    assert (code, "no folder" in err) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


def test_what_runs_is_forgotten_by_force_only(api, leadhand):
    session = api.submit()
    claim(api.engine, session)
    assert leadhand("rm", session)[0] == 1
    code, out, _ = leadhand("rm", "--force", session)
    assert (code, out) == (0, f"session {session} is being aborted, and is deleted then\n")


def test_a_list_takes_several_statuses_and_says_which_is_none(api, leadhand):
    running, ended = api.submit(), api.submit()
    end(api.engine, ended, "failed")
    code, out, _ = leadhand("ls", "--status", "active", "--status", "failed", "--limit", "500")
    assert code == 0
    assert {running, ended} <= set(out.split())
    assert running not in leadhand("ls", "--status", "failed")[1]
    assert leadhand("ls", "--label", "nightly")[1].startswith("no sessions")
    assert leadhand("ls", "--kind", "flow")[1].startswith("no sessions")
    assert leadhand("ls", "--parent", running)[1].startswith("no sessions")
    code, _, err = leadhand("ls", "--reason", "boredom")
    assert (code, "reason" in err) == (1, True)
