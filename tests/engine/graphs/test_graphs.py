"""Graphs on the real store: order, references, failures, conditions, lists, and resuming."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import PositionRefused
from leadhand.errors import ControlRefused
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.world import World


def broken(**_: object) -> None:
    raise ValueError("the source is broken")


def test_results_flow_by_reference_and_keep_their_types(make) -> None:
    graph = make(
        {"name": "report", "arguments": {
            "papers": "${search.papers}",
            "first": "${search.papers[0].title}",
            "text": "${inputs.topic}: ${search.count} papers, ${search.papers[0]}",
            "nested": [{"deep": "${search.count}"}],
            "literal": "$${search.count}",
            "default": '${search.author ?? "nobody"}',
        }},
        {"name": "search", "arguments": {"query": "${inputs.topic}"}},
        inputs={"topic": "agents"},
    )  # fmt: skip
    assert graph.ready() == ["search"]
    graph.world.hints.append((graph.ref, "search"))
    graph.run(search=lambda query: {"papers": [{"title": f"On {query}"}], "count": 1})
    assert graph.result.results["report"] == {
        "papers": [{"title": "On agents"}],
        "first": "On agents",
        "text": 'agents: 1 papers, {"title": "On agents"}',
        "nested": [{"deep": 1}],
        "literal": "${search.count}",
        "default": "nobody",
    }
    assert graph.status == "completed"


def test_independent_steps_are_ready_together_and_a_join_waits_for_all(make) -> None:
    graph = make(
        {"name": "a"}, {"name": "b"}, {"name": "last", "depends_on": ["a", "b"]},
    )  # fmt: skip
    assert graph.ready() == ["a", "b"]
    graph.carry_out(graph.grant("b"), {})
    assert graph.ready() == []
    graph.carry_out(graph.grant("a"), {})
    assert graph.ready() == ["last"]


def test_a_failed_non_critical_step_resolves_to_its_error_and_is_a_warning(make) -> None:
    graph = make(
        {"name": "fetch", "critical": False},
        {"name": "report", "arguments": {
            "all": "${fetch}", "error": "${fetch.error}", "text": '${fetch.text ?? "missing"}',
        }},
    )  # fmt: skip
    graph.run(fetch=broken)
    assert graph.status == "completed"
    error = "the source is broken"
    assert graph.result.results == {
        "fetch": {"error": error},
        "report": {"all": {"error": error}, "error": error, "text": "missing"},
    }
    (warning,) = graph.result.warnings
    assert "fetch failed and was passed over" in warning
    assert error in warning


def test_a_step_that_fails_while_the_session_ends_is_a_warning_of_the_resumed_one(bench) -> None:
    steps: list[dict[str, object]] = [{"name": "soft", "critical": False}, {"name": "bad"}]
    graph = GraphWorld(World.of(bench), steps)
    soft, bad = graph.grant("soft"), graph.grant("bad")
    graph.carry_out(bad, {"bad": broken})
    graph.carry_out(soft, {"soft": broken})
    assert graph.status == "failed"
    graph.world.hints.clear()
    graph.engine.control.apply(graph.id, "resume")
    graph.run()
    assert graph.status == "completed"
    assert [text.partition(":")[0] for text in graph.result.warnings] == [
        "soft failed and was passed over"
    ]


def test_a_failed_critical_step_ends_the_session_and_keeps_partial_results(make) -> None:
    graph = make(
        {"name": "good"}, {"name": "bad", "depends_on": ["good"]},
        {"name": "after", "depends_on": ["bad"]},
        {"name": "beside", "depends_on": ["good"]},
    )  # fmt: skip
    graph.run(good=lambda: 1, bad=broken)
    assert graph.status == "failed"
    assert graph.result.reason.text == "the source is broken"
    assert graph.result.reason.at == "bad"
    assert graph.called == ["good", "bad"]
    assert graph.result.results == {"good": 1, "bad": {"error": "the source is broken"}}


def test_a_reference_to_what_a_result_lacks_fails_the_step_and_says_what_there_was(make) -> None:
    graph = make({"name": "a"}, {"name": "b", "arguments": {"x": "${a.titel}"}})
    graph.run(a=lambda: {"title": 1, "year": 2})
    assert graph.result.reason.text == (
        "${a.titel} has no value: it has no 'titel'; it has: title, year"
    )


def test_a_step_whose_references_stand_for_too_much_fails_and_stores_nothing(make) -> None:
    graph = make(
        {"name": "a"},
        {"name": "b", "arguments": {"x": "${a.x}" * 100}},
        {"name": "c", "arguments": {"x": "${b.x}" * 100}},
    )
    graph.run(a=lambda: {"x": "x" * 1_000})
    assert graph.called == ["a", "b"]
    assert graph.status == "failed"
    text = "${b.x} has no value: it is too long: all references of a step may have 4,194,304 char"
    assert graph.result.reason.text.startswith(text)


def test_a_strict_reference_to_a_part_of_a_failed_step_names_its_error(make) -> None:
    graph = make({"name": "a", "critical": False}, {"name": "b", "arguments": {"x": "${a.title}"}})
    graph.run(a=broken)
    text = "${a.title} has no value: the step failed: the source is broken"
    assert graph.result.reason.text == text


@pytest.mark.parametrize(
    ("when", "found", "runs"),
    [
        ("${a.found}", True, True), ("${a.found}", False, False), ("${a.found}", [], False),
        ("not ${a.found}", False, True), ("not ${a.found}", 1, False),
        ("${a.lost ?? true}", 1, True),
    ],
)  # fmt: skip
def test_a_condition_decides_whether_a_step_runs(make, when, found, runs) -> None:
    graph = make({"name": "a"}, {"name": "b", "when": when})
    graph.run(a=lambda: {"found": found})
    assert graph.status == "completed"
    assert ("b" in graph.called) is runs


def test_what_refers_to_a_skipped_step_is_skipped_unless_it_has_a_default(make) -> None:
    graph = make(
        {"name": "a"},
        {"name": "b", "when": "${a.found}"},
        {"name": "c", "arguments": {"x": "${b}"}},
        {"name": "d", "arguments": {"x": "${c ?? 7}"}},
        {"name": "e", "depends_on": ["b"]},
    )
    graph.run(a=lambda: {"found": False})
    assert graph.called == ["a", "e", "d"]
    assert graph.result.results["d"] == {"x": 7}
    assert "c" not in graph.result.results
    steps = {step.address: step for step in graph.engine.queries.steps(graph.id).items}
    assert steps["b"].summary == "its condition was not met: ${a.found}"
    assert steps["c"].summary == "'b', to which it refers, was skipped"


def test_a_for_each_calls_its_tool_for_each_item_and_resolves_to_the_ordered_list(make) -> None:
    graph = make(
        {"name": "search"},
        {"name": "fetch papers", "for_each": "${search.urls}", "critical": False,
         "arguments": {"url": "${item.u}", "n": "${index} of ${search.urls}"}},
        {"name": "extract", "for_each": '${steps["fetch papers"]}', "arguments": {"x": "${item}"}},
        {"name": "join", "arguments": {"all": "${extract}"}},
    )  # fmt: skip

    def fetch(url: str, n: str) -> str:
        assert n.startswith("1 of [" if url == "a" else "2 of [" if url == "b" else "3 of [")
        if url == "b":
            raise ValueError("gone")
        return url.upper()

    tools = {
        "fetch papers": fetch,
        "search": lambda: {"urls": [{"u": "a"}, {"u": "b"}, {"u": "c"}]},
    }
    graph.run(**tools)
    assert graph.status == "completed"
    assert graph.result.results["fetch papers"] == ["A", {"error": "gone"}, "C"]
    assert graph.result.results["join"]["all"] == [{"x": "A"}, {"x": {"error": "gone"}}, {"x": "C"}]
    assert set(graph.result.results) == {"search", "fetch papers", "extract", "join"}


def test_a_for_each_over_an_input_or_an_empty_list(make) -> None:
    graph = make(
        {"name": "a", "for_each": "${inputs.urls}", "arguments": {"x": "${item}"}},
        {"name": "b", "for_each": [], "arguments": {"x": "${item}"}},
        {"name": "c", "arguments": {"a": "${a}", "b": "${b}"}},
        inputs={"urls": ["u", "v"]},
    )
    graph.run()
    assert graph.result.results["c"] == {"a": [{"x": "u"}, {"x": "v"}], "b": []}


def test_a_for_each_over_no_list_fails_there_and_not_at_the_step_that_made_it(make) -> None:
    graph = make({"name": "a"}, {"name": "b", "for_each": "${a.urls}"})
    graph.run(a=lambda: {"urls": "none"})
    assert graph.result.results["a"] == {"urls": "none"}
    assert graph.result.reason.text == 'for_each needs a list of at most 10000 items; it is "none"'


def test_a_for_each_whose_condition_is_false_does_not_make_its_list(make) -> None:
    graph = make(
        {"name": "search"},
        {"name": "off", "when": "${search.found}", "for_each": "${search.urls}"},
        {"name": "on", "when": "not ${search.found}", "for_each": "${search.others}",
         "arguments": {"x": "${item}"}},
        {"name": "some", "when": "${item.on}", "for_each": "${search.items}",
         "arguments": {"n": "${item.n}"}},
        {"name": "last", "arguments": {"off": "${off}", "on": "${on}", "some": "${some}"}},
    )  # fmt: skip
    found = {"found": False, "others": [1], "items": [{"on": 0, "n": 1}, {"on": 1, "n": 2}]}
    graph.run(search=lambda: found)
    assert graph.status == "completed"
    assert graph.called == ["search", "on", "some", "last"]
    assert graph.result.results["last"] == {"off": [], "on": [{"x": 1}], "some": [None, {"n": 2}]}


def test_a_for_each_over_a_failed_step_fails_at_its_list_unless_it_has_a_default(make) -> None:
    graph = make(
        {"name": "a", "critical": False},
        {"name": "b", "for_each": "${a ?? []}"},
        {"name": "c", "for_each": "${a}", "depends_on": ["b"]},
    )
    graph.run(a=broken)
    assert graph.result.results["b"] == []
    assert graph.result.reason.text.startswith("for_each needs a list of at most 10000 items")


def test_a_failed_step_is_retried_as_often_as_it_says(make) -> None:
    graph = make({"name": "a", "retries": 2, "backoff_s": 1.0})
    for wait in (1_000, 2_000):
        graph.run(a=broken)
        assert graph.status == "active"
        graph.world.later(wait)
    graph.run(a=lambda: "at last")
    assert graph.called == ["a"] * 3
    assert graph.result.results == {"a": "at last"}


def test_a_failed_graph_resumes_where_it_failed_and_keeps_what_is_done(make) -> None:
    graph = make(
        {"name": "a"}, {"name": "soft", "critical": False},
        {"name": "b", "arguments": {"x": "${a}"}},
        {"name": "c", "arguments": {"x": "${b}", "s": "${soft.error}"}},
    )  # fmt: skip
    graph.run(a=lambda: 1, soft=broken, b=broken)
    assert graph.status == "failed"
    graph.calls.clear()
    graph.engine.control.apply(graph.id, "resume")
    graph.run()
    assert graph.called == ["b", "c"]
    assert graph.status == "completed"
    assert graph.result.results["c"] == {"x": {"x": 1}, "s": "the source is broken"}


def test_a_stopped_graph_resumes_and_runs_nothing_twice(make) -> None:
    graph = make({"name": "a"}, {"name": "b", "arguments": {"x": "${a}"}})
    graph.carry_out(graph.grant("a"), {})
    graph.engine.control.apply(graph.id, "stop")
    assert graph.status == "stopped"
    graph.world.hints.clear()
    graph.engine.control.apply(graph.id, "resume")
    graph.run()
    assert graph.called == ["a", "b"]
    assert graph.status == "completed"


def diamond(make: Any) -> GraphWorld:
    """A graph that failed at its last step, after a step beside it."""
    graph: GraphWorld = make(
        {"name": "a"}, {"name": "left", "arguments": {"x": "${a}"}},
        {"name": "right", "arguments": {"x": "${a}"}},
        {"name": "last", "arguments": {"l": "${left}", "r": "${right}"}},
    )  # fmt: skip
    graph.run(a=lambda: 1, left=lambda x: f"left {x}", right=lambda x: f"right {x}", last=broken)
    assert graph.status == "failed"
    graph.calls.clear()
    return graph


def test_a_retried_step_runs_again_with_what_depends_on_it_and_nothing_else(make) -> None:
    graph = diamond(make)
    graph.engine.step_verbs.retry(graph.id, "left")
    graph.run(left=lambda x: f"new {x}")
    assert graph.called == ["left", "last"]
    assert graph.result.results["last"] == {"l": "new 1", "r": "right 1"}


def test_a_graph_resumes_after_any_point(make) -> None:
    graph = diamond(make)
    graph.engine.control.apply(graph.id, "resume", after="a")
    graph.run()
    assert graph.called == ["left", "right", "last"]
    assert graph.result.results["last"] == {"l": {"x": 1}, "r": {"x": 1}}


def test_a_step_of_a_stopped_graph_is_retried_while_the_others_go_on(make) -> None:
    graph = make(
        {"name": "a"}, {"name": "b", "arguments": {"x": "${a}"}}, {"name": "c"},
        {"name": "d", "depends_on": ["b", "c"]},
    )  # fmt: skip
    graph.carry_out(graph.grant("a"), {})
    graph.carry_out(graph.grant("b"), {})
    graph.engine.control.apply(graph.id, "stop")
    graph.world.hints.clear()
    graph.engine.step_verbs.retry(graph.id, "b")
    graph.run()
    assert sorted(graph.called) == ["a", "b", "b", "c", "d"]
    assert graph.status == "completed"


def test_a_retried_for_each_has_the_same_items(make) -> None:
    graph = make(
        {"name": "a"}, {"name": "b", "for_each": "${a}", "arguments": {"x": "${item}"}},
        {"name": "c", "arguments": {"all": "${b}"}},
    )  # fmt: skip
    graph.run(a=lambda: [1, 2], c=broken)
    graph.calls.clear()
    graph.engine.step_verbs.retry(graph.id, "b")
    graph.run(b=lambda x: x * 10)
    assert graph.called == ["b", "b", "c"]
    assert graph.result.results["c"] == {"all": [10, 20]}


@pytest.mark.parametrize(
    ("said", "step"),
    [("0", "0"), ("a b", "a b"), ("a-b", "a-b"), ("each (list)", "each (list)"), ("2", "0"),
     ("each", "each"), ("x/y[1]", "x/y[1]"), ("5", "each (list)")],
)  # fmt: skip
def test_a_retry_names_a_step_as_the_document_does(make, said: str, step: str) -> None:
    names = ["list", "each", "0", "a b", "a-b", "each (list)", "x/y[1]"]
    steps = [{"name": name} for name in names]
    steps[1]["for_each"] = "${list}"
    graph = make(*steps, {"name": "last", "depends_on": names})
    graph.run(list=lambda: [1], last=broken)
    graph.calls.clear()
    graph.engine.step_verbs.retry(graph.id, said)
    graph.run()
    assert graph.called == [step, "last"]


def test_a_position_that_a_graph_does_not_have_is_refused(make) -> None:
    graph = make({"name": "a"}, {"name": "b", "for_each": "${a}"})
    graph.run(a=broken)
    with pytest.raises(PositionRefused, match="there is no 2 here, counted from 0 to 1"):
        graph.engine.control.apply(graph.id, "resume", after="2")


def test_a_step_that_cannot_be_retried_is_refused_with_the_way_out(make) -> None:
    graph = make({"name": "a"}, {"name": "b", "depends_on": ["a"]})
    with pytest.raises(ControlRefused, match="stop it first: leadhand stop"):
        graph.engine.step_verbs.retry(graph.id, "a")
    graph.engine.control.apply(graph.id, "stop")
    with pytest.raises(PositionRefused, match="it has not run"):
        graph.engine.step_verbs.retry(graph.id, "b")
    with pytest.raises(PositionRefused, match="no such node"):
        graph.engine.step_verbs.retry(graph.id, "z")
    graph.world.hints.clear()
    graph.engine.step_verbs.retry(graph.id, "a")
    graph.run()
    with pytest.raises(ControlRefused, match="it has ended for good"):
        graph.engine.step_verbs.retry(graph.id, "a")


def test_result_names_the_steps_that_failed(make) -> None:
    last = {"name": "last", "depends_on": ["b"]}
    graph = make({"name": "a", "critical": False}, {"name": "b"}, last)

    def fail() -> None:
        raise ValueError("it is broken")

    graph.run(a=fail, b=lambda: {"error": "what it found"}, last=fail)
    assert graph.result.failed == ["a", "last"]
