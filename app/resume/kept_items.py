"""Finds the items of a for_each that its next run does not repeat (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from app.domain.program import Node, Step, needs_of
from app.history.items import Item
from app.history.points import Known, newest
from app.resume.rewind import KeptItems

#: Items in these states have an outcome with which the list can go on.
_DONE = frozenset({"succeeded", "skipped"})


def kept_items(
    body: Sequence[Node],
    again: Collection[str],
    known: Known,
    block: str = "",
    *,
    redo: Item | None = None,
) -> dict[str, KeptItems]:
    """Returns, by name, what the for_each nodes of a block keep that are among those to run again.

    A list is kept unless it or the arguments of its items may change because a node that it needs
    runs again, too. Its items that are done are kept, but if all are, all run again: a user
    asked for it. `redo` is one that runs again although it is done.
    """
    needs, found = needs_of(tuple(body)), dict[str, KeptItems]()
    for node in body:
        if not isinstance(node, Step) or node.for_each is None or node.id not in again:
            continue
        run = newest(known, node, block)
        if any(need in again for need in needs[node.id]):
            continue
        done = _done_items(known, run)
        items = tuple(item for item in done if redo != Item(run, item))
        width = _width(known, run)
        if width:
            found[node.id] = KeptItems(run, items if len(items) < width else ())
    return found


def _width(known: Known, run: str) -> int:
    turn = known.turn(run)
    return turn.width if turn is not None and turn.each else 0


def _done_items(known: Known, run: str) -> list[int]:
    addresses = [f"{run}#{item}" for item in range(1, _width(known, run) + 1)]
    records = known.steps(addresses) if addresses else {}
    return [
        item
        for item, address in enumerate(addresses, 1)
        if address in records and records[address].state in _DONE
    ]


def kept_addresses(keeps: Mapping[str, KeptItems]) -> frozenset[str]:
    """Returns the addresses of the outcomes that are kept."""
    return frozenset(f"{kept.run}#{item}" for kept in keeps.values() for item in kept.items)
