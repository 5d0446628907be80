"""The audit: silent about whatever the scripts do, and a mess of each kind is named and mended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import cast

import pytest
from redis import Redis

from app import shared
from app.core.addresses import SessionRef
from app.core.program import SCHEMA_VERSION
from app.core.records import QueueDepth
from app.sessions.audit import Audit
from app.shared import LockCall
from leadhand.contract.fleet import combine_audits
from leadhand.errors import KeyDamaged
from leadhand.models.views.fleet import Finding, FsckView
from leadhand.models.views.fleet import FsckView as Found
from leadhand.models.views.shared import LockGrant
from tests.engine.children.test_children import family
from tests.engine.driving import Bench
from tests.engine.world import LOOP, World
from tests.model.walking import walk
from tests.silent_engine import loop, silent_engine

SEEDS = range(6)
#: What may be found of a parent whose children are no more than their status.
OF_PARENTS = ("child_stray", "turn_stuck", "stop_stuck")


def audit(look: Callable[..., FsckView], *, repair: bool = False) -> Found:
    found: Found | None = None
    while found is None or found.next is not None:
        page = look(cursor=found.next if found else None, repair=repair)
        found = combine_audits(found, Found.model_validate(page.model_dump()))
    return found


def of_a_made_up_child(finding: Finding) -> bool:
    """The simulation's children are made up, and nobody runs its errands."""
    return str(finding.session).startswith("of ") or finding.kind in OF_PARENTS


@pytest.mark.timeout(120)
def test_nothing_is_found_in_whatever_the_scripts_leave(bench: Bench, redis_url: str) -> None:
    engine = silent_engine(redis_url, clock=bench.clock)

    acts = count()

    def clean() -> None:
        if next(acts) % 4:
            return
        engine.registry.forget_facts()
        found = audit(engine.audit.run)
        assert [f for f in found.items if not of_a_made_up_child(f)] == [], seed

    for seed in SEEDS:
        walk(bench, seed, after=clean)


class Mess:
    """Sessions of every kind on one server, and hands that may do what no script does."""

    def __init__(self, url: str, bench: Bench | None = None) -> None:
        self.world = World.of(bench) if bench else World(url)
        self.redis = bench.client() if bench else Redis.from_url(url, decode_responses=True)
        self.engine = self.world.engine
        self.store = self.engine.store
        self.parent, self.child = family(self.world)
        self.runs = self.world.session("/runs")
        self.world.grant(self.runs, "loop~1[1]/do")
        self.waits = self.world.session("/runs")
        assert self.world.claim(self.waits, "loop~1[1]/do").why == "lock"
        self.ready = self.world.session("/ready")
        self.ended = self.world.session("/ended")
        self.engine.control.apply(self.ended.id, "abort")

    def lines(self, start: str) -> list[str]:
        """The lines of the index that begin like this."""
        found = [str(line) for line in self.redis.zrange(self.everywhere("facts"), 0, -1)]
        return [line for line in found if line.startswith(start)]

    def key(self, ref: SessionRef, part: str) -> str:
        return self.store.keys.part(ref, part)

    def everywhere(self, part: str) -> str:
        return self.store.keys.everywhere(part)

    def change(self, ref: SessionRef, part: str, field: str, **change: object) -> None:
        record = json.loads(str(self.redis.hget(self.key(ref, part), field)))
        record = {k: v for k, v in {**record, **change}.items() if v is not None}
        self.redis.hset(self.key(ref, part), field, json.dumps(record))


DO = "loop~1[1]/do"


def take_lock(m: Mess) -> LockGrant:
    return shared.acquire_lock(m.engine, m.ready.id, "x", LockCall("ann", holder="h"), ttl_s=60)


