"""A batch is the same as its documents submitted one by one, whatever is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import InvalidDocument
from app.sessions.drafts import Request, Submitted
from app.sessions.submit import Item, ItemRefused, Result, hash_document
from leadhand.errors import IdempotencyConflict, LabelTaken, StoreAway
from leadhand.flows.documents import AnyDocument
from leadhand.models.documents import LoopDocument
from tests.engine.driving import Bench
from tests.engine.world import World

#: What an item asks for: its task, its key, its label, and whether it can run here.
ITEMS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from([None, "k1", "k2"]),
        st.sampled_from([None, None, "l"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=7,
)
Asked = tuple[str, str | None, str | None, bool]


def item(asked: Asked) -> Item:
    task, key, label, is_able = asked
    fields = {"task": task, "checkers": ["true"], "doer": {"command": "true"}, "label": label}
    document = LoopDocument.model_validate({**fields, "cwd": "/tmp" if is_able else "/nowhere"})
    return Item(document, Request(hash_document(document, "s"), key, free=True))


def one_by_one(world: World, items: Sequence[Item]) -> list[Result]:
    found: list[Result] = []
    for one in items:
        try:
            found.append(world.engine.submit.document_of(one.request, one.document))
        except (InvalidDocument, IdempotencyConflict, LabelTaken) as error:
            found.append(error)
    return found


def shape(world: World, results: Sequence[Result]) -> list[object]:
    """What became of each item, with the sessions in the order of their first mention."""
    ids: dict[str, int] = {}
    shown: list[object] = []
    for one in results:
        if isinstance(one, Submitted):
            number = ids.setdefault(one.session, len(ids))
            facts = world.engine.queries.session(one.session)
            shown.append((number, one.created, facts.status, facts.label, facts.kind))
        else:
            shown.append(type(one).__name__)
    return shown


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(asked=ITEMS)
def test_a_batch_equals_its_items_one_by_one(bench: Bench, asked: list[Asked]) -> None:
    shapes, hinted = [], []
    for is_batch in (False, True):
        bench.restart()
        world = World.of(bench)
        items = [item(one) for one in asked]
        if is_batch:
            results = world.engine.batches.submit(items, all_or_none=False)
        else:
            results = one_by_one(world, items)
        shapes.append(shape(world, results))
        hinted.append(sorted(address for _, address in world.hints))
    assert shapes[0] == shapes[1]
    assert hinted[0] == hinted[1]


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(count=st.integers(2, 6), lost=st.integers(1, 6), again=st.integers(2, 3))
def test_a_repeated_batch_completes_what_a_crash_cut_off(
    bench: Bench, count: int, lost: int, again: int
) -> None:
    """The process ends after some of the sessions were created; then callers repeat, at once."""
    bench.restart()
    items = [item((f"t{n}", f"key{n}", None, True)) for n in range(count)]
    one_by_one(World.of(bench), items[: min(lost, count)])
    worlds = [World.of(bench) for _ in range(again)]
    with ThreadPoolExecutor(again) as pool:
        calls = [
            pool.submit(world.engine.batches.submit, items, all_or_none=True) for world in worlds
        ]
        found = [call.result(timeout=60) for call in calls]
    sessions = [[one.session for one in each if isinstance(one, Submitted)] for each in found]
    assert all(each == sessions[0] for each in sessions)
    assert len(set(sessions[0])) == count
    created = sum(one.created for each in found for one in each if isinstance(one, Submitted))
    assert created == count - min(lost, count)
    hints = [hint for world in worlds for hint in world.hints]
    assert len(hints) == created


def test_a_refused_document_refuses_the_whole_batch(bench: Bench) -> None:
    world = World.of(bench)
    items = [item(("a", "k1", None, True)), item(("b", "k2", None, False))]
    with pytest.raises(ItemRefused) as refused:
        world.engine.batches.submit(items, all_or_none=True)
    assert refused.value.number == 1
    assert bench.redis.zcard(world.engine.store.keys.everywhere("sessions")) == 0
    assert not world.hints


def test_a_batch_takes_one_round_trip_for_all_sessions(bench: Bench) -> None:
    world = World.of(bench)
    document: AnyDocument = item(("a", None, None, True)).document
    items = [Item(document, Request("b", f"key{n}", free=True)) for n in range(100)]
    world.engine.batches.submit(items[:1], all_or_none=True)
    bench.redis.config_resetstat()
    results = world.engine.batches.submit(items[1:], all_or_none=True)
    assert all(isinstance(one, Submitted) and one.created for one in results)
    reads = bench.redis.info("stats")["total_reads_processed"]
    assert reads <= 30  # the server reads 16 kB at a time; one by one it would be 99 or more


def test_an_error_of_the_store_is_raised_for_the_whole_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World.of(bench)

    def fail(*_: object) -> None:
        raise StoreAway("redis://gone")

    monkeypatch.setattr(world.engine.store, "create_all", fail)
    with pytest.raises(StoreAway):
        world.engine.batches.submit([item(("a", None, None, True))], all_or_none=False)
