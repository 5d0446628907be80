"""Trees of sessions that work in folders: programs, children and random work."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.program import Action, Loop, OnFail, Program, Step
from app.core.records import Grant
from app.sessions.submit import About
from tests.engine.test_fsck import audit
from tests.engine.world import World

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
    id_ = world.engine.submit.program(program, about).session
    return SessionRef(id_, id_)


def child_of(
    world: World,
    above: SessionRef,
    at: str | Grant,
    program: Program = SUBFLOW,
    about: About = ABOUT,
) -> SessionRef:
    """A child session for which this step waits."""
    grant = world.grant(above, at) if isinstance(at, str) else at
    parent: dict[str, JsonValue] = {
        "session": above.id,
        "address": grant.address,
        "fence": grant.fence,
        "base": world.engine.store.keys.base(above),
    }
    id_ = world.engine.submit.program(program, about, parent=parent, root=above.root).session
    child = SessionRef(id_, above.root)
    work = world.engine.attempts.work(above, grant)
    assert (
        world.engine.attempts.park(work, on="child", wait_ms=60_000, child=child).word == "parked"
    )
    return child


class RandomWork:
    """Workers, controls and time, at random, for the sessions of one world."""

    def __init__(self, world: World, seed: int) -> None:
        self.random = Random(seed)
        self.world = world
        self.running: list[tuple[SessionRef, Grant]] = []

    def next_hint(self) -> tuple[SessionRef, str] | None:
        """Takes one of the hints that wait, if there is one."""
        if not self.world.hints:
            return None
        return self.world.hints.pop(self.random.randrange(len(self.world.hints)))

    def can_have_child(self, ref: SessionRef, address: str) -> bool:
        step = self.world.engine.store.steps(ref, [address])[address]
        return step.state == "ready" and self.status(ref) in ("active", "waiting")

    def status(self, ref: SessionRef) -> str:
        return self.world.engine.queries.session(ref.id).status

    def _end_one(self) -> tuple[SessionRef, Grant] | None:
        if not self.running:
            return None
        return self.running.pop(self.random.randrange(len(self.running)))

    def settle(self) -> None:
        if one := self._end_one():
            self.world.settle(*one)

    def release(self) -> None:
        if one := self._end_one():
            self.world.engine.attempts.release(*one, why="drain")

    def steer(self, ref: SessionRef) -> None:
        status = self.status(ref)
        if status == "stopped":
            self.world.engine.control.apply(ref.id, "resume")
        elif status in ("active", "waiting"):
            self.world.engine.control.apply(ref.id, self.random.choice(("stop", "stop", "abort")))

    def wait(self) -> None:
        self.world.later(self.random.choice((1_000, 6_000, 40_000)))

    def resume_stopped(self, refs: Iterable[SessionRef]) -> None:
        for ref in refs:
            if self.status(ref) == "stopped":
                self.world.engine.control.apply(ref.id, "resume")

    def drain(self) -> None:
        """Carries out every hint, until none is left."""
        self.running.clear()
        while self.world.hints:
            ref, address = self.world.hints.pop(0)
            answer = self.world.claim(ref, address)
            if answer.word == "granted":
                self.world.settle(ref, answer.grants[0])

    def audit_locks(self) -> None:
        """Fails if the audit finds a holder that should not be one."""
        found = audit(self.world.engine.audit.run).items
        assert [one for one in found if "hold" in one.kind or one.kind == "owner_double"] == []
