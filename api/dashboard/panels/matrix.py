"""Arranges the iterations of a session as a table: a row per iteration, a column per checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leadhand.models.counts import counts_text
from leadhand.models.views.result import LedgerEntry


class Cell(NamedTuple):
    """A checker's judgement of one iteration."""

    name: str
    #: None if the checker did not judge.
    verdict: str | None
    feedback: str
    #: Its number among the checks of the iteration.
    number: int
    #: The tests that it ran; '' if they are not known.
    counts: str = ""


class Row(NamedTuple):
    """One iteration."""

    #: Its number in the ledger, from 0.
    number: int
    entry: LedgerEntry
    #: In the order of the columns; None where the checker is not of this loop.
    cells: list[Cell | None]

    @property
    def seconds(self) -> float | None:
        """Returns how long the iteration took, in seconds; None if that was not recorded."""
        return seconds_of(self.entry)


class Matrix(NamedTuple):
    """The iterations of one loop."""

    loop: str
    checkers: list[str]
    rows: list[Row]


def matrices(entries: Sequence[LedgerEntry], *, first: int = 0) -> list[Matrix]:
    """Builds a table of iterations and checkers for each loop; `first` numbers the first entry."""
    found: dict[str, list[tuple[int, LedgerEntry]]] = {}
    for number, entry in enumerate(entries, first):
        found.setdefault(entry.loop, []).append((number, entry))
    return [_matrix(loop, rows) for loop, rows in found.items()]


def _matrix(loop: str, entries: list[tuple[int, LedgerEntry]]) -> Matrix:
    cells = {number: cells_of(entry) for number, entry in entries}
    names = list(dict.fromkeys(one.name for found in cells.values() for one in found))
    rows = []
    for number, entry in entries:
        by_name = {one.name: one for one in cells[number]}
        rows.append(Row(number, entry, [by_name.get(name) for name in names]))
    return Matrix(loop, names, rows)


def seconds_of(entry: LedgerEntry) -> float | None:
    """Returns how long an iteration took, in seconds; None if its times were not recorded."""
    first, last = entry.started_ms, entry.ended_ms
    return None if first is None or last is None else (last - first) / 1000


def cells_of(entry: LedgerEntry) -> list[Cell]:
    """Returns the verdicts of one iteration, one table cell per checker."""
    return [
        Cell(
            name=str(check.get("name") or f"check {number + 1}"),
            verdict=None if check.get("verdict") is None else str(check["verdict"]),
            feedback=str(check.get("feedback") or ""),
            number=number,
            counts=counts_text(check.get("counts")),
        )
        for number, check in enumerate(entry.checks)
    ]