#: Messes that begin with a transition, which needs a sound session.
SOUND_FIRST = ("holder_dead that is recorded", "lock_unwatched")
MESSES: dict[str, Callable[[Mess], object]] = {
    "hint_lost": lambda m: m.redis.zrem(m.everywhere("ready"), m.ready.member + DO),
    "lease_lost": lambda m: m.redis.zrem(m.everywhere("leases"), m.runs.member + DO),
    "lease_lost of a parked step": lambda m: m.redis.zrem(
        m.everywhere("leases"), m.parent.member + "kid"
    ),
    "lease_lost of a session": lambda m: (
        m.redis.hset(m.key(m.runs, "session"), "until", 9_000_000),
        m.redis.zrem(m.everywhere("leases"), m.runs.member),
    ),
    "lease_late": lambda m: m.redis.zadd(m.everywhere("leases"), {m.runs.member + DO: 9e15}),
    "lease_late of a parked step": lambda m: m.redis.zadd(
        m.everywhere("leases"), {m.parent.member + "kid": 9e15}
    ),
    "lease_late of a session": lambda m: m.redis.zadd(
        m.everywhere("leases"), {m.runs.member: 9e15}
    ),
    "hint_late": lambda m: m.redis.zadd(m.everywhere("ready"), {m.ready.member + DO: 9e15}),
    "errands_late": lambda m: m.redis.zadd(
        m.everywhere("errands"), {f"deliver|{m.child.member}": 9e15}
    ),
    "hooks_late": lambda m: (
        m.redis.hset(m.key(m.ready, "hooks"), "x", "{}"),
        m.redis.zadd(m.everywhere("hooks"), {f"{m.ready.member}x": 9e15}),
    ),
    "deadline_wrong of an ended session": lambda m: m.redis.zadd(
        m.everywhere("errands"), {f"forget|{m.ended.member}": 9e15}
    ),
    "leases_stray of a session": lambda m: (
        m.redis.hdel(m.key(m.runs, "session"), "until"),
        m.redis.zadd(m.everywhere("leases"), {m.runs.member: 9e15}),
    ),
    "step_unlisted": lambda m: m.redis.zrem(m.key(m.runs, "running"), DO),
    "step_unlisted in live": lambda m: m.redis.zrem(m.key(m.parent, "live"), "kid"),
    "step_stray": lambda m: m.redis.zadd(m.key(m.ready, "running"), {DO: 0}),
    "step_stray without a record": lambda m: m.redis.zadd(m.key(m.ready, "live"), {"no~1/x": 0}),
    "ticket_lost": lambda m: m.redis.delete(m.everywhere("tickets")),
    "index_lost": lambda m: m.redis.zrem(m.everywhere("status:active"), m.ready.id),
    "index_stray in two lists": lambda m: m.redis.zadd(
        m.everywhere("status:failed"), {m.runs.id: 1}
    ),
    "index_lost among all": lambda m: m.redis.zrem(m.everywhere("sessions"), m.ready.id),
    "index_stray": lambda m: m.redis.zadd(m.everywhere("status:active"), {"00000000": 1}),
    "index_stray among all": lambda m: m.redis.zadd(m.everywhere("sessions"), {"00000000": 1}),
    "index_stray of a token": lambda m: m.redis.sadd(m.everywhere("owned:t"), m.ended.id),
    "index_stray of a program": lambda m: m.redis.sadd(m.everywhere("users:x"), m.ready.id),
    "index_stray of an export": lambda m: m.redis.hset(m.everywhere("owed"), "00000000", "why"),
    "index_lost among labels": lambda m: m.redis.hset(
        m.key(m.ready, "session"), "label", "nightly"
    ),
    "index_lost among all facts": lambda m: m.redis.zrem(
        m.everywhere("facts"), *m.lines("kind<"), *m.lines("name<")
    ),
    "index_stray among facts": lambda m: m.redis.zadd(
        m.everywhere("facts"), {f"label<other<00000001000000<{m.ready.id}": 0}
    ),
    "index_stray among facts of a deleted session": lambda m: m.redis.zadd(
        m.everywhere("facts"), {"label<n<00000001000000<00000000": 0}
    ),
    "index_stray among facts at another time": lambda m: m.redis.zadd(
        m.everywhere("facts"), {f"kind<loop<00000000000001<{m.ready.id}": 0}
    ),
    "deadline_missing of a token": lambda m: m.redis.set(m.everywhere("token-key:x"), "t"),
    "id_lost": lambda m: m.redis.delete(m.everywhere(f"id:{m.ready.id}")),
    "user_unlisted": lambda m: m.redis.srem(m.everywhere(f"users:{LOOP.hash}"), m.ready.id),
    "deadline_missing": lambda m: m.redis.persist(m.key(m.ended, "steps")),
    "deadline_missing for good": lambda m: m.redis.zrem(
        m.everywhere("errands"), f"forget|{m.ended.member}"
    ),
    "deadline_missing of a key": lambda m: m.redis.set(m.everywhere("idem:k"), "x|y"),
    "deadline_missing of a day": lambda m: m.redis.hset(m.everywhere("spent:t:1"), "steps", 1),
    "deadline_wrong": lambda m: m.redis.expire(m.key(m.runs, "steps"), 1000),
    "child_stray": lambda m: m.redis.sadd(m.key(m.parent, "children"), "00000000"),
    "child_unlisted": lambda m: m.redis.delete(m.key(m.parent, "children")),
    "child_orphaned": lambda m: (
        m.redis.hset(m.key(m.parent, "session"), "status", "completed"),
        m.redis.zadd(m.everywhere("status:completed"), {m.parent.id: 1}),
    ),
    "turn_stray": lambda m: m.redis.zadd(m.key(m.ready, "open"), {"loop~7": 0}),
    "slot_stray": lambda m: m.redis.zadd(m.key(m.ready, "hinted"), {"agents@here<loop~1[1]/x": 0}),
    "line_stuck": lambda m: (
        m.redis.zrem(m.key(m.ready, "hinted"), f"agents@here<{DO}"),
        m.redis.zadd(m.key(m.ready, "waiting"), {f"agents@here<000000000001<{DO}": 0}),
    ),
    "hold_stray": lambda m: m.redis.sadd(m.key(m.ready, "holding"), f"key:x<{m.ready.member}{DO}"),
    "hold_unlisted": lambda m: m.redis.delete(m.key(m.runs, "holding")),
    "holder_dead": lambda m: m.redis.zadd(
        m.everywhere("holds"), {f"key:x<{m.ended.member}{DO}": 0}
    ),
    "holder_dead of a named lock": lambda m: m.redis.zadd(
        m.everywhere("holds"), {f"lock:{m.ready.root}:x<{m.ready.member}": 0}
    ),
    "holder_dead that is recorded": lambda m: (
        take_lock(m),
        m.redis.zrem(m.everywhere("holds"), f"lock:{m.ready.root}:x<{m.ready.member}"),
    ),
    "lock_unwatched": lambda m: (
        take_lock(m),
        m.redis.zrem(m.everywhere("errands"), f"lock|{m.ready.root}|{m.ready.root}|x"),
    ),
    "ticket_stray": lambda m: m.redis.zadd(
        m.everywhere("tickets"), {f"key:x<{'1':0>14}<{m.ready.member}{DO}": 0}
    ),
    "ticket_stray that was called": lambda m: m.redis.hset(
        m.everywhere("called"), "key:x<1<a|a|b", 1
    ),
    "ticket_stray that is noted": lambda m: m.redis.hset(
        m.everywhere("waits"), f"{m.ready.member}{DO}", "[]"
    ),
    "leases_stray": lambda m: m.redis.zadd(m.everywhere("leases"), {f"{m.ready.member}{DO}": 9e15}),
    "leases_stray of nobody": lambda m: m.redis.zadd(m.everywhere("leases"), {"0|0|x": 9e15}),
    "ready_stray": lambda m: m.redis.zadd(m.everywhere("ready"), {f"{m.runs.member}{DO}": 9e15}),
    "errands_stray": lambda m: m.redis.zadd(m.everywhere("errands"), {"stop|0|0|": 9e15}),
    "hooks_stray": lambda m: m.redis.zadd(m.everywhere("hooks"), {f"{m.ready.member}x": 9e15}),
    "webhook_lost": lambda m: m.redis.hset(m.key(m.ready, "hooks"), "x", "{}"),
    "program_unused": lambda m: m.redis.hset(m.everywhere("program:x"), "document", "{}"),
    "key_stray": lambda m: m.redis.set("lh:{0}:0:steps", "x"),
    "key_stray of an id": lambda m: m.redis.set("lh:id:00000000", "00000000"),
    "key_unknown": lambda m: m.redis.set("lh:nothing-of-ours", "x"),
    "key_unknown of a session that is gone": lambda m: m.redis.set("lh:{0}:0:odd", "x"),
}  # fmt: skip


