"""The same simulation, driven by a seeded random number: fast, and always the same."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.engine.driving import Bench
from tests.model.random_programs import Choose, random_budget, random_program
from tests.model.simulation import Simulation

STEPS = 40


def walk(bench: Bench, seed: int, *, after: Callable[[], object] = lambda: None) -> None:
    """A random program, forty random things done to it (and `after` each of them), and its end."""
    random = Random(seed)
    choose = random.choice
    sim = Simulation(
        bench, random_program(choose), window=choose((100, 1, 2)), place=choose(("", "here")),
        budget=random_budget(choose),
    )  # fmt: skip
    acts: dict[Callable[[], None], int] = {
        lambda: sim.pump(choose, rounds=3): 24,
        lambda: sim.deliver(choose, times=2): 8,
        lambda: sim.finish_one(choose, fair=False): 10,
        lambda: sim.zombie(choose): 10,
        lambda: sim.holder(choose): 10,
        lambda: sim.answer(choose): 6,
        lambda: sim.spawn(choose): 10,
        lambda: sim.end_child(choose): 3,
        lambda: sim.repeat(choose): 8,
        lambda: sim.tick(choose((0.5, 2, 4, 11, 31, 31, 31, 75, 400))): 10,
        lambda: sim.claim_again(choose): 6,
        lambda: sim.sweep(choose): 12,
        lambda: sim.look(choose): 4,
        lambda: restart(sim, choose): 2,
        lambda: sim.repeat_stretch(choose): 4,
        lambda: sim.lose_hints(): 2,
        lambda: sim.control("stop", choose): 2,
        lambda: sim.control("resume", choose): 8,
        lambda: sim.rest(): 3,
        lambda: sim.go_back(choose): 16,
        lambda: sim.adopt(choose): 10,
    }
    for act in random.choices(list(acts), list(acts.values()), k=STEPS):
        act()
        after()
    if random.random() < 0.3:
        sim.control(choose(("exit", "abort")), choose)
        sim.holder(choose)
        sim.repeat(choose, last=3)
    sim.bring_to_its_end()
    after()


def restart(sim: Simulation, choose: Choose) -> None:
    """Redis comes back after the leases of all have passed."""
    sim.tick(31)
    sim.sweep(choose, restarted=True)
