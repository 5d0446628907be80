"""Formats plain and fitted tables, plurals and JSON."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from leadhand.models.text import plain

if TYPE_CHECKING:
    from pydantic import BaseModel

_BETWEEN = 2
#: Characters of a cell where no width is given, as in a pipe.
_UNFITTED = 60


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, widest: int = 60) -> list[str]:
    """Formats rows as aligned columns below their headings, a string per line; cuts long cells.

    >>> table(["ID", "STATUS"], [["1a2b3c4d", "completed"]])
    ['ID        STATUS', '1a2b3c4d  completed']
    """
    cells = [list(head), *([plain(cell, most=widest) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def places_table(
    head: Sequence[str], rows: Sequence[Sequence[object]], why_not: Sequence[Mapping[str, str]]
) -> list[str]:
    """Formats a table with, below each row, the places where the entry cannot be used and why.

    >>> places_table(["TOOL"], [["slug"]], [{"here": "no such file"}])
    ['TOOL', 'slug', '  not at here: no such file']
    """
    first, *lines = table(head, rows)
    result = [first]
    for line, places in zip(lines, why_not, strict=True):
        result.append(line)
        result += [
            f"  not at {plain(place)}: {plain(why, most=400)}" for place, why in places.items()
        ]
    return result


def plural(count: int, noun: str) -> str:
    """Formats a count with its noun, in the plural if needed.

    >>> plural(1, "iteration"), plural(2, "iteration")
    ('1 iteration', '2 iterations')
    """
    return f"{count} {noun}" + ("" if count == 1 else "s")


def echo_json(value: BaseModel | dict[str, object]) -> None:
    """Print a model or dict as one indented JSON object."""
    fields = value if isinstance(value, dict) else value.model_dump(mode="json")
    click.echo(json.dumps(fields, indent=2))


class Column(NamedTuple):
    """A column, and what may become of it where the terminal is narrow."""

    head: str
    #: To so many characters it may be shortened; None if it has to be whole.
    least: int | None = None
    #: Columns are left out in this order; None if it always stays.
    drop: int | None = None


def fitted_table(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], width: int | None
) -> list[str]:
    """Formats a table in `width` columns: cells are shortened, less important columns left out.

    >>> rows = [["1a2b", "a name that is long", "why"]]
    >>> fitted_table([Column("ID"), Column("NAME", least=6), Column("WHY", drop=0)], rows, 16)
    ['ID    NAME', '1a2b  a name th…']
    """
    most = _UNFITTED if width is None else width
    cells = [[column.head for column in columns]]
    cells += [[plain(cell, most=max(most, 1)) for cell in row] for row in rows]
    order = sorted((c.drop, n) for n, c in enumerate(columns) if c.drop is not None)
    kept = list(range(len(columns)))
    for _, number in order:
        if width is None or _least_width(columns, cells, kept) <= width:
            break
        kept.remove(number)
    widths = _widths(columns, cells, kept, width)
    return [(" " * _BETWEEN).join(_fit(row[n], widths[n]) for n in kept).rstrip() for row in cells]


def _least_width(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], kept: Sequence[int]
) -> int:
    """The width of the table when each column is as short as it may be."""
    least = (
        min(_natural(cells, n), most) if (most := columns[n].least) else _natural(cells, n)
        for n in kept
    )
    return sum(least) + _BETWEEN * (len(kept) - 1)


def _widths(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    kept: Sequence[int],
    width: int | None,
) -> dict[int, int]:
    """The width of each column; the last ones are shortened first."""
    widths = {n: _natural(cells, n) for n in kept}
    excess = 0 if width is None else sum(widths.values()) + _BETWEEN * (len(kept) - 1) - width
    for n in reversed(kept):
        least = columns[n].least
        if excess > 0 and least is not None and widths[n] > least:
            cut = min(excess, widths[n] - least)
            widths[n] -= cut
            excess -= cut
    return widths


def _natural(cells: Sequence[Sequence[str]], number: int) -> int:
    return max(display_width(row[number]) for row in cells)


def _fit(text: str, width: int) -> str:
    """The text in exactly so many columns of the terminal."""
    if display_width(text) > width:
        while text and display_width(text) > width - 1:
            text = text[:-1]
        text = text.rstrip() + "…"
    return text + " " * (width - display_width(text))


def display_width(text: str) -> int:
    """Returns how many columns a text takes on a terminal.

    >>> display_width("abc"), display_width("日本")
    (3, 4)
    """
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
