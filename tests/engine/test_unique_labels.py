"""A label that a user gave belongs to one session while that is at work."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.engine import Engine
from leadhand.errors import ControlRefused, IdempotencyConflict, LabelTaken
from leadhand.flows.documents import FlowDocument
from leadhand.models.documents import LoopDocument
from tests.engine.world import World
from tests.flows import llm


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def document(label: str | None = "nightly", **more: Any) -> LoopDocument:
    given = {
        "task": "t",
        "baseline": False,
        "checkers": ["true"],
        "doer": {"command": "true"},
        "label": label,
    }
    return LoopDocument.model_validate({**given, **more})


def started(world: World, label: str | None = "nightly", key: str | None = None) -> SessionRef:
    id_ = world.engine.submit.document(document(label), idempotency_key=key).session
    return SessionRef(id_, id_)


def refused(world: World, holder: SessionRef) -> None:
    with pytest.raises(LabelTaken) as error:
        started(world)
    assert error.value.session == holder.id


def test_a_second_active_session_of_a_label_is_refused_and_leaves_nothing(world: World) -> None:
    first = started(world)
    before = world.engine.store._redis.dbsize()
    refused(world, first)
    assert world.engine.store._redis.dbsize() == before
    assert started(world, "weekly") != first
    assert started(world, None) != started(world, None)


@pytest.mark.parametrize("verb", ["stop", "exit", "abort"])
def test_a_label_is_free_once_its_session_stopped_or_ended(world: World, verb: Any) -> None:
    first = started(world)
    world.engine.control.apply(first.id, verb)
    second = started(world)
    refused(world, second)


def test_a_label_is_free_once_its_session_completed(world: World) -> None:
    first = started(world)
    world.turn(first, 1, "accept", check="check.true")
    assert world.engine.queries.session(first.id).status == "completed"
    assert world.engine.store._redis.keys("*:label:*") == []
    started(world)


def test_a_session_that_is_still_stopping_keeps_its_label(world: World) -> None:
    first = started(world)
    grant = world.grant(first, "loop~1[1]/do")
    world.engine.control.apply(first.id, "stop")
    refused(world, first)
    world.engine.attempts.release(first, grant, why="stop")
    started(world)


def test_a_resume_takes_the_label_again_and_is_refused_while_another_session_has_it(
    world: World,
) -> None:
    first = started(world)
    world.engine.control.apply(first.id, "stop")
    second = started(world)
    with pytest.raises(ControlRefused, match=f"session {second.id} has its label now"):
        world.engine.control.apply(first.id, "resume")
    assert world.engine.queries.session(first.id).status == "stopped"
    world.engine.control.apply(second.id, "abort")
    world.engine.control.apply(first.id, "resume")
    refused(world, first)


def test_a_label_whose_session_is_gone_is_free(world: World) -> None:
    first = started(world)
    world.engine.store._redis.delete(world.engine.store.keys.part(first, "session"))
    started(world)


def test_the_same_key_finds_the_session_that_has_the_label(world: World) -> None:
    first = started(world, key="k")
    assert started(world, key="k") == first
    with pytest.raises(IdempotencyConflict):
        started(world, "weekly", key="k")


def test_a_create_whose_reply_was_lost_is_not_refused_for_its_own_label(world: World) -> None:
    create = world.engine.store.create

    def twice(new: Any) -> Any:
        create(new)
        return create(new)

    world.engine.store.create = twice  # type: ignore[method-assign]
    first = started(world)
    world.engine.store.create = create  # type: ignore[method-assign]
    refused(world, first)


def test_flows_without_a_label_of_their_own_run_side_by_side(world: World) -> None:
    flow = FlowDocument.model_validate({"name": "f", "steps": [llm()]})
    labels = {world.engine.queries.session(world.engine.submit.document(flow).session).label
              for _ in range(2)}  # fmt: skip
    assert labels == {"Flow: f"}


def test_of_many_submits_at_once_one_gets_the_label(world: World) -> None:
    outcomes: list[str] = []

    def submit() -> None:
        try:
            started(world)
            outcomes.append("created")
        except LabelTaken:
            outcomes.append("refused")

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["created"] + ["refused"] * 7


def submitted_in(world: World, folder: Path) -> SessionRef:
    id_ = world.engine.submit.document(document(cwd=str(folder))).session
    return SessionRef(id_, id_)


def test_embedded_services_have_a_label_once_in_each_working_folder(
    world: World, tmp_path: Path
) -> None:
    engine = world.engine
    own = engine.settings.model_copy(update={"own_redis": True})
    world.engine = Engine(engine.store, world, own)
    one, other, link = tmp_path / "one", tmp_path / "other", tmp_path / "link"
    one.mkdir()
    other.mkdir()
    link.symlink_to(one)
    first = submitted_in(world, one)
    assert submitted_in(world, other) != first
    with pytest.raises(LabelTaken) as error:
        submitted_in(world, link)
    assert error.value.session == first.id
    world.engine.control.apply(first.id, "stop")
    second = submitted_in(world, one)
    with pytest.raises(ControlRefused, match=f"session {second.id} has its label now"):
        world.engine.control.apply(first.id, "resume")


def test_a_fleet_has_a_label_once_in_all_of_its_folders(world: World, tmp_path: Path) -> None:
    first = submitted_in(world, tmp_path)
    refused(world, first)


def test_a_child_that_follows_its_parent_is_not_refused_for_its_label(world: World) -> None:
    parent = started(world, None)
    grant = world.grant(parent, "loop~1[1]/do")
    above: dict[str, JsonValue] = {
        "session": parent.id,
        "address": grant.address,
        "fence": grant.fence,
        "base": world.engine.store.keys.base(parent),
    }
    holder = started(world)
    child = world.engine.submit.document(document(), root=parent.id, parent=above).session
    assert world.engine.queries.session(child).label == "nightly"
    refused(world, holder)
