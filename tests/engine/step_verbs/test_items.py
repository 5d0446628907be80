"""Items of a for_each that are done are not repeated by resume, retry, skip and fork."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Program, Step
from app.errors import PositionRefused
from app.sessions.documents import Changes
from app.sessions.fork import Wish
from app.sessions.submit import About
from leadhand.errors import ControlRefused
from tests.engine.driving import Bench
from tests.engine.graphs.graph_world import GraphWorld, failed
from tests.engine.step_verbs.test_fork import Forked, graph
from tests.engine.test_fsck import audit
from tests.engine.world import World


def fetches(bench: Bench, *, width: int = 4, **more: Any) -> GraphWorld:
    """Search, then fetch of each result, then a report."""
    return graph(
        bench,
        {"name": "search"},
        {
            "name": "fetch",
            "for_each": "${search}",
            "arguments": {"x": "${item}", "y": "${inputs.year}"},
            **more,
        },
        {"name": "report", "arguments": {"all": "${fetch}"}},
        inputs={"year": 7, "other": 1},
    )


def fetching(*wrong: int) -> Callable[..., Any]:
    """A tool that fails for these items."""

    def fetch(x: int, y: int) -> int:
        if x in wrong:
            raise ValueError("not found")
        return x * y

    return fetch


def run(world: GraphWorld, *wrong: int, width: int = 4, **tools: Any) -> list[int]:
    """The items that are fetched while all that is ready is carried out."""
    world.calls.clear()
    world.run(**{"search": lambda: list(range(1, width + 1)), "fetch": fetching(*wrong)} | tools)
    return [arguments["x"] for name, arguments in world.calls if name == "fetch"]  # type: ignore[misc]


def resume(world: GraphWorld, after: str | None = None) -> None:
    world.world.hints.clear()
    world.engine.control.apply(world.id, "resume", after=after)


@pytest.mark.parametrize("more", [{}, {"at_once": 1}, {"at_once": 3}])
def test_resume_runs_the_items_that_are_not_done(bench: Bench, more: dict[str, Any]) -> None:
    world = fetches(bench, **more)
    first = run(world, 3)
    assert world.status == "failed"
    resume(world)
    assert sorted(first + run(world)) == [1, 2, 3, 3, 4]
    assert world.result.results["report"] == {"all": [7, 14, 21, 28]}
    assert audit(world.engine.audit.run).items == []


def test_retry_of_a_step_and_of_its_failed_item_keeps_the_others(bench: Bench) -> None:
    for name in ("fetch", "fetch#2", "fetch~1#2"):
        world = fetches(bench, critical=False)
        run(world, 2, report=broken)
        world.world.hints.clear()
        world.engine.step_verbs.retry(world.id, name)
        assert run(world) == [2]
        assert world.status == "completed"
        steps = {s.address: s for s in world.engine.queries.steps(world.id, limit=99).items}
        assert [steps[f"fetch~2#{item}"].state for item in (1, 2, 3, 4)] == ["succeeded"] * 4


def test_retry_of_an_item_that_is_done_runs_it_alone(bench: Bench) -> None:
    world = fetches(bench)
    run(world, report=broken)
    world.world.hints.clear()
    world.engine.step_verbs.retry(world.id, "fetch#4")
    assert run(world) == [4]


def test_retry_of_a_step_whose_items_are_all_done_runs_all(bench: Bench) -> None:
    world = fetches(bench)
    run(world, report=broken)
    world.world.hints.clear()
    world.engine.step_verbs.retry(world.id, "fetch")
    assert run(world) == [1, 2, 3, 4]


def test_retry_of_what_makes_the_list_runs_all_items(bench: Bench) -> None:
    world = fetches(bench)
    run(world, 3)
    world.world.hints.clear()
    world.engine.step_verbs.retry(world.id, "search")
    assert run(world) == [1, 2, 3, 4]


def test_items_that_were_kept_are_kept_again(bench: Bench) -> None:
    world = fetches(bench, critical=False)
    run(world, 2, 3, report=broken)
    for wrong, found in ((3, [2, 3]), (0, [3])):
        world.world.hints.clear()
        world.engine.step_verbs.retry(world.id, "fetch")
        assert run(world, wrong, report=broken) == found
        assert world.status == "failed"
    resume(world)
    assert run(world) == []
    assert world.status == "completed"
    assert world.result.results["report"] == {"all": [7, 14, 21, 28]}


@pytest.mark.parametrize("more", [{}, {"at_once": 1}])
def test_failed_item_that_is_skipped_lets_the_rest_go_on(
    bench: Bench, more: dict[str, Any]
) -> None:
    world = fetches(bench, **more)
    first = run(world, 3)
    world.world.hints.clear()
    world.engine.skips.skip(world.id, "fetch#3", reason="it is gone")
    assert sorted(first + run(world)) == [1, 2, 3, 4]
    assert world.result.results["report"] == {"all": [7, 14, None, 28]}
    world.calls.clear()
    with pytest.raises(ControlRefused):
        world.engine.skips.skip(world.id, "fetch#3")


def test_last_item_that_is_not_done_is_skipped(bench: Bench) -> None:
    world = fetches(bench)
    run(world, 4)
    world.world.hints.clear()
    world.engine.skips.skip(world.id, "fetch~1#4")
    assert run(world) == []
    assert world.status == "completed"
    assert world.result.results["report"] == {"all": [7, 14, 21, None]}


def test_items_that_have_not_started_are_skipped_when_their_turn_comes(bench: Bench) -> None:
    world = fetches(bench, at_once=1)
    world.carry_out(world.grant("search"), {"search": lambda: [1, 2, 3, 4]})
    for item in (2, 3, 4):
        world.engine.skips.skip(world.id, f"fetch#{item}")
    assert run(world) == [1]
    assert world.result.results["report"] == {"all": [7, None, None, None]}


def test_each_item_of_a_long_list_may_be_skipped(bench: Bench) -> None:
    world = fetches(bench, at_once=1)
    world.carry_out(world.grant("search"), {"search": lambda: list(range(400))})
    for item in range(1, 401):
        world.engine.skips.skip(world.id, f"fetch#{item}")
    assert run(world) == []
    assert world.result.results["report"] == {"all": [None] * 400}


def test_unknown_items_are_refused_with_those_there_are(bench: Bench) -> None:
    world = fetches(bench)
    refused = {"fetch#1": "it has no items yet", "search#1": "'search' is no for_each"}
    for name, why in refused.items():
        with pytest.raises(PositionRefused, match=why):
            world.engine.skips.skip(world.id, name)
    run(world, 3)
    for name in ("fetch#0", "fetch#5"):
        with pytest.raises(PositionRefused, match="its items are fetch#1 to fetch#4"):
            world.engine.skips.skip(world.id, name)
        with pytest.raises(PositionRefused, match="its items are fetch#1 to fetch#4"):
            world.engine.step_verbs.retry(world.id, name)


def test_fork_keeps_items_that_do_not_use_what_changes(bench: Bench) -> None:
    origin = fetches(bench)
    run(origin, 3)
    fork = Forked(origin, Wish(None, Changes(inputs={"other": 2})))
    assert run(fork) == [3, 4]  # the failure had cancelled the last one
    assert fork.result.results["report"] == {"all": [7, 14, 21, 28]}
    changed = Forked(origin, Wish(None, Changes(inputs={"year": 2})))
    assert run(changed) == [1, 2, 3, 4]
    assert changed.result.results["report"] == {"all": [2, 4, 6, 8]}
    assert audit(origin.engine.audit.run).items == []


def test_fork_with_another_tool_repeats_all_items_of_its_step(bench: Bench) -> None:
    origin = fetches(bench)
    run(origin, 3)
    fork = Forked(origin, Wish(None, Changes(tools={"fetch": "noop"})))
    assert run(fork) == [1, 2, 3, 4]


def test_item_that_was_to_be_skipped_is_another_one_in_another_list(bench: Bench) -> None:
    world = fetches(bench, at_once=1)
    world.carry_out(world.grant("search"), {"search": lambda: [1, 2, 3, 4]})
    world.engine.skips.skip(world.id, "fetch#3")
    run(world, 1)
    world.world.hints.clear()
    world.engine.step_verbs.retry(world.id, "search")
    run(world, search=lambda: [11, 12, 13, 14])
    assert world.result.results["report"] == {"all": [77, 84, 91, 98]}


def test_item_that_is_to_be_skipped_stays_so_in_the_same_list(bench: Bench) -> None:
    world = fetches(bench, at_once=1)
    world.carry_out(world.grant("search"), {"search": lambda: [1, 2, 3, 4]})
    world.engine.skips.skip(world.id, "fetch#3")
    for wrong in (1, 2):
        run(world, wrong)
        resume(world)
    run(world)
    assert world.result.results["report"] == {"all": [7, 14, None, 28]}


def test_a_point_is_followed_by_all_items(bench: Bench) -> None:
    world = fetches(bench)
    run(world, 3)
    assert run(Forked(world, Wish("search"))) == [1, 2, 3, 4]
    resume(world, after="search")
    assert run(world) == [1, 2, 3, 4]


def test_items_in_a_loop_are_kept(bench: Bench) -> None:
    world = World.of(bench)
    fetch = Step(id="fetch", action=Action.TOOL, for_each=(1, 2, 3), inputs={"tool": "x"})
    judge = Step(id="judge", action=Action.JUDGE, needs=("fetch",))
    program = Program(body=(Loop(id="loop", body=(fetch, judge), max_iterations=3),))
    session = world.engine.submit.program(program, About(kind="flow", name="x")).session
    ref, good = SessionRef(session, session), Outcome(word="succeeded", value=1)
    for item in (1, 3):
        world.settle(ref, world.grant(ref, f"loop~1[1]/fetch~1#{item}"), good)
    world.settle(ref, world.grant(ref, "loop~1[1]/fetch~1#2"), failed("gone", retryable=False))
    assert world.engine.queries.session(session).status == "failed"
    world.hints.clear()
    world.engine.step_verbs.retry(session, "loop/fetch")
    assert [address for _, address in world.hints] == ["loop~2[1]/fetch~1#2"]
    answer = world.settle(ref, world.grant(ref, "loop~2[1]/fetch~1#2"), good)
    world.settle(ref, answer.grants[0], Outcome(word="succeeded", verdict="accept"))
    assert world.engine.queries.session(session).status == "completed"


def apply_verb(world: GraphWorld, by: random.Random, left: set[int]) -> GraphWorld:
    """Continues a failed session by a verb; returns the session, or its fork.

    An item that is skipped is removed from those that are left.
    """
    world.world.hints.clear()
    match by.choice(["resume", "retry", "skip", "fork"]):
        case "skip" if left:
            item = by.choice(sorted(left))
            left.remove(item)
            world.engine.skips.skip(world.id, f"fetch#{item}")
        case "retry" if left:
            world.engine.step_verbs.retry(world.id, by.choice(["fetch", f"fetch#{min(left)}"]))
        case "fork":
            return Forked(world, Wish(None, Changes(inputs={"other": by.random()})))
        case _:
            resume(world)
    return world


@pytest.mark.parametrize("seed", range(40))
def test_an_item_that_is_done_is_never_repeated(bench: Bench, seed: int) -> None:
    """Whatever fails, and whichever of these verbs is used, in whatever order."""
    by = random.Random(seed)
    width, limit = by.choice([2, 3, 7, 30]), by.choice([None, 1, 2, 5])
    more = {"at_once": limit} if limit else {}
    world = fetches(bench, critical=by.random() < 0.5, **more)
    done, left = set[int](), set(range(1, width + 1))
    for attempt in range(9):
        wrong = {item for item in range(1, width + 1) if by.random() < 0.3 and attempt < 8}
        report = {"report": broken} if by.random() < 0.7 and attempt < 8 else {}
        found = run(world, *wrong, width=width, **report)
        assert len(found) == len(set(found))
        assert not done & set(found)
        done |= set(found) - wrong
        left -= done
        if world.status != "failed":
            break
        world = apply_verb(world, by, left)
    assert world.status == "completed"
    report_of_all: Any = world.result.results["report"]
    values = report_of_all["all"]
    assert [values[item - 1] for item in sorted(done)] == [item * 7 for item in sorted(done)]
    assert audit(world.engine.audit.run).items == []


def broken(**_: Any) -> None:
    raise ValueError("it is broken")
