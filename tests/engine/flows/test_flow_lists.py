"""Tool steps of flows with lists and conditions, and references to parts of results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import JsonValue

from app.compiler.flow import compile_flow
from app.core.addresses import SessionRef
from app.core.artifacts import Artifact, marker
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.errors import InvalidDocument
from app.history.values import result_of_flow
from app.sessions.attempts import Work
from app.sessions.local_work import is_skipped, skipped_outcome
from leadhand.flows.documents import FlowDocument
from leadhand.flows.faults import all_faults
from leadhand.models.verdicts import Reason, ReasonCode
from tests.engine.driving import Bench
from tests.engine.world import World
from tests.flows import flow, llm, loop
from workers.tools.tool import items

BROKEN = Outcome(
    word="failed", retryable=False, reason=Reason(code=ReasonCode.FAILED_STEP, text="it broke")
)


def tool(label: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": "echo", "label": label, **more}


class Run:
    """A flow whose tools return their arguments, or what the test gives by their address."""

    def __init__(self, bench: Bench, *steps: dict[str, Any], **more: Any) -> None:
        self.world = World.of(bench)
        document = flow(*steps, **more)
        self.program = compile_flow(document)
        id_ = self.world.engine.submit.document(document).session
        self.ref = SessionRef(id_, id_)
        #: The arguments or lines that each step received, in order.
        self.received: dict[str, Any] = {}
        self.skipped: dict[str, str | None] = {}
        #: The most steps that were ready at once.
        self.widest = 0

    def live(self) -> list[str]:
        return sorted(self.world.engine.store.members(self.ref, "live"))

    def step(self, address: str, outcome: Outcome | None = None) -> None:
        """Carry out one step."""
        grant = self.world.grant(self.ref, address)
        work = self.world.engine.attempts.work(self.ref, grant)
        if is_skipped(work):
            skipped = skipped_outcome(work)
            self.skipped[address] = skipped.reason.text if skipped.reason else None
            self._settle(work, skipped)
            return
        given: Any = work.inputs.get("arguments", work.inputs.get("lines"))
        self.received[address] = given
        if work.inputs.get("tool") == "graph.items":
            outcome = items(given)
        elif outcome is None and work.step.action is Action.AGENT:
            outcome = Outcome(word="succeeded", text=f"text of {address}")
        elif outcome is None:
            outcome = Outcome(word="succeeded", value=given, text=json.dumps(given))
        self._settle(work, outcome)

    def _settle(self, work: Work, outcome: Outcome) -> None:
        self.world.engine.attempts.settle(work, outcome, take=[], worker="w")

    def go(self, outcomes: Mapping[str, Outcome] = {}) -> dict[str, Any]:
        """Carry out all steps to the end."""
        while live := self.live():
            self.widest = max(self.widest, len(live))
            self.step(live[0], outcomes.get(live[0]))
        return self.received

    @property
    def status(self) -> str | None:
        return self.world.engine.store.values(self.ref, "session", ["status"]).get("status")


def value(found: Any) -> Outcome:
    return Outcome(word="succeeded", value=found, text=json.dumps(found))


def faults(*steps: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    return all_faults(FlowDocument, {"kind": "flow", "steps": list(steps), **more}).faults


SEARCH = tool("search")
FETCH = tool(
    "fetch", forEach="${steps.search.papers}", arguments={"url": "${item.url}", "no": "${index}"}
)
PAPERS = {"papers": [{"url": "a"}, {"url": "b"}, {"url": "c"}], "found": True}


def test_tool_is_called_for_each_item_and_the_results_are_an_ordered_list(bench: Bench) -> None:
    last = tool("last", arguments={"all": "${steps.fetch}", "second": "${steps.fetch[1].url}"})
    run = Run(bench, SEARCH, FETCH, last, llm("Read:\n${steps.fetch}\nand ${steps.fetch[0].no}."))
    run.step("search", value(PAPERS))
    run.step("fetch-items")
    assert run.live() == ["fetch~1#1", "fetch~1#2", "fetch~1#3"]
    for address in ("fetch~1#3", "fetch~1#1", "fetch~1#2"):
        run.step(address)
    received = run.go()
    results = [{"url": "a", "no": 1}, {"url": "b", "no": 2}, {"url": "c", "no": 3}]
    assert received["last"] == {"all": results, "second": "b"}
    assert received["llm4"] == [f"Read:\n{json.dumps(results)}\nand 1."]
    assert run.status == "completed"


def test_limit_of_a_list_is_kept(bench: Bench) -> None:
    run = Run(bench, tool("each", forEach=[1, 2, 3, 4, 5], atOnce=2, arguments={"n": "${item}"}))
    received = run.go()
    assert run.widest == 2
    assert [received[f"each~1#{n}"] for n in range(1, 6)] == [{"n": n} for n in range(1, 6)]


def test_list_of_a_step_whose_label_has_spaces_is_a_list(bench: Bench) -> None:
    each = tool("each of them", forEach=[1, 2], arguments={"n": "${item}"})
    run = Run(bench, each, tool("next", arguments={"all": "${steps.each of them}"}))
    assert run.go()["next"] == {"all": [{"n": 1}, {"n": 2}]}


def test_list_in_a_loop_is_that_of_its_iteration(bench: Bench) -> None:
    leave = {"type": "break", "command": "enough", "breakOn": "yes", "label": "enough"}
    inner = tool("use", arguments={"all": "${steps.fetch}"})
    run = Run(bench, loop(SEARCH, FETCH, inner, leave, label="again"))
    for iteration, urls in ((1, ["a"]), (2, ["b", "c"])):
        block = f"again~1[{iteration}]"
        run.step(f"{block}/search", value({"papers": [{"url": url} for url in urls]}))
        run.step(f"{block}/fetch-items")
        for number in range(1, len(urls) + 1):
            run.step(f"{block}/fetch~1#{number}")
        run.step(f"{block}/use")
        assert [one["url"] for one in run.received[f"{block}/use"]["all"]] == urls
        verdict = "accept" if iteration == 2 else "retry"
        run.step(
            f"{block}/enough", Outcome.model_validate({"word": "succeeded", "verdict": verdict})
        )
    assert run.status == "completed"


def test_list_in_a_branch_is_joined_as_a_list(bench: Bench) -> None:
    branches = [{"steps": [tool("a", forEach=[1, 2], arguments={"n": "${item}"})]},
                {"steps": [tool("b")]}]  # fmt: skip
    run = Run(bench, {"type": "parallel", "label": "both", "branches": branches})
    assert run.go()["both"] == {"branches": [[{"n": 1}, {"n": 2}], "{}"]}


def test_references_have_defaults_and_read_texts_that_are_json(bench: Bench) -> None:
    arguments = {
        "title": "${steps.ask.title}", "none": "${steps.ask.author ?? {\"name\": \"unknown\"}}",
        "within": "by ${steps.ask.author ?? \"nobody\"}", "kept": "$${steps.ask.title} ${HOME}",
        "text": "${steps.ask}",
    }  # fmt: skip
    run = Run(bench, llm(label="ask"), tool("last", arguments=arguments))
    text = '{"title": "A", "author": null}'
    run.go({"ask": Outcome(word="succeeded", text=text)})
    assert run.received["last"] == {
        "title": "A", "none": {"name": "unknown"}, "within": "by nobody",
        "kept": "${steps.ask.title} ${HOME}", "text": text,
    }  # fmt: skip


def test_default_replaces_the_result_of_a_failed_step(bench: Bench) -> None:
    first = tool("first", continueOnFailure=True)
    names = {"name": '${steps.first.name ?? "none"}', "why": "${steps.first.error}"}
    run = Run(bench, first, tool("last", arguments=names))
    run.go({"first": BROKEN})
    assert run.received["last"] == {"name": "none", "why": "it broke"}


def test_value_that_is_missing_is_reported_with_what_there_was(bench: Bench) -> None:
    run = Run(bench, SEARCH, tool("last", arguments={"x": "${steps.search.paper}"}))
    run.step("search", value(PAPERS))
    with pytest.raises(Exception, match=r"it has no 'paper'; it has: papers, found"):
        run.step("last")


@pytest.mark.parametrize("when", ["${steps.search.missing ?? false}", "not ${steps.search.found}"])
def test_condition_that_is_not_met_skips_the_step_with_the_reason(bench: Bench, when: str) -> None:
    run = Run(bench, SEARCH, tool("last", when=when), tool("met", when="${steps.search.found}"))
    run.go({"search": value(PAPERS)})
    assert run.skipped == {"last": f"its condition was not met: {when}"}
    assert "met" in run.received


def test_condition_of_a_list_skips_the_list_and_one_of_items_skips_items(bench: Bench) -> None:
    search = {**SEARCH, "arguments": {}}
    whole = tool("whole", forEach=[1], when="not ${steps.search.found}")
    some = tool("some", forEach=[{"on": True}, {"on": False}], when="${item.on}")
    last = tool("last", arguments={"whole": "${steps.whole}", "some": "${steps.some}"})
    run = Run(bench, search, whole, some, last)
    run.go({"search": value(PAPERS)})
    assert list(run.skipped) == ["whole-items", "some~1#2"]
    assert run.received["last"] == {"whole": [], "some": [{}, None]}


def test_list_may_be_an_input_in_json(bench: Bench) -> None:
    step = tool("each", forEach="${inputs.urls}", arguments={"url": "${item}"})
    # The items are data: nothing in them is a reference, or an escaped one.
    texts = ["${x}", "${inputs.y}", "$${steps.z}", "b"]
    run = Run(bench, step, inputs={"urls": json.dumps(texts)})
    run.go()
    assert [run.received[f"each~1#{n}"]["url"] for n in range(1, 5)] == texts
    with pytest.raises(InvalidDocument, match="a forEach needs a list"):
        compile_flow(flow(step, inputs={"urls": "a, b"}))


def test_value_that_is_no_list_fails_the_step(bench: Bench) -> None:
    run = Run(bench, SEARCH, FETCH)
    run.go({"search": value({"papers": "none"})})
    assert run.status == "failed"


def test_all_faults_of_lists_and_references_are_found_with_their_places() -> None:
    found = faults(
        SEARCH,
        tool("a", forEach="all of ${steps.search.papers}", when="${steps.saerch.found}"),
        tool("c", arguments={"x": ["${steps.search.papers[}"]}, when="always"),
        tool("d", forEach="${steps.e}"),
        tool("e", forEach=[], when="${steps.search.papers} is long"),
    )
    assert [path for path, _ in found] == [
        "steps[1].when", "steps[1].forEach", "steps[2].arguments.x[0]", "steps[2].when",
        "steps[3].forEach", "steps[4].when",
    ]  # fmt: skip
    assert [path for path, _ in faults(tool("b", atOnce=2))] == ["steps[0].atOnce"]
    why = " | ".join(message for _, message in found)
    assert "'saerch' is not visible here" in why
    assert "it is not a list; give a list, or one reference" in why
    assert "it is not a condition" in why


def test_item_is_a_text_in_steps_without_a_list(bench: Bench) -> None:
    run = Run(bench, tool("plain", arguments={"x": "${item} ${index}"}))
    assert run.go()["plain"] == {"x": "${item} ${index}"}


def result_of(run: Run) -> Any:
    return result_of_flow(run.world.engine.store, run.ref, run.program).value


def test_called_flow_that_ends_with_a_list_hands_on_its_results(bench: Bench) -> None:
    run = Run(bench, SEARCH, tool("each", forEach=[1, 2], arguments={"n": "${item}"}))
    run.go()
    assert result_of(run) == [{"n": 1}, {"n": 2}]
    empty = Run(bench, SEARCH, tool("each", forEach=[]))
    empty.go({"search": value(PAPERS)})
    assert result_of(empty) == []
    long = Run(bench, tool("each", forEach=["x" * 20_000] * 4, arguments={"n": "${item}"}))
    long.go()
    assert result_of(long) == "4 results, too long together"


def test_called_graph_that_ends_with_a_call_hands_on_the_long_result(bench: Bench) -> None:
    artifact = Artifact(name="result", digest="a" * 64, size=100_000, media_type="application/json")
    short = marker("a" * 64, 100_000)
    answer: dict[str, JsonValue] = {
        "session": "bbbbbbbb", "status": "completed", "result": short,
    }  # fmt: skip
    run = Run(bench, tool("call"))
    run.go({"call": Outcome(word="succeeded", value=answer, artifacts=(artifact,))})
    calling = Program(body=(Step(id="call", action=Action.CHILD, inputs={"flow": "inner"}),))
    assert result_of_flow(run.world.engine.store, run.ref, calling) == (short, artifact)


def test_resume_repeats_the_list_and_keeps_what_is_before_it(bench: Bench) -> None:
    last = tool("last", arguments={"all": "${steps.fetch}"})
    run = Run(bench, SEARCH, FETCH, last)
    run.go({"search": value(PAPERS), "fetch~1#2": BROKEN})
    assert run.status == "failed"
    assert "last" not in run.received
    run.world.engine.control.apply(run.ref.id, "resume")
    run.go()
    assert run.status == "completed"
    assert list(run.received).count("search") == 1
    assert [one["url"] for one in run.received["last"]["all"]] == ["a", "b", "c"]


def test_item_that_fails_is_an_error_in_the_list_if_the_flow_continues(bench: Bench) -> None:
    fetch = {**FETCH, "continueOnFailure": True}
    run = Run(bench, SEARCH, fetch, tool("last", arguments={"all": "${steps.fetch}"}))
    run.go({"search": value(PAPERS), "fetch~1#2": BROKEN})
    assert run.received["last"]["all"][1] == {"error": "it broke"}
    assert run.status == "completed"


@pytest.mark.parametrize(("verdict", "all_of_it"), [("accept", [{}, {}]), ("retry", [])])
def test_list_in_a_branch_of_an_if_is_empty_if_the_branch_did_not_run(
    bench: Bench, verdict: str, all_of_it: list[object]
) -> None:
    choose = {
        "type": "if",
        "label": "choose",
        "command": "x",
        "then": [tool("each", forEach=[1, 2])],
    }
    run = Run(bench, choose, tool("last", arguments={"all": "${steps.each}"}))
    run.go({"choose": Outcome.model_validate({"word": "succeeded", "verdict": verdict})})
    assert run.received["last"] == {"all": all_of_it}
    assert run.status == "completed"


def test_list_of_the_branch_that_ran_counts(bench: Bench) -> None:
    then, otherwise = tool("each", forEach=[1]), tool("each", forEach=[2, 3])
    choose = {
        "type": "if", "label": "choose", "command": "x", "then": [then], "else": [otherwise],
    }  # fmt: skip
    run = Run(bench, choose, tool("last", arguments={"all": "${steps.each}"}))
    run.go({"choose": Outcome.model_validate({"word": "succeeded", "verdict": "accept"})})
    assert run.received["last"] == {"all": [{}]}
