"""Named locks and values of a tree of sessions: who has them, and what frees them."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from app import shared
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.core.records import Grant
from app.errors import CapabilityRefused, InvalidDocument
from app.security.signatures import BODY_SCOPES, Caller
from app.sessions.submit import About
from app.shared import LockCall
from leadhand.errors import (
    LockLost,
    LockRefused,
    LockTaken,
    ValueChanged,
    ValueRefused,
    ValueUnknown,
)
from leadhand.models.views.shared import LockGrant
from tests.engine.test_fsck import audit
from tests.engine.world import World

DO = "loop~1[1]/do"
TWO = Program(body=(Step(id="a", action=Action.AGENT), Step(id="b", action=Action.AGENT, needs=())))
ANN = LockCall("ann", holder="ann")


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def child_of(world: World, ref: SessionRef, grant: Grant) -> SessionRef:
    parent: dict[str, JsonValue] = {
        "session": ref.id, "address": grant.address, "fence": grant.fence,
        "base": world.engine.store.keys.base(ref),
    }  # fmt: skip
    about = About(kind="loop", name="child", cwd="/c", folder="/c")
    made = world.engine.submit.program(TWO, about, parent=parent, root=ref.root)
    return SessionRef(made.session, ref.root)


def body(ref: SessionRef, grant: Grant, holder: str = "body") -> LockCall:
    caller = Caller(ref.id, grant.address, grant.fence, BODY_SCOPES)
    return LockCall("a body", caller, holder)


def acquire(
    world: World, ref: SessionRef, call: LockCall, name: str = "x", *, queue: bool = False
) -> LockGrant:
    return shared.acquire_lock(world.engine, ref.id, name, call, ttl_s=60, queue=queue)


def holders(world: World, ref: SessionRef) -> dict[str, str | None]:
    """Who holds each lock of a tree, and that the audit finds nothing wrong."""
    assert audit(world.engine.audit.run).items == []
    locks = shared.list_locks(world.engine, ref.id)
    return {one.name: one.holder.session if one.holder else None for one in locks}


def is_held(world: World, ref: SessionRef, name: str = "x") -> bool:
    return holders(world, ref).get(name) is not None


def test_a_tree_shares_its_locks_and_another_tree_has_its_own(world: World) -> None:
    ref, other = world.session(), world.session("/other")
    child = child_of(world, ref, world.grant(ref, DO))
    first = acquire(world, ref, ANN)
    with pytest.raises(LockTaken, match=f"session {ref.id} since"):
        acquire(world, child, LockCall("bob", holder="bob"))
    assert acquire(world, other, LockCall("bob", holder="bob")).state == "held"
    assert (holders(world, child), first.state) == ({"x": ref.id}, "held")


@pytest.mark.parametrize("end", ["settle", "fail", "release", "lose", "stop", "abort", "park"])
def test_the_end_of_an_attempt_frees_its_locks(world: World, end: str) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    assert acquire(world, ref, body(ref, grant)).state == "held"
    assert acquire(world, ref, body(ref, grant, "other"), "y").fence == 2
    attempts, control = world.engine.attempts, world.engine.control
    match end:
        case "settle":
            world.settle(ref, grant)
        case "fail":
            world.settle(ref, grant, Outcome(word="failed"))
        case "release":
            attempts.release(ref, grant, why="drain")
        case "lose":
            shared.renew_lock(world.engine, ref.id, "x", body(ref, grant), fence=1, ttl_s=3600)
            world.later(120_000)
        case "stop":
            control.apply(ref.id, "stop")
            assert is_held(world, ref)  # while the attempt runs
            attempts.release(ref, grant, why="stop")
        case "abort":
            control.apply(ref.id, "abort")
            attempts.release(ref, grant, why="cancel")
        case "park":
            until = world.now + 60_000
            world.engine.transitions.run(
                "park",
                ref,
                {"address": DO, "fence": grant.fence, "nonce": grant.nonce, "on": "human",
                 "until_ms": until},
            )  # fmt: skip
        case _:
            raise AssertionError(end)
    assert not is_held(world, ref)
    assert not is_held(world, ref, "y")
    with pytest.raises((CapabilityRefused, LockRefused)):
        acquire(world, ref, body(ref, grant))


@pytest.mark.parametrize("end", ["stop", "abort", "delete"])
def test_the_end_of_a_session_frees_its_locks(world: World, end: str) -> None:
    ref = world.session()
    child = child_of(world, ref, world.grant(ref, DO))
    acquire(world, child, ANN)
    if end == "delete":
        world.engine.deletion.delete(child.id, force=True)
        world.later(1000)
        assert world.engine.store.ref(child.id) is None
    else:
        world.engine.control.apply(child.id, end)  # type: ignore[arg-type]
    assert not is_held(world, ref)
    assert acquire(world, ref, ANN).fence == 2


def test_a_lock_is_free_once_its_time_is_over_and_its_holder_hears_it(world: World) -> None:
    ref = world.session()
    first = acquire(world, ref, ANN)
    world.now += 59_000
    renewed = shared.renew_lock(world.engine, ref.id, "x", ANN, fence=first.fence or 0, ttl_s=60)
    world.now += 59_000
    assert is_held(world, ref)
    assert renewed.fence == first.fence
    world.later(1000)
    assert not is_held(world, ref)
    assert not world.engine.store.fleet().holders(f"lock:{ref.root}:x")
    with pytest.raises(LockLost, match="its time is over"):
        shared.renew_lock(world.engine, ref.id, "x", ANN, fence=first.fence or 0, ttl_s=60)
    second = acquire(world, ref, LockCall("bob", holder="bob"))
    assert (second.fence or 0) > (first.fence or 0)
    assert shared.release_lock(world.engine, ref.id, "x", ANN) is False
    assert is_held(world, ref)


def test_waiters_get_the_lock_in_their_order(world: World) -> None:
    ref = world.session()
    callers = [LockCall(name, holder=name) for name in ("ann", "bob", "eve")]
    found = [acquire(world, ref, one, queue=True) for one in callers]
    assert [(one.state, one.before) for one in found] == [
        ("held", 0), ("waiting", 0), ("waiting", 1),
    ]  # fmt: skip
    assert shared.release_lock(world.engine, ref.id, "x", callers[0])
    assert acquire(world, ref, callers[2], queue=True).state == "waiting"
    with pytest.raises(LockTaken, match="is first in its line"):
        acquire(world, ref, ANN._replace(holder="late"))
    assert acquire(world, ref, callers[1], queue=True).state == "held"
    shared.release_lock(world.engine, ref.id, "x", callers[1])
    assert acquire(world, ref, callers[2], queue=True).state == "held"


def test_a_waiter_that_has_gone_keeps_no_other_back(world: World) -> None:
    ref = world.session()
    gone, waits = LockCall("gone", holder="gone"), LockCall("waits", holder="waits")
    acquire(world, ref, ANN)
    acquire(world, ref, gone, queue=True)
    acquire(world, ref, waits, queue=True)
    shared.release_lock(world.engine, ref.id, "x", ANN)
    world.now += 9000
    assert acquire(world, ref, waits, queue=True).state == "waiting"
    world.now += 1001
    assert acquire(world, ref, waits, queue=True).state == "held"


def test_explain_names_the_holder_of_the_lock_that_a_session_waits_for(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    child = child_of(world, ref, grant)
    acquire(world, ref, ANN, "deploy")
    own = world.grant(child, "a")
    acquire(world, child, body(child, own), "deploy", queue=True)
    found = world.engine.explainer.explain(child.id)
    (wait,) = [one for one in found.waits if one.why == "lock"]
    assert (wait.address, wait.lock) == ("a", "lock:deploy")
    assert f"it waits for lock 'deploy': session {ref.id} since" in wait.text
    assert f"leadhand explain {ref.id}" in found.next
    assert ref.id in found.text
    acquire(world, child, LockCall("bob", holder="bob"), "deploy", queue=True)
    texts = [one.text for one in world.engine.explainer.explain(child.id).waits]
    assert any("1 before it in line" in text for text in texts)
    world.now += 10_001  # none of them has asked again
    assert [one.why for one in world.engine.explainer.explain(child.id).waits].count("lock") == 0


def test_explain_names_the_holders_of_locks_that_wait_for_each_other(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    child = child_of(world, ref, grant)
    first, second = world.grant(child, "a"), world.grant(child, "b")
    acquire(world, ref, body(ref, grant), "x")
    world.now += 1
    acquire(world, child, body(child, first), "y")
    acquire(world, child, body(child, first, "other"), "x", queue=True)
    acquire(world, child, body(child, second), "y", queue=True)
    texts = [one.text for one in world.engine.explainer.explain(child.id).waits]
    assert not any("deadlock" in text for text in texts)
    acquire(world, ref, body(ref, grant, "other"), "y", queue=True)
    found = world.engine.explainer.explain(ref.id)
    (wait,) = [one for one in found.waits if one.why == "lock"]
    assert wait.text.startswith("deadlock: it waits for lock 'y': session " + child.id)
    assert f"holds 'y' and waits for 'x'; session {ref.id} ({DO}) since" in wait.text
    assert wait.holders == [child.id, ref.id]
    assert f"leadhand stop {child.id}" in found.next
    waits = {one.address: one.text for one in world.engine.explainer.explain(child.id).waits}
    assert waits["a"].startswith("deadlock")
    assert waits["b"].startswith("it waits for lock 'y'")


def test_two_processes_of_one_attempt_do_not_wait_for_each_other_by_one_lock(world: World) -> None:
    ref = world.session()
    grant = world.grant(ref, DO)
    acquire(world, ref, body(ref, grant))
    acquire(world, ref, body(ref, grant, "other"), queue=True)
    (wait,) = [one for one in world.engine.explainer.explain(ref.id).waits if one.why == "lock"]
    assert wait.text.startswith("it waits for lock 'x'")


def test_the_export_of_the_root_has_the_values_of_its_tree(world: World) -> None:
    ref = world.session()
    child = child_of(world, ref, world.grant(ref, DO))
    keys = [f"k{number:03}" for number in range(120)]
    for key in reversed(keys):
        shared.set_value(world.engine, child.id, key, {"of": key}, by="ann")
    shared.delete_value(world.engine, child.id, "k001", by="ann")
    exported = world.engine.queries.export(ref.id)
    assert [one.key for one in exported.values] == ["k000", *keys[2:]]
    assert (exported.values[0].value, exported.values[0].by) == ({"of": "k000"}, "ann")
    assert world.engine.queries.export(child.id).values == []


def test_a_move_to_another_place_keeps_the_locks_of_the_session(world: World) -> None:
    world.worker("there", "/")
    ref = world.session()
    acquire(world, ref, ANN)
    world.engine.control.rehome(ref.id, "there")
    assert is_held(world, ref)


def test_a_name_or_time_that_is_wrong_is_refused(world: World) -> None:
    ref = world.session()
    for name in ("", "a b", "a<b", "a|b", "x" * 201):
        with pytest.raises(InvalidDocument, match=r"^name is"):
            acquire(world, ref, ANN, name)
    with pytest.raises(InvalidDocument, match="give 1 to 3600 seconds"):
        shared.acquire_lock(world.engine, ref.id, "x", ANN, ttl_s=3601)
    world.engine.control.apply(ref.id, "stop")
    with pytest.raises(LockRefused, match="is stopped"):
        acquire(world, ref, ANN)


def test_a_value_is_shared_by_the_tree_and_kept_over_its_sessions(world: World) -> None:
    ref = world.session()
    child = child_of(world, ref, world.grant(ref, DO))
    engine = world.engine
    given: tuple[JsonValue, ...] = (
        {"a": [], "b": None, "c": 1.5},
        [],
        "text\nwith lines",
        0,
        None,
        "ü",
    )
    for value in given:
        shared.set_value(engine, child.id, "state/one", value, by="child")
        assert shared.read_value(engine, ref.id, "state/one").value == value
    world.engine.deletion.delete(child.id, force=True)
    world.later(1000)
    assert shared.read_value(engine, ref.id, "state/one").by == "child"
    with pytest.raises(ValueUnknown):
        shared.read_value(engine, ref.id, "other")
    world.engine.deletion.delete(ref.id, force=True)
    world.later(120_000)  # the lease of its attempt passes, then it is deleted
    world.later(1000)
    assert [key for key in world.engine.store.key_scanner().scan(0, 1000)[1] if "{" in key] == []


def test_compare_and_set_has_one_winner_and_a_version_comes_never_again(world: World) -> None:
    ref = world.session()
    engine = world.engine
    first = shared.set_value(engine, ref.id, "k", 1, by="a", if_version=0)
    with pytest.raises(ValueChanged, match="has version 1, but version 0 was expected"):
        shared.set_value(engine, ref.id, "k", 2, by="b", if_version=0)
    second = shared.set_value(engine, ref.id, "k", 2, by="b", if_version=first.version)
    with pytest.raises(ValueChanged):
        shared.delete_value(engine, ref.id, "k", by="a", if_version=first.version)
    shared.delete_value(engine, ref.id, "k", by="a", if_version=second.version)
    with pytest.raises(ValueChanged, match="has no value"):
        shared.set_value(engine, ref.id, "k", 3, by="a", if_version=second.version)
    assert shared.set_value(engine, ref.id, "k", 3, by="a").version > second.version


def test_a_repeated_call_stores_and_deletes_once(world: World) -> None:
    ref = world.session()
    engine = world.engine
    for _ in range(2):
        head = shared.set_value(
            engine, ref.id, "k", 1, by="a", if_version=0, idempotency_key="once"
        )
        assert head.version == 1
    for _ in range(2):
        shared.delete_value(engine, ref.id, "k", by="a", if_version=1, idempotency_key="gone")
    shared.delete_value(engine, ref.id, "k", by="a")


def test_keys_and_bytes_have_limits(world: World) -> None:
    ref = world.session()
    engine = world.engine
    shared.set_value(engine, ref.id, "k", "x" * 65_534, by="a")
    with pytest.raises(InvalidDocument, match="it has 65537 bytes, more than 65536"):
        shared.set_value(engine, ref.id, "k", "x" * 65_535, by="a")
    with pytest.raises(InvalidDocument, match="it has a credential"):
        shared.set_value(engine, ref.id, "k", {"key": "sk-abcdefgh12345678"}, by="a")
    with pytest.raises(InvalidDocument, match=r"^key is"):
        shared.set_value(engine, ref.id, "#version", 1, by="a")
    for number in range(999):
        shared.set_value(engine, ref.id, f"n{number}", number, by="a")
    shared.set_value(engine, ref.id, "k", 2, by="a")
    with pytest.raises(ValueRefused, match="has 1000 keys"):
        shared.set_value(engine, ref.id, "one-more", 1, by="a")
    shared.delete_value(engine, ref.id, "n1", by="a")
    shared.set_value(engine, ref.id, "one-more", 1, by="a")
    page = shared.list_values(world.engine, ref.id, prefix="n", limit=500)
    rest = shared.list_values(world.engine, ref.id, prefix="n", limit=500, cursor=page.next)
    assert (len(page.items), len(rest.items), rest.next) == (500, 498, None)


def test_an_ended_session_stores_nothing(world: World) -> None:
    ref = world.session()
    shared.set_value(world.engine, ref.id, "k", 1, by="a")
    world.engine.control.apply(ref.id, "stop")
    shared.set_value(world.engine, ref.id, "k", 2, by="a")
    world.engine.control.apply(ref.id, "abort")
    with pytest.raises(ValueRefused, match="is aborted"):
        shared.set_value(world.engine, ref.id, "k", 3, by="a")
    assert shared.read_value(world.engine, ref.id, "k").value == 2
    assert audit(world.engine.audit.run).items == []
