"""Finds records that a resumed run inherits from older runs of its loop (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from app.domain.addresses import iteration_in, turn_of
from app.domain.records import Origin, TurnRecord

Origins = Mapping[str, Origin]


def home_of(block: str, name: str, origins: Origins) -> str:
    """Returns the address of the loop iteration with a node's record, maybe kept by a resume.

    >>> once = Origin(run="l~1", opened=3, kept={"do": "l~1[3]"})
    >>> [home_of(f"l~2[{i}]", "do", {"l~2": once}) for i in (2, 3, 4)]
    ['l~1[2]', 'l~1[3]', 'l~2[4]']
    >>> home_of("l~2[3]", "check", {"l~2": once})
    'l~2[3]'
    """
    turn, iteration = turn_of(block), iteration_in(block)
    while turn in origins:
        origin = origins[turn]
        if iteration == origin.opened and name in origin.kept:
            return origin.kept[name]
        if iteration >= origin.opened:
            break
        turn = origin.run
    return f"{turn}[{iteration}]" if iteration else turn


def result_of_turn(id_: str, result: str | None, turn: TurnRecord) -> str | None:
    """Returns the address of the step in a loop's last iteration with its result text, or None."""
    if result is None or not turn.iteration:
        return None
    origins = {id_: turn.origin} if turn.origin else {}
    return f"{home_of(f'{id_}[{turn.iteration}]', result, origins)}/{result}"
