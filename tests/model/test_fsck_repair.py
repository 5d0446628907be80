"""One repair leaves a store in which a second one finds nothing."""

from __future__ import annotations

from random import Random

import pytest

from app.core.addresses import SessionRef
from app.core.program import Action, Loop, Program, Step
from app.sessions.submit import About
from tests.effort import seeds
from tests.engine.driving import Bench
from tests.engine.test_fsck import MESSES, SOUND_FIRST, Mess, audit

#: Session ids decide in which order the audit looks at sessions, and are random.
TRIES = 8


def second_finding(mess: Mess, *names: str) -> list[str]:
    """What a second repair finds after one has mended these messes."""
    for name in names:
        MESSES[name](mess)
    assert audit(mess.engine.audit.run, repair=True).items
    return [f"{one.kind}: {one.what}" for one in audit(mess.engine.audit.run, repair=True).items]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", seeds(range(80), few=30))
def test_one_repair_mends_messes_of_many_kinds_at_once(store_url: str, seed: int) -> None:
    random = Random(seed)
    names = random.sample(sorted(MESSES), k=random.choice((2, 3, 5, 8, 13, 30, len(MESSES))))
    random.shuffle(names)
    names.sort(key=lambda name: name not in SOUND_FIRST)
    assert second_finding(Mess(store_url), *names) == [], names


def test_a_list_of_children_that_is_mended_expires_with_its_parent(bench: Bench) -> None:
    for _ in range(TRIES):
        bench.restart()
        mess = Mess("", bench)
        mess.engine.control.apply(mess.child.id, "abort")
        mess.engine.control.apply(mess.parent.id, "abort")
        mess.world.later(1)
        assert mess.redis.ttl(mess.key(mess.parent, "session")) > 0
        assert second_finding(mess, "child_unlisted") == []
        left, whole = (
            mess.redis.ttl(mess.key(mess.parent, one)) for one in ("children", "session")
        )
        assert 0 < left <= whole + 1  # a second may pass between the two


def test_a_repaired_lock_is_not_offered_to_a_step_that_does_not_wait(bench: Bench) -> None:
    for _ in range(TRIES):
        bench.restart()
        mess = Mess("", bench)
        strays = {f"key:x<{number:0>15}<0|0|x{number}": 0 for number in range(3)}
        mess.redis.zadd(mess.everywhere("tickets"), strays)
        assert second_finding(mess, "holder_dead") == []
        assert not any("|x" in line for line in bench.scores("ready"))


FOLDER = Step(id="a", action=Action.CHECK, folder=True, needs=())
SIDES = Program(
    body=(
        Loop(
            id="loop",
            body=(
                FOLDER,
                FOLDER.model_copy(update={"id": "b"}),
                Step(id="judge", action=Action.JUDGE),
            ),
            max_iterations=2,
        ),
    )
)


def start_sides(mess: Mess) -> SessionRef:
    """A loop of two steps side by side that need the folder that another session holds."""
    about = About(kind="loop", name="x", cwd="/runs", folder="/runs", place="here")
    id_ = mess.engine.submit.program(SIDES, about).session
    return SessionRef(id_, id_)


def test_a_step_gets_the_folder_that_its_own_loop_took_while_nothing_looked_at_it(
    bench: Bench,
) -> None:
    mess = Mess("", bench)
    one, other = "loop~1[1]/a", "loop~1[1]/b"
    ref = start_sides(mess)
    for address in (one, other):
        assert mess.world.claim(ref, address).why == "lock"
    mess.engine.control.apply(mess.waits.id, "abort")
    mess.redis.zadd(mess.everywhere("ready"), {f"{ref.member}{other}": 9e15})
    mess.engine.control.apply(mess.runs.id, "abort")
    mess.world.later(60_000)
    mess.world.grant(ref, one)
    found = audit(mess.engine.audit.run, repair=True)
    assert ("hint_late", ref.id) in {(one.kind, one.session) for one in found.items}
    mess.world.hints.clear()
    mess.world.later(1_000)
    assert (ref, other) in mess.world.hints
    mess.world.grant(ref, other)


def test_a_key_of_another_type_does_not_stop_the_audit(bench: Bench) -> None:
    mess = Mess("", bench)
    mess.redis.set("lh:{0}:0:steps", "x")
    mess.redis.set("lh:{0}:0:turns", "x")
    messes = ("leases_stray of nobody", "holder_dead", "ticket_stray that was called")
    mess.redis.zadd(mess.everywhere("holds"), {"key:x<0|0|loop~1": 0})
    mess.redis.zadd(mess.everywhere("tickets"), {f"key:x<{'1':0>14}<0|0|x": 0})
    assert second_finding(mess, *messes) == []
