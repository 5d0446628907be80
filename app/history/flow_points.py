"""Maps steps of a flow's file to nodes of its program (pure)."""

from __future__ import annotations

import re

from app.domain.program import Loop, Program

_NUMBERS = re.compile(r"\[(\d+)\]")
_SEGMENT = re.compile(r"^(\d+)(\[\d+\])?$")


def is_flow(program: Program) -> bool:
    """Whether the program was compiled from a flow."""
    return any(node.origin is not None for node in program.body)


def steps_at(program: Program, segments: list[str]) -> list[str]:
    """Returns paths of the steps in a flow's file at zero-based positions; one per branch of `if`.

    The steps in a branch of an `if` are counted beneath it: `2/0` is the first step of a branch of
    the third step.
    """
    wanted = [match.group(1) for match in map(_SEGMENT.match, segments) if match]
    found = [node.origin.path for _, node in program.walk() if node.origin is not None]
    return list(dict.fromkeys(path for path in found if _NUMBERS.findall(path) == wanted))


def end_of(program: Program, origin: str) -> str:
    """Returns the path of the last program node that a step of the flow's file was compiled to."""
    made = [
        (path, node, node.origin.path)
        for path, node in program.walk()
        if node.origin is not None and (node.origin.path + ".").startswith(origin + ".")
    ]
    first, node, _ = made[0]
    if isinstance(node, Loop):
        return first
    block = first.rpartition("/")[0]
    return next(path for path, _, _ in reversed(made) if path.rpartition("/")[0] == block)


def start_of(program: Program, origin: str) -> str:
    """Returns the path of the first node made from the flow step at a path like `steps[2]`."""
    return next(path for path, node in program.walk() if node.origin and node.origin.path == origin)


def with_turns(program: Program, path: str, segments: list[str]) -> list[str] | None:
    """Adds the iterations in `segments` to the names of a node's path; None if one fits no loop.

    The steps of a flat loop are in the same list as the loop: an iteration that is named at one of
    them belongs to the loop.
    """
    matches = [match for match in map(_SEGMENT.match, segments) if match]
    numbers = [match.group(1) for match in matches]
    turns = {depth: match.group(2) for depth, match in enumerate(matches) if match.group(2)}
    names = path.split("/")
    loops = _loops_around(program, names)
    for at, place in loops.items():
        if numbers[: len(place)] == place:
            names[at] += turns.pop(len(place) - 1, "")
    for at, place in reversed(loops.items()):
        depth = len(place) - 1
        if numbers[:depth] == place[:depth] and numbers[depth] != place[depth]:
            names[at] += turns.pop(depth, "")
    return None if turns else names


def _loops_around(program: Program, names: list[str]) -> dict[int, list[str]]:
    """The positions in the file of the loops around a node."""
    nodes = [program.node("/".join(names[: at + 1])) for at in range(len(names))]
    return {
        at: _NUMBERS.findall(node.origin.path)
        for at, node in enumerate(nodes)
        if isinstance(node, Loop) and node.origin is not None
    }
