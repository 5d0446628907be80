"""Sessions that go: deleted, by force or after their time, and changed while somebody looked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.core.states import Seen
from app.engine import Engine
from app.errors import ExportOwed
from app.sessions.outbox import keep
from app.settings import Settings
from app.sweep import sweep
from leadhand.errors import SessionChanged, SessionStillRuns, SessionUnknown, SettingInvalid
from leadhand.models.etags import etag, parse_etag
from leadhand.models.views.result import ExportView
from leadhand.models.views.session import SessionView
from tests.silent_engine import loop, silent_engine

HOUR = 3_600_000


class Clock:
    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(store_url, clock) -> Engine:
    return silent_engine(store_url, clock=clock, retention_s=7200, retention_aborted_s=3600)


def busy(engine: Engine) -> tuple[str, object]:
    """A session of which a worker holds a step, and the step's grant."""
    session = engine.submit.document(loop()).session
    ref = engine.store.ref(session)
    assert ref is not None
    answer = engine.attempts.claim(ref, "loop~1[1]/do", nonce="n", worker="w")
    assert answer.word == "granted", answer
    return session, answer.grants[0]


def hand_back(engine: Engine, session: str, grant) -> None:
    ref = engine.store.ref(session)
    assert ref is not None
    assert engine.attempts.release(ref, grant, why="asked to").word == "released"


def is_gone(engine: Engine, session: str) -> bool:
    try:
        engine.queries.session(session)
    except SessionUnknown:
        return True
    return False


def test_a_session_of_which_nothing_runs_is_deleted_by_force_at_once(engine):
    session = engine.submit.document(loop()).session
    with pytest.raises(SessionStillRuns):
        engine.deletion.delete(session)
    assert engine.deletion.delete(session, force=True) is None
    assert is_gone(engine, session)


def test_a_session_that_runs_is_aborted_first_and_goes_when_that_is_acknowledged(engine, clock):
    session, grant = busy(engine)
    for _ in range(2):
        view = engine.deletion.delete(session, force=True)
        assert view is not None
        assert view.status == "aborting"
        assert view.reason is not None
        assert view.reason.code == "aborted"
    clock.now += 1000
    sweep(engine)
    assert engine.queries.session(session).status == "aborting"
    hand_back(engine, session, grant)
    clock.now += 1000
    sweep(engine)
    assert is_gone(engine, session)


def test_a_forced_delete_whose_caller_died_is_carried_out_by_the_sweep(engine, clock, monkeypatch):
    session, grant = busy(engine)
    with monkeypatch.context() as dies:
        dies.setattr(engine.control, "end_for_good", lambda ref: None)
        engine.deletion.delete(session, force=True)
    assert engine.queries.session(session).status == "active"
    clock.now += 1000
    sweep(engine)
    assert engine.queries.session(session).status == "aborting"
    hand_back(engine, session, grant)
    clock.now += 1000
    sweep(engine)
    assert is_gone(engine, session)
    assert engine.store.due(every_ms=0, limit=9, grace_ms=0).errands == ()


def test_a_session_that_is_gone_leaves_no_key(engine, redis_client):
    session, grant = busy(engine)
    engine.deletion.delete(session, force=True)
    hand_back(engine, session, grant)
    engine.outbox.run(f"forget|{session}|{session}|")
    assert [key for key in redis_client.scan_iter() if session in key] == []
    assert redis_client.zrange("lh:errands", 0, -1) == []


@pytest.mark.parametrize(
    ("verb", "kept_s"), [("abort", 7200), ("exit", 600), ("stop", 1800)]
)  # fmt: skip
def test_each_status_is_kept_for_its_own_time(store_url, clock, verb, kept_s):
    engine = silent_engine(
        store_url, clock=clock, retention_s=7200, retention_exited_s=600, retention_stopped_s=1800
    )
    session = engine.submit.document(loop()).session
    engine.control.apply(session, verb, reason="enough")
    clock.now += kept_s * 1000 - 1
    sweep(engine)
    assert not is_gone(engine, session)
    clock.now += 1000
    sweep(engine)
    assert is_gone(engine, session)


