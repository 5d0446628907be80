"""A folder lock also covers the folders above and below: sessions in those wait for it."""

from __future__ import annotations

import pytest
import redis

from app import shared as app_shared
from app.core.addresses import SessionRef
from app.core.program import Action, Loop, Program, Step
from app.sessions.submit import About
from tests.effort import few_or_all
from tests.engine.driving import Bench
from tests.engine.locks.sessions import commands_of
from tests.engine.test_fsck import audit
from tests.engine.trees import FLOW, KIDS, SUBFLOW, WIDE, RandomWork, child_of
from tests.engine.world import DO as LIMITED
from tests.engine.world import World

DO = "loop~1[1]/do"
LOOP = Program(
    body=(
        Loop(id="loop", body=(Step(id="do", action=Action.AGENT, folder=True),), max_iterations=1),
    )
)
KEYED = Program(body=(Loop(id="loop", body=(LIMITED,), max_iterations=1),))


@pytest.fixture
def world(bench: Bench) -> World:
    return World.of(bench)


def about(folder: str, place: str = "here") -> About:
    return About(kind="loop", name="x", cwd=folder, folder=folder, place=place)


def session(world: World, folder: str, program: Program = LOOP) -> SessionRef:
    id_ = world.engine.submit.program(program, about(folder)).session
    return SessionRef(id_, id_)


def require_wait(world: World, ref: SessionRef, folder: str, address: str = DO) -> None:
    answer = world.claim(ref, address)
    assert (answer.word, answer.why, answer.lock) == ("refused", "lock", f"folder:here:{folder}")


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ("/runs", "/runs/sub"), ("/runs", "/runs/sub/deeper"), ("/runs/sub", "/runs"),
        ("/runs/sub/deeper", "/runs"), ("/runs", "/"), ("/", "/runs"), ("/", "/runs/sub"),
        ("/0", "/"), ("/", "/0"), ("/a/b", "/a"), ("/a-b/c", "/a-b"),
        ("/ä/ö", "/ä"), ("/ä", "/ä/ö"),
    ],
)  # fmt: skip
def test_overlapping_folders_are_held_one_after_the_other(
    world: World, held: str, wanted: str
) -> None:
    require_turns(world, held, wanted)


def require_turns(world: World, held: str, wanted: str) -> None:
    holder, waiter = session(world, held), session(world, wanted)
    begun = world.grant(holder, DO)
    require_wait(world, waiter, wanted)
    world.hints.clear()
    world.settle(holder, begun)
    assert world.hints == [(waiter, DO)]
    world.settle(waiter, world.grant(waiter, DO))
    assert world.engine.store.fleet().holders(f"folder:here:{wanted}") == []


def test_a_folder_below_a_held_one_waits(bench: Bench) -> None:
    require_turns(World.of(bench), "/runs", "/runs/sub")


def test_a_folder_above_a_held_one_waits(bench: Bench) -> None:
    require_turns(World.of(bench), "/runs/sub", "/runs")


def test_names_that_only_begin_alike_do_not_overlap(bench: Bench) -> None:
    world = World.of(bench)
    for folder in ("/runs", "/runs2", "/run", "/runs-old", "/runs.1", "/runs<", "/x"):
        world.grant(session(world, folder), DO)


def test_folders_of_different_places_do_not_overlap(store_url: str) -> None:
    world = World(store_url)
    world.grant(session(world, "/runs"), DO)
    there = world.at("there")
    id_ = there.engine.submit.program(LOOP, about("/runs/sub", "there")).session
    there.grant(SessionRef(id_, id_), DO)


def test_a_session_of_the_tree_works_below_and_above_what_its_tree_holds(bench: Bench) -> None:
    world = World.of(bench)
    flow = session(world, "/f", FLOW)
    (first,) = world.settle(flow, world.grant(flow, "first")).grants
    below = child_of(world, flow, first, SUBFLOW, about("/f/sub"))
    above = child_of(world, flow, "k2", SUBFLOW, about("/"))
    stranger = session(world, "/f/sub/deeper")
    world.grant(below, "one")
    world.grant(above, "one")
    require_wait(world, stranger, "/f/sub/deeper")


def test_the_child_of_a_holder_is_not_kept_back_by_a_step_that_waits_for_the_parent(
    bench: Bench,
) -> None:
    world = World.of(bench)
    flow = session(world, "/a/x", FLOW)
    (first,) = world.settle(flow, world.grant(flow, "first")).grants
    waiter = session(world, "/a")
    require_wait(world, waiter, "/a")
    child = child_of(world, flow, first, SUBFLOW, about("/a/y"))
    world.grant(child, "one")


def test_a_tree_that_holds_a_folder_is_not_kept_from_one_inside_it(bench: Bench) -> None:
    world = World.of(bench)
    flow = session(world, "/f", WIDE)
    outer = child_of(world, flow, "k1", SUBFLOW, about("/f"))
    inner = child_of(world, flow, "k2", SUBFLOW, about("/f/sub"))
    world.grant(outer, "one")
    require_wait(world, session(world, "/f/sub/x"), "/f/sub/x")
    world.grant(inner, "one")


