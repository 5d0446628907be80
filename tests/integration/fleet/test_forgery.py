"""Who can write to Redis and to the broker, but does not hold the secret, gets nothing run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import JsonValue

from api import create_app
from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.engine import Engine
from app.security.signatures import program_id
from app.sessions.submit import About
from app.settings import Settings
from leadhand.errors import SettingInvalid
from leadhand.models.documents import Doer, LoopDocument
from tasks.bootstrap import make_engine
from tests.fleet import Fleet
from tests.waiting import wait_until
from workers.attempt.attempt import Attempts
from workers.attempt.heartbeat import Heartbeats
from workers.registry.agents import AgentBook

DO = "loop~1[1]/do"


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=5)
    yield fleet
    fleet.close()


def engine_of(fleet: Fleet, **more: str) -> Engine:
    """Another process' engine: it has seen nothing yet."""
    engine, _celery = make_engine(Settings.from_env({**fleet.env, **more}))
    return engine


def document(folder: Path, leaves: str = "ran") -> LoopDocument:
    """A loop whose doer leaves a file where it ran."""
    doer = Doer(command=f"touch {leaves}")
    return LoopDocument.model_validate(
        {
            "task": "make it",
            "baseline": False,
            "checkers": ["true"],
            "doer": doer,
            "cwd": str(folder),
        }
    )


def attempt(engine: Engine, session: str, address: str = DO) -> None:
    """What a worker does with a hint."""
    attempts = Attempts(
        engine, worker="w/1", agents=lambda: AgentBook.load([]), heart=Heartbeats(engine)
    )
    attempts(SessionRef(session, session), address)


Tamper = Callable[[redis.Redis, Fleet, str], str]


def unsigned(client: redis.Redis, fleet: Fleet, session: str) -> str:
    client.hdel(key(session), "signature")
    return session


def signed_by_a_stranger(client: redis.Redis, fleet: Fleet, session: str) -> str:
    stranger = engine_of(fleet, LEADHAND_SECRET="a guess")
    return stranger.submit.document(document(fleet.folder)).session


def elsewhere(client: redis.Redis, fleet: Fleet, session: str) -> str:
    other = fleet.folder / "other"
    other.mkdir()
    client.hset(key(session), "cwd", str(other))
    return session


def at_another_place(client: redis.Redis, fleet: Fleet, session: str) -> str:
    stranger = engine_of(fleet, LEADHAND_PLACE="far")
    theirs = stranger.submit.document(document(fleet.folder)).session
    client.hset(key(theirs), "place", "local")
    return theirs


def with_another_program(client: redis.Redis, fleet: Fleet, session: str) -> str:
    other = fleet.engine.submit.document(document(fleet.folder, leaves="other")).session
    found = str(client.hget(key(other), "program"))
    client.hset(key(session), "program", found)
    return session


def with_a_swapped_document(client: redis.Redis, fleet: Fleet, session: str) -> str:
    name = "lh:program:" + str(client.hget(key(session), "program"))
    text = str(client.hget(name, "document"))
    assert "touch ran" in text
    client.hset(name, "document", text.replace("touch ran", "touch ran other"))
    return session


def under_another_name(client: redis.Redis, fleet: Fleet, session: str) -> str:
    copy = "deadbeef"
    for found in list(client.scan_iter(f"lh:{{{session}}}:{session}:*")):
        client.copy(found, found.replace(session, copy))
    client.set(f"lh:id:{copy}", copy)
    return copy


TAMPERS: list[tuple[Tamper, str]] = [
    (unsigned, "it was not signed"),
    (signed_by_a_stranger, "LEADHAND_SECRET"),
    (elsewhere, "LEADHAND_SECRET"),
    (at_another_place, "LEADHAND_SECRET"),
    (with_another_program, "LEADHAND_SECRET"),
    (with_a_swapped_document, "was changed after it was signed"),
    (under_another_name, "LEADHAND_SECRET"),
]


def key(session: str) -> str:
    return f"lh:{{{session}}}:{session}:session"


