"""Sequential programs with fixed outcomes, carried out step by step on the real scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Thread
from app.core.program import Action, Given, Loop, OnFail, Program, Step
from app.errors import PositionRefused
from app.sessions.submit import About
from leadhand.models.documents import Budget
from tests.engine.driving import step
from tests.engine.world import World
from tests.model.interpreter import Said

Says = Callable[[str, Step], Said]


def plain(address: str) -> str:
    """Without runs: what is the same however often it is run.

    >>> plain("l~2[1]/a~3")
    'l[1]/a'
    """
    return re.sub(r"~\d+", "", address)


def says(seed: int) -> Says:
    """What each step says, the same at the same place of each run."""

    def say(address: str, step: Step) -> Said:
        random = Random(f"{seed} {plain(address)}")
        match step.action:
            case Action.BREAK:
                return Said("succeeded", random.choice(("accept", "retry", "retry")))
            case Action.DECIDE:
                return Said("succeeded", random.choice(("accept", "retry")))
            case _:
                return Said("succeeded")

    return say


def nested(random: Random, depth: int = 0) -> tuple[Step | Loop, ...]:
    """A block of a sequence, with loops in it, whose steps look at all that is in sight."""
    body: list[Step | Loop] = []
    for name in "abcd"[: random.randint(2, 4)]:
        kind = random.choice(("step", "step", "loop", "decide", "given", "break", "continue"))
        deciders = [n.id for n in body if isinstance(n, Step) and n.action is Action.DECIDE]
        node: Step | Loop
        if kind == "loop" and depth < 2:
            turns, on_fail = random.randint(1, 3), random.choice((OnFail.STOP, OnFail.CONTINUE))
            inner = nested(random, depth + 1)
            node = Loop(id=name, body=inner, max_iterations=turns, on_fail=on_fail, result="a")
        elif kind == "decide":
            node = step(name, "decide", inputs=_looking(body, depth))
        elif kind in ("break", "continue") and depth > 0:
            ends = "iteration" if kind == "continue" else "loop"
            node = step(name, "break", ends=ends, inputs=_looking(body, depth))
        else:
            aside = Random(hash(random.getstate()[1]))
            talk = aside.choice((None, "agent|one", "agent|other"))
            node = step(name, inputs=_looking(body, depth), conversation=talk)
        if kind == "given" and deciders:
            said = Given(node=random.choice(deciders), verdict="accept")
            node = node.model_copy(update={"given": said})
        body.append(node)
    if depth > 0 and body[0].given is None and isinstance(body[0], Loop):
        body.insert(0, step("z", inputs=_looking((), depth)))
    return tuple(body)


def _looking(body: Sequence[Step | Loop], depth: int) -> dict[str, JsonValue]:
    inputs: dict[str, JsonValue] = {node.id: "${" + node.id + "}" for node in body}
    if depth > 0:
        inputs |= {
            "before": "${previous.a.text}",
            "long": "${history.a}",
            "turn": "${turn.iteration}",
        }
    return inputs


def _spoken(step: Step, place: str) -> Thread | None:
    """Where its conversation goes on; some places forget it."""
    if step.conversation is None:
        return None
    forgets = Random(place).random() < 0.2
    return Thread(conversation=step.conversation, id=None if forgets else place)


class Session:
    """One session of a sequence, carried out a step at a time."""

    def __init__(
        self, world: World, program: Program, say: Says, budget: Budget | None = None
    ) -> None:
        self.world, self.program, self.say = world, program, say
        id_ = world.engine.submit.program(
            program, About(kind="flow", name="x", budget=budget or Budget())
        ).session
        self.ref = SessionRef(id_, id_)
        self.did: list[str] = []
        self.given: dict[str, Any] = {}
        self.threads: dict[str, str | None] = {}

    @property
    def status(self) -> str:
        return self.world.engine.queries.session(self.ref.id).status

    def go(self, steps: int = 1000) -> list[str]:
        """Carry out at most so many steps; returns the addresses that ran, without runs."""
        done: list[str] = []
        while len(done) < steps and (ready := self._ready()):
            grant = self.world.grant(self.ref, ready)
            work = self.world.engine.attempts.work(self.ref, grant)
            told = self.say(ready, work.step)
            self.given[plain(ready)] = work.inputs
            self.threads[plain(ready)] = grant.thread.id if grant.thread else None
            outcome = Outcome(
                word=told.word,  # type: ignore[arg-type]
                verdict=told.verdict,  # type: ignore[arg-type]
                text=plain(ready),
                thread=_spoken(work.step, plain(ready)),
            )
            self.world.engine.attempts.settle(work, outcome, take=[], worker="w")
            done.append(plain(ready))
            self.did.append(ready)
        return done

    def _ready(self) -> str | None:
        live = self.world.engine.store.members(self.ref, "live")
        assert len(live) <= 1, "a sequence has one step at a time"
        return next(iter(live), None) if self.status == "active" else None

    def resume(self, after: str) -> None:
        self.world.engine.control.apply(self.ref.id, "resume", after=after)


def resumed(session: Session, after: str) -> bool:
    """Send it back; a node that has run again since is no point any more."""
    try:
        session.resume(after)
    except PositionRefused as refused:
        if "has run again" not in refused.hint:
            raise
        return False
    return True
