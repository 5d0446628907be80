"""A call on an emptied store writes nothing there: no verb leaves a half-made record behind.

Each verb is called twice with the same arguments: on a store where it has an effect, and on one
that was emptied after these arguments were made. Of the verbs that need no session, `create`, `due`
and `limit` compare the store's id; the name of a worker expires by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from app.core.addresses import SessionRef
from app.core.records import Reply
from app.store.identity import Identity
from app.store.script_library import VERBS, Verb
from tests.engine.driving import LEASE_MS, Bench, Drive, held, program, step

STORE = "f" * 32


class Prepared(NamedTuple):
    """Arguments with which a verb has an effect on the store as it is now."""

    arguments: Mapping[str, Any]
    #: The reply then, and the one of an emptied store.
    word: str
    emptied: str
    outcome: str = ""
    #: Whether the verb is one of the session.
    has_session: bool = True


Preparation = Callable[[Drive], Prepared]


def prepare_claim(drive: Drive) -> Prepared:
    more = {"worker": "w", "lease_ms": LEASE_MS, "schema": 1}
    return Prepared({"address": "a", "nonce": "n", **more}, "granted", "refused")


def prepare_beat(drive: Drive) -> Prepared:
    return Prepared(held(drive.take("a")), "ok", "lost")


def prepare_settle(drive: Drive) -> Prepared:
    more = {"worker": "w", "word": "succeeded", "take": [], "retryable": True}
    return Prepared(held(drive.take("a")) | more, "settled", "superseded", '{"word": "succeeded"}')


def prepare_release(drive: Drive) -> Prepared:
    return Prepared(held(drive.take("a")) | {"why": "drain"}, "released", "superseded")


def prepare_park(drive: Drive) -> Prepared:
    until = drive.bench.clock.now + 60_000
    arguments = held(drive.take("a")) | {"on": "human", "until_ms": until}
    return Prepared(arguments, "parked", "superseded")


def prepare_answer(drive: Drive) -> Prepared:
    parked = drive.park(drive.take("a"))
    arguments = {"address": "a", "fence": parked.fence, "word": "succeeded", "by": "somebody"}
    return Prepared(arguments, "settled", "superseded", '{"word": "succeeded"}')


def prepare_control(drive: Drive) -> Prepared:
    arguments = {"verb": "stop", "from": ["active"], "reason": {"code": "user_stop"}}
    return Prepared(arguments, "done", "unknown")


def prepare_skip(_: Drive) -> Prepared:
    step = {"address": "a", "place": "a", "block": "", "lists": []}
    arguments = {"from": ["active"], "reason": {"code": "user_skip"}, "steps": [step]}
    return Prepared(arguments, "done", "unknown")


def prepare_expire(drive: Drive) -> Prepared:
    drive.take("a")
    drive.bench.tick(LEASE_MS / 1000 + 1)
    return Prepared({"address": "a"}, "lost", "gone")


def prepare_notify(drive: Drive) -> Prepared:
    return Prepared({"address": "a", "depth": 0}, "hinted", "gone")


def prepare_annotate(drive: Drive) -> Prepared:
    return Prepared({"title": "t"}, "done", "unknown")


def prepare_outbox_done(drive: Drive) -> Prepared:
    drive.bench.redis.zadd("lh:errands", {"delete|x": 5})
    return Prepared({"errand": "delete|x", "seen": 5}, "done", "anew", has_session=False)


def prepare_delete(drive: Drive) -> Prepared:
    drive.do("a")
    drive.do("b")
    return Prepared({"program": drive.program.hash}, "deleted", "unknown")


def put_delivery(drive: Drive, **more: Any) -> None:
    drive.bench.redis.hset(
        drive.key("hooks"),
        "d",
        json.dumps({"tries": 0, "event": "e", "at": 1, "status": "s"} | more),
    )
    drive.bench.redis.zadd("lh:hooks", {drive.ref.member + "d": 1})


def prepare_webhook_claim(drive: Drive) -> Prepared:
    put_delivery(drive)
    arguments = {"delivery": "d", "nonce": "n", "hold_ms": 1000, "most": 3}
    return Prepared(arguments, "taken", "gone")


def prepare_webhook_settle(drive: Drive) -> Prepared:
    put_delivery(drive, nonce="n", tries=3)
    arguments = {"delivery": "d", "nonce": "n", "arrived": False, "wait_ms": 1, "most": 3}
    return Prepared(arguments | {"why": "x", "host": "h"}, "given_up", "superseded")


def prepare_output(drive: Drive) -> Prepared:
    fence = drive.take("a").fence
    part = {"seq": 1, "stream": "stdout", "text": "t", "dropped": 0}
    arguments = {"address": "a", "fence": fence, "parts": [part], "attempts": 9}
    return Prepared(arguments | {"quiet_ms": 1, "ttl_s": 60}, "kept", "unknown")


def prepare_own_folder(_: Drive) -> Prepared:
    return Prepared({"facts": {"kind": "copy"}}, "recorded", "gone")


def prepare_limit(drive: Drive) -> Prepared:
    arguments = {"key": "k", "limit": '{"concurrency": 1}', "store": STORE}
    return Prepared(arguments, "done", "other_store", has_session=False)


def prepare_due(drive: Drive) -> Prepared:
    arguments = {"every_ms": 900, "limit": 9, "run_id": "r", "grace_ms": 1, "sweeps": 0}
    return Prepared(arguments | {"store": STORE}, "due", "other_store", has_session=False)


def prepare_plan(drive: Drive, **arguments: Any) -> Prepared:
    """A call on the plan of one task, which is starting."""
    until = drive.bench.clock.now + 60_000
    draft = {"tasks": [{"id": "t", "priority": 5, "spec": {"title": '"T"'}}], "at_once": 1}
    draft |= {"retries": 0, "on_failure": "continue", "proposals": "ask"}
    parking = held(drive.take("a")) | {"on": "plan", "until_ms": until, "plan": draft}
    assert drive.run("park", parking).word == "parked"
    return Prepared({"task": "t", "run": 1, "child": "c", "address": "a"} | arguments, "", "")


def on_plan(word: str, **arguments: Any) -> Callable[[Drive], Prepared]:
    return lambda drive: prepare_plan(drive, **arguments)._replace(word=word, emptied="no_plan")


def prepare_inbox_add(drive: Drive) -> Prepared:
    return Prepared({"kind": "hint", "from": "x", "text": "t"}, "added", "unknown")


def prepare_inbox_take(drive: Drive) -> Prepared:
    drive.run("inbox_add", {"kind": "hint", "from": "x", "text": "t"})
    return Prepared({"by": "x"}, "taken", "unknown")


def prepare_tree_lock(drive: Drive) -> Prepared:
    arguments = {"name": "x", "nonce": "n", "ttl_ms": 1000, "by": "ann"}
    return Prepared(arguments, "held", "unknown")


def prepare_tree_unlock(drive: Drive) -> Prepared:
    drive.run("tree_lock", prepare_tree_lock(drive).arguments)
    return Prepared({"name": "x", "nonce": "n"}, "released", "unknown")


def prepare_tree_look(drive: Drive) -> Prepared:
    drive.run("tree_lock", prepare_tree_lock(drive).arguments)
    drive.bench.tick(2)
    return Prepared({"lock": f"lock:{drive.ref.root}:x"}, "looked", "looked", has_session=False)


def prepare_tree_kv(drive: Drive) -> Prepared:
    return Prepared({"key": "k", "by": "ann", "nonce": "n"}, "set", "unknown", outcome="1")


STACK: Mapping[str, Any] = {"stack": "s", "keep_s": 60}


def prepare_stack_begin(_: Drive) -> Prepared:
    return Prepared({**STACK, "store": STORE}, "begun", "other_store", has_session=False)


def prepare_stack_write(_: Drive) -> Prepared:
    more = {"version": 0, "head": {"version": "1"}, "records": {}, "store": STORE}
    return Prepared({**STACK, **more}, "written", "other_store", has_session=False)


def prepare_guard_begin(drive: Drive) -> Prepared:
    drive.bench.redis.hset(drive.key("session"), "kind", "guard")
    return Prepared({"stop": "s", "stale_ms": 1000}, "begun", "unknown")


def prepare_guard_write(drive: Drive) -> Prepared:
    assert drive.run("guard_begin", prepare_guard_begin(drive).arguments).word == "begun"
    arguments = {"stop": "s", "decision": "{}", "version": 0, "kind": "k", "idle_ms": 1}
    return Prepared(arguments, "written", "unknown", outcome="{}")


def prepare_audit(drive: Drive, word: str = "looked", **arguments: Any) -> Prepared:
    return Prepared(arguments | {"repair": True}, "looked", word)


def audit(word: str = "looked", **arguments: Any) -> Callable[[Drive], Prepared]:
    return lambda drive: prepare_audit(drive, word, **arguments)


PREPARED: Mapping[Verb, Callable[[Drive], Prepared]] = {
    "claim": prepare_claim,
    "beat": prepare_beat,
    "settle": prepare_settle,
    "release": prepare_release,
    "park": prepare_park,
    "answer": prepare_answer,
    "control": prepare_control,
    "steps_skip": prepare_skip,
    "annotate": prepare_annotate,
    "expire": prepare_expire,
    "notify": prepare_notify,
    "outbox_done": prepare_outbox_done,
    "delete": prepare_delete,
    "webhook_claim": prepare_webhook_claim,
    "webhook_settle": prepare_webhook_settle,
    "output": prepare_output,
    "limit": prepare_limit,
    "inbox_add": prepare_inbox_add,
    "inbox_take": prepare_inbox_take,
    "tree_lock": prepare_tree_lock,
    "tree_unlock": prepare_tree_unlock,
    "tree_look": prepare_tree_look,
    "tree_kv": prepare_tree_kv,
    "stack_begin": prepare_stack_begin,
    "stack_write": prepare_stack_write,
    "stack_delete": prepare_stack_write,
    "guard_begin": prepare_guard_begin,
    "guard_write": prepare_guard_write,
    "plan_edit": on_plan("edited", operations=[{"op": "move", "id": "t"}], by="x"),
    "plan_started": on_plan("recorded"),
    "plan_report": on_plan("reported", status="completed", digest="d"),
    "plan_fact": on_plan("applied", status="deleted"),
    "plan_look": on_plan("looked"),
    "plan_workspace": on_plan("recorded", branch="b"),
    "own_folder": prepare_own_folder,
    "due": prepare_due,
    "audit_steps": audit("gone", addresses=["a"]),
    "audit_session": audit("gone"),
    "audit_list": audit(list="ready", lines=["aaaaaaaa|aaaaaaaa|a"]),
    "audit_locks": audit(list="holds", lines=["k<aaaaaaaa|aaaaaaaa|a"]),
    "audit_index": audit(list="sessions", lines=["aaaaaaaa"]),
    "audit_keys": audit(keys=[{"key": "lh:idem:x", "kind": "idem"}]),
}
#: Tested on their own; writes by intention; writes a key that expires.
OTHERS = {"create", "steps_fork", "accept", "hold_name"}


def call(drive: Drive, verb: Verb, prepared: Prepared) -> Reply:
    if prepared.has_session:
        return drive.run(verb, prepared.arguments, outcome=prepared.outcome)
    return drive.bench.store.run(verb, SessionRef("", ""), "", prepared.arguments)


@pytest.fixture
def drive(bench: Bench) -> Drive:
    bench.redis.set("lh:store", STORE)
    return bench.start(program(step("a"), step("b")))


def test_each_verb_is_tried() -> None:
    assert PREPARED.keys() | OTHERS == set(VERBS)


@pytest.mark.parametrize("verb", PREPARED)
def test_verb_on_an_emptied_store_writes_nothing(drive: Drive, verb: Verb) -> None:
    prepared = PREPARED[verb](drive)
    assert call(drive, verb, prepared).word == prepared.word

    drive.bench.restart()
    drive.bench.redis.set("lh:store", STORE)
    drive = drive.bench.start(drive.program)
    prepared = PREPARED[verb](drive)
    drive.bench.redis.flushall()
    assert call(drive, verb, prepared).word == prepared.emptied
    assert drive.bench.redis.keys() == []


def test_session_is_not_created_in_an_emptied_store(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The store is that of all tests in this process.
    monkeypatch.setattr(drive.bench.store, "expected_identity", lambda: Identity(STORE, 0))
    drive.bench.redis.flushall()
    assert drive.create(key="key").word == "other_store"
    assert drive.bench.redis.keys() == []
