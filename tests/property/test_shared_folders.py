"""Sessions of one tree share a folder; strangers wait until all of the tree has released it."""

from __future__ import annotations

from random import Random

import pytest
from pydantic import JsonValue

from app.engine import About
from app.keys import SessionRef
from app.program import Action, Loop, OnFail, Program, Step
from app.records import Grant
from tests.property.driving import Bench
from tests.property.test_fsck import audit
from tests.property.world import World

FOLDER = "folder:here:/f"
DO = (Step(id="do", action=Action.AGENT, folder=True),)
ABOUT = About(kind="flow", name="x", cwd="/f", folder="/f", place="here")
#: Two loops that work in the folder, and three steps that may have children, all side by side.
KIDS = ("k1", "k2", "k3")
WIDE = Program(
    body=(
        *(
            Loop(id=id_, body=DO, needs=(), max_iterations=1, on_fail=OnFail.CONTINUE)
            for id_ in ("a", "b")
        ),
        *(Step(id=id_, action=Action.CHILD, needs=(), critical=False) for id_ in KIDS),
    )
)
#: A flow: a doer, two subflows at once, a doer.
FLOW = Program(
    body=(
        Step(id="first", action=Action.AGENT, folder=True),
        *(Step(id=id_, action=Action.CHILD, needs=("first",)) for id_ in ("k1", "k2")),
        Step(id="last", action=Action.AGENT, folder=True, needs=("k1", "k2")),
    )
)
SUBFLOW = Program(
    body=(
        Step(id="one", action=Action.AGENT, folder=True),
        Step(id="two", action=Action.AGENT, folder=True),
    )
)


def root_of(world: World, program: Program, about: About = ABOUT) -> SessionRef:
    id_ = world.engine.start(program, about).session
    return SessionRef(id_, id_)


def child_of(
    world: World, above: SessionRef, at: str | Grant, program: Program = SUBFLOW
) -> SessionRef:
    """A child session for which this step waits."""
    grant = world.grant(above, at) if isinstance(at, str) else at
    parent: dict[str, JsonValue] = {
        "session": above.id,
        "address": grant.address,
        "fence": grant.fence,
        "base": world.engine.store.keys.base(above),
    }
    id_ = world.engine.start(program, ABOUT, parent=parent, root=above.root).session
    child = SessionRef(id_, above.root)
    work = world.engine.work(above, grant)
    assert world.engine.park(work, on="child", wait_ms=60_000, child=child).word == "parked"
    return child


def family(world: World) -> tuple[SessionRef, SessionRef, SessionRef]:
    """A flow that worked in a folder and waits for two subflows in the same folder."""
    flow = root_of(world, FLOW)
    (first,) = world.settle(flow, world.grant(flow, "first")).grants
    return flow, child_of(world, flow, first), child_of(world, flow, "k2")


def finish(world: World, ref: SessionRef, *addresses: str) -> None:
    for address in addresses:
        world.settle(ref, world.grant(ref, address))


def test_subflows_in_one_folder_work_side_by_side(bench: Bench) -> None:
    world = World.of(bench)
    flow, one, two = family(world)
    both = [world.grant(ref, "one") for ref in (one, two)]
    assert [grant.address for grant in both] == ["one", "one"]
    world.settle(one, both[0])
    world.settle(two, both[1])
    finish(world, one, "two")
    finish(world, two, "two")
    finish(world, flow, "last")
    assert world.engine.session(flow.id).status == "completed"
    assert world.engine.store.fleet().holders(FOLDER) == []


def test_a_stranger_waits_until_all_of_the_tree_has_released_the_folder(bench: Bench) -> None:
    world = World.of(bench)
    flow, one, two = family(world)
    finish(world, one, "one")
    stranger = root_of(world, SUBFLOW)
    assert world.claim(stranger, "one").why == "lock"
    finish(world, one, "two")
    assert world.claim(stranger, "one").why == "lock"
    finish(world, two, "one", "two")
    assert world.claim(stranger, "one").why == "lock"
    begun = world.grant(flow, "last")
    assert world.claim(stranger, "one").why == "lock"
    world.hints.clear()
    world.settle(flow, begun)
    assert (stranger, "one") in world.hints
    world.grant(stranger, "one")


def test_a_stranger_waits_for_the_last_child_where_the_parent_holds_nothing(bench: Bench) -> None:
    """A flow that begins with its subflows has not worked in the folder itself."""
    world = World.of(bench)
    flow = root_of(world, WIDE)
    one, two = (child_of(world, flow, id_) for id_ in ("k1", "k2"))
    finish(world, one, "one")
    finish(world, two, "one")
    stranger = root_of(world, SUBFLOW)
    assert world.claim(stranger, "one").why == "lock"
    finish(world, one, "two")
    assert world.claim(stranger, "one").why == "lock"
    world.hints.clear()
    finish(world, two, "two")
    assert (stranger, "one") in world.hints


