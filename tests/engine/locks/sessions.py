"""Sessions for the tests of locks, and the cost of a call in Redis commands."""

from __future__ import annotations

from collections.abc import Callable

import redis

from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.core.records import Grant
from app.sessions.submit import About
from tests.engine.world import World

DO = "loop~1[1]/do"
FOLDER = "folder:here:/f"
#: The keys of a step that needs two slots.
BOTH = ("key:k", "key:m")


def two_steps(world: World, *, needs: tuple[str, ...] | None = None) -> SessionRef:
    """A session with two doers that stand in no loop."""
    steps = (Step(id="a", action=Action.AGENT, folder=True),
             Step(id="b", action=Action.AGENT, folder=True, needs=needs))  # fmt: skip
    about = About(kind="flow", name="x", cwd="/f", folder="/f", place="here")
    id_ = world.engine.submit.program(Program(body=steps), about).session
    return SessionRef(id_, id_)


def commands_of(redis_client: redis.Redis, act: Callable[[], object]) -> list[str]:
    """All commands that the server ran meanwhile, those of scripts too."""
    with redis_client.monitor() as monitor:
        act()
        redis_client.echo("that was all")
        told = iter(lambda: str(monitor.next_command()["command"]), "ECHO that was all")
        return [command.lower() for command in told]


def items(
    world: World, count: int, *, priority: int = 5, keys: tuple[str, ...] = ("key:k",)
) -> SessionRef:
    """A session whose many steps, or one, share a limited key, or several."""
    step = Step(id="each", action=Action.AGENT, for_each=tuple(range(count)), limits=keys)
    about = About(kind="loop", name="x", priority=priority)
    id_ = world.engine.submit.program(Program(body=(step,)), about).session
    return SessionRef(id_, id_)


def taken(world: World) -> list[tuple[SessionRef, Grant]]:
    """What workers that are free get of the hints that are out."""
    granted: list[tuple[SessionRef, Grant]] = []
    for _ in range(1_000):
        if not world.hints:
            return granted
        ref, address = world.hints.pop(0)
        answer = world.claim(ref, address)
        if answer.word == "granted":
            granted.append((ref, answer.grants[0]))
    raise AssertionError("they call each other without end")


def work_for(world: World, seconds: int) -> list[tuple[int, SessionRef]]:
    """Who began when; each is done at once."""
    begun = []
    for _ in range(seconds):
        for ref, grant in taken(world):
            begun.append((world.now, ref))
            world.settle(ref, grant)
        world.later(1_000)
    return begun