def test_a_stopped_session_that_is_resumed_is_kept_again(store_url, clock, redis_client):
    engine = silent_engine(store_url, clock=clock, retention_stopped_s=1800)
    session = engine.submit.document(loop()).session
    engine.control.apply(session, "stop")
    assert redis_client.ttl(f"lh:{{{session}}}:{session}:session") > 1800
    engine.control.apply(session, "resume")
    assert redis_client.ttl(f"lh:{{{session}}}:{session}:session") == -1
    clock.now += 24 * HOUR
    sweep(engine)
    assert engine.queries.session(session).status == "active"


def test_a_time_that_cannot_be_kept_is_refused():
    for value in ("59", "-1", "for ever", str(10**12)):
        with pytest.raises(SettingInvalid) as caught:
            Settings.from_env({"LEADHAND_RETENTION_FAILED_S": value})
        assert caught.value.name == "LEADHAND_RETENTION_FAILED_S"
    kept = Settings.from_env({"LEADHAND_RETENTION_S": "60", "LEADHAND_RETENTION_FAILED_S": "90"})
    assert kept.retentions == {"retention": "60", "retention_failed": "90"}


def seen(view: SessionView) -> Seen:
    found = parse_etag(etag(view.status, view.updated_at))
    assert found is not None
    return Seen(*found)


def test_whoever_acts_on_what_he_saw_is_told_when_it_has_changed(engine, clock):
    session = engine.submit.document(loop()).session
    before = seen(engine.queries.session(session))
    clock.now += 5
    engine.control.apply(session, "stop", seen=before)
    for act in (lambda: engine.control.apply(session, "resume", seen=before),
                lambda: engine.deletion.delete(session, seen=before),
                lambda: engine.deletion.delete(session, force=True, seen=before)):  # fmt: skip
        with pytest.raises(SessionChanged) as caught:
            act()
        assert caught.value.session_status == "stopped"
    now = seen(engine.queries.session(session))
    assert engine.deletion.delete(session, seen=now) is None


def test_what_changed_within_one_ms_has_changed_all_the_same(engine):
    session = engine.submit.document(loop()).session
    before = seen(engine.queries.session(session))
    engine.control.apply(session, "stop")
    with pytest.raises(SessionChanged):
        engine.control.apply(session, "abort", seen=before)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def keeper(store_url, clock, archive) -> Engine:
    """An engine whose sessions are exported before they go."""
    return silent_engine(store_url, clock=clock, retention_s=3600, export_dir=archive)


def later(engine: Engine, clock: Clock, ms: int) -> None:
    clock.now += ms
    sweep(engine)


def test_a_session_is_exported_whole_before_it_goes(keeper, clock, archive):
    session = keeper.submit.document(loop()).session
    keeper.control.apply(session, "abort", reason="enough")
    before = keeper.queries.export(session).model_dump(exclude={"exported_at"})
    later(keeper, clock, HOUR)
    assert is_gone(keeper, session)
    (day,) = archive.iterdir()
    names = {file.name: file for file in day.iterdir()}
    name = f"{session}-{clock.now - HOUR}"
    assert set(names) == {f"{name}.json", f"{name}.ledger.jsonl"}
    kept = json.loads(names[f"{name}.json"].read_text())
    assert ExportView.model_validate(kept).model_dump(exclude={"exported_at"}) == before
    assert {file.stat().st_mode & 0o777 for file in names.values()} == {0o600}