def test_who_takes_a_folder_calls_those_of_its_tree_who_wait_behind_others(bench: Bench) -> None:
    world = World.of(bench)
    held = root_of(world, SUBFLOW)
    finish(world, held, "one")
    flow = root_of(world, WIDE)
    one, two = (child_of(world, flow, id_) for id_ in ("k1", "k2"))
    assert world.claim(one, "one").why == "lock"
    between = root_of(world, SUBFLOW)
    assert world.claim(between, "one").why == "lock"
    assert world.claim(two, "one").why == "lock"
    world.hints.clear()
    finish(world, held, "two")
    assert [ref for ref, _ in world.hints] == [one]
    begun = world.grant(one, "one")
    assert (two, "one") in world.hints
    assert between not in [ref for ref, _ in world.hints]
    world.grant(two, "one")
    assert world.claim(between, "one").why == "lock"
    world.settle(one, begun)


def test_those_of_a_tree_jump_no_line_for_a_folder_that_nobody_holds(bench: Bench) -> None:
    world = World.of(bench)
    flow = root_of(world, WIDE)
    child = child_of(world, flow, "k1")
    finish(world, flow, *())
    held = world.grant(flow, "a~1[1]/do")
    stranger = root_of(world, SUBFLOW)
    assert world.claim(stranger, "one").why == "lock"
    assert world.claim(flow, "b~1[1]/do").why == "lock"
    world.hints.clear()
    world.settle(flow, held)
    assert [ref for ref, _ in world.hints] == [stranger]
    assert world.claim(child, "one").why == "lock"
    assert world.claim(flow, "b~1[1]/do").why == "lock"
    world.grant(stranger, "one")


def test_loops_of_one_session_take_turns_whatever_its_children_hold(bench: Bench) -> None:
    world = World.of(bench)
    flow = root_of(world, WIDE)
    child = child_of(world, flow, "k1")
    begun = world.grant(child, "one")
    first = world.grant(flow, "a~1[1]/do")
    assert world.claim(flow, "b~1[1]/do").lock == FOLDER
    world.hints.clear()
    world.settle(flow, first)
    assert (flow, "b~1[1]/do") in world.hints
    world.grant(flow, "b~1[1]/do")
    world.settle(child, begun)


def test_a_killed_child_leaves_the_folder_to_its_tree(bench: Bench) -> None:
    world = World.of(bench)
    _flow, one, two = family(world)
    lost = world.grant(one, "one")
    world.grant(two, "one")
    stranger = root_of(world, SUBFLOW)
    assert world.claim(stranger, "one").why == "lock"
    world.later(40_000)
    assert world.claim(stranger, "one").why == "lock"
    again = world.grant(one, "one")
    assert again.fence > lost.fence
    world.grant(two, "one")


def test_a_tree_that_was_stopped_shares_the_folder_again(bench: Bench) -> None:
    world = World.of(bench)
    flow, one, two = family(world)
    grants = [world.grant(ref, "one") for ref in (one, two)]
    world.engine.control(flow.id, "stop")
    world.later(1_000)
    for ref, grant in zip((one, two), grants, strict=True):
        world.engine.release(ref, grant, why="stop")
    assert world.engine.session(flow.id).status == "stopped"
    stranger = root_of(world, SUBFLOW)
    finish(world, stranger, "one")
    world.engine.control(flow.id, "resume")
    world.later(1_000)
    for ref in (one, two):
        assert world.claim(ref, "one").why == "lock"
    world.hints.clear()
    finish(world, stranger, "two")
    (called, *others) = [ref for ref, _ in world.hints]
    assert called in (one, two)
    assert not others
    world.grant(called, "one")
    world.grant(one if called == two else two, "one")


def test_whoever_waits_is_told_of_all_who_share_the_folder(bench: Bench) -> None:
    world = World.of(bench)
    flow, one, _two = family(world)
    world.grant(one, "one")
    stranger = root_of(world, SUBFLOW)
    assert world.claim(stranger, "one").why == "lock"
    (wait,) = world.engine.explain(stranger.id).waits
    assert set(wait.holders) == {flow.id, one.id}
    assert wait.text.endswith(f", of the tree of {flow.id}, which share it")
    assert audit(world.engine.fsck).items == []


