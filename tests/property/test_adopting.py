"""A stopped flow goes on by what its file says now, or is told why it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.engine import Engine
from app.errors import ControlRefused, FlowDisabled, InvalidDocument, PositionRefused
from app.keys import SessionRef
from app.outcomes import Outcome
from app.settings import Settings
from app.store import Store, connect
from leadhand.documents import Budget
from leadhand.flow_documents import FlowRun
from tests.flows import ask, llm, loop
from tests.property.world import World

STEPS = [llm("a", label="a"), llm("b", label="b"), llm("c", label="c")]


class Flow:
    """A flow of a file that changes, carried out one step at a time."""

    def __init__(self, url: str, folder: Path) -> None:
        self.file = folder / "x.json"
        self.world = World(url)
        settings = Settings(redis_url=url, place="here", secret="s", flows=(folder,))
        store = Store(connect(url), clock=lambda: self.world.now)
        self.world.engine = Engine(store, self.world, settings)
        #: A worker that remembers the session as it was.
        self.other = Engine(store, self.world, settings.model_copy(update={"flows": ()}))

    def write(self, *steps: dict[str, Any], **more: Any) -> None:
        self.file.write_text(json.dumps({"steps": steps, **more}))

    def start(self, *steps: dict[str, Any], **more: Any) -> None:
        self.write(*steps, **more)
        id_ = self.world.engine.run_flow("x", FlowRun()).session
        self.ref = SessionRef(id_, id_)

    def do(
        self, address: str, verdict: str | None = None, engine: Engine | None = None
    ) -> list[object]:
        """Carry out a step as a worker would; what it was told."""
        engine = engine or self.other
        answer = engine.claim(self.ref, address, nonce=f"n{address}{self.world.now}", worker="w")
        assert answer.word == "granted", answer
        work = engine.work(self.ref, answer.grants[0])
        outcome = {"word": "succeeded", "text": "t", "verdict": verdict}
        engine.settle(work, Outcome.model_validate(outcome), take=[], worker="w")
        return list(work.inputs.get("lines", []))  # type: ignore[arg-type]

    def stop(self) -> None:
        self.world.engine.control(self.ref.id, "stop")

    def resume(self) -> None:
        self.world.engine.adopt(self.ref.id)
        self.world.engine.control(self.ref.id, "resume")

    @property
    def live(self) -> list[str]:
        return self.world.engine.store.members(self.ref, "live", 10)

    def refused(self) -> str:
        with pytest.raises(ControlRefused) as error:
            self.world.engine.adopt(self.ref.id)
        return str(error.value)


@pytest.fixture
def flow(store_url: str, tmp_path: Path) -> Flow:
    return Flow(store_url, tmp_path)


def test_what_has_not_begun_is_what_the_file_says_now(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], llm("new b", label="b"), llm("d", label="d"), STEPS[2])
    flow.resume()
    assert flow.do("b") == ["new b"]
    assert flow.do("d") == ["d"]
    assert flow.do("c") == ["c"]
    assert flow.world.engine.session(flow.ref.id).status == "completed"


def test_without_a_word_it_goes_on_by_what_it_was_started_with(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], llm("new b", label="b"))
    flow.world.engine.control(flow.ref.id, "resume")
    assert flow.do("b") == ["b"]
    assert flow.live == ["c"]


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([llm("0", label="zero"), *STEPS], "step 'a' has begun, and 'zero' stands in its place"),
        ([STEPS[0]], "step 'b' has begun, and is no longer there"),
        ([STEPS[0], loop(llm(), label="b")], "step 'b' has begun, and is of another kind"),
        ([STEPS[0], {"type": "wait", "seconds": 1, "label": "b"}], "is of another kind"),
    ],
)
def test_what_has_begun_must_fit(flow: Flow, steps: list[dict[str, Any]], why: str) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(*steps)
    assert why in flow.refused()
    assert flow.world.engine.session(flow.ref.id).status == "stopped"


def test_a_resume_that_would_be_refused_takes_nothing_over(flow: Flow) -> None:
    flow.start(*STEPS, budget={"steps": 1})
    flow.do("a")
    assert flow.world.engine.session(flow.ref.id).status == "failed"
    flow.write(*STEPS, llm("d", label="d"), budget={"steps": 1})
    before = flow.world.engine.store.fields(flow.ref)
    with pytest.raises(ControlRefused, match="budget"):
        flow.world.engine.adopt(flow.ref.id)
    raised = Budget(steps=9)
    with pytest.raises(PositionRefused):
        flow.world.engine.adopt(flow.ref.id, after="nowhere", budget=raised)
    assert flow.world.engine.store.fields(flow.ref) == before
    flow.world.engine.adopt(flow.ref.id, after="a", budget=raised)
    flow.world.engine.control(flow.ref.id, "resume", after="a", budget=raised)
    assert flow.do("b~2") == ["b"]


def test_what_was_taken_over_is_the_file_whatever_its_run_was_given(flow: Flow) -> None:
    flow.write(llm("${inputs.what}", label="a"), inputs={"what": "x"})
    id_ = flow.world.engine.run_flow("x", FlowRun(inputs={"what": "mine"})).session
    flow.ref = SessionRef(id_, id_)
    flow.stop()
    flow.write(llm("new ${inputs.what}", label="a"), inputs={"what": "x"})
    flow.resume()
    notes = flow.world.engine.session(id_).notes
    assert not any("has changed" in note for note in notes), notes
    assert flow.do("a") == ["new mine"]


def test_a_loop_under_way_must_still_be_there(flow: Flow) -> None:
    turn = loop(llm("a", label="a"), ask(label="so"), label="round")
    flow.start(turn)
    flow.do("round~1[1]/a")
    flow.do("round~1[1]/so", "retry")
    flow.stop()
    flow.write(loop(llm("z", label="z"), ask(label="so"), label="round"))
    assert "step 'round/a' has begun, and 'z'" in flow.refused()
    flow.write(
        loop(llm("new a", label="a"), llm("more", label="more"), ask(label="so"), label="round")
    )
    flow.resume()
    assert flow.do("round~1[2]/a") == ["new a"]
    assert flow.do("round~1[2]/more") == ["more"]
    flow.do("round~1[2]/so", "accept")
    assert flow.world.engine.session(flow.ref.id).status == "completed"


def test_only_what_rests_and_has_a_file_can_go_on_by_it(flow: Flow) -> None:
    flow.start(*STEPS)
    assert "only a stopped or failed one" in flow.refused()
    flow.stop()
    flow.file.write_text("{")
    with pytest.raises(FlowDisabled):
        flow.world.engine.adopt(flow.ref.id)
    flow.write(llm("${inputs.what}", label="a"), inputs={"what": None})
    with pytest.raises(InvalidDocument, match="what"):
        flow.world.engine.adopt(flow.ref.id)


def test_the_old_program_goes_with_the_last_session_that_has_it(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.stop()
    old = flow.world.engine.store.fields(flow.ref)["program"]
    flow.write(*STEPS, llm("d", label="d"))
    flow.resume()
    assert flow.world.engine.store.program(old) is None
    notes = flow.world.engine.session(flow.ref.id).notes
    assert not any("has changed" in note for note in notes)
    flow.stop()
    flow.world.engine.control(flow.ref.id, "abort")
    flow.world.engine.delete(flow.ref.id)