@pytest.fixture
def mess(store_url: str) -> Mess:
    return Mess(store_url)


def test_sessions_of_every_kind_are_found_sound(mess: Mess) -> None:
    found = audit(mess.engine.audit.run)
    assert found.items == []
    assert found.sessions == 6


@pytest.mark.parametrize("name", MESSES)
def test_a_mess_is_named_and_mended_and_gone(mess: Mess, name: str) -> None:
    kind = name.split()[0]
    before = set(mess.redis.keys("lh:{*")) - {mess.key(mess.ready, "waiting")}
    MESSES[name](mess)
    found = audit(mess.engine.audit.run)
    assert kind in {finding.kind for finding in found.items}, found
    assert found.left == found.found > 0
    mended = audit(mess.engine.audit.run, repair=True)
    assert kind in {finding.kind for finding in mended.items}
    assert mended.left == 0
    assert audit(mess.engine.audit.run, repair=True).items == []
    assert before <= set(mess.redis.keys())


def each_damaged(mess: Mess, url: str) -> Iterator[str]:
    """Yields each key of the mess in turn, while it has another type and the others are whole."""
    raw = Redis.from_url(url)
    keys = cast("list[bytes]", raw.keys("lh:*"))
    whole = {key: (raw.dump(key) or b"", max(0, raw.pttl(key))) for key in keys}
    for key in sorted(whole):
        is_text = raw.type(key) == b"string"
        raw.delete(key)
        raw.lpush(key, "x") if is_text else raw.set(key, "x")
        yield key.decode()
        raw.delete(*raw.keys("lh:*"))
        for other, (text, ttl) in whole.items():
            raw.restore(other, ttl, text)
        mess.engine.registry.forget_facts()
    raw.close()


