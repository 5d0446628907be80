"""Parses the names of items of a for_each (pure)."""

from __future__ import annotations

import re
from typing import NamedTuple

from app.domain.addresses import path_of
from app.domain.program import Program, Step
from app.errors import PositionRefused
from app.history.points import FIELD, Known, address_of, newest_position

_ITEM = re.compile(r"^(?P<step>.+)#(?P<item>\d{1,9})$")


class Item(NamedTuple):
    """One item of a for_each: the address of its newest run, and its number from 1."""

    run: str
    number: int

    @property
    def address(self) -> str:
        """Return the address of the item's step."""
        return f"{self.run}#{self.number}"


def item_of(program: Program, said: str, known: Known) -> tuple[str, Item | None]:
    """Splits the name of an item, such as `fetch#2`: returns its for_each's name, and the item.

    Returns the name and None if it names no item. Raises PositionRefused for an item that the
    newest run of the for_each does not have, and for one of a step without for_each.
    """
    parts = _ITEM.match(said)
    if parts is None or any(node.label == said for _, node in program.walk()):
        return said, None
    name, number = parts["step"], int(parts["item"])
    point = newest_position(program, name, known)
    run = address_of(program, known, point)
    node = program.node(path_of(run))
    if not isinstance(node, Step) or node.for_each is None:
        raise PositionRefused(FIELD, said, f"{name!r} is no for_each; name the step alone")
    turn = known.turn(run)
    width = turn.width if turn is not None else 0
    if not 1 <= number <= width:
        have = f"its items are {name}#1 to {name}#{width}" if width else "it has no items yet"
        raise PositionRefused(FIELD, said, have)
    return run, Item(run, number)
