"""Webhooks with deliverers that are late, deliver twice or die: one attempt at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.engine import Engine
from app.settings import Settings
from app.webhooks import HOLD_MS, TRIES, wait_ms
from tests.engine.driving import Bench
from tests.silent_engine import NobodyThere, loop

#: Next steps: a worker takes a delivery, reports its result, or time passes.
TAKE = st.tuples(st.just("take"), st.integers(0, 3))
TELL = st.tuples(st.just("tell"), st.integers(0, 3), st.booleans())
WAIT = st.tuples(st.just("wait"), st.sampled_from([1, 1000, 5000, HOLD_MS, 3_600_000]))


@dataclass
class Model:
    """What must be true of one delivery."""

    due: int
    tries: int = 0
    holder: str | None = None
    over: str | None = None
    nonces: dict[int, str] = field(default_factory=dict)

    def takes(self, who: int, now: int, nonce: str) -> str:
        if self.over:
            return "gone"
        if now < self.due:
            return "early"
        self.due, self.holder = now + HOLD_MS, nonce
        self.nonces[who] = nonce
        if self.tries == TRIES:
            return "spent"
        self.tries += 1
        return "taken"

    def tells(self, who: int, now: int, *, arrived: bool) -> str:
        if self.over or self.holder is None or self.nonces.get(who) != self.holder:
            return "superseded"
        self.holder = None
        if arrived or self.tries == TRIES:
            self.over = "arrived" if arrived else "given_up"
            return self.over
        self.due = now + wait_ms(self.tries)
        return "later"


def a_delivery(bench: Bench) -> tuple[Engine, SessionRef, str]:
    """A session that has ended, and its webhook that is due."""
    engine = Engine(bench.store, NobodyThere(), Settings(secret="s"))
    session = engine.submit.document(loop(webhook={"url": "https://h.example/"})).session
    engine.control.apply(session, "abort")
    [line] = bench.store.due_hooks(9)
    return engine, SessionRef(session, session), line.split("|", 2)[2]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(TAKE | TELL | WAIT, max_size=60))
def test_each_try_has_one_deliverer_and_each_delivery_one_end(bench: Bench, steps) -> None:
    bench.restart()
    engine, ref, delivery = a_delivery(bench)
    model = Model(due=bench.clock.now)
    mine: dict[str, JsonValue] = {"delivery": delivery, "most": TRIES}
    for number, (verb, *more) in enumerate(steps):
        now = bench.clock.now
        if verb == "wait":
            bench.clock.now += more[0]
        elif verb == "take":
            nonce = f"{more[0]}.{number}"
            given: dict[str, JsonValue] = {**mine, "nonce": nonce, "hold_ms": HOLD_MS}
            expected = model.takes(more[0], now, nonce)
            answers = [bench.store.run("webhook_claim", ref, "", given) for _ in range(2)]
            # A reply that was lost and asked for again changes nothing.
            assert [answer.word for answer in answers] == [expected, expected]
            assert answers[0].delivery == answers[1].delivery
        else:
            arrived = more[1]
            told: dict[str, JsonValue] = {
                "nonce": model.nonces.get(more[0], "nobody"), "arrived": arrived, "why": "because",
                "host": "h.example", "wait_ms": wait_ms(max(model.tries, 1)),
            }  # fmt: skip
            expected = model.tells(more[0], now, arrived=arrived)
            assert bench.store.run("webhook_settle", ref, "", {**mine, **told}).word == expected
        due = bench.scores("hooks")
        assert list(due.values()) == ([] if model.over else [model.due])
    gave_up = [text for text in engine.queries.session(ref.id).warnings if "given up" in text]
    assert len(gave_up) == (model.over == "given_up")