def test_a_waiter_for_a_wide_folder_is_not_overtaken_by_later_ones_below(bench: Bench) -> None:
    world = World.of(bench)
    first = session(world, "/a")
    begun = world.grant(first, DO)
    wide = session(world, "/")
    require_wait(world, wide, "/")
    later = [session(world, folder) for folder in ("/b", "/c", "/b/d")]
    for ref, folder in zip(later, ("/b", "/c", "/b/d"), strict=True):
        require_wait(world, ref, folder)
    world.hints.clear()
    world.settle(first, begun)
    assert world.hints == [(wide, DO)]
    require_wait(world, later[0], "/b")
    begun = world.grant(wide, DO)
    world.hints.clear()
    world.settle(wide, begun)
    assert world.hints == [(later[0], DO), (later[1], DO)]
    for ref in later[:2]:
        world.grant(ref, DO)
    require_wait(world, later[2], "/b/d")


def test_those_kept_back_are_called_when_the_earlier_one_gives_up(bench: Bench) -> None:
    world = World.of(bench)
    world.grant(session(world, "/a"), DO)
    wide, later = session(world, "/"), session(world, "/b")
    require_wait(world, wide, "/")
    require_wait(world, later, "/b")
    world.hints.clear()
    world.engine.control.apply(wide.id, "stop")
    assert world.hints == [(later, DO)]
    world.grant(later, DO)


def test_a_step_that_waits_for_a_limit_too_keeps_no_other_back(bench: Bench) -> None:
    world = World.of(bench)
    app_shared.set_limit(world.engine, "key:k", concurrency=1)
    world.grant(session(world, "/z", KEYED), DO)
    world.grant(session(world, "/a"), DO)
    wide = session(world, "/", KEYED)
    assert world.claim(wide, DO).why == "lock"
    world.grant(session(world, "/b"), DO)


def test_a_called_step_that_does_not_come_keeps_others_back_for_five_seconds(bench: Bench) -> None:
    world = World.of(bench)
    first = session(world, "/a")
    begun = world.grant(first, DO)
    wide, later = session(world, "/"), session(world, "/b")
    require_wait(world, wide, "/")
    require_wait(world, later, "/b")
    world.settle(first, begun)
    require_wait(world, later, "/b")
    world.now += 5_001
    world.grant(later, DO)


def test_the_audit_finds_two_in_overlapping_folders(bench: Bench) -> None:
    world = World.of(bench)
    one, two = session(world, "/runs"), session(world, "/runs/sub")
    world.grant(one, DO)
    line = f"folder:here:/runs/sub<{two.member}loop~1"
    bench.client().zadd("lh:holds", {line: 0})
    bench.client().sadd(world.engine.store.keys.part(two, "holding"), line)
    found = [(item.kind, item.what) for item in audit(world.engine.audit.run).items]
    assert found == [("owner_double", f"{line} overlaps folder:here:/runs, which {one.id} holds")]


def test_the_audit_frees_a_folder_above_the_one_that_its_session_works_in(bench: Bench) -> None:
    world = World.of(bench)
    ref = session(world, "/runs/sub")
    line = f"folder:here:/runs<{ref.member}loop~1"
    bench.client().zadd("lh:holds", {line: 0})
    assert world.claim(ref, DO).why == "lock"
    found = [item.kind for item in audit(world.engine.audit.run, repair=True).items]
    assert found == ["holder_dead"]
    world.later(16_000)
    world.grant(ref, DO)


def test_explain_names_the_folder_that_is_held_and_how_it_lies(bench: Bench) -> None:
    world = World.of(bench)
    below, wide = session(world, "/runs/sub"), session(world, "/")
    world.grant(below, DO)
    require_wait(world, wide, "/")
    (wait,) = world.engine.explainer.explain(wide.id).waits
    assert wait.holders == [below.id]
    assert wait.text.startswith(
        f"folder:here:/ contains folder:here:/runs/sub, which is held by session {below.id} "
    )
    later = session(world, "/b")
    require_wait(world, later, "/b")
    (wait,) = world.engine.explainer.explain(later.id).waits
    assert wait.text == (
        f"folder:here:/b is free, but session {wide.id} was first and waits for folder:here:/,"
        " which contains it"
    )
    inner = session(world, "/runs/sub/deeper")
    require_wait(world, inner, "/runs/sub/deeper")
    (wait,) = world.engine.explainer.explain(inner.id).waits
    assert wait.text.startswith(
        "folder:here:/runs/sub/deeper is inside folder:here:/runs/sub, which is held by session "
    )
    told = world.told(inner, "step.blocked")
    assert told == [(DO, {"lock": "folder:here:/runs/sub/deeper", "holder": below.id})]