class Walk:
    """Random things that happen to trees of sessions in one folder."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.random = Random(seed)
        self.world = World.of(bench)
        self.refs: list[SessionRef] = []
        self.running: list[tuple[SessionRef, Grant]] = []

    def begin(self) -> None:
        if len(self.refs) < 8:
            self.refs.append(root_of(self.world, WIDE))

    def bear(self) -> None:
        """A child, where a step can still have one."""
        above = self.random.choice(self.refs)
        address = self.random.choice(KIDS)
        step = self.world.engine.store.steps(above, [address])[address]
        active = self.world.engine.session(above.id).status in ("active", "waiting")
        if step.state == "ready" and active and len(self.refs) < 12:
            self.refs.append(child_of(self.world, above, address, WIDE))

    def claim(self, ref: SessionRef, address: str) -> None:
        """What is granted or refused is what the holders allow."""
        if address in KIDS:
            return
        before = self.holders()
        answer = self.world.claim(ref, address)
        theirs = [held for held in before if held[1] != ref.root or held[0] == ref.id]
        if answer.word == "granted":
            assert not theirs or theirs == [(ref.id, ref.root, address.partition("[")[0])]
            self.running.append((ref, answer.grants[0]))
        elif answer.why == "lock":
            assert theirs or not before

    def work(self) -> None:
        ref = self.random.choice(self.refs)
        self.claim(ref, self.random.choice(("a~1[1]/do", "b~1[1]/do")))

    def heed(self) -> None:
        """Somebody comes for a hint, at once."""
        if self.world.hints:
            at = self.random.randrange(len(self.world.hints))
            self.claim(*self.world.hints.pop(at))

    def settle(self) -> None:
        if self.running:
            ref, grant = self.running.pop(self.random.randrange(len(self.running)))
            self.world.settle(ref, grant)

    def release(self) -> None:
        if self.running:
            ref, grant = self.running.pop(self.random.randrange(len(self.running)))
            self.world.engine.release(ref, grant, why="drain")

    def steer(self) -> None:
        ref = self.random.choice(self.refs)
        status = self.world.engine.session(ref.id).status
        if status == "stopped":
            self.world.engine.control(ref.id, "resume")
        elif status in ("active", "waiting"):
            self.world.engine.control(ref.id, self.random.choice(("stop", "stop", "abort")))

    def wait(self) -> None:
        self.world.later(self.random.choice((1_000, 6_000, 40_000)))

    def holders(self) -> list[tuple[str, str, str]]:
        lines = self.world.engine.store.fleet().holders(FOLDER)
        return [(one, root, turn) for one, root, turn in (line.split("|", 2) for line in lines)]

    def check(self) -> None:
        """One tree has it, and of each session one turn."""
        holders = self.holders()
        assert len({root for _, root, _ in holders}) <= 1
        assert len({one for one, _, _ in holders}) == len(holders)
        if self.random.random() < 0.1:
            self.look()

    def look(self) -> None:
        """The audit has nothing to say of it."""
        found = audit(self.world.engine.fsck).items
        assert [one for one in found if "hold" in one.kind or one.kind == "owner_double"] == []

    def end(self) -> None:
        """All comes to its end, and nobody who could have the folder waits for a second look."""
        for _ in range(5):
            self.go_on()
            self.world.later(50_000)
            self.running.clear()
            self.drain()
            assert self.world.engine.store.fleet().tickets(FOLDER) == []
        statuses = {self.world.engine.session(ref.id).status for ref in self.refs}
        assert statuses <= {"completed", "aborted"}
        assert self.holders() == []
        self.look()

    def go_on(self) -> None:
        for ref in self.refs:
            if self.world.engine.session(ref.id).status == "stopped":
                self.world.engine.control(ref.id, "resume")

    def drain(self) -> None:
        while self.world.hints:
            ref, address = self.world.hints.pop(0)
            answer = self.world.claim(ref, address)
            if answer.word == "granted":
                self.world.settle(ref, answer.grants[0])


SEEDS = range(12)


@pytest.mark.no_cover
@pytest.mark.timeout(120)
def test_a_folder_is_one_tree_s_whatever_happens(bench: Bench) -> None:
    for seed in SEEDS:
        bench.restart()
        walked(bench, seed)


def walked(bench: Bench, seed: int) -> None:
    walk = Walk(bench, seed)
    walk.begin()
    acts = {
        walk.begin: 3, walk.bear: 6, walk.work: 10, walk.heed: 10, walk.settle: 6,
        walk.release: 2, walk.steer: 2, walk.wait: 3,
    }  # fmt: skip
    for act in walk.random.choices(list(acts), list(acts.values()), k=60):
        act()
        walk.check()
    walk.end()
