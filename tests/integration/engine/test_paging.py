"""Lists in pages: each thing comes once, in an order that a reader expects."""

from __future__ import annotations

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from app.store.store import Store, connect
from benchmarks.cost import Queue, fan_out


def test_steps_come_once_and_the_tenth_after_the_ninth(store_url: str) -> None:
    queue = Queue()
    engine = Engine(Store(connect(store_url)), queue, Settings(redis_url=store_url, secret="s"))
    session = engine.submit.program(fan_out(), About(kind="loop", name="x", place="local")).session
    ref = SessionRef(session, session)
    (grant,) = engine.attempts.claim(ref, "list", nonce="n", worker="w").grants
    outcome = Outcome(word="succeeded", value={"items": list(range(700))})
    engine.attempts.settle(engine.attempts.work(ref, grant), outcome, take=[], worker="w")
    seen: list[str] = []
    page = engine.queries.steps(session, limit=300)
    assert len(page.items) == 300
    while True:
        seen += [step.address for step in page.items]
        if page.next is None:
            break
        page = engine.queries.steps(session, limit=300, cursor=page.next)
    assert seen == [f"each~1#{n}" for n in range(1, 701)] + ["list"]
    assert {step.queue for step in page.items} == {"tools@local"}
