"""Decisions about stops: their order, limits and texts (pure)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.guards import GuardState, begin_prompt, decide, decide_early, reset
from leadhand.models.guards import MAX_GATES, GateResult, StopReport
from leadhand.models.views.shared import StopDecision


class Agent:
    """An agent session whose stops are decided one after the other."""

    def __init__(self) -> None:
        self.state = GuardState()
        self.warnings: list[str] = []
        self._number = 0

    def stop(self, *gates: GateResult, **more: Any) -> StopDecision:
        self._number += 1
        fields = {"stop": f"s{self._number}", "prompt_id": "p", "gates": gates}
        turn = decide(self.state, StopReport.model_validate(fields | more), self._number)
        self.state = turn.state
        self.warnings += turn.warnings
        assert turn.decision is not None
        return turn.decision

    def stops(self, times: int, *gates: GateResult, **more: Any) -> list[StopDecision]:
        return [self.stop(*gates, **more) for _ in range(times)]


def gate(name: str, outcome: str = "failed", **more: Any) -> GateResult:
    return GateResult.model_validate({"name": name, "outcome": outcome, "output": "boom"} | more)


@pytest.fixture
def agent() -> Agent:
    return Agent()


def words(decisions: list[StopDecision]) -> list[tuple[str, str]]:
    return [(one.decision, one.template) for one in decisions]


def test_new_state_has_failed_at_nothing() -> None:
    state = GuardState()
    assert (state.stops, state.retries, state.stage, state.last) == (0, {}, "build", {})


def test_build_that_always_fails_ends_with_an_allowed_stop_at_its_limit(agent: Agent) -> None:
    decisions = agent.stops(7, gate("build"))
    assert words(decisions) == [("block", "fix-build-errors")] * 5 + [
        ("block", "build-stuck"), ("allow", "build-stuck"),
    ]  # fmt: skip
    assert all(one.text.startswith("Stage limit reached (5)") for one in decisions[5:])


def test_test_gate_has_its_own_limit_and_texts(agent: Agent) -> None:
    decisions = agent.stops(5, gate("build", "passed"), gate("test", limit=3))
    assert words(decisions) == [("block", "fix-test-failures")] * 3 + [
        ("block", "test-stuck"), ("allow", "test-stuck"),
    ]  # fmt: skip
    assert decisions[-1].text.startswith("Stage limit reached (3)")


def test_first_gate_that_fails_decides(agent: Agent) -> None:
    decision = agent.stop(gate("build", "passed"), gate("test"), gate("docs"))
    assert (decision.gate, agent.state.stage) == ("test", "test")
    assert agent.state.last == {"build": "passed", "test": "failed", "docs": "failed"}


@pytest.mark.parametrize(
    ("name", "template"), [("docs", "update-docs"), ("pr", "file-pr"), ("review", "address-review")]
)
def test_gates_that_do_not_block_let_the_agent_stop_with_a_message(
    agent: Agent, name: str, template: str
) -> None:
    decision = agent.stop(gate("build", "passed"), gate(name, blocks=False))
    assert (decision.decision, decision.template) == ("allow", template)
    assert agent.state.failed_stops == 0


def test_pull_request_that_is_never_opened_is_stuck_and_blocks_nothing(agent: Agent) -> None:
    decisions = agent.stops(4, gate("pr", blocks=False, limit=3))
    assert words(decisions) == [("allow", "file-pr")] * 3 + [("allow", "pr-stuck")]


def test_fifteen_failing_stops_reach_the_global_limit_before_any_gate_runs(agent: Agent) -> None:
    for number in range(15):
        agent.stop(gate("build", limit=100), prompt_id=f"p{number}")
    asked = StopReport(stop="x", prompt_id="next")
    turn = decide_early(agent.state, asked, 1)
    assert turn is not None
    assert turn.decision is not None
    assert (turn.decision.decision, turn.decision.template) == ("block", "max-loops")
    assert turn.decision.text.startswith("Global stop limit reached (15)")
    again = decide_early(turn.state, asked, 2)
    assert again is not None
    assert again.decision is not None
    assert (again.decision.decision, again.decision.limit_reached) == ("allow", "global")


def test_stops_that_pass_do_not_count_towards_the_global_limit(agent: Agent) -> None:
    decisions = agent.stops(40, gate("build", "passed"))
    assert words(decisions) == [("allow", "complete")] * 40
    assert (agent.state.stops, agent.state.failed_stops) == (40, 0)


def test_stop_that_passes_all_gates_begins_their_counters_again(agent: Agent) -> None:
    agent.stops(4, gate("build"))
    agent.stop(gate("build", "passed"), gate("test"))
    assert agent.state.retries == {"build": 4, "test": 1}
    assert agent.stop(gate("build", "passed"), gate("test", "passed")).template == "complete"
    assert agent.stop(gate("build")).attempt == 1


def test_message_about_documentation_begins_the_counters_of_passed_gates_again(
    agent: Agent,
) -> None:
    agent.stops(4, gate("build"))
    agent.stop(gate("build", "passed"), gate("docs", blocks=False))
    assert agent.state.retries == {"docs": 1}


def test_guidance_warns_from_three_retries_and_announces_the_escalation_at_four(
    agent: Agent,
) -> None:
    texts = [one.text for one in agent.stops(5, gate("build"))]
    assert [text.splitlines()[0] for text in texts] == [
        "The build fails (attempt 1 of 5).",
        "The build fails (attempt 2 of 5).",
        "The build fails (attempt 3 of 5).",
        "The build fails (attempt 4 of 5). Warning: 3 attempts have failed.",
        "The build fails (attempt 5 of 5). Warning: 4 attempts have failed."
        " If this one fails too, the problem goes to the user.",
    ]


def test_guidance_shows_the_end_of_the_output_and_less_when_stuck(agent: Agent) -> None:
    long = gate("build", output="".join(f"{n:04} " for n in range(2000)))
    texts = [one.text for one in agent.stops(6, long)]
    assert "1999" in texts[0]
    assert 1900 < len(texts[0]) < 2300
    assert "1999" in texts[5]
    assert 900 < len(texts[5]) < 1300


def test_stop_that_is_not_checked_is_allowed_also_at_the_global_limit(agent: Agent) -> None:
    agent.stop(gate("build"), limits={"stops": 1})
    decision = agent.stop(unchecked="no file", limits={"stops": 1})
    assert (decision.decision, decision.template) == ("allow", "unchecked")


def test_team_replaces_guidance(agent: Agent) -> None:
    own = {"fix-build-errors": "Nope, {attempt}/{limit}: {output} {unknown}"}
    assert agent.stop(gate("build"), templates=own).text == "Nope, 1/5: boom {unknown}"


def test_gate_of_a_team_names_its_own_guidance(agent: Agent) -> None:
    lint = gate("lint", template="fix-lint", limit=1)
    own = {"fix-lint": "Run make fmt."}
    decisions = agent.stops(2, lint, templates=own)
    assert words(decisions) == [("block", "fix-lint"), ("block", "gate-stuck")]
    assert decisions[0].text == "Run make fmt."


def test_credentials_in_a_gates_output_are_redacted(agent: Agent) -> None:
    key = "sk-ant-api03-" + "a" * 40
    assert key not in agent.stop(gate("build", output=f"key {key}")).text


def test_gate_that_does_not_end_in_time_allows_and_says_so(agent: Agent) -> None:
    decision = agent.stop(gate("build", "passed"), gate("test", "unfinished"))
    assert (decision.decision, decision.template, decision.gate) == ("allow", "unfinished", "test")
    assert agent.state.failed_stops == 0


def test_gates_without_a_command_are_passed_over(agent: Agent) -> None:
    decision = agent.stop(gate("build", "skipped"), gate("test", "skipped"))
    assert decision.text == "All gates passed: none ran."


def test_seven_blocks_in_a_row_are_the_most_and_a_new_prompt_begins_a_new_row(
    agent: Agent,
) -> None:
    decisions = agent.stops(8, gate("build", limit=100))
    assert [one.decision for one in decisions] == ["block"] * 7 + ["allow"]
    last = decisions[-1]
    assert (last.template, last.limit_reached) == ("build-stuck", "row")
    assert last.text.startswith("Limit of blocks in a row reached (7)")
    agent.stops(6, gate("build", limit=100))
    assert agent.stop(gate("build", limit=100), prompt_id="q").decision == "block"
    assert agent.state.row == 1


def test_agent_without_prompt_ids_begins_a_row_with_its_first_stop(agent: Agent) -> None:
    agent.stops(6, gate("build", limit=100), prompt_id=None)
    agent.stop(gate("build", limit=100), prompt_id=None, is_first=True)
    assert agent.state.row == 1


@pytest.mark.parametrize("event", ["prompt", "idle", "end"])
def test_event_after_a_block_means_that_the_block_was_overridden(agent: Agent, event: str) -> None:
    agent.stop(gate("build"))
    turn = begin_prompt(agent.state, None, event=event)
    assert len(turn.warnings) == 1
    assert (turn.state.overridden, turn.state.row) == (1, 0)
    assert begin_prompt(turn.state, None, event=event).warnings == ()


def test_stop_of_another_prompt_after_a_block_means_the_same(agent: Agent) -> None:
    agent.stop(gate("build"))
    agent.stop(gate("build"), prompt_id="q")
    assert agent.state.overridden == 1
    assert len(agent.warnings) == 1


def test_event_after_an_allowed_stop_means_nothing(agent: Agent) -> None:
    agent.stop(gate("build", "passed"))
    assert begin_prompt(agent.state, "q").warnings == ()


def test_reset_keeps_the_totals(agent: Agent) -> None:
    agent.stops(9, gate("build"))
    state = reset(agent.state)
    assert (state.failed_stops, state.retries, state.given_up, state.row) == (0, {}, (), 0)
    assert (state.stops, state.blocks) == (9, 6)


def test_gates_of_one_stop_have_different_names() -> None:
    with pytest.raises(ValueError, match="same name"):
        StopReport(stop="x", gates=(gate("build"), gate("build")))


@st.composite
def reports(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(["build", "test", "docs", "pr", "lint"]), unique=True))
    outcomes = st.sampled_from(["failed", "failed", "failed", "passed", "skipped", "unfinished"])
    gates = tuple(
        gate(
            name,
            draw(outcomes),
            limit=draw(st.none() | st.integers(1, 9)),
            blocks=draw(st.sampled_from([True, True, False])),
        )
        for name in names
    )
    limits = {"stops": draw(st.integers(1, 30)), "blocks_in_a_row": draw(st.integers(1, 7))}
    prompt = draw(st.sampled_from(["p", "p", "p", "p", "q", None]))
    return {"gates": gates, "limits": limits, "prompt_id": prompt}


@settings(max_examples=60)
@given(st.lists(reports(), max_size=40))
def test_no_stop_is_blocked_an_eighth_time_in_a_row(stops: list[dict[str, Any]]) -> None:
    agent, row, prompt = Agent(), 0, None
    for one in stops:
        decision = agent.stop(*one["gates"], **{k: v for k, v in one.items() if k != "gates"})
        row = row if one["prompt_id"] in (None, prompt) else 0
        prompt = one["prompt_id"] or prompt
        row = row + 1 if decision.decision == "block" else 0
        assert row <= one["limits"]["blocks_in_a_row"] <= 7, decision
        assert agent.state.row == row


def test_names_of_gates_that_do_not_come_again_are_dropped(agent: Agent) -> None:
    for number in range(3 * MAX_GATES):
        agent.stop(gate(f"gate-{number}", limit=1), limits={"stops": 1000})
    assert len(agent.state.retries) == len(agent.state.last) == MAX_GATES
    assert len(agent.state.given_up) <= MAX_GATES
    assert list(agent.state.last)[-1] == f"gate-{3 * MAX_GATES - 1}"


def test_counter_of_a_gate_outlives_a_stop_that_does_not_reach_it(agent: Agent) -> None:
    agent.stop(gate("build", "passed"), gate("test"))
    agent.stop(gate("build"))
    assert agent.stop(gate("build", "passed"), gate("test")).attempt == 2


def test_stop_that_passes_all_gates_drops_the_names_of_others(agent: Agent) -> None:
    agent.stop(gate("old"))
    agent.stop(gate("build", "passed"), gate("docs", "skipped"))
    assert agent.state.last == {"build": "passed"}
