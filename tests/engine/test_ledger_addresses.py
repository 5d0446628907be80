"""An entry of the ledger names its iteration and the iterations around it."""

from __future__ import annotations

import json

import pytest
from redis import Redis

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Program, Step
from app.core.records import Grant
from app.sessions.submit import About
from leadhand.cli.render.session_text import session_lines
from leadhand.models.views.result import LedgerEntry
from leadhand.models.views.result import LedgerEntry as Entry
from leadhand.models.views.session import SessionView
from tests.engine.world import World

DO = Step(id="do", action=Action.AGENT)
JUDGE = Step(id="judge", action=Action.JUDGE)
INNER = Loop(id="inner", body=(DO, JUDGE), max_iterations=3, result="do")
NESTED = Program(body=(Loop(id="outer", body=(INNER, JUDGE), max_iterations=3),))
#: The verdicts of two iterations of `outer`, the second of which has two of `inner`.
TURNS = {
    "outer~1[1]/inner~1[1]": "accept",
    "outer~1[1]": "retry",
    "outer~1[2]/inner~1[1]": "retry",
    "outer~1[2]/inner~1[2]": "accept",
    "outer~1[2]": "accept",
}


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


@pytest.fixture
def ref(world: World) -> SessionRef:
    """A session that went through all of TURNS."""
    about = About(kind="loop", name="x", cwd="/f", folder="/f", place="here")
    id_ = world.engine.submit.program(NESTED, about).session
    ref = SessionRef(id_, id_)
    granted: dict[str, Grant] = {}
    for block, verdict in TURNS.items():
        steps = ("do", "judge") if "inner" in block else ("judge",)
        for step in steps:
            address = f"{block}/{step}"
            grant = granted[address] if address in granted else world.grant(ref, address)
            said = {"verdict": verdict} if step == "judge" else {}
            outcome = Outcome.model_validate({"word": "succeeded", **said})
            answer = world.settle(ref, grant, outcome)
            granted |= {next_.address: next_ for next_ in answer.grants}
    assert world.engine.queries.session(id_).status == "completed"
    return ref


def test_entries_of_a_nested_loop_have_addresses_of_their_own(
    world: World, ref: SessionRef
) -> None:
    entries = world.engine.queries.ledger(ref.id, limit=50, cursor=None).items
    assert [(entry.address, entry.verdict) for entry in entries] == list(TURNS.items())
    exported = world.engine.queries.export(ref.id)
    assert [entry.address for entry in exported.ledger] == list(TURNS)


def test_show_tells_the_outer_iteration_of_each_entry(world: World, ref: SessionRef) -> None:
    page = world.engine.queries.ledger(ref.id, limit=50, cursor=None)
    view = SessionView.model_validate(world.engine.queries.session(ref.id).model_dump(mode="json"))
    entries = [Entry.model_validate(entry.model_dump(mode="json")) for entry in page.items]
    lines = list(session_lines(view, entries))
    for name, address in (
        ("outer 1 > inner, iteration 1: accept", "outer~1[1]/inner~1[1]"),
        ("outer 2 > inner, iteration 1: retry", "outer~1[2]/inner~1[1]"),
    ):
        assert lines[lines.index(name) + 1] == f"  address: {address}"
    assert "outer, iteration 2: accept" in lines


def test_an_old_entry_without_an_address_is_still_read(
    world: World, ref: SessionRef, store_url: str
) -> None:
    old = LedgerEntry(loop="outer/inner", run=1, iteration=1, verdict="retry")
    text = json.dumps({k: v for k, v in old.model_dump().items() if k != "address"})
    Redis.from_url(store_url).rpush(world.engine.store.keys.part(ref, "ledger"), text)
    *_, read = world.engine.queries.ledger(ref.id, limit=50, cursor=None).items
    assert (read.address, read.loop) == (None, "outer/inner")
    view = SessionView.model_validate(world.engine.queries.session(ref.id).model_dump(mode="json"))
    shown = list(session_lines(view, [Entry.model_validate(read.model_dump(mode="json"))]))
    assert "outer > inner, iteration 1: retry" in shown
