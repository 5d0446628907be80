"""Webhooks from the script that ends a session to a receiver that answers, or does not."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.engine import Engine
from app.errors import InvalidDocument
from app.sessions.submit import About
from app.sweep import sweep
from app.webhooks import HOLD_MS, TRIES, Webhooks, wait_ms
from leadhand.errors import SessionUnknown
from leadhand.models.documents import Webhook
from tasks.webhook_delivery import ROOM, Deliverer
from tests.receiver import Received, Receiver, receiver
from tests.silent_engine import loop, silent_engine
from tests.waiting import wait_until

SECRET = "known to us and to the receiver"


class Clock:
    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def at() -> Iterator[Receiver]:
    with receiver() as receiving:
        yield receiving


@pytest.fixture
def engine(store_url: str, at: Receiver, clock: Clock) -> Engine:
    return silent_engine(store_url, clock=clock, secret="ours", webhook_hosts=(at.host,))


@pytest.fixture
def hooks(engine: Engine) -> Webhooks:
    return Webhooks(engine)


def ended(engine: Engine, at: Receiver, *events: str) -> str:
    """A session that was aborted, of which the receiver is to be told."""
    hook = {"url": at.url, "events": events or ("ended",), "secret": SECRET}
    session = engine.submit.document(
        loop(webhook=hook, task="s3cret plan", label="nightly")
    ).session
    assert engine.control.apply(session, "abort", reason="s3cret grounds").status == "aborted"
    return session


def proves(received: Received) -> bool:
    """Verify a signature as a receiver would."""
    parts = dict(part.split("=", 1) for part in received.headers["Leadhand-Signature"].split(","))
    signed = parts["t"].encode() + b"." + received.body
    return hmac.compare_digest(
        hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest(), parts["v1"]
    )


def is_genuine():
    """The receiver's side as docs/webhooks.md shows it."""
    page = (Path(__file__).resolve().parents[4] / "docs/webhooks.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    return names["is_genuine"]


def only(lines: list[str]) -> str:
    [line] = lines
    return line


def test_delivery_of_a_session_s_end_is_signed_and_has_no_payload(engine, hooks, at):
    session = ended(engine, at)
    line = only(hooks.due(9))
    assert hooks.deliver(line) == "arrived"
    [received] = at.received
    assert received.path == "/hook?who=me"
    assert proves(received)
    told = json.loads(received.body)
    assert (told["event"], told["session"]["id"]) == ("ended", session)
    assert (told["session"]["status"], told["session"]["label"]) == ("aborted", "nightly")
    assert told["session"]["reason"] == {"code": "aborted", "at": None, "beneath": None}
    assert told["delivery"] == received.headers["Leadhand-Delivery"] == line.split("|")[2]
    assert received.headers["Host"] == at.host
    assert b"s3cret" not in received.body
    assert hooks.due(9) == []


def test_webhook_without_a_secret_is_not_signed(engine, hooks, at):
    session = engine.submit.document(loop(webhook={"url": at.url})).session
    engine.control.apply(session, "abort")
    assert hooks.deliver(only(hooks.due(9))) == "arrived"
    assert "Leadhand-Signature" not in at.received[0].headers


def test_only_the_requested_events_are_delivered(engine, hooks, at):
    ended(engine, at, "failed", "waiting")
    assert hooks.due(9) == []
    ref, grant = claimed(engine, webhook={"url": at.url, "events": ("ended", "failed")})
    engine.attempts.refuse(ref, grant, why="it cannot be run")
    assert [line.split("-")[1] for line in hooks.due(9)] == ["ended", "failed"]


def test_failed_delivery_is_retried_with_the_same_id(engine, hooks, at, clock):
    at.statuses = [500, 503, 204]
    ended(engine, at)
    line = only(hooks.due(9))
    for tries, word in enumerate(["later", "later", "arrived"], start=1):
        assert hooks.deliver(line) == word
        assert hooks.deliver(line) == ("gone" if word == "arrived" else "early")
        clock.now += wait_ms(tries) - 1
        assert hooks.due(9) == []
        clock.now += 1
        assert hooks.due(9) == ([] if word == "arrived" else [line])
    assert len(at.received) == 3
    assert len({received.headers["Leadhand-Delivery"] for received in at.received}) == 1
    assert len({received.body for received in at.received}) == 1
    assert len({received.headers["Leadhand-Signature"] for received in at.received}) == 3
    assert all(map(proves, at.received))


def test_undeliverable_webhook_is_given_up_with_a_warning(engine, hooks, at, clock, redis_client):
    at.statuses = [410]
    session = ended(engine, at)
    line = only(hooks.due(9))
    for tries in range(1, TRIES):
        assert hooks.deliver(line) == "later"
        clock.now += wait_ms(tries)
    assert hooks.deliver(line) == "given_up"
    view = engine.queries.session(session)
    said = f"the webhook ended to {at.host} was given up after 8 tries: answered 410"
    assert view.warnings == [said]
    last = engine.queries.events(session)[-1]
    assert (last.type, last.fields["tries"]) == ("webhook.given_up", TRIES)
    assert len(at.received) == TRIES
    assert redis_client.zcard("lh:hooks") == 0
    for key in redis_client.keys(f"lh:{{{session}}}:{session}:*"):
        assert redis_client.ttl(key) > 0, key


def test_a_redirect_is_not_followed(engine, hooks, at):
    with receiver() as elsewhere:
        at.statuses, at.location = [307], elsewhere.url
        ended(engine, at)
        assert hooks.deliver(only(hooks.due(9))) == "later"
        assert elsewhere.received == []


def test_delivery_survives_the_death_of_its_deliverer(engine, hooks, at, clock):
    ended(engine, at)
    line = only(hooks.due(9))
    assert take(engine, line, nonce="dead").word == "taken"
    assert hooks.due(9) == []
    assert hooks.deliver(line) == "early"
    clock.now += HOLD_MS
    assert hooks.deliver(only(hooks.due(9))) == "arrived"
    assert len(at.received) == 1


def test_deliverers_that_always_die_are_not_tried_for_ever(engine, hooks, at, clock):
    session = ended(engine, at)
    line = only(hooks.due(9))
    for number in range(TRIES):
        assert take(engine, line, nonce=f"dead {number}").word == "taken"
        clock.now += HOLD_MS
    assert hooks.deliver(line) == "given_up"
    assert at.received == []
    assert "ended before they reported" in engine.queries.session(session).warnings[0]


def test_a_taker_whose_answer_was_lost_asks_again_and_has_it(engine, hooks, at):
    ended(engine, at)
    line = only(hooks.due(9))
    first, again = take(engine, line, nonce="mine"), take(engine, line, nonce="mine")
    assert (first.word, first.delivery) == (again.word, again.delivery)
    assert take(engine, line, nonce="another's").word == "early"


def test_late_deliverer_changes_nothing(engine, hooks, at, clock):
    ended(engine, at)
    line = only(hooks.due(9))
    take(engine, line, nonce="slow")
    clock.now += HOLD_MS
    take(engine, line, nonce="quick")
    told: dict[str, JsonValue] = {"arrived": True, "why": "", "host": "", "wait_ms": 0}
    assert settle(engine, line, nonce="slow", **told).word == "superseded"
    assert settle(engine, line, nonce="quick", **told).word == "arrived"


def test_a_delivery_of_a_deleted_session_is_dropped(engine, hooks, at, redis_client):
    session = ended(engine, at)
    line = only(hooks.due(9))
    engine.deletion.delete(session)
    assert hooks.due(9) == []
    assert hooks.deliver(line) == "gone"  # a deliverer that had read the list before
    assert redis_client.zcard("lh:hooks") == 0
    assert redis_client.keys("lh:{*") == []
    assert at.received == []


def test_a_session_that_is_deleted_by_force_tells_of_its_end_first(engine, hooks, at, clock):
    session = engine.submit.document(loop(webhook={"url": at.url})).session
    view = engine.deletion.delete(session, force=True)
    assert view is not None
    assert view.status == "aborted"
    sweep(engine)
    assert hooks.deliver(only(hooks.due(9))) == "arrived"
    assert json.loads(at.received[0].body)["session"]["status"] == "aborted"
    clock.now += 60_000
    sweep(engine)
    with pytest.raises(SessionUnknown):
        engine.queries.session(session)


def test_a_session_that_is_resumed_tells_of_its_next_end_too(engine, hooks, at, clock):
    ref, grant = claimed(engine, webhook={"url": at.url, "events": ("failed",)})
    engine.attempts.refuse(ref, grant, why="it cannot be run")
    assert hooks.deliver(only(hooks.due(9))) == "arrived"
    clock.now += 1000
    engine.control.apply(ref.id, "resume")
    answer = engine.attempts.claim(ref, "loop~2[1]/do", nonce="m", worker="w")
    engine.attempts.refuse(ref, answer.grants[0], why="it still cannot be run")
    assert hooks.deliver(only(hooks.due(9))) == "arrived"
    assert len({received.headers["Leadhand-Delivery"] for received in at.received}) == 2


def test_neither_the_secret_nor_the_receiver_is_shown_to_readers(engine, at):
    session, ask = ended(engine, at), engine.queries
    shown = [
        ask.session(session), ask.result(session), *ask.steps(session).items,
        *ask.events(session), *ask.sessions().items, *ask.ledger(session).items,
    ]  # fmt: skip
    for view in shown:
        assert SECRET not in view.model_dump_json()
        assert "who=me" not in view.model_dump_json()


def test_receiver_that_is_not_allowed_is_refused_at_submit(engine):
    for url in ("http://10.0.0.1/T0KEN", "https://192.168.0.1/T0KEN", "https://h.example:22/"):
        with pytest.raises(InvalidDocument) as refused:
            engine.submit.document(loop(webhook={"url": url}))
        assert refused.value.field == "webhook.url"
        assert "LEADHAND_WEBHOOK_HOSTS" in str(refused.value)
        assert "T0KEN" not in str(refused.value)


def test_docs_show_receivers_how_to_verify_a_signature(store_url, at):
    engine = silent_engine(store_url, webhook_hosts=(at.host,))
    ended(engine, at)
    hooks = Webhooks(engine)
    hooks.deliver(only(hooks.due(9)))
    header = at.received[0].headers["Leadhand-Signature"]
    assert is_genuine()(at.received[0].body, header, SECRET)
    assert not is_genuine()(at.received[0].body + b" ", header, SECRET)
    assert not is_genuine()(at.received[0].body, header, "somebody else's secret")
    assert not is_genuine()(at.received[0].body, header, SECRET, within_s=0)


# Waiting


def people(
    engine: Engine, at: Receiver, first: str, *others: str, needs: tuple[str, ...] = ()
) -> SessionRef:
    """A session of human steps, the first of which needs nothing."""
    steps = [Step(id=first, action=Action.HUMAN, needs=())]
    steps += [Step(id=name, action=Action.HUMAN, needs=needs) for name in others]
    hook = Webhook(url=at.url, events=("waiting",))
    about = About("loop", "people", webhook=hook.model_dump_json(), rings="waiting")
    ref = engine.store.ref(engine.submit.program(Program(body=tuple(steps)), about).session)
    assert ref is not None
    return ref


def asked(engine: Engine, ref: SessionRef, name: str, *, on: str = "human") -> int:
    """Park a step; the fence that its answer needs."""
    [grant] = engine.attempts.claim(ref, name, nonce=f"{name} {on}", worker="w").grants
    parked = engine.attempts.park(engine.attempts.work(ref, grant), on=on, wait_ms=60_000)  # type: ignore[arg-type]
    assert parked.fence is not None
    return parked.fence


def test_waiting_event_is_sent_once_when_all_steps_wait_for_people(engine, hooks, at, clock):
    ref = people(engine, at, "one", "two")
    asked(engine, ref, "one")
    assert hooks.due(9) == []
    asked(engine, ref, "two")
    line = only(hooks.due(9))
    clock.now += 1000
    engine.expiry.expire(ref, "one")
    assert hooks.due(9) == [line]
    assert hooks.deliver(line) == "arrived"
    told = json.loads(at.received[0].body)
    assert (told["event"], told["session"]["status"]) == ("waiting", "waiting")


def test_session_that_also_waits_for_a_timer_sends_no_waiting_event(engine, hooks, at):
    ref = people(engine, at, "one", "two")
    asked(engine, ref, "one")
    asked(engine, ref, "two", on="wait")
    assert hooks.due(9) == []


def test_many_questions_are_looked_at_once_not_at_each_answer(engine, hooks, at, redis_client):
    others = [f"q{n}" for n in range(150)]
    ref = people(engine, at, "one", *others)
    fences = {name: asked(engine, ref, name) for name in ("one", *others)}
    assert only(hooks.due(9))
    with redis_client.monitor() as monitor:
        yes = Outcome(word="succeeded", text="yes")
        engine.answers.settle(ref, "q149", yes, fence=fences["q149"], by="me")
        redis_client.echo("that was all")
        told = iter(lambda: str(monitor.next_command()["command"]), "ECHO that was all")
        commands = list(told)
    assert any("q149" in command for command in commands)
    assert not any("q148" in command for command in commands)
    assert only(hooks.due(9))


def test_a_time_among_many_questions_is_found(engine, hooks, at):
    others = [f"q{n:03}" for n in range(150)]
    ref = people(engine, at, "one", *others)
    for name in ("one", *others[:-1]):
        asked(engine, ref, name)
    fence = asked(engine, ref, others[-1], on="wait")
    assert hooks.due(9) == []
    engine.answers.settle(ref, others[-1], Outcome(word="succeeded"), fence=fence, by="me")
    assert only(hooks.due(9))


def test_session_that_waits_again_sends_another_event(engine, hooks, at, clock):
    ref = people(engine, at, "one", "two", needs=("one",))
    fence = asked(engine, ref, "one")
    first = only(hooks.due(9))
    assert hooks.deliver(first) == "arrived"
    clock.now += 1000
    engine.answers.settle(ref, "one", Outcome(word="succeeded", text="yes"), fence=fence, by="me")
    asked(engine, ref, "two")
    assert only(hooks.due(9)) != first


# The threads


def test_parallel_deliverers_deliver_each_end_once(store_url, at):
    engine = silent_engine(store_url, webhook_hosts=(at.host,))
    sessions = {ended(engine, at) for _ in range(20)}
    deliverers = [Deliverer(engine), Deliverer(engine)]
    for deliverer in deliverers:
        deliverer.start()
    wait_until(lambda: len(at.received) >= 20)
    wait_until(lambda: engine.store.due_hooks(99) == [])
    for deliverer in deliverers:
        deliverer.stop()
    assert sorted(json.loads(r.body)["session"]["id"] for r in at.received) == sorted(sessions)


def test_receivers_that_hang_do_not_delay_the_sweep(store_url, at):
    engine = silent_engine(store_url, webhook_hosts=(at.host,))
    at.answers.clear()
    for _ in range(ROOM + 4):
        ended(engine, at)
    deliverer = Deliverer(engine)
    deliverer.start()
    wait_until(lambda: len(at.received) == ROOM)
    began = time.monotonic()
    swept = sweep(engine)
    assert time.monotonic() - began < 2
    assert swept.errands == 0
    assert len(at.received) == ROOM
    at.answers.set()
    wait_until(lambda: len(at.received) == ROOM + 4)
    deliverer.stop()


def claimed(engine: Engine, **more: object):
    """A session of which a worker holds the doer, and the grant."""
    ref = engine.store.ref(engine.submit.document(loop(**more)).session)
    assert ref is not None
    answer = engine.attempts.claim(ref, "loop~1[1]/do", nonce="n", worker="w")
    return ref, answer.grants[0]


def take(engine: Engine, line: str, *, nonce: str):
    session, root, delivery = line.split("|", 2)
    given: dict[str, JsonValue] = {
        "delivery": delivery,
        "nonce": nonce,
        "hold_ms": HOLD_MS,
        "most": TRIES,
    }
    return engine.store.run("webhook_claim", SessionRef(session, root), "", given)


def settle(engine: Engine, line: str, *, nonce: str, **told: JsonValue):
    session, root, delivery = line.split("|", 2)
    given: dict[str, JsonValue] = {"delivery": delivery, "nonce": nonce, "most": TRIES, **told}
    return engine.store.run("webhook_settle", SessionRef(session, root), "", given)
