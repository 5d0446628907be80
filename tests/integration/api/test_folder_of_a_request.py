"""The folder of a request: whose agents, flows and tools are listed, and used by a submit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from api import create_app
from app.engine import Engine
from app.settings import Settings
from tests.session_driving import add_worker
from tests.silent_engine import OPERATOR, SECRET, silent_engine
from workers.registry.registries import Registries
from workers.tool_servers.folder_reports import FolderReporter

BEARER = {"Authorization": f"Bearer {OPERATOR}"}
FLOW = '{"description": "d", "steps": [{"type": "tool", "tool": "echo", "arguments": {}}]}'


@pytest.fixture
def engine(store_url: str, tmp_path: Path) -> Iterator[Engine]:
    engine = silent_engine(
        store_url,
        secret=SECRET,
        folder_definitions=("agents", "flows", "tools"),
        approvals=tmp_path / "trusted.json",
    )
    add_worker(engine, "w1")
    reporter = FolderReporter(engine, Registries(engine.settings, tmp_path / "s"), worker="w1")
    reporter.start()
    yield engine
    reporter.stop()


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    yield app.test_client()
    app.fanout.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder, with a name that must be encoded in a header, that defines one of each."""
    folder = tmp_path / "ein Büro"
    for name in ("flows", "tools"):
        (folder / name).mkdir(parents=True)
    (folder / "agents.toml").write_text('[agents.parrot]\ncommand = ["cat"]\n')
    (folder / "flows/hello.json").write_text(FLOW)
    (folder / "tools/sums.py").write_text("def add(a: int) -> int:\n    return a\n")
    return folder


def names(client: FlaskClient, path: str, **how: dict[str, str]) -> set[str]:
    answer = client.get(
        path, headers=BEARER | how.get("headers", {}), query_string=how.get("query")
    )
    assert answer.status_code == 200, answer.text
    return {one["name"] for one in answer.get_json()["items"]}


@pytest.mark.parametrize("by", ["query", "header"])
@pytest.mark.parametrize(
    ("path", "name"),
    [("/v1/agents", "parrot"), ("/v1/flows", "hello"), ("/v1/tools", "sums:add")],
)
def test_lists_have_what_the_folder_of_the_request_defines(client, folder, path, name, by):
    how = {
        "query": {"query": {"folder": str(folder)}},
        "header": {"headers": {"Leadhand-Folder": quote(str(folder))}},
    }[by]
    assert name in names(client, path, **how)
    assert name not in names(client, path)


def test_submit_has_the_definitions_of_the_commands_folder(client, folder, tmp_path):
    document = {
        "kind": "loop", "task": "t", "checkers": ["true"], "doer": {"agent": "parrot"},
        "cwd": str(tmp_path),
    }  # fmt: skip
    refused = client.post("/v1/sessions", json=document, headers=BEARER)
    assert refused.status_code == 422
    header = {"Leadhand-Folder": quote(str(folder))}
    made = client.post("/v1/sessions", json=document, headers=BEARER | header)
    assert made.status_code == 202, made.text
    items = [{"document": document}, {"document": {**document, "cwd": str(folder)}}]
    batch = client.post("/v1/sessions/batch", json={"items": items, "mode": "each"}, headers=BEARER)
    assert [one["problem"] is None for one in batch.json["items"]] == [False, True], batch.text


def test_flow_of_the_folder_is_shown_checked_and_run(client, folder):
    query = {"folder": str(folder)}
    shown = client.get("/v1/flows/hello", query_string=query, headers=BEARER)
    assert shown.json["description"] == "d"
    ran = client.post("/v1/flows/hello/runs", json={"working_folder": str(folder)}, headers=BEARER)
    assert ran.status_code == 202, ran.text
    assert client.get("/v1/flows/hello", headers=BEARER).status_code == 404


@pytest.mark.parametrize("folder", ["relative", "%00", "/" + "a" * 5000])
def test_folder_that_is_no_absolute_path_is_refused(client, folder):
    refused = client.get("/v1/agents", headers=BEARER | {"Leadhand-Folder": folder})
    assert refused.status_code == 400
    assert "Leadhand-Folder" in refused.text