def test_a_claim_costs_the_same_however_many_other_folders_are_held(
    store_url: str, redis_client: redis.Redis
) -> None:
    world = World(store_url)

    def cost(held: int, root: str) -> int:
        for number in range(held):
            world.grant(session(world, f"{root}/s{number:03}/x"), DO)
        mine = session(world, f"{root}/s005x/y")
        commands = commands_of(redis_client, lambda: world.grant(mine, DO))
        return sum(line.startswith(READS) for line in commands)

    alone, few, many = cost(0, "/alone"), cost(10, "/few"), cost(100, "/many")
    assert alone == 3  # two before folders above and below were looked at
    assert many <= few <= alone + 2


READS = tuple(
    f"{command} lh:{key} "
    for command in ("zlexcount", "zrangebylex")
    for key in ("holds", "tickets")
)
FOLDERS = ("/", "/a", "/a/b", "/a/b/c", "/a/d", "/a2", "/a/b2", "/e")


def overlap(one: str, other: str) -> bool:
    inner, outer = sorted((one.rstrip("/"), other.rstrip("/")), key=len, reverse=True)
    return f"{inner}/".startswith(f"{outer}/")


class Walk:
    """Random trees of sessions in overlapping folders; each claim must have the right reply."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.work = RandomWork(World.of(bench), seed)
        self.random, self.world = self.work.random, self.work.world
        self.redis = bench.client()
        self.folders: dict[SessionRef, str] = {}

    @property
    def refs(self) -> list[SessionRef]:
        return list(self.folders)

    def begin(self) -> None:
        if len(self.folders) < 9:
            folder = self.random.choice(FOLDERS)
            self.folders[session(self.world, folder, WIDE)] = folder

    def bear(self) -> None:
        """A child, where a step can still have one."""
        above = self.random.choice(self.refs)
        address = self.random.choice(KIDS)
        if self.work.can_have_child(above, address) and len(self.folders) < 13:
            folder = self.random.choice(FOLDERS)
            ref = child_of(self.world, above, address, WIDE, about(folder))
            self.folders[ref] = folder

    def lines(self, part: str) -> list[tuple[str, list[str]]]:
        """Each line of a folder's lock: the folder, and its session, root and address."""
        found = [str(line).split("<") for line in self.redis.zrange(f"lh:{part}", 0, -1)]
        return [(line[0].split(":", 2)[2], line[-1].split("|", 2)) for line in found]

    def claim(self, ref: SessionRef, address: str) -> None:
        if address in KIDS:
            return
        folder = self.folders[ref]
        before = [line for line in self.lines("holds") if overlap(line[0], folder)]
        tickets = [line for line in self.lines("tickets") if overlap(line[0], folder)]
        answer = self.world.claim(ref, address)
        own = [ref.id, ref.root, address.partition("[")[0]]
        others = [who for _, who in before if who[1] != ref.root or who[0] == ref.id]
        if answer.word == "granted":
            assert not [who for who in others if who != own], (folder, before)
            self.work.running.append((ref, answer.grants[0]))
        elif answer.why == "lock":
            covered = [at for at, who in before if who not in others and folder.startswith(at)]
            ahead = [who for _, who in tickets if who[:1] != [ref.id] or who[2] != address]
            assert others or (ahead and not covered), (folder, before, tickets)

    def claim_one(self) -> None:
        ref = self.random.choice(self.refs)
        self.claim(ref, self.random.choice(("a~1[1]/do", "b~1[1]/do")))

    def heed(self) -> None:
        """A worker takes a hint at once."""
        if hint := self.work.next_hint():
            self.claim(*hint)

    def steer(self) -> None:
        self.work.steer(self.random.choice(self.refs))

    def check(self) -> None:
        """Overlapping folders are held by different sessions of one tree."""
        lines = self.lines("holds")
        for at, (folder, (id_, root, _)) in enumerate(lines):
            for other, (their_id, their_root, _) in lines[:at]:
                shared = root == their_root and id_ != their_id
                assert shared or not overlap(folder, other), lines
        if self.random.random() < 0.1:
            self.work.audit_locks()

    def end(self) -> None:
        """All sessions end, and every step that can have its folder is called at once."""
        for _ in range(5):
            self.work.resume_stopped(self.refs)
            self.world.later(50_000)
            for _ in range(4):  # a stop reaches one more level of a tree at each sweep
                self.world.later(1_000)
            self.work.drain()
            assert self.lines("tickets") == []
        statuses = {self.work.status(ref) for ref in self.refs}
        assert statuses <= {"completed", "aborted"}
        assert self.lines("holds") == []
        self.work.audit_locks()


def walked(bench: Bench, seed: int) -> None:
    walk = Walk(bench, seed)
    walk.begin()
    acts = {
        walk.begin: 5, walk.bear: 4, walk.claim_one: 10, walk.heed: 10, walk.work.settle: 6,
        walk.steer: 2, walk.work.wait: 3,
    }  # fmt: skip
    for act in walk.random.choices(list(acts), list(acts.values()), k=70):
        act()
        walk.check()
    walk.end()


@pytest.mark.no_cover
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seeds", few_or_all(range(2), range(24)))
def test_overlapping_folders_are_one_tree_s_whatever_happens(bench: Bench, seeds: range) -> None:
    for seed in seeds:
        bench.restart()
        walked(bench, seed)
