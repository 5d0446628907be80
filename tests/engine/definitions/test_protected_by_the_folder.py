"""`[protect]` of leadhand.toml counts for each session of its folder, however it was submitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from app.errors import InvalidDocument
from leadhand.flows.documents import AnyDocument
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
OWN: dict[str, object] = {"pattern": "own"}
COMMITTED, WRITTEN = {**OWN, "pattern": "tests/**"}, {**OWN, "pattern": "db/"}


def protected(url: str, folder: Path, kind: str) -> object:
    """The protected files of the stored document of a new session."""
    engine = silent_engine(
        url, secret=SECRET, folder_definitions=("agents",), search_path="/usr/bin:/bin"
    )
    document = DOCUMENT.validate_python({"kind": kind, "cwd": str(folder), **KINDS[kind]})
    ref = ref_of(engine, engine.submit.document(document, free=True).session)
    stored = json.loads(str(engine.store.copies().request(ref)))
    return stored["phases"][0]["protected"] if kind == "workflow" else stored["protected"]


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
    assert "leadhand.toml: protect: paths.0" in str(raised.value)
