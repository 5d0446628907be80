"""Sessions of one tree share a folder; strangers wait until all of the tree has released it."""

from __future__ import annotations

import pytest

from app.core.addresses import SessionRef
from app.core.program import Action, Step
from tests.engine.driving import Bench
from tests.engine.test_fsck import audit
from tests.engine.trees import FLOW, KIDS, SUBFLOW, WIDE, RandomWork, child_of, root_of
from tests.engine.world import World

FOLDER = "folder:here:/f"
DO = (Step(id="do", action=Action.AGENT, folder=True),)


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
    assert world.engine.queries.session(flow.id).status == "completed"
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
    world.engine.control.apply(flow.id, "stop")
    world.later(1_000)
    for ref, grant in zip((one, two), grants, strict=True):
        world.engine.attempts.release(ref, grant, why="stop")
    assert world.engine.queries.session(flow.id).status == "stopped"
    stranger = root_of(world, SUBFLOW)
    finish(world, stranger, "one")
    world.engine.control.apply(flow.id, "resume")
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
    (wait,) = world.engine.explainer.explain(stranger.id).waits
    assert set(wait.holders) == {flow.id, one.id}
    assert wait.text.endswith(f", of the tree of {flow.id}, which share it")
    assert audit(world.engine.audit.run).items == []


class Walk:
    """Random things that happen to trees of sessions in one folder."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.work = RandomWork(World.of(bench), seed)
        self.random, self.world = self.work.random, self.work.world
        self.refs: list[SessionRef] = []

    def begin(self) -> None:
        if len(self.refs) < 8:
            self.refs.append(root_of(self.world, WIDE))

    def bear(self) -> None:
        """A child, where a step can still have one."""
        above = self.random.choice(self.refs)
        address = self.random.choice(KIDS)
        if self.work.can_have_child(above, address) and len(self.refs) < 12:
            self.refs.append(child_of(self.world, above, address, WIDE))

    def claim(self, ref: SessionRef, address: str) -> None:
        """Claim a step; it is granted or refused as the holders of the folder require."""
        if address in KIDS:
            return
        before = self.holders()
        answer = self.world.claim(ref, address)
        theirs = [held for held in before if held[1] != ref.root or held[0] == ref.id]
        if answer.word == "granted":
            assert not theirs or theirs == [(ref.id, ref.root, address.partition("[")[0])]
            self.work.running.append((ref, answer.grants[0]))
        elif answer.why == "lock":
            assert theirs or not before

    def claim_one(self) -> None:
        ref = self.random.choice(self.refs)
        self.claim(ref, self.random.choice(("a~1[1]/do", "b~1[1]/do")))

    def heed(self) -> None:
        """A worker takes a hint at once."""
        if hint := self.work.next_hint():
            self.claim(*hint)

    def steer(self) -> None:
        self.work.steer(self.random.choice(self.refs))

    def holders(self) -> list[tuple[str, str, str]]:
        lines = self.world.engine.store.fleet().holders(FOLDER)
        return [(one, root, turn) for one, root, turn in (line.split("|", 2) for line in lines)]

    def check(self) -> None:
        """One tree has it, and of each session one turn."""
        holders = self.holders()
        assert len({root for _, root, _ in holders}) <= 1
        assert len({one for one, _, _ in holders}) == len(holders)
        if self.random.random() < 0.1:
            self.work.audit_locks()

    def end(self) -> None:
        """All comes to its end, and nobody who could have the folder waits for a second look."""
        for _ in range(5):
            self.work.resume_stopped(self.refs)
            self.world.later(50_000)
            self.work.drain()
            assert self.world.engine.store.fleet().tickets(FOLDER) == []
        statuses = {self.work.status(ref) for ref in self.refs}
        assert statuses <= {"completed", "aborted"}
        assert self.holders() == []
        self.work.audit_locks()


#: The walks of each run, which notice the planted faults, and those of the slow test.
WALKS, MANY = (9, 2, 4), (0, 1, 3, *range(5, 40))


@pytest.mark.no_cover
@pytest.mark.timeout(120)
def test_a_folder_is_one_tree_s_whatever_happens(bench: Bench) -> None:
    for seed in WALKS:
        bench.restart()
        walked(bench, seed)


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.timeout(600)
def test_a_folder_is_one_tree_s_in_many_more_walks(bench: Bench) -> None:
    for seed in MANY:
        bench.restart()
        walked(bench, seed)


def walked(bench: Bench, seed: int) -> None:
    walk = Walk(bench, seed)
    walk.begin()
    acts = {
        walk.begin: 3, walk.bear: 6, walk.claim_one: 10, walk.heed: 10, walk.work.settle: 6,
        walk.work.release: 2, walk.steer: 2, walk.work.wait: 3,
    }  # fmt: skip
    for act in walk.random.choices(list(acts), list(acts.values()), k=60):
        act()
        walk.check()
    walk.end()