#: Findings that remain after a repair: the lost data is not anywhere else.
LOST = {"program_lost", "session_stuck"}


def test_a_key_of_a_wrong_type_is_named_whichever_it_is_and_repaired(
    mess: Mess, store_url: str
) -> None:
    for key in each_damaged(mess, store_url):
        found = audit(mess.engine.audit.run)
        assert [f.kind for f in found.items if f.what.startswith(f"{key} is a ")] == ["key_type"], (
            key
        )
        repaired = audit(mess.engine.audit.run, repair=True)
        assert {f.kind for f in repaired.items if not f.mended} <= LOST, key
        assert "key_type" not in {one.kind for one in audit(mess.engine.audit.run).items}, key


def test_repair_of_a_damaged_record_keeps_the_other_keys_of_its_session(mess: Mess) -> None:
    key, parts = mess.key(mess.ready, "session"), mess.key(mess.ready, "*")
    others = set(mess.redis.keys(parts)) - {key}
    mess.redis.delete(key)
    mess.redis.set(key, "x")
    audit(mess.engine.audit.run, repair=True)
    assert set(mess.redis.keys(parts)) >= others
    moved = mess.everywhere("damaged:") + key.removeprefix(mess.everywhere(""))
    assert mess.redis.get(moved) == "x"
    assert mess.redis.ttl(moved) > 0


