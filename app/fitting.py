"""Pure: whether what a session has done so far fits another program, so that it can go on by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.program import Loop, Node, Program, Step, block_of, needs_of, path_of
from app.records import TurnRecord

#: What of a step may be another one, although it has begun: what it is told, and its limits.
_FREE = {"inputs", "label", "origin", "timeout_s", "retry", "limits", "critical", "queue", "quick",
         "folder", "conversation", "needs"}  # fmt: skip


def why_unfit(
    old: Program, new: Program, steps: Iterable[str], turns: Mapping[str, TurnRecord]
) -> str | None:
    """Why the other program cannot take over; None where it can.

    What has begun in a block that is still open must be what the new block begins with. Blocks
    that are done with may be anything, and so may all that has not begun.
    """
    begun: dict[str, set[str]] = {}
    for address in (*steps, *(turn for turn in turns if turn)):
        begun.setdefault(block_of(address), set()).add(path_of(address).rpartition("/")[2])
    blocks = ["", *(f"{id_}[{t.iteration}]" for id_, t in turns.items() if id_ and _is_open(t))]
    for block in sorted(blocks):
        why = _unfit_block(old, new, block, begun.get(block, set()))
        if why is not None:
            return why
    return None


def _is_open(turn: TurnRecord) -> bool:
    return turn.state != "closed" and not turn.each


def _unfit_block(old: Program, new: Program, block: str, begun: set[str]) -> str | None:
    path = path_of(block)
    was, now = _body(old, path), _body(new, path)
    if now is None:
        return f"it is in the loop {path!r}, which is no longer there"
    assert was is not None
    done = [node for node in was if node.id in begun]
    before, after = needs_of(was), needs_of(now)
    for number, node in enumerate(done):
        here = f"{path}/{node.id}" if path else node.id
        if number >= len(now):
            return f"step {here!r} has begun, and is no longer there"
        other = now[number]
        if other.id != node.id:
            return f"step {here!r} has begun, and {other.id!r} stands in its place now"
        if _shape(node) != _shape(other) or before[node.id] != after[node.id]:
            return f"step {here!r} has begun, and is of another kind now"
    return None


def _body(program: Program, path: str) -> tuple[Node, ...] | None:
    if not path:
        return program.body
    node = program.node(path) if program.has(path) else None
    return node.body if isinstance(node, Loop) else None


def _shape(node: Node) -> dict[str, object]:
    if isinstance(node, Step):
        return node.model_dump(exclude=_FREE)
    return {"kind": node.kind, "id": node.id, "given": node.given}
