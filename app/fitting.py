"""Pure: whether what a session has done so far fits another program, so that it can go on by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.positions import At, Known, is_done, newest
from app.program import Loop, Node, Program, Step, block_of, needs_of, path_of, sinks_of
from app.records import TurnRecord
from app.rewinding import Rewind, had_its_turns

#: What of a step may be another one, although it has begun: what it is told, and its limits.
_FREE = {"inputs", "label", "origin", "timeout_s", "retry", "limits", "critical", "queue", "quick",
         "folder", "conversation", "needs"}  # fmt: skip

#: What stands for the end of a block, which waits for all that nothing else waits for.
_END = ""


def goes_on_as_it_stands(
    old: Program,
    new: Program,
    steps: Iterable[str],
    turns: Mapping[str, TurnRecord],
    known: Known,
) -> bool:
    """Whether all that has begun in blocks that are still open is what the new ones begin with.

    Then a stopped session goes on where it stands, if all that has not begun will be reached from
    there. Blocks that are done with may be anything, and so may all that has not begun.
    """
    begun: dict[str, set[str]] = {}
    for address in (*steps, *(turn for turn in turns if turn)):
        begun.setdefault(block_of(address), set()).add(path_of(address).rpartition("/")[2])
    open_turns = {id_: turn for id_, turn in turns.items() if not id_ or _is_open(turn)}
    blocks = {f"{id_}[{t.iteration}]" if id_ else "": t for id_, t in open_turns.items()}
    return all(
        _begins_so(old, new, path_of(block), begun.get(block, set()))
        # Nothing more begins in one that is ending.
        and (turn.state != "open" or _will_be_reached(old, new, block, known))
        for block, turn in blocks.items()
    )


def _is_open(turn: TurnRecord) -> bool:
    return turn.state != "closed" and not turn.each


def _begins_so(old: Program, new: Program, path: str, begun: set[str]) -> bool:
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
    """Whether all in an open block that has not begun still waits for something to arrive.

    Only what ends makes others begin, and who has arrived is known by the program that it arrived
    under. So a node whose needs have all ended already would wait for ever; and so may one of which
    more, fewer or others have ended than have arrived at it.
    """
    was, now = _body(old, path_of(block)), _body(new, path_of(block))
    if was is None or now is None:
        return False
    begun = {node.id for node in (*was, *now) if _has_record(known, node, block)}
    if begun - {node.id for node in was}:
        return False  # an older program had it: who comes to it finds it done with
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
    """Whether it has arrived at what needs it: it ended, and its block is open nevertheless."""
    address = newest(known, node, block)
    turn = known.turn(address)
    if turn is not None:
        return turn.state == "closed"
    step = known.step(address) if isinstance(node, Step) else None
    return step is not None and step.state in ("succeeded", "failed", "skipped")


def why_unfit(
    old: Program, new: Program, rewind: Rewind, known: Known, *, after: bool
) -> str | None:
    """Why what is done does not fit the other program; None where it does.

    `rewind` is how the session would go on by it. What counts as done must be there, of the same
    kind, after the same steps. Without a point that somebody named (`after`), all that is done
    must count; what was not done may be anything, or be gone.
    """
    for block, kept, entered in _blocks(new, rewind):
        path = path_of(block)
        was, now = _body(old, path), _body(new, path)
        if was is None or now is None:
            return f"it is in the loop {path!r}, which is no longer there"
        for node in was:
            counts = node.id in kept or node.id == entered
            if counts or (not after and _is_begun(known, node, block)):
                why = _unfit(node, was, now, f"{path}/{node.id}" if path else node.id)
                if why is not None:
                    return why
    return None


def _blocks(new: Program, rewind: Rewind) -> Iterable[tuple[str, set[str], str | None]]:
    """Each block in which the session goes on: what counts as done there, and the loop entered."""
    levels = [level for level in rewind.levels if isinstance(level, dict)]
    entered: list[str | None] = [*(str(level["node"]) for level in levels), None]
    anew = {str(join["name"]) for join in rewind.again if isinstance(join, dict)}
    outermost = {node.id for node in new.body} - anew
    yield "", outermost, entered[0]
    for level, inner in zip(levels, entered[1:], strict=True):
        kept, iteration = level["kept"], level["iteration"]
        assert isinstance(kept, dict)
        assert isinstance(iteration, int)
        yield At(str(level["run"]), iteration).block, set(kept), inner


def _is_begun(known: Known, node: Node, block: str) -> bool:
    """Whether something is done in it that would be done again."""
    if is_done(known, node, block):
        return True
    turn = known.turn(newest(known, node, block)) if isinstance(node, Loop) else None
    if turn is None or turn.iteration == 0 or had_its_turns(turn):
        return False
    assert isinstance(node, Loop)
    inside = f"{newest(known, node, block)}[1]"
    return turn.iteration > 1 or any(_is_begun(known, inner, inside) for inner in node.body)


def _unfit(node: Node, was: tuple[Node, ...], now: tuple[Node, ...], here: str) -> str | None:
    other = next((one for one in now if one.id == node.id), None)
    what = f"loop {here!r} was entered" if isinstance(node, Loop) else f"step {here!r} is done"
    if other is None:
        return f"{what}, and is no longer there"
    if _shape(node) != _shape(other):
        return f"{what}, and is of another kind now"
    before, needs = set(needs_of(was)[node.id]), needs_of(now)[node.id]
    if before != set(needs):
        new = next((need for need in needs if need not in before), None)
        return (
            f"{what}, and {new!r} stands before it now" if new else f"{what}, and comes first now"
        )
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
