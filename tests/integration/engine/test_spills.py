"""What sessions left on a worker's disk goes with them, and what is another's stays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.engine import Engine
from tests.silent_engine import loop, silent_engine
from workers.folders.spill import MARK, SpillCleanup, attempt_folder

KEEP_S = 3600.0
#: As seen from when this file was read, which may be long before its tests run.
SOON, LATE = time.time() + 60, time.time() + 24 * KEEP_S


@pytest.fixture
def engine(store_url: str, tmp_path: Path) -> Engine:
    engine = silent_engine(store_url)
    spill = tmp_path / "spill"
    spill.mkdir()
    engine.settings = engine.settings.model_copy(update={"spill": spill, "spill_keep_s": KEEP_S})
    return engine


def left(engine: Engine, session: str) -> Path:
    folder = Path(engine.settings.spill) / session
    (folder / "loop~1[1]_do.1").mkdir(parents=True)
    (folder / "loop~1[1]_do.1/stdout.log").write_text("much")
    return folder


def gone(engine: Engine) -> Path:
    """What a session left that was seen once, and was deleted then."""
    session = engine.submit.document(loop()).session
    folder = left(engine, session)
    assert SpillCleanup(engine).clean(SOON) == []
    assert (folder / MARK).read_text() == engine.store.identity().name()
    engine.deletion.delete(session, force=True)
    return folder


def test_what_a_session_left_goes_once_it_is_gone_and_old(engine: Engine) -> None:
    folder = gone(engine)
    assert SpillCleanup(engine).clean(SOON) == []
    assert SpillCleanup(engine).clean(LATE) == [folder.name]
    assert not folder.exists()


def test_what_a_session_has_stays_however_old(engine: Engine) -> None:
    folder = left(engine, engine.submit.document(loop()).session)
    assert SpillCleanup(engine).clean(LATE) == SpillCleanup(engine).clean(LATE) == []
    assert folder.exists()


def test_what_another_store_knows_stays(engine: Engine) -> None:
    other, unknown = left(engine, "0123abcd"), left(engine, "89abcdef")
    (other / MARK).write_text("another store")
    assert SpillCleanup(engine).clean(LATE) == []
    assert other.exists()
    assert unknown.exists()
    assert not (unknown / MARK).exists()


def test_nothing_but_folders_of_sessions_is_looked_at(engine: Engine, tmp_path: Path) -> None:
    elsewhere, spill = tmp_path / "elsewhere", Path(engine.settings.spill)
    elsewhere.mkdir()
    for folder in (elsewhere, left(engine, "not a session")):
        (folder / MARK).write_text(engine.store.identity().name())
    (spill / "0123abcd").symlink_to(elsewhere)
    (spill / "4567abcd").write_text("a file")
    assert SpillCleanup(engine).clean(LATE) == []
    assert elsewhere.exists()
    assert len(list(spill.iterdir())) == 3


def test_a_folder_that_is_not_there_is_no_trouble(engine: Engine) -> None:
    Path(engine.settings.spill).rmdir()
    assert SpillCleanup(engine).clean(LATE) == []


def test_a_store_keeps_its_name(engine: Engine, store_url: str) -> None:
    assert engine.store.identity().name() == silent_engine(store_url).store.identity().name() != ""


def test_attempts_with_long_addresses_have_folders_of_their_own(tmp_path: Path) -> None:
    deep = "/".join(f"{letter * 40}~1[1]" for letter in "abcdef")
    addresses = [f"{deep}/\u65e5{'z' * 39}", f"{deep}/y", f"{deep}[2]/y"]
    folders = {
        attempt_folder(tmp_path, "0123abcd", address, fence=fence)
        for address in addresses
        for fence in (1, 2**53)
    }
    assert len(folders) == 6
    for folder in folders:
        folder.mkdir(parents=True)