def left(fleet: Fleet) -> list[str]:
    return sorted(str(found) for found in fleet.folder.rglob("*") if found.name in ("ran", "other"))


def test_what_was_signed_here_is_run(fleet):
    session = fleet.engine.submit.document(document(fleet.folder)).session
    attempt(engine_of(fleet), session)
    assert (fleet.folder / "ran").exists()


@pytest.mark.parametrize(
    ("tamper", "why"), TAMPERS, ids=lambda given: getattr(given, "__name__", "")
)
def test_a_session_that_was_tampered_with_runs_nothing(fleet, redis_client, tamper, why):
    session = tamper(
        redis_client, fleet, fleet.engine.submit.document(document(fleet.folder)).session
    )
    worker = engine_of(fleet)
    attempt(worker, session)
    result = worker.queries.result(session)
    assert result.status == "failed"
    assert result.reason is not None
    root = result.reason.root
    assert why in root.text
    assert root.at == DO
    assert [found for found in left(fleet) if Path(found).is_file()] == []


def test_a_session_that_moves_is_signed_for_its_new_place(fleet, redis_client):
    session = fleet.engine.submit.document(document(fleet.folder)).session
    told = {"place": "far", "seen_ms": fleet.engine.store.now_ms()}
    fleet.engine.store.fleet().publish_inventory("at far", json.dumps(told))
    fleet.engine.control.rehome(session, "far")
    attempt(engine_of(fleet, LEADHAND_PLACE="far"), session)
    assert (fleet.folder / "ran").exists()


def test_moving_a_session_does_not_make_it_ours(fleet, redis_client):
    session = fleet.engine.submit.document(document(fleet.folder)).session
    unsigned(redis_client, fleet, session)
    told = {"place": "far", "seen_ms": fleet.engine.store.now_ms()}
    fleet.engine.store.fleet().publish_inventory("at far", json.dumps(told))
    fleet.engine.control.rehome(session, "far")
    worker = engine_of(fleet, LEADHAND_PLACE="far")
    attempt(worker, session)
    assert worker.queries.result(session).status == "failed"
    assert not (fleet.folder / "ran").exists()


def test_a_stranger_s_session_can_be_looked_at_and_forgotten(fleet, redis_client):
    session = fleet.engine.submit.document(document(fleet.folder)).session
    with_a_swapped_document(redis_client, fleet, session)
    reader = engine_of(fleet)
    assert reader.queries.session(session).status == "active"
    attempt(reader, session)
    reader.deletion.delete(session)


def test_a_command_that_an_outcome_names_is_not_run(fleet):
    """Outcomes lie in Redis, unsigned: whoever writes one must not choose what runs next."""
    first = Step(id="first", action=Action.TOOL, inputs={"tool": "echo", "arguments": {}})
    then = Step(id="then", action=Action.AGENT,
                inputs={"task": "t", "doer": {"command": "${first.text}"}})  # fmt: skip
    program = Program(body=(first, then))
    about = About(kind="loop", name="x", cwd=str(fleet.folder), place="local")
    session = fleet.engine.submit.program(program, about).session
    worker = engine_of(fleet)
    attempt(worker, session, "first")
    attempt(worker, session, "then")
    reason = worker.queries.result(session).reason
    assert reason is not None
    assert "doer.command would come from an outcome" in reason.root.text


@pytest.mark.parametrize(
    ("doer", "why"),
    [("${first.value.doer}", "document.doer.command"), ({"command": "touch ran"}, None)],
)
def test_a_child_s_command_that_an_outcome_names_is_not_signed_by_the_worker(fleet, doer, why):
    written: dict[str, JsonValue] = {
        "kind": "loop", "task": "${first.value.task}", "checkers": ["true"], "doer": doer,
        "cwd": str(fleet.folder),
    }  # fmt: skip
    said: JsonValue = {"value": {"task": "t", "doer": {"command": "touch ran"}}}
    first = Step(id="first", action=Action.TOOL, inputs={"tool": "echo", "arguments": said})
    then = Step(id="then", action=Action.CHILD, inputs={"document": written})
    about = About(kind="loop", name="x", cwd=str(fleet.folder), place="local")
    session = fleet.engine.submit.program(Program(body=(first, then)), about).session
    worker = engine_of(fleet)
    attempt(worker, session, "first")
    attempt(worker, session, "then")
    ref = SessionRef(session, session)
    children = worker.store.children(ref)
    if why is None:
        assert len(children) == 1
        return
    assert children == set()
    reason = worker.queries.result(session).reason
    assert reason is not None
    assert why in reason.root.text


