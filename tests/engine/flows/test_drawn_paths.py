"""Drawings show the path that a session took: iterations, branches, reasons and earlier runs."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.sessions.drawings import draw_svg, draw_text
from app.sessions.fork import Wish
from leadhand.flows.documents import FlowDocument
from tests.engine.world import DONE, World
from tests.flows import ask, flow, llm, loop

NO = Outcome.model_validate({"word": "succeeded", "verdict": "retry", "text": "no"})
YES = Outcome.model_validate({"word": "succeeded", "verdict": "accept", "text": "yes"})


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def run(world: World, ref: SessionRef, answers: dict[str, Outcome], *, most: int = 400) -> None:
    """Carry out at most so many steps; one without an answer succeeds, a decision says no."""
    while most and (live := world.engine.store.members(ref, "live", 10)):
        most -= 1
        grant = world.grant(ref, live[0])
        is_asked = world.engine.attempts.work(ref, grant).step.action in ("break", "decide")
        world.settle(ref, grant, answers.get(grant.address, NO if is_asked else DONE))


def drawn(world: World, ref: SessionRef, width: int = 120) -> list[str]:
    return draw_text(world.engine, ref.id, width).splitlines()


def edges(world: World, ref: SessionRef) -> dict[tuple[str, str], str]:
    """Whether each edge of the SVG is taken, in the words of its title."""
    root = ElementTree.fromstring(draw_svg(world.engine, ref.id))
    return {
        (one.attrib["data-from"], one.attrib["data-to"]): "".join(one.itertext())
        for one in root.iter()
        if "data-from" in one.attrib
    }


def nested() -> FlowDocument:
    """An outer loop whose inner loop runs only if a decision says yes."""
    inner = loop(llm(label="work"), ask(label="good"), llm(label="mend"), label="inner")
    choice = ask("if", label="more", then=[inner]) | {"else": [llm(label="rest")]}
    return flow(loop(choice, ask(label="enough"), label="outer", maxIterations=5), llm(label="end"))


def last_without_inner(world: World) -> SessionRef:
    """The inner loop ran twice, three times and not at all."""
    ref = world.submit(nested())
    done = {f"outer~1[{n}]/more": YES for n in (1, 2)}
    done |= {"outer~1[1]/inner~1[2]/good": YES, "outer~1[2]/inner~1[3]/good": YES}
    run(world, ref, done | {"outer~1[3]/enough": YES})
    return ref


def test_a_loop_that_the_last_iteration_skipped_shows_its_last_one_that_ran(world: World) -> None:
    ref = last_without_inner(world)
    assert drawn(world, ref) == [
        "✓ outer  succeeded  iterations 1-3 of 5: retry, retry, accept",
        "│   ✓ more  succeeded  no",
        "│   │",
        "│   ┌┈ \N{EN DASH} inner  skipped: more did not say accept",
        "│   │  │   (outer 1: accept after 2, 2: accept after 3, 3: skipped)",
        "│   │  │   (shown is that of outer 2)",
        "│   │  │   ✓ work  succeeded",
        "│   │  │   │",
        "│   │  │   ✓ good  succeeded  ends the loop",
        "│   │  │   ┊",
        "│   │  │   · mend  not reached",
        "│   └─ ✓ rest  succeeded",
        "│   │",
        "│   ✓ enough  succeeded  ends the loop",
        "│",
        "✓ end  succeeded",
    ]
    assert edges(world, ref) == {
        ("outer", "end"): "taken",
        ("outer/more", "outer/inner"): "not taken",
        ("outer/more", "outer/rest"): "taken",
        ("outer/inner", "outer/enough"): "not taken",
        ("outer/rest", "outer/enough"): "taken",
        ("outer/inner/work", "outer/inner/good"): "taken",
        ("outer/inner/good", "outer/inner/mend"): "not taken",
    }


def test_a_fork_draws_what_it_keeps_and_the_runs_before(world: World) -> None:
    ref = last_without_inner(world)
    wish = Wish(after="outer[2]/inner[1]/work")
    fork = world.engine.forks.fork(ref.id, wish).session
    assert drawn(world, SessionRef(fork, fork))[:9] == [
        "● outer  running  iterations 1-2 of 5: retry, under way",
        "│   (run 2 from iteration 2 on)",
        "│   (run 1: accept after 3)",
        "│   ✓ more  succeeded  yes",
        "│   │",
        "│   ┌─ ● inner  running  iteration 1 of 100",
        "│   │  │   (outer 1: accept after 2, 2: under way)",
        "│   │  │   ✓ work  succeeded",
        "│   │  │   │",
    ]


def test_a_loop_of_a_hundred_iterations_is_one_line_and_fits(world: World) -> None:
    ref = world.submit(flow(loop(llm(label="work"), ask(label="good"), label="long")))
    run(world, ref, {})
    assert drawn(world, ref) == [
        "✗ long  failed  iterations 1-100 of 100: 100 x retry, the limit",
        "│   ✓ work  succeeded",
        "│   │",
        "│   ↺ good  retry  goes on",
    ]


def test_a_loop_that_is_skipped_after_it_failed_shows_the_run_that_failed(world: World) -> None:
    ref = world.submit(flow(loop(llm(label="work"), label="l", maxIterations=2), llm(label="end")))
    run(world, ref, {})
    world.engine.skips.skip(ref.id, "l", reason="good enough")
    run(world, ref, {})
    assert drawn(world, ref) == [
        "\N{EN DASH} l  skipped by a user: good enough",
        "│   (run 2)",
        "│   (run 1: max_iterations after 2)",
        "│   (shown is run 1)",
        "│   ✓ work  succeeded",
        "┊",
        "✓ end  succeeded",
    ]


def test_a_failed_step_says_why_and_what_it_kept_from_being_reached(world: World) -> None:
    ref = world.submit(flow(llm(label="a"), llm(label="b"), llm(label="c")))
    failed = Outcome.model_validate(
        {"word": "failed", "retryable": False, "text": "x",
         "reason": {"code": "failed_step", "text": "no such file"}}
    )  # fmt: skip
    run(world, ref, {"b": failed})
    assert drawn(world, ref) == [
        "✓ a  succeeded", "│", "✗ b  failed: no such file", "┊", "· c  not reached",
    ]  # fmt: skip
    world.engine.step_verbs.retry(ref.id, "b")
    run(world, ref, {})
    assert drawn(world, ref)[2:4] == ["✓ b  succeeded", "  (run 2)"]


def test_what_follows_a_decision_without_another_branch_comes_from_the_decision(
    world: World,
) -> None:
    choice = ask("if", label="x", then=[llm(label="t1"), llm(label="t2")])
    ref = world.submit(flow(choice, llm(label="end")))
    run(world, ref, {})
    assert drawn(world, ref)[-1] == "✓ end  succeeded  after x, not t2"
    assert edges(world, ref) == {
        ("x", "t1"): "not taken", ("t1", "t2"): "not taken",
        ("t2", "end"): "not taken", ("x", "end"): "taken",
    }  # fmt: skip


@pytest.mark.parametrize("width", [40, 80])
def test_lines_fit_the_terminal(world: World, width: int) -> None:
    assert max(map(len, drawn(world, last_without_inner(world), width))) <= width
