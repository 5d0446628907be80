"""What an attempt stores as artifacts before it settles, and what it does without room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.artifacts import INLINE_BYTES
from app.core.outcomes import Outcome
from app.core.program import Action
from leadhand.errors import ArtifactsFull, StoreAway
from workers.attempt.outcomes import store_artifacts
from workers.registry.agents import AgentBook
from workers.task import BodyTask

REF = SessionRef("ab12cd34", "ab12cd34")
SECRET = "hush-hush-hush"


class Shelf:
    """Keeps what is stored, by digest; or has no room."""

    def __init__(self, *, full: bool = False) -> None:
        self.files: dict[str, bytes] = {}
        self.full = full
        #: The store is away once it has so many.
        self.away_after: int | None = None

    def put(self, ref: SessionRef, digest: str, file: Path) -> None:
        if self.full:
            raise ArtifactsFull("cannot store an artifact in '/a': its disk is full")
        if len(self.files) == self.away_after:
            raise StoreAway("redis://away")
        self.files[digest] = file.read_bytes()


@pytest.fixture
def task(tmp_path: Path) -> BodyTask:
    return BodyTask(
        session=REF.id, address="search", action=Action.TOOL, iteration=1, attempt=1, inputs={},
        cwd=tmp_path, spill=tmp_path / "spill" / "ab12cd34" / "search.1", timeout_s=1, url="",
        mint=lambda: SECRET, agents=AgentBook(agents={}), default_agent=None,
    )  # fmt: skip


def stored(outcome: Outcome, task: BodyTask, shelf: Shelf) -> Outcome:
    return store_artifacts(outcome, task, REF, lambda: shelf)


def with_output(task: BodyTask, name: str, data: bytes) -> Outcome:
    task.spill.mkdir(parents=True, exist_ok=True)
    (task.spill / f"{name}.log").write_bytes(data)
    return Outcome(word="succeeded", text="head ... tail", spill=str(task.spill / f"{name}.log"))


def test_short_value_needs_no_store(task: BodyTask) -> None:
    outcome = Outcome(word="succeeded", value=["x" * 100])
    assert store_artifacts(outcome, task, REF, lambda: pytest.fail("opened")) is outcome


@pytest.mark.parametrize("size", [INLINE_BYTES - 2, INLINE_BYTES - 1])
def test_value_is_an_artifact_from_its_first_byte_above_the_limit(
    task: BodyTask, size: int
) -> None:
    shelf = Shelf()
    found = stored(Outcome(word="succeeded", value="x" * size), task, shelf)
    assert (found.artifacts is not None) is (size + 2 > INLINE_BYTES)
    assert [json.loads(data) for data in shelf.files.values()] == ["x" * size] * len(shelf.files)


def test_value_of_a_check_stays_in_its_outcome(task: BodyTask) -> None:
    checks: Any = BodyTask(**{**vars(task), "action": Action.CHECK})
    outcome = Outcome(word="succeeded", value="x" * INLINE_BYTES)
    assert stored(outcome, checks, Shelf()) is outcome


def test_output_is_stored_without_secrets_and_its_file_deleted(task: BodyTask) -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\n" * 30
    shelf = Shelf()
    task.__dict__["token"] = SECRET
    data = f"line\n{SECRET}\n{key}-----END PRIVATE KEY-----\nlast\n".encode()
    found = stored(with_output(task, "stdout", b"a\n" * 524_260 + data), task, shelf)
    (clean,) = shelf.files.values()
    assert found.spill is None
    assert clean.endswith(b"a\nline\n[redacted]\n[redacted]\nlast\n")
    assert b"MII" not in clean
    assert found.artifacts is not None
    assert [(a.name, a.size) for a in found.artifacts] == [("stdout", len(clean))]
    assert list(task.spill.iterdir()) == []


def test_both_outputs_are_stored(task: BodyTask) -> None:
    with_output(task, "stderr", b"errors")
    shelf = Shelf()
    found = stored(with_output(task, "stdout", b"text"), task, shelf)
    assert [a.name for a in found.artifacts or ()] == ["stdout", "stderr"]
    assert sorted(shelf.files.values()) == [b"errors", b"text"]


@pytest.mark.parametrize("last", ["stderr", "value"])
def test_outputs_are_kept_until_everything_is_stored(task: BodyTask, last: str) -> None:
    with_output(task, "stderr", b"errors")
    outcome = with_output(task, "stdout", b"text")
    value = "x" * INLINE_BYTES
    outcome = outcome.model_copy(update={"value": value})
    shelf = Shelf()
    shelf.away_after = {"stderr": 1, "value": 2}[last]
    with pytest.raises(StoreAway):
        stored(outcome, task, shelf)
    shelf.away_after = None
    found = stored(outcome, task, shelf)
    assert [a.name for a in found.artifacts or ()] == ["stdout", "stderr", "value"]
    assert list(task.spill.iterdir()) == []


def test_result_without_room_fails_the_step_and_names_the_disk(task: BodyTask) -> None:
    outcome = Outcome(word="succeeded", value="x" * INLINE_BYTES)
    found = stored(outcome, task, Shelf(full=True))
    assert (found.word, found.value) == ("failed", None)
    assert found.reason is not None
    assert found.reason.text == (
        "the result cannot be stored: cannot store an artifact in '/a': its disk is full"
    )


def test_output_without_room_is_a_warning(task: BodyTask) -> None:
    found = stored(with_output(task, "stdout", b"text"), task, Shelf(full=True))
    assert (found.word, found.text, found.spill) == ("succeeded", "head ... tail", None)
    assert found.warning is not None
    assert "its disk is full" in found.warning