@pytest.mark.parametrize("when", ["before it is looked at", "while its export is written"])
def test_a_session_that_is_resumed_while_it_is_to_go_stays(keeper, clock, when):
    session = keeper.submit.document(loop()).session
    keeper.control.apply(session, "stop")
    read = {"of": keeper.store.fields, "export": keeper.queries.export}

    def resumed_and_ended() -> None:
        keeper.store.fields, keeper.queries.export = read["of"], read["export"]
        keeper.control.apply(session, "resume")
        keeper.control.apply(session, "abort")

    def fields(ref):
        resumed_and_ended()
        return read["of"](ref)

    def export(session):
        found = read["export"](session)
        resumed_and_ended()
        return found

    if when == "before it is looked at":
        keeper.store.fields = fields
    else:
        keeper.queries.export = export
    later(keeper, clock, HOUR)
    assert keeper.queries.session(session).status == "aborted"
    later(keeper, clock, HOUR - 1_000)
    assert not is_gone(keeper, session)
    later(keeper, clock, 1_000)
    assert is_gone(keeper, session)


def test_a_session_that_changed_while_its_export_was_written_is_exported_again(
    keeper, clock, archive, redis_client
):
    session = keeper.submit.document(loop()).session
    keeper.control.apply(session, "abort")
    export = keeper.queries.export

    def changed(session):
        keeper.queries.export = export
        found = export(session)
        redis_client.hset(f"lh:{{{session}}}:{session}:session", "updated", clock.now)
        return found

    keeper.queries.export = changed
    later(keeper, clock, HOUR)
    assert not is_gone(keeper, session)
    later(keeper, clock, 1_000)
    assert is_gone(keeper, session)


def test_a_session_stays_until_its_export_can_be_written(keeper, clock, archive, redis_client):
    archive.parent.mkdir(exist_ok=True)
    archive.write_text("in the way")
    session = keeper.submit.document(loop()).session
    keeper.control.apply(session, "abort")
    for _ in range(3):
        later(keeper, clock, 48 * HOUR)
        assert not is_gone(keeper, session)
    fleet = keeper.fleet.overview()
    assert (fleet.exports_owed, "archive" in str(fleet.export_trouble)) == (1, True)
    # Not even the net below deletions takes it.
    ttl = redis_client.ttl(f"lh:{{{session}}}:{session}:session")
    assert ttl > 365 * 24 * 3600
    archive.unlink()
    later(keeper, clock, HOUR)
    assert is_gone(keeper, session)
    assert len([*archive.glob("*/*")]) == 2
    assert keeper.fleet.overview().exports_owed == 0


def test_whoever_has_no_such_folder_leaves_it_to_the_others(keeper, engine, clock, archive):
    session = keeper.submit.document(loop()).session
    keeper.control.apply(session, "abort")
    later(engine, clock, 2 * HOUR)  # a worker's sweep, without the setting
    assert not is_gone(engine, session)
    assert engine.fleet.overview().exports_owed == 0  # that is no trouble
    later(keeper, clock, 2_000)
    assert is_gone(keeper, session)
    assert len([*archive.glob("*/*.json")]) == 1


def test_who_deletes_a_session_by_hand_means_it(keeper, clock, archive):
    ended, running = (keeper.submit.document(loop()).session for _ in range(2))
    keeper.control.apply(ended, "abort")
    keeper.deletion.delete(ended)
    keeper.deletion.delete(running, force=True)
    held, grant = busy(keeper)
    keeper.deletion.delete(held, force=True)
    hand_back(keeper, held, grant)
    later(keeper, clock, HOUR)
    assert all(is_gone(keeper, session) for session in (ended, running, held))
    assert not archive.exists()


def test_a_writer_that_dies_half_way_leaves_nothing_that_looks_whole(keeper, archive, monkeypatch):
    session = keeper.submit.document(loop()).session
    keeper.control.apply(session, "abort")

    def dies(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.sessions.outbox.os.fsync", dies)
    with pytest.raises(ExportOwed, match="No space left"):
        keep(keeper.queries.export(session), archive)
    assert [*archive.glob("*/[!.]*")] == []
