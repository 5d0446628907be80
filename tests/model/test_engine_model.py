"""The real scripts against their model, as Hypothesis drives them.

Zombies of any age, hints lost, doubled and late, replies lost after a script ran, controls that
race, workers that die, sweepers that sleep.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.effort import few_or_all
from tests.engine.driving import Bench
from tests.model.random_programs import Choose, random_budget, random_program
from tests.model.simulation import Simulation


def looking(examples: int) -> settings:
    """How long the machine looks, by the profile that pytest was started with."""
    thorough = settings.get_current_profile_name() == "thorough"
    return settings(
        max_examples=1500 if thorough else examples,
        stateful_step_count=40,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


def choosing(data: st.DataObject) -> Choose:
    return lambda options: data.draw(st.sampled_from(options))


class EngineMachine(RuleBasedStateMachine):
    """Random workers, people and sweepers on a random program."""

    bench: ClassVar[Bench]
    sim: Simulation

    @initialize(data=st.data(), window=st.sampled_from((100, 1, 2)))
    def begin(self, data: st.DataObject, window: int) -> None:
        place = data.draw(st.sampled_from(("", "here")))
        program = random_program(choosing(data))
        budget = random_budget(choosing(data))
        self.sim = Simulation(self.bench, program, window=window, place=place, budget=budget)

    @rule(data=st.data(), rounds=st.integers(1, 4))
    def pump(self, data: st.DataObject, rounds: int) -> None:
        self.sim.pump(choosing(data), rounds=rounds)

    @rule(data=st.data())
    def pump_on(self, data: st.DataObject) -> None:
        self.sim.pump(choosing(data), rounds=6)

    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        self.sim.deliver(choosing(data), times=2)

    @rule(data=st.data())
    def finish_one(self, data: st.DataObject) -> None:
        self.sim.finish_one(choosing(data), fair=False)

    @rule(data=st.data())
    def zombie(self, data: st.DataObject) -> None:
        self.sim.zombie(choosing(data))

    @rule(data=st.data())
    def holder(self, data: st.DataObject) -> None:
        self.sim.holder(choosing(data))

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        self.sim.answer(choosing(data))

    @rule(data=st.data())
    def spawn(self, data: st.DataObject) -> None:
        self.sim.spawn(choosing(data))

    @rule(data=st.data())
    def end_child(self, data: st.DataObject) -> None:
        self.sim.end_child(choosing(data))

    @rule(data=st.data(), last=st.sampled_from((1, 5, 60)))
    def repeat(self, data: st.DataObject, last: int) -> None:
        self.sim.repeat(choosing(data), last=last)

    @rule(data=st.data())
    def claim_again(self, data: st.DataObject) -> None:
        self.sim.claim_again(choosing(data))

    @rule(data=st.data())
    def repeat_stretch(self, data: st.DataObject) -> None:
        self.sim.repeat_stretch(choosing(data))

    @rule(data=st.data(), seconds=st.sampled_from((0.5, 2, 4, 11, 31, 75, 400)))
    def tick(self, data: st.DataObject, seconds: float) -> None:
        self.sim.tick(seconds)
        self.sim.sweep(choosing(data))

    @rule(seconds=st.sampled_from((0.5, 4, 29, 31)))
    def tick_unswept(self, seconds: float) -> None:
        self.sim.tick(seconds)

    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        self.sim.look(choosing(data))

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        self.sim.tick(31)
        self.sim.sweep(choosing(data), restarted=True)

    @rule()
    def lose_hints(self) -> None:
        self.sim.lose_hints()

    @rule(data=st.data())
    def stop_and_go(self, data: st.DataObject) -> None:
        verb = "stop" if self.sim.model.status == "active" else "resume"
        self.sim.control(verb, choosing(data))

    @precondition(lambda self: self.sim.model.status != "active" or len(self.sim.calls) > 12)
    @rule(data=st.data(), verb=st.sampled_from(("stop", "resume", "exit", "abort")))
    def control(self, data: st.DataObject, verb: str) -> None:
        self.sim.control(verb, choosing(data))

    @precondition(lambda self: self.sim.model.status in ("stopped", "failed"))
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        self.sim.go_back(choosing(data))

    @precondition(lambda self: self.sim.model.status in ("stopped", "failed"))
    @rule(data=st.data())
    def adopt(self, data: st.DataObject) -> None:
        self.sim.adopt(choosing(data))

    @precondition(lambda self: len(self.sim.calls) > 12)
    @rule(data=st.data())
    def stop_and_go_back(self, data: st.DataObject) -> None:
        """All that is held is handed back, so that it stops at once."""
        self.sim.rest()
        self.sim.go_back(choosing(data))

    def teardown(self) -> None:
        if hasattr(self, "sim"):
            self.sim.bring_to_its_end()


@pytest.mark.no_cover
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("examples", few_or_all(25, 120))
def test_the_scripts_do_what_the_model_does(bench: Bench, examples: int) -> None:
    machine: Any = type("Machine", (EngineMachine,), {"bench": bench})
    run_state_machine_as_test(machine, settings=looking(examples))
