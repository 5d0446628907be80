"""One engine with a clock of its own, no workers, and every hint that it ever sent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Program, Step
from app.core.records import Grant, Hint, QueueDepth, Reply
from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from app.store.script_library import text_of
from app.store.store import Store, connect
from app.sweep import sweep
from leadhand.flows.documents import AnyDocument
from tests.engine.driving import Bench

DO = Step(id="do", action=Action.AGENT, folder=True, limits=("key:k",))
CHECK = Step(id="check", action=Action.CHECK, folder=True)
JUDGE = Step(id="judge", action=Action.JUDGE)
LOOP = Program(body=(Loop(id="loop", body=(DO, CHECK, JUDGE), max_iterations=3, result="do"),))
DONE = Outcome(word="succeeded")


class World:
    """One engine with a clock of its own, and every hint that it ever sent."""

    def __init__(
        self,
        url: str,
        *,
        place: str = "here",
        bench: Bench | None = None,
        worktrees: Path | None = None,
        secret: str = "s",
        **settings: object,
    ) -> None:
        self.now = 1_000_000
        self.hints: list[tuple[SessionRef, str]] = []
        redis, read = (bench.client(), bench.read) if bench else (connect(url), text_of)
        store = Store(redis, clock=lambda: self.now, read=read)
        given = {"redis_url": url, "place": place, "secret": secret, "worktrees": worktrees}
        self.engine = Engine(store, self, Settings.model_validate({**given, **settings}))

    def at(self, place: str) -> World:
        """The same world as another place sees it."""
        other = World(self.engine.settings.redis_url, place=place)
        other.now = self.now
        return other

    @classmethod
    def of(cls, bench: Bench) -> World:
        """An engine with the scripts of this bench, on its server."""
        return cls("redis://of-the-bench", bench=bench)

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        self.hints += [(ref, hint.address) for hint in hints]

    def publish_all(self, batch: Sequence[tuple[SessionRef, Program, Sequence[Hint]]]) -> None:
        for ref, program, hints in batch:
            self.publish(ref, program, hints)

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(queues, 0)

    def strays(
        self, gone: Callable[[str, Sequence[str]], set[str]], *, drop: bool
    ) -> Sequence[QueueDepth]:
        return []

    def worker(self, place: str, *roots: str) -> None:
        """Publish a worker's inventory."""
        told = {"place": place, "roots": roots, "seen_ms": self.now}
        self.engine.store.fleet().publish_inventory(f"at {place}", json.dumps(told))

    def session(self, folder: str = "/f", place: str = "here", *, chosen: str = "") -> SessionRef:
        about = About(kind="loop", name="x", cwd=folder, folder=folder, place=place, chosen=chosen)
        id_ = self.engine.submit.program(LOOP, about).session
        return SessionRef(id_, id_)

    def submit(self, document: AnyDocument) -> SessionRef:
        id_ = self.engine.submit.document(document).session
        return SessionRef(id_, id_)

    def claim(self, ref: SessionRef, address: str) -> Reply:
        return self.engine.attempts.claim(ref, address, nonce=uuid.uuid4().hex, worker="w")

    def grant(self, ref: SessionRef, address: str) -> Grant:
        answer = self.claim(ref, address)
        assert answer.word == "granted", answer
        return answer.grants[0]

    def settle(self, ref: SessionRef, grant: Grant, outcome: Outcome = DONE) -> Reply:
        work = self.engine.attempts.work(ref, grant)
        answer = self.engine.attempts.settle(work, outcome, take=["n" + grant.nonce], worker="w")
        self.engine.transitions.publish(ref, answer.hints)
        return answer

    def judge(self, ref: SessionRef, answer: Reply, block: str = "loop~1[1]") -> Grant:
        """Grant the judge; the worker of the last check has it already if there is no folder."""
        return answer.grants[0] if answer.grants else self.grant(ref, f"{block}/judge")

    def told(self, ref: SessionRef, kind: str) -> list[tuple[str | None, JsonValue]]:
        """The session's events of this kind: where, and what each says."""
        found = self.engine.queries.events(ref.id, after="0-0", limit=1000)
        return [(event.address, event.fields) for event in found if event.type == kind]

    def turn(self, ref: SessionRef, iteration: int, verdict: str, *, check: str = "check") -> None:
        """Carry out one iteration with all its steps."""
        block = f"loop~1[{iteration}]"
        self.settle(ref, self.grant(ref, f"{block}/do"))
        answer = self.settle(ref, self.grant(ref, f"{block}/{check}"))
        judged = Outcome.model_validate({"word": "succeeded", "verdict": verdict})
        self.settle(ref, self.judge(ref, answer, block), judged)

    def later(self, ms: int) -> None:
        self.now += ms
        sweep(self.engine)
