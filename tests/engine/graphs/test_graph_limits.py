"""Limits of lists, rules of retries, joins and expectations on the real store."""

from __future__ import annotations

import pytest

from tests.engine.driving import Bench
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.world import World


def broken(**_: object) -> None:
    raise ValueError("the source is broken")


def test_a_for_each_with_a_limit_starts_an_item_when_another_ends(bench: Bench) -> None:
    items = {"name": "a", "for_each": list(range(5)), "at_once": 2, "arguments": {"x": "${item}"}}
    graph = GraphWorld(World.of(bench), [items, {"name": "b", "arguments": {"all": "${a}"}}])
    assert graph.ready() == ["a~1#1", "a~1#2"]
    graph.carry_out(graph.grant("a~1#2"), {})
    assert graph.ready() == ["a~1#3"]
    graph.carry_out(graph.grant("a~1#1"), {})
    assert graph.ready() == ["a~1#4"]
    graph.carry_out(graph.grant("a~1#4"), {})
    assert graph.ready() == ["a~1#5"]
    graph.carry_out(graph.grant("a~1#5"), {})
    assert graph.ready() == []
    graph.carry_out(graph.grant("a~1#3"), {})
    assert graph.ready() == ["b"]
    graph.carry_out(graph.grant("b"), {})
    assert graph.result.results["b"] == {"all": [{"x": x} for x in range(5)]}


def test_a_list_that_a_step_made_has_its_limit_too(make) -> None:
    graph = make(
        {"name": "a"},
        {"name": "b", "for_each": "${a}", "at_once": 3, "arguments": {"x": "${item}"}},
    )
    graph.carry_out(graph.grant("a"), {"a": lambda: [1, 2, 3, 4, 5, 6, 7]})
    graph.ready()
    assert sum(at.startswith("b~1#") for at in graph.engine.store.members(graph.ref, "live")) == 3
    for number in (1, 2, 3):
        graph.world.hints.append((graph.ref, f"b~1#{number}"))
    graph.run()
    assert graph.result.results["b"] == [{"x": x} for x in range(1, 8)]


def test_a_stop_keeps_the_items_that_have_not_started(make) -> None:
    graph = make({"name": "a", "for_each": [1, 2, 3], "at_once": 1, "arguments": {"x": "${item}"}})
    grant = graph.grant("a~1#1")
    graph.engine.control.apply(graph.id, "stop")
    graph.carry_out(grant, {})
    assert graph.status == "stopped"
    graph.world.hints.clear()
    graph.engine.control.apply(graph.id, "resume")
    graph.run()
    assert graph.result.results["a"] == [{"x": 1}, {"x": 2}, {"x": 3}]
    assert graph.called == ["a"] * 3


def test_an_item_that_fails_for_good_ends_the_list_and_starts_no_other(make) -> None:
    graph = make({"name": "a", "for_each": [1, 2, 3], "at_once": 1})
    graph.run(a=broken)
    assert graph.called == ["a"]
    assert graph.status == "failed"


@pytest.mark.parametrize(("on", "calls"), [
    (["ValueError"], 3), (["Exception"], 3), (["KeyError"], 1), (["timeout", "ValueError"], 3),
])  # fmt: skip
def test_only_the_errors_that_a_step_names_are_retried(make, on, calls) -> None:
    graph = make({"name": "a", "retries": 2, "retry_on": on, "backoff_s": 0})
    for _ in range(3):
        graph.run(a=broken)
        graph.world.later(10)
    assert graph.called == ["a"] * calls
    assert graph.status == "failed"


def test_an_error_that_a_step_does_not_name_is_final(bench: Bench) -> None:
    step = {"name": "a", "retries": 1, "retry_on": ["KeyError"], "critical": False}
    graph = GraphWorld(World.of(bench), [step])
    graph.run(a=broken)
    assert graph.status == "completed"


@pytest.mark.parametrize(("on", "status"), [([], "active"), (["timeout"], "active"),
                                            (["ValueError"], "failed")])  # fmt: skip
def test_a_step_past_its_deadline_is_retried_only_if_timeout_is_named(make, on, status) -> None:
    graph = make({"name": "a", "retries": 1, "retry_on": on, "timeout_s": 5.0})
    grant = graph.grant("a")
    graph.world.now += 12_000
    graph.engine.attempts.beat(graph.ref, grant)
    graph.world.later(31_000)
    assert graph.status == status


def test_the_wait_before_a_retry_has_the_jitter_of_the_step(make) -> None:
    graph = make({"name": "a", "retries": 1, "backoff_s": 8.0, "jitter": 0.0})
    graph.run(a=broken)
    graph.world.later(6_900)
    assert graph.ready() == []
    graph.world.later(1_100)
    assert graph.ready() == ["a"]


@pytest.mark.parametrize(("join", "good", "bad", "runs"), [
    ("ended", 0, 2, True), ("all", 2, 0, True), ("all", 1, 1, False),
    ("any", 1, 1, True), ("any", 0, 2, False),
])  # fmt: skip
def test_a_join_says_which_steps_must_have_succeeded(make, join, good, bad, runs) -> None:
    names = [f"good{n}" for n in range(good)] + [f"bad{n}" for n in range(bad)]
    graph = make(
        *({"name": name, "critical": False} for name in names),
        {"name": "last", "depends_on": names, "join": join},
    )
    graph.run(**{name: broken for name in names if name.startswith("bad")})
    assert graph.status == "completed"
    assert ("last" in graph.called) is runs


def test_a_skipped_step_has_not_succeeded_for_a_join(make) -> None:
    graph = make(
        {"name": "a"}, {"name": "b or not", "when": "${a.on}"},
        {"name": "all", "depends_on": ["a", "b or not"], "join": "all"},
        {"name": "any", "depends_on": ["a", "b or not"], "join": "any"},
    )  # fmt: skip
    graph.run(a=lambda: {"on": False})
    assert graph.called == ["a", "any"]
    (skipped,) = (one for one in graph.engine.queries.steps(graph.id).items if one.address == "all")
    assert skipped.summary == "'b or not', for which it waits, did not succeed"


def test_an_expected_success_that_a_result_does_not_report_fails_the_step(make) -> None:
    graph = make(
        {"name": "a", "expect": "success"},
        {"name": "b", "expect": "success", "critical": False, "depends_on": ["a"]},
    )
    graph.run(a=lambda: {"success": True}, b=lambda: {"success": False, "error": "no space"})
    assert graph.status == "completed"
    assert graph.result.results["b"] == {"error": "tool 'b' did not report success: no space"}
