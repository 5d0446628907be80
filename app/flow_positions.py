"""Pure: where a step of a flow's file stands in the program that was made of it."""

from __future__ import annotations

import re

from app.program import Loop, Program

_NUMBERS = re.compile(r"\[(\d+)\]")
_SEGMENT = re.compile(r"^(\d+)(\[\d+\])?$")


def is_flow(program: Program) -> bool:
    """Whether the program was made of a flow."""
    return any(node.origin is not None for node in program.body)


def steps_at(program: Program, segments: list[str]) -> list[str]:
    """The steps of the file at these zero-based positions: one, none, or one in each branch.

    What an `if` runs counts from its own position on: `2/0` is the first step of a branch of the
    third step.
    """
    wanted = [match.group(1) for match in map(_SEGMENT.match, segments) if match]
    found = [node.origin.path for _, node in program.walk() if node.origin is not None]
    return list(dict.fromkeys(path for path in found if _NUMBERS.findall(path) == wanted))


def end_of(program: Program, origin: str) -> str:
    """The node that ends a step of the file: the last of those that it was made into."""
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


def with_turns(path: str, segments: list[str]) -> list[str]:
    """The node's path, with the iterations that were named.

    >>> with_turns("chapters/pages/page", ["0[2]", "1", "0"])
    ['chapters[2]', 'pages', 'page']
    """
    names = path.split("/")
    turns = [match.group(2) or "" for match in map(_SEGMENT.match, segments) if match]
    if len(turns) != len(names):
        return names  # a flat loop's steps are counted in the list of the loop itself
    return [name + turn for name, turn in zip(names, turns, strict=True)]