def test_lists_without_a_damaged_record_name_it(mess: Mess) -> None:
    mess.redis.delete(mess.key(mess.ready, "session"))
    mess.redis.set(mess.key(mess.ready, "session"), "x")
    names, damaged = [mess.ready.id, mess.runs.id], list[str]()
    assert [*mess.store.fields_of(names, damaged)] == [mess.runs.id]
    assert damaged == [mess.ready.id]
    with pytest.raises(KeyDamaged):  # those who delete must not take it for deleted
        mess.store.fields_of(names)


def test_what_a_newer_version_may_have_written_is_named_and_left_alone(mess: Mess) -> None:
    theirs, alone = mess.key(mess.ready, "odd"), "lh:odd"
    mess.redis.set(theirs, "x")
    found = audit(mess.engine.audit.run, repair=True)
    assert [(f.kind, f.session, f.mended) for f in found.items] == [
        ("key_newer", mess.ready.id, False)
    ]
    assert str(found.items[0].way).startswith("a newer version may have written it")
    mess.redis.set(alone, "x")
    schema = SCHEMA_VERSION + 1
    told = {"place": "here", "roots": [], "schema_version": schema, "seen_ms": mess.world.now}
    mess.store.fleet().publish_inventory("newer", json.dumps(told))
    kinds = [finding.kind for finding in audit(mess.engine.audit.run, repair=True).items]
    assert kinds == ["key_newer", "key_newer"]
    assert [mess.redis.ttl(key) for key in (theirs, alone)] == [-1, -1]


def test_what_was_mended_runs_to_its_end(mess: Mess) -> None:
    for name in ("hint_lost", "lease_lost", "index_lost", "step_stray", "user_unlisted"):
        MESSES[name](mess)
    audit(mess.engine.audit.run, repair=True)
    mess.world.later(60_000)
    for iteration in (1, 2):
        mess.world.turn(mess.ready, iteration, ("retry", "accept")[iteration - 1])
    assert mess.engine.queries.session(mess.ready.id).status == "completed"
    assert mess.engine.queries.session(mess.runs.id).counters.attempts_lost == 1
    assert audit(mess.engine.audit.run).items == []


def test_an_orphan_is_ended(mess: Mess) -> None:
    MESSES["child_orphaned"](mess)
    audit(mess.engine.audit.run, repair=True)
    mess.world.later(1_000)
    assert mess.engine.queries.session(mess.child.id).status == "aborted"


def test_a_turn_that_should_have_closed_closes(mess: Mess) -> None:
    mess.change(
        mess.ready, "turns", "", state="closing", verdict="abort", reason={"code": "aborted"}
    )
    for part in ("live", "hinted"):
        mess.redis.delete(mess.key(mess.ready, part))
    mess.redis.zrem(mess.everywhere("ready"), mess.ready.member + DO)
    mess.redis.hset(mess.key(mess.ready, "session"), "status", "aborting")
    mess.change(mess.ready, "steps", DO, state="cancelled")
    assert "turn_stuck" in {f.kind for f in audit(mess.engine.audit.run, repair=True).items}
    assert mess.engine.queries.session(mess.ready.id).status == "aborted"


def test_what_no_script_can_mend_says_what_somebody_can(mess: Mess) -> None:
    mess.redis.zadd(mess.everywhere("holds"), {
        f"folder:here:/runs<{mess.ready.member}loop~1": 0,
    })  # fmt: skip
    mess.redis.sadd(mess.key(mess.ready, "holding"), f"folder:here:/runs<{mess.ready.member}loop~1")
    mess.redis.delete(mess.everywhere(f"program:{LOOP.hash}"))
    found = audit(mess.engine.audit.run, repair=True)
    ways = {(finding.kind, finding.session): finding.way for finding in found.items}
    doubles = {key: way for key, way in ways.items() if key[0] == "owner_double"}
    assert set(doubles) <= {("owner_double", one.id) for one in (mess.ready, mess.runs)}
    for (_, session), way in doubles.items():
        sentence = f"two sessions work in one folder; stop one: leadhand stop {session}"
        assert way == sentence
    assert len(doubles) == 1
    of_loop = {one.id for one in (mess.runs, mess.waits, mess.ready, mess.ended)}
    assert {key: way for key, way in ways.items() if key[0] == "program_lost"} == {
        ("program_lost", one): f"the session cannot continue: leadhand rm --force {one}"
        for one in of_loop
    }
    assert found.left > 0


