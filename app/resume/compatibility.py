"""Checks whether a session can continue with another program (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.domain.addresses import block_of, path_of
from app.domain.program import Loop, Node, Program, Step, needs_of, sinks_of
from app.domain.records import TurnRecord
from app.history.points import At, Known, is_done, newest
from app.resume.plan import used_its_iterations
from app.resume.rewind import Rewind

#: Fields of a started step that the new program may change: its inputs and limits.
_FREE = {"inputs", "label", "origin", "timeout_s", "retry", "limits", "critical", "queue", "quick",
         "folder", "conversation", "needs"}  # fmt: skip

#: The name of a block's end, which waits for the block's sinks.
_END = ""


def can_switch_in_place(
    old: Program,
    new: Program,
    steps: Iterable[str],
    turns: Mapping[str, TurnRecord],
    known: Known,
) -> bool:
    """Whether a stopped session can continue with the new program without repeating steps.

    In each open block, the nodes that have started must be the first ones of the new block, and all
    others must still be reachable. Closed blocks, and nodes that have not started, may differ.
    """
    begun: dict[str, set[str]] = {}
    for address in (*steps, *(turn for turn in turns if turn)):
        begun.setdefault(block_of(address), set()).add(path_of(address).rpartition("/")[2])
    open_turns = {id_: turn for id_, turn in turns.items() if not id_ or _is_open(turn)}
    blocks = {f"{id_}[{t.iteration}]" if id_ else "": t for id_, t in open_turns.items()}
    return all(
        _has_same_start(old, new, path_of(block), begun.get(block, set()))
        # No node starts in a turn that is ending.
        and (turn.state != "open" or _will_be_reached(old, new, block, known))
        for block, turn in blocks.items()
    )


def _is_open(turn: TurnRecord) -> bool:
    return turn.state != "closed" and not turn.each


def _has_same_start(old: Program, new: Program, path: str, begun: set[str]) -> bool:
    was, now = _body(old, path), _body(new, path)
    if was is None or now is None:
        return False
    before, after = needs_of(was), needs_of(now)
    done = [node for node in was if node.id in begun]
    return len(done) <= len(now) and all(
        node.id == other.id and _shape(node) == _shape(other) and before[node.id] == after[node.id]
        for node, other in zip(done, now, strict=False)
    )


def _will_be_reached(old: Program, new: Program, block: str, known: Known) -> bool:
    """Whether every node of an open block that has not started will still be released.

    Nodes are released when one of their needs ends, and arrivals are recorded under the program of
    that time. A node whose needs have all ended already would wait for ever. The same may happen if
    other needs have ended than have arrived.
    """
    was, now = _body(old, path_of(block)), _body(new, path_of(block))
    if was is None or now is None:
        return False
    begun = {node.id for node in (*was, *now) if _has_record(known, node, block)}
    if begun - {node.id for node in was}:
        return False  # its record is from an earlier program
    ended = {node.id for node in was if _has_ended(known, node, block)}
    before = needs_of(was) | {_END: sinks_of(was)}
    after = needs_of(now) | {_END: sinks_of(now)}
    for name in (before.keys() | after.keys()) - begun:
        arrived = ended.intersection(before.get(name, ()))
        if arrived != ended.intersection(after.get(name, ())):
            return False
        if name in after and arrived == set(after[name]):
            return False
    return True


def _has_record(known: Known, node: Node, block: str) -> bool:
    address = newest(known, node, block)
    step = known.step(address) if isinstance(node, Step) else None
    return step is not None or known.turn(address) is not None


def _has_ended(known: Known, node: Node, block: str) -> bool:
    """Whether a node of an open block has ended, and so has arrived at its successors."""
    address = newest(known, node, block)
    turn = known.turn(address)
    if turn is not None:
        return turn.state == "closed"
    step = known.step(address) if isinstance(node, Step) else None
    return step is not None and step.state in ("succeeded", "failed", "skipped")


def explain_misfit(
    old: Program, new: Program, rewind: Rewind, known: Known, *, after: bool
) -> str | None:
    """Explains why the finished work does not fit the new program; None if it fits.

    `rewind` is the plan under the new program. Nodes that count as done must exist there with the
    same kind and the same needs. Without a named point (`after`), all finished nodes must count.
    Unfinished nodes may be changed or removed.
    """
    for block, kept, entered in _blocks(new, rewind):
        path = path_of(block)
        was, now = _body(old, path), _body(new, path)
        if was is None or now is None:
            return f"it is in the loop {path!r}, which is no longer there"
        for node in was:
            counts = node.id in kept or node.id == entered
            if counts or (not after and _holds_finished_work(known, node, block)):
                why = _misfit(node, was, now, f"{path}/{node.id}" if path else node.id)
                if why is not None:
                    return why
    return None


def _blocks(new: Program, rewind: Rewind) -> Iterable[tuple[str, set[str], str | None]]:
    """Yields each open block: its address, the nodes done in it, and the loop entered in it."""
    entered: list[str | None] = [*(level.node for level in rewind.levels), None]
    anew = {join.name for join in rewind.again}
    outermost = {node.id for node in new.body} - anew
    yield "", outermost, entered[0]
    for level, inner in zip(rewind.levels, entered[1:], strict=True):
        yield At(level.run, level.iteration).block, set(level.kept), inner


def _holds_finished_work(known: Known, node: Node, block: str) -> bool:
    """Whether a node holds finished work that would be repeated."""
    if is_done(known, node, block):
        return True
    turn = known.turn(newest(known, node, block)) if isinstance(node, Loop) else None
    if turn is None or turn.iteration == 0 or used_its_iterations(turn):
        return False
    assert isinstance(node, Loop)
    inside = f"{newest(known, node, block)}[1]"
    return turn.iteration > 1 or any(
        _holds_finished_work(known, inner, inside) for inner in node.body
    )


def _misfit(node: Node, was: tuple[Node, ...], now: tuple[Node, ...], here: str) -> str | None:
    other = next((one for one in now if one.id == node.id), None)
    what = f"loop {here!r} was entered" if isinstance(node, Loop) else f"step {here!r} is done"
    if other is None:
        return f"{what}, and is no longer there"
    if _shape(node) != _shape(other):
        return f"{what}, and has another kind now"
    before, needs = set(needs_of(was)[node.id]), needs_of(now)[node.id]
    if before != set(needs):
        new = next((need for need in needs if need not in before), None)
        return f"{what}, and now needs {new!r}" if new else f"{what}, and comes first now"
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
