"""The workloads that all sides run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from celery import Celery

from app.core.program import Program
from benchmarks import plain, programs

WIDTH = 1000


class Workload(NamedTuple):
    """A workload: its number of sessions, and what each side sends per session."""

    title: str
    sessions: int
    #: Steps of one session that a worker carries out, those that only decide too.
    steps: int
    program: Program
    plain: Callable[[Celery, str], None]
    #: How many of them the floor carries out one after the other.
    in_a_row: int
    #: Whether workers are held back until all is sent, so that only carrying out is measured.
    held: bool = True


def sequences(
    sessions: int,
    title: str,
    *,
    quick: bool = True,
    held: bool = True,
    queue: str = "",
) -> Workload:
    """W1, with so many sessions."""

    def send(app: Celery, name: str) -> None:
        plain.send_sequence(app, 10, name, kept=not quick)

    program = programs.sequence(10, quick=quick, queue=queue)
    return Workload(title, sessions, 10, program, send, 10, held)


def loops(sessions: int, title: str, *, quick: bool) -> Workload:
    """W2: each session is 3 times a doer, 3 checks and a judge."""

    def send(app: Celery, name: str) -> None:
        plain.send_iteration(app, 1, name)

    return Workload(title, sessions, 15, programs.loop(quick=quick), send, 15)


def fan_out() -> Workload:
    """W3."""

    def send(app: Celery, name: str) -> None:
        plain.send_fan_out(app, WIDTH, name)

    title = f"W3: one session of {WIDTH:,} parallel steps and a join"
    return Workload(title, 1, WIDTH + 1, programs.fan_out(WIDTH), send, 1)


WORKLOADS: Mapping[str, Workload] = {
    "W1": sequences(100, "W1: 100 sessions of 10 sequential tool steps"),
    "W2": loops(60, "W2: 60 loops of 3 iterations with 3 callable checks", quick=True),
    "W2m": loops(20, "W2m: the same, with a message for each step", quick=False),
    "W3": fan_out(),
    "A": sequences(
        30, "A: 30 sessions of 10 steps, a message for each (Celery keeps results)", quick=False
    ),
    "AL": sequences(
        30,
        "AL: the same on the queue of agents, which pool processes take nothing from",
        quick=False,
        queue="agents",
    ),
}
#: Run once each: what a step costs must not depend on how many sessions there are.
MANY: Mapping[str, Workload] = {
    f"W4 {sessions}": sequences(sessions, f"W4: W1 with {sessions:,} sessions", held=False)
    for sessions in (100, 1000, 5000)
}
