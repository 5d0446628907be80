"""Formats plain tables, plurals and JSON; the table of `leadhand ls` is in fitted_table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from leadhand.models.text import plain

if TYPE_CHECKING:
    from pydantic import BaseModel


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
