"""A flow whose file changes while its session is stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.engine import Engine
from app.sessions.attempts import Work
from app.settings import Settings
from app.store.store import Store
from leadhand.errors import ControlRefused
from leadhand.flows.documents import FlowRun
from leadhand.models.documents import Budget
from tests.engine.driving import Bench
from tests.engine.world import World
from tests.flows import llm

STEPS = [llm("a", label="a"), llm("b", label="b"), llm("c", label="c")]


class Flow:
    """A flow of a file that changes, carried out one step at a time."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.file = folder / "x.json"
        self.world = World.of(bench)
        settings = Settings(redis_url="redis://x", place="here", secret="s", flows=(folder,))
        store = Store(bench.client(), clock=lambda: self.world.now, read=bench.read)
        self.world.engine = Engine(store, self.world, settings)
        #: A worker that remembers the session as it was.
        self.other = Engine(store, self.world, settings.model_copy(update={"flows": ()}))

    def write(self, *steps: dict[str, Any], **more: Any) -> None:
        self.file.write_text(json.dumps({"steps": steps, **more}))

    def start(self, *steps: dict[str, Any], **more: Any) -> None:
        self.write(*steps, **more)
        id_ = self.world.engine.submit.flow("x", FlowRun()).session
        self.ref = SessionRef(id_, id_)

    def do(
        self, address: str, verdict: str | None = None, engine: Engine | None = None
    ) -> list[object]:
        """Carry out a step as a worker would, and return its prompt."""
        engine = engine or self.other
        answer = engine.attempts.claim(
            self.ref, address, nonce=f"n{address}{self.world.now}", worker="w"
        )
        assert answer.word == "granted", answer
        work = engine.attempts.work(self.ref, answer.grants[0])
        outcome = {"word": "succeeded", "text": "t", "verdict": verdict}
        engine.attempts.settle(work, Outcome.model_validate(outcome), take=[], worker="w")
        return list(work.inputs.get("lines", []))  # type: ignore[arg-type]

    def _work(self, address: str) -> Work:
        answer = self.other.attempts.claim(self.ref, address, nonce=f"f{address}", worker="w")
        assert answer.word == "granted", answer
        return self.other.attempts.work(self.ref, answer.grants[0])

    def fail(self, address: str) -> None:
        """A step fails, and the flow with it."""
        bad = Outcome(word="failed", retryable=False)
        self.other.attempts.settle(self._work(address), bad, take=[], worker="w")
        assert self.world.engine.queries.session(self.ref.id).status == "failed"

    def ask(self, address: str) -> None:
        """A question is asked."""
        work = self._work(address)
        self.other.attempts.park(work, on="human", wait_ms=60_000, question=work.inputs["question"])

    def stop(self) -> None:
        self.world.engine.control.apply(self.ref.id, "stop")

    def resume(self, after: str | None = None, budget: Budget | None = None) -> None:
        self.world.engine.migration.resume_as_new(self.ref.id, after=after, budget=budget)

    @property
    def live(self) -> list[str]:
        return self.world.engine.store.members(self.ref, "live", 10)

    def refused(self) -> str:
        try:
            self.resume()
        except ControlRefused as error:
            return str(error)
        return "it was not refused"


BEFORE = llm("before", label="before")


def subflow(*names: str, label: str = "s") -> dict[str, Any]:
    return {"type": "subflow", "label": label, "flowNames": names}