def test_way_out_of_a_lost_program_works_for_every_session(mess: Mess) -> None:
    """One with a running attempt goes once that has ended, all others at once."""
    mess.redis.delete(mess.everywhere(f"program:{LOOP.hash}"))
    new_process = World(mess.engine.settings.redis_url)
    for one in (mess.ended, mess.ready, mess.waits):
        assert new_process.engine.deletion.delete(one.id, force=True) is None
    view = new_process.engine.deletion.delete(mess.runs.id, force=True)
    assert view is not None
    assert view.status == "aborting"
    new_process.later(60_000)
    new_process.later(60_000)
    of_loop = [one.id for one in (mess.runs, mess.waits, mess.ready, mess.ended)]
    assert new_process.engine.store.existing(of_loop) == set()
    assert audit(new_process.engine.audit.run).items == []


def test_a_session_whose_program_is_gone_is_listed_with_the_others(mess: Mess) -> None:
    listed = {view.id for view in mess.engine.queries.sessions().items}
    mess.redis.delete(mess.everywhere(f"program:{LOOP.hash}"))
    new_process = World(mess.engine.settings.redis_url).engine
    assert {view.id for view in new_process.queries.sessions().items} == listed
    assert new_process.queries.session(mess.ready.id).progress.nodes == []


def test_a_session_that_nothing_goes_on_with_is_named(mess: Mess) -> None:
    mess.redis.delete(mess.key(mess.ready, "live"), mess.key(mess.ready, "hinted"))
    mess.redis.zrem(mess.everywhere("ready"), mess.ready.member + DO)
    mess.change(mess.ready, "steps", DO, state="succeeded")
    found = {f.kind: f for f in audit(mess.engine.audit.run, repair=True).items}
    assert found["session_stuck"].way == (
        f"the session will not continue: leadhand abort {mess.ready.id}"
    )
    mess.engine.control.apply(mess.ready.id, "abort")
    assert audit(mess.engine.audit.run).items == []


class Broker:
    """Queues with messages for two sessions, one of which is gone."""

    def __init__(self, mess: Mess) -> None:
        self.sessions = [mess.ready.id, "00000000"]

    def publish(self, *_: object) -> None: ...

    def publish_all(self, *_: object) -> None: ...

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(queues, 2)

    def strays(
        self, gone: Callable[[str, Sequence[str]], set[str]], *, drop: bool
    ) -> list[QueueDepth]:
        lost = gone("agents@here", self.sessions)
        standing = QueueDepth("agents@here", len(self.sessions), len(lost))
        if drop:
            self.sessions = [one for one in self.sessions if one not in lost]
        return [standing]


def test_queues_that_nobody_takes_from_are_named_and_lost_messages_dropped(mess: Mess) -> None:
    look = Audit(mess.store, mess.engine.transitions, Broker(mess), mess.engine.fleet).run
    found = audit(look, repair=True)
    assert [(f.kind, f.mended) for f in found.items] == [
        ("message_stray", True), ("queue_unconsumed", False),
    ]  # fmt: skip
    assert [f.kind for f in audit(look).items] == ["queue_unconsumed"]


def test_deleted_session_leaves_no_delivery_behind(mess: Mess) -> None:
    id_ = mess.engine.submit.document(loop(webhook={"url": "https://h.example/"})).session
    mess.engine.control.apply(id_, "abort")
    assert len(mess.store.due_hooks(9)) == 1
    assert mess.engine.deletion.delete(id_) is None
    assert audit(mess.engine.audit.run).items == []
    assert mess.store.due_hooks(9) == []


def test_what_has_ended_is_sound(mess: Mess) -> None:
    mess.world.turn(mess.ready, 1, "accept")
    assert audit(mess.engine.audit.run).items == []