def test_the_token_of_a_body_that_has_ended_opens_nothing(fleet):
    doer = Doer(command="printenv LEADHAND_TOKEN > token")
    kept = document(fleet.folder).model_copy(update={"doer": doer})
    session = fleet.engine.submit.document(kept).session
    worker = engine_of(fleet)
    attempt(worker, session)
    token = (fleet.folder / "token").read_text().strip()
    app = create_app(worker.settings, worker)
    answer = app.test_client().get(
        f"/v1/sessions/{session}", headers={"Authorization": f"Bearer {token}"}
    )
    assert token.startswith("lhc1.")
    assert answer.status_code == 401
    assert "the attempt that the token was given to has ended" in answer.get_data(as_text=True)
    app.fanout.close()


def test_a_program_is_called_by_its_content():
    program = Program(body=(Step(id="a", action=Action.WAIT),))
    assert program_id(program.model_dump_json()) == program.hash


def test_no_process_of_the_server_starts_without_a_secret(fleet):
    with pytest.raises(SettingInvalid, match="LEADHAND_SECRET") as caught:
        engine_of(fleet, LEADHAND_SECRET="")
    assert "openssl rand" in caught.value.hint


def forge(fleet: Fleet, task: str, arguments: list[str], **more: Any) -> None:
    """Push a message as kombu would write it, past our own publisher."""
    headers = {"lang": "py", "task": task, "id": uuid.uuid4().hex, "root_id": None,
               "parent_id": None, "group": None}  # fmt: skip
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    with fleet.celery.connection_for_write() as connection:
        producer = connection.Producer(serializer="json")
        producer.publish(
            [arguments, more.pop("kwargs", {}), {**embed, **more}],
            routing_key="agents@local", exchange="", headers=headers,
            correlation_id=headers["id"],
        )  # fmt: skip


@pytest.mark.timeout(60)
def test_a_forged_message_or_session_runs_nothing_on_a_real_worker(fleet):
    marker = fleet.folder / "forged"
    command = f"touch {marker}"
    waits = fleet.engine.submit.program(
        Program(body=(Step(id="wait", action=Action.WAIT, inputs={"seconds": 600}),)),
        About(kind="loop", name="x", cwd=str(fleet.folder), place="local"),
    ).session
    known = [waits, waits, "wait"]
    fleet.worker("one")
    forge(fleet, "leadhand.agent", [*known, command])
    forge(fleet, "leadhand.agent", known, kwargs={"command": command, "doer": {"command": command}})
    forge(fleet, "leadhand.agent", ["nothing", "nothing", command])
    forge(fleet, "leadhand.agent", [waits, waits, "no/such~1[1]/step"])
    forge(fleet, "os.system", [command])
    forge(fleet, "leadhand.agent", known,
          callbacks=[{"task": "os.system", "args": [command], "kwargs": {}, "options": {},
                      "subtask_type": None, "immutable": True}])  # fmt: skip
    stranger = engine_of(fleet, LEADHAND_SECRET="a guess")
    theirs = document(fleet.folder).model_copy(update={"doer": Doer(command=command)})
    foreign = stranger.submit.document(theirs).session
    assert fleet.ended(foreign).status == "failed"
    ours = fleet.engine.submit.document(document(fleet.folder)).session
    assert fleet.ended(ours).status == "completed"
    wait_until(
        lambda: fleet.engine.transitions._carrier.depths(["agents@local"]) == {"agents@local": 0}
    )
    assert (fleet.folder / "ran").exists()
    assert not marker.exists()
    refused = (fleet.folder / "one.log").read_text()
    assert "step refused" in refused
