"""Settings of leadhand.toml count for each session of its folder, however it was submitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from app.core.program import Action, Step
from app.engine import Engine
from app.errors import InvalidDocument
from leadhand.flows.documents import AnyDocument, FlowRun
from leadhand.models.documents import LoopDocument
from tests.session_driving import ref_of
from tests.silent_engine import SECRET, silent_engine
from tests.unit.leadhand.cli.test_quarantine_file import git

DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
LOOP = {"task": "t", "checkers": ["true"], "doer": {"command": "true"}}
MESSAGE = {"role": "user", "content": ["hi"]}
STEP = {"type": "llm", "agentType": "a", "identifier": "b", "messages": [MESSAGE]}
KINDS: dict[str, dict[str, object]] = {
    "loop": {**LOOP, "protected": ["own"]},
    "workflow": {"name": "w", "phases": [{"name": "one", **LOOP, "protected": ["own"]}]},
    "flow": {"name": "f", "steps": [STEP], "protected": ["own"]},
    "plan": {"request": "r", "checkers": ["true"], "protected": ["own"]},
}
#: A graph gives them to the sessions of its steps.
_CALLED = {"name": "one", "session": {"kind": "loop", **LOOP}}
GRAPH: dict[str, object] = {"name": "g", "steps": [_CALLED]}
OWN: dict[str, object] = {"pattern": "own"}
COMMITTED, WRITTEN = {**OWN, "pattern": "tests/**"}, {**OWN, "pattern": "db/"}


def engine_of_folders(url: str, flows: tuple[Path, ...] = ()) -> Engine:
    return silent_engine(
        url, secret=SECRET, folder_definitions=("agents",), search_path="/usr/bin:/bin", flows=flows
    )


def stored(engine: Engine, session: str, kind: str) -> dict[str, object]:
    """The stored document of a session, or the part of it that has the settings."""
    found = json.loads(str(engine.store.copies().request(ref_of(engine, session))))
    part = found["steps"][0]["session"] if kind == "graph" else found
    return dict(part["phases"][0] if kind == "workflow" else part)


def submitted(url: str, folder: Path, kind: str) -> dict[str, object]:
    engine = engine_of_folders(url)
    document = DOCUMENT.validate_python(
        {"kind": kind, "cwd": str(folder), **{**KINDS, "graph": GRAPH}[kind]}
    )
    return stored(engine, engine.submit.document(document, free=True).session, kind)


def protected(url: str, folder: Path, kind: str) -> object:
    """The protected files of the stored document of a new session."""
    return submitted(url, folder, kind)["protected"]


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_the_commit_and_of_the_folder_are_added(
    store_url: str, tmp_path: Path, kind: str
) -> None:
    assert protected(store_url, tmp_path, kind) == [OWN]
    file = tmp_path / "leadhand.toml"
    file.write_text('[protect]\npaths = ["tests/**"]\n')
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    file.write_text('[protect]\npaths = ["db/"]\n')
    assert protected(store_url, tmp_path, kind) == [OWN, COMMITTED, WRITTEN]
    git(tmp_path, "commit", "-qam", "two")
    assert protected(store_url, tmp_path, kind) == [OWN, WRITTEN]


def test_invalid_file_is_named(store_url: str, tmp_path: Path) -> None:
    (tmp_path / "leadhand.toml").write_text('[protect]\npaths = ["../x"]\n')
    with pytest.raises(InvalidDocument) as raised:
        protected(store_url, tmp_path, "loop")
    assert raised.value.field == "protected"
    assert "leadhand.toml: protect.paths.0" in str(raised.value)


QUARANTINE = '[[quarantine]]\ntest = "a.py::test_b"\nowner = "ann"\nuntil = 2126-12-31\n'
HELD = [{"test": "a.py::test_b", "owner": "ann", "until": "2126-12-31"}]


@pytest.mark.parametrize("kind", ["loop", "workflow", "flow", "plan", "graph"])
def test_quarantine_and_by_products_of_the_commit_are_in_the_document_and_its_steps(
    store_url: str, tmp_path: Path, kind: str
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "leadhand.toml").write_text(f'{QUARANTINE}[worktree]\nleave_out = ["out/"]\n')
    assert submitted(store_url, tmp_path, kind).get("leave_out") is None, "it is not committed"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    found = submitted(store_url, tmp_path, kind)
    assert found["leaveOut" if kind == "flow" else "leave_out"] == ["out/"]
    assert found.get("quarantine") == (None if kind == "flow" else HELD)
    engine = engine_of_folders(store_url)
    ref = ref_of(engine, engine.queries.sessions(limit=1).items[0].id)
    program = engine.registry.program(engine.store.fields(ref)["program"])
    in_folder = [one for _, one in program.walk() if isinstance(one, Step) and one.folder]
    first = [one for one in in_folder if one.action in (Action.AGENT, Action.DRAFT)]
    assert all(one.inputs["leave_out"] == ["out/"] for one in first)
    assert bool(first) == (kind != "graph")


def test_empty_list_of_by_products_leaves_nothing_out(store_url: str, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "leadhand.toml").write_text("[worktree]\nleave_out = []\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    assert submitted(store_url, tmp_path, "loop")["leave_out"] == []


def test_child_session_weakens_no_check_by_what_a_doer_has_committed(
    store_url: str, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q")
    text = f'{QUARANTINE}[worktree]\nleave_out = ["out/"]\n[protect]\npaths = ["tests/**"]\n'
    (tmp_path / "leadhand.toml").write_text(text)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "by a doer")
    engine = engine_of_folders(store_url)
    document = DOCUMENT.validate_python({"kind": "loop", "cwd": str(tmp_path), **LOOP})
    found = engine.submit.definitions.with_folder_settings(document, is_child=True)
    assert isinstance(found, LoopDocument)
    assert ([one.pattern for one in found.protected], found.quarantine) == (["tests/**"], ())
    assert found.leave_out is None


def test_changed_flow_that_a_resume_adopts_keeps_the_settings(
    store_url: str, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q")
    text = '[worktree]\nleave_out = ["out/"]\n[protect]\npaths = ["tests/**"]\n'
    (tmp_path / "leadhand.toml").write_text(text)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / "f.json").write_text(json.dumps({"steps": [STEP]}))
    engine = engine_of_folders(store_url, flows=(flows,))
    session = engine.submit.flow("f", FlowRun(working_folder=str(tmp_path)), free=True).session
    engine.control.apply(session, "stop")
    (flows / "f.json").write_text(json.dumps({"steps": [STEP, STEP]}))
    engine.migration.resume_as_new(session)
    fields = engine.store.fields(ref_of(engine, session))
    agents = [
        one.inputs
        for _, one in engine.registry.program(fields["program"]).walk()
        if isinstance(one, Step) and one.action is Action.AGENT
    ]
    assert [one["leave_out"] for one in agents] == [["out/"]] * 2
    assert all("tests/**" in str(one["protected"]) for one in agents)
