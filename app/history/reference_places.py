"""Finds the records of the nodes that references name, from the innermost block outwards (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from app.domain.addresses import block_of, path_of, turn_of
from app.domain.program import Loop, Program
from app.domain.records import Grant
from app.domain.references import RESERVED, Reference, as_path, names_of
from app.errors import ReferenceUnresolved
from app.history.lineage import home_of


def has_turns(program: Program, place: str) -> bool:
    """Whether the node at an address is a loop or for_each, whose runs have iterations or items."""
    node = program.node(path_of(place))
    return isinstance(node, Loop) or node.for_each is not None


def may_run_again(program: Program, place: str) -> bool:
    """Whether a node can have several runs: a loop, a for_each, or an outermost node."""
    return "/" not in place or has_turns(program, place)


def places_of(program: Program, grant: Grant, wanted: Iterable[Reference]) -> dict[str, str]:
    """Maps the names of referenced nodes to their addresses, as the step with a grant sees them.

    Raises ReferenceUnresolved for a name that is not visible there.
    """
    places: dict[str, str] = {}
    for reference in wanted:
        if reference.word not in RESERVED:
            for name in names_of(reference):
                places[name] = _place(program, grant, name)
    return places


def _place(program: Program, grant: Grant, named: str) -> str:
    path = as_path(named)
    name = named if path is None else path.rpartition("/")[2]
    block = block_of(grant.address.partition("#")[0])
    while True:
        found = path_of(within(block, name))
        if found == path or (path is None and program.has(found)):
            return within(home_of(block, name, grant.origins), name)
        if not block:
            raise ReferenceUnresolved("${" + named + "}", grant.address)
        block = block_of(turn_of(block))


def within(block: str, name: str) -> str:
    """Returns the address of a node, `block/name`; the name alone in the outermost block ('')."""
    return f"{block}/{name}" if block else name


def newest_run(program: Program, place: str, run: int) -> str:
    """Appends a run number to a node's address, as `name~2`; a plain step's first run has none."""
    if has_turns(program, place) or run > 1:
        return f"{place}~{run}"
    return place
