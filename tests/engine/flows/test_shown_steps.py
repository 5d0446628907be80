"""The steps of a flow as `leadhand show` lists them: state, time, cost, and what came of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action
from app.sessions.fork import Wish
from leadhand.cli.render.result_text import ending
from leadhand.cli.render.session_text import session_lines
from leadhand.cli.render.step_tree import step_lines
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import StepView
from tests.engine.world import World
from tests.flows import ask, flow, llm, loop

NOT_YET = Outcome.model_validate({"word": "succeeded", "verdict": "retry", "text": "2 of 6 pass"})


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def run(world: World, ref: SessionRef, answers: dict[str, Outcome], *, most: int = 100) -> None:
    """Carry out at most so many steps, each of which takes two seconds."""
    while most and (live := world.engine.store.members(ref, "live", 10)):
        most -= 1
        grant = world.grant(ref, live[0])
        work = world.engine.attempts.work(ref, grant)
        world.now += 2000
        said = Outcome(word="succeeded", text=f"\n# said at {grant.address}\nmore")
        usual = said if work.step.action is Action.AGENT else NOT_YET
        world.settle(ref, grant, answers.get(grant.address, usual))


def shown(world: World, ref: SessionRef, *, now: datetime | None = None) -> list[str]:
    queries = world.engine.queries
    view, ledger = queries.session(ref.id), queries.ledger(ref.id, limit=500).items
    page = queries.steps(ref.id, limit=500)
    return list(step_lines(view, page.items, ledger, page.turns, now=now))


def test_loops_and_iterations_have_their_steps_beneath_them_in_order_of_time(world: World) -> None:
    inner = loop(llm(label="zeal"), ask(label="all green"), maxIterations=2)
    ref = world.submit(flow(llm(label="plan"), loop(inner, maxIterations=5), llm(label="last")))
    priced = {"word": "succeeded", "text": "the plan\nis long", "usage": {"cost_usd": 0.25}}
    run(world, ref, {"plan": Outcome.model_validate(priced)})
    assert shown(world, ref) == [
        "steps",
        "  plan               succeeded       0:02  $0.2500  the plan",
        "  startLoop          max_iterations  0:08           iteration 1 of 5",
        "    iteration 1      max_iterations  0:08",
        "      startLoop      max_iterations  0:08",
        "        iteration 1  retry           0:04",
        "          zeal       succeeded       0:02           # said at loop2~1[1]/loop1~1[1]/zeal",
        "          all green  retry           0:02           2 of 6 pass",
        "        iteration 2  retry           0:04",
        "          zeal       succeeded       0:02           # said at loop2~1[1]/loop1~1[2]/zeal",
        "          all green  retry           0:02           2 of 6 pass",
        "  last               pending",
    ]


def test_a_running_step_has_the_time_until_now_and_a_failed_one_its_reason(world: World) -> None:
    ref = world.submit(flow(llm(label="plan"), loop(llm(label="work"), maxIterations=2)))
    run(world, ref, {}, most=1)
    world.grant(ref, "loop2~1[1]/work")
    now = datetime.fromtimestamp((world.now + 5000) / 1000, UTC)
    assert shown(world, ref, now=now)[2:] == [
        "  startLoop      running    0:05  iteration 1 of 2",
        "    iteration 1  running    0:05",
        "      work       running    0:05",
    ]
    failed = world.submit(flow(llm(label="plan"), llm(label="last")))
    run(world, failed, {"plan": Outcome(word="failed", text="long\noutput", retryable=False)})
    assert "  plan  failed" in shown(world, failed)[1]


def test_a_loop_at_its_limit_says_so(world: World) -> None:
    ref = world.submit(flow(loop(llm(label="work"), ask(label="good"), maxIterations=2)))
    run(world, ref, {})
    assert shown(world, ref)[1].split() == [
        "startLoop", "max_iterations", "0:08", "iteration", "2", "of", "2",
    ]  # fmt: skip


def nested(world: World) -> SessionRef:
    """A flow whose inner loop ran to its limit in the first iteration of the outer one."""
    inner = loop(llm(label="work"), ask(label="green"), label="inner", maxIterations=2)
    ref = world.submit(flow(loop(llm(label="plan"), inner, label="outer", maxIterations=1)))
    run(world, ref, {})
    return ref


GREEN = Outcome.model_validate({"word": "succeeded", "verdict": "accept", "text": "all pass"})


def test_runs_of_loops_have_rows_times_and_ends_of_their_own(world: World) -> None:
    ref = nested(world)
    world.now += 3_600_000
    world.engine.step_verbs.retry(ref.id, "outer~1[1]/inner~1[2]/green")
    live = world.engine.store.members(ref, "live", 10)
    run(world, ref, dict.fromkeys(live, GREEN), most=1)
    assert [line[:50].rstrip() for line in shown(world, ref)[1:]] == [
        "  outer (run 1)      max_iterations  0:10  iterati",
        "    iteration 1      max_iterations  0:10",
        "      plan           succeeded       0:02  # said",
        "      inner          max_iterations  0:08",
        "        iteration 1  retry           0:04",
        "          work       succeeded       0:02  # said",
        "          green      retry           0:02  2 of 6",
        "        iteration 2  retry           0:04",
        "          work       succeeded       0:02  # said",
        "          green      retry           0:02  2 of 6",
        "  outer (run 2)      max_iterations  0:02  iterati",
        "    iteration 1      retry           0:02",
        "      inner          accept          0:02  continu",
        "        iteration 2  accept          0:02",
        "          green      accept          0:02  all pas",
    ]


def test_a_fork_counts_its_own_iterations_and_names_those_that_it_copied(world: World) -> None:
    ref = nested(world)
    queries = world.engine.queries
    wish = Wish(after="outer[1]/inner[1]/work")
    fork = world.engine.forks.fork(ref.id, wish).session
    copy = SessionRef(fork, fork)
    live = world.engine.store.members(copy, "live", 10)
    run(world, copy, dict.fromkeys(live, GREEN))
    view, result = queries.session(fork), queries.result(fork)
    assert view.counters.iterations == result.iterations == 2
    assert (result.copied_iterations, len(result.history)) == (3, 5)
    assert "after 2 iterations and 3 copied" in ending(result)
    page, ledger = queries.steps(fork, limit=500), queries.ledger(fork, limit=500).items
    lines = list(session_lines(view, ledger, (), page.items, page.turns))
    assert any("2 iterations and 3 copied," in line for line in lines)
    copied = [line.endswith(", copied") for line in lines if ", iteration " in line]
    assert copied == [True, True, True, False, False]


def test_a_list_that_is_skipped_or_runs_again_is_listed_once_for_each_run(world: World) -> None:
    each = {"type": "tool", "label": "fetch", "tool": "echo", "forEach": ["a", "b"]}
    ref = world.submit(flow(each, llm(label="report")))
    failed = Outcome(word="failed", text="no such page", retryable=False)
    listed = Outcome(word="succeeded", value=["a", "b"], text="2 items")
    run(world, ref, {"fetch-items": listed, "fetch~1#1": GREEN, "fetch~1#2": failed})
    world.engine.step_verbs.retry(ref.id, "fetch")
    run(world, ref, {"fetch~2#2": failed})
    world.engine.skips.skip(ref.id, "fetch", reason="not needed")
    assert [line.split("0:")[0].split() for line in shown(world, ref)[2:]] == [
        ["fetch", "(run", "1)", "failed"],
        ["fetch", "1", "accept"],
        ["fetch", "2", "failed"],
        ["fetch", "(run", "2)", "failed"],
        ["fetch", "1", "accept", "all", "pass"],  # it is kept, and took no time
        ["fetch", "2", "failed"],
        ["fetch", "(run", "3)", "skipped", "skipped", "by", "a", "user:", "not", "needed"],
        ["report", "waiting"],
    ]


def test_pages_of_steps_have_each_turn_once(world: World) -> None:
    ref = nested(world)
    queries, cursor, found = world.engine.queries, None, list[str]()
    while True:
        page = queries.steps(ref.id, limit=1, cursor=cursor)
        found += [turn.address for turn in page.turns]
        if (cursor := page.next) is None:
            break
    assert found == ["outer~1", "outer~1[1]/inner~1"]


def test_a_question_is_the_summary_of_the_step_that_asks_it(world: World) -> None:
    ref = world.submit(flow({"type": "human", "question": "Which one?\nSay A or B.", "label": "q"}))
    queries, attempts = world.engine.queries, world.engine.attempts
    grant = world.grant(ref, "q")
    work = attempts.work(ref, grant)
    attempts.park(work, on="human", wait_ms=9000, question="Which one?\nSay A or B.")
    assert queries.steps(ref.id, limit=5).items[0].summary == "Which one?"
    assert shown(world, ref)[1].split() == ["q", "waiting", "0:00", "Which", "one?"]


def test_of_a_long_loop_only_the_newest_iterations_are_listed() -> None:
    steps = [
        StepView(
            address=f"a~1[{n}]/do", node="a/do", action="agent", label="do", state="succeeded",
            started_at=f"2026-01-01T00:{n:02}:00+00:00", ended_at=f"2026-01-01T00:{n:02}:30+00:00",
            summary=f"work {n}",
        )
        for n in range(1, 31)
    ]  # fmt: skip
    view = SessionView.model_validate(
        {"id": "s", "kind": "flow", "name": "f", "status": "active", "root": "s",
         "created_at": "2026-01-01T00:00:00+00:00", "updated_at": "2026-01-01T00:00:00+00:00"}
    )  # fmt: skip
    lines = [line.strip() for line in step_lines(view, steps, [])]
    assert lines[2] == "... 10 earlier"
    assert [line for line in lines if line.startswith("doer")] == [
        f"doer          succeeded   0:30  work {n}" for n in (28, 29, 30)
    ]
    assert sum(line.startswith("iteration") for line in lines) == 20
