"""Draws a session: its program with the states of the newest runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.compiler.flow import compile_flow
from app.domain.ids import SessionRef
from app.domain.program import Loop, Node, Program, Step
from app.domain.records import StepRecord, TurnRecord
from app.errors import SessionUnknown
from app.queries.progress.program_shape import shape_of
from app.redaction import without_keys
from app.store.store import Store
from leadhand.drawing.layout import layout_of
from leadhand.drawing.plain_text import to_text
from leadhand.drawing.shape import NESTED, Mark
from leadhand.drawing.svg import to_svg
from leadhand.flows.documents import FlowDocument


class Drawings:
    """Raises SessionUnknown for ids that are not there, StoreAway while Redis does not answer."""

    def __init__(
        self,
        store: Store,
        ref_of: Callable[[str], SessionRef],
        program: Callable[[str], Program],
    ) -> None:
        self._store = store
        self._ref = ref_of
        self._program = program

    def svg(self, session: str) -> str:
        """Returns an SVG drawing of a session's program, with the states of the newest runs."""
        ref, program = self._find(session)
        layout = layout_of(shape_of(program, dict(self._marks(ref, program))))
        return without_keys(to_svg(layout, f"session {session}"))

    def text(self, session: str, width: int) -> str:
        """Returns a text drawing of a session's program and states, in lines of at most `width`."""
        ref, program = self._find(session)
        lines = to_text(shape_of(program, dict(self._marks(ref, program))), width)
        return without_keys("\n".join(lines) + "\n")

    def flow_svg(self, document: FlowDocument) -> str:
        """Returns an SVG drawing of a flow's definition, without states. Raises InvalidDocument."""
        # The shape does not depend on the inputs that a run must give.
        inputs = {name: "[]" if text is None else text for name, text in document.inputs.items()}
        program = compile_flow(document.model_copy(update={"inputs": inputs}))
        return without_keys(to_svg(layout_of(shape_of(program, {})), f"flow {document.name}"))

    def _find(self, session: str) -> tuple[SessionRef, Program]:
        ref = self._ref(session)
        found = self._store.values(ref, "session", ["program"])
        if "program" not in found:
            raise SessionUnknown(session)
        return ref, self._program(found["program"])

    def _marks(self, ref: SessionRef, program: Program) -> Iterator[tuple[str, Mark]]:
        yield from self._block(ref, program.body, "", "", NESTED)

    def _block(
        self, ref: SessionRef, nodes: tuple[Node, ...], prefix: str, block: str, deep: int
    ) -> Iterator[tuple[str, Mark]]:
        """The states of the nodes of one block instance: three reads, however many they are."""
        places = {node.id: f"{block}/{node.id}" if block else node.id for node in nodes}
        runs = self._store.values(ref, "runs", list(places.values()))
        turn_ids = {
            node.id: f"{places[node.id]}~{runs.get(places[node.id], 1)}"
            for node in nodes
            if isinstance(node, Loop) or node.for_each is not None
        }
        addresses = {
            name: f"{place}~{run}" if (run := int(runs.get(place, 1))) > 1 else place
            for name, place in places.items()
            if name not in turn_ids
        }
        turns = self._store.turns(ref, list(turn_ids.values())) if turn_ids else {}
        steps = self._store.steps(ref, list(addresses.values())) if addresses else {}
        for node in nodes:
            if node.id in turn_ids:
                turn = turns.get(turn_ids[node.id])
                yield prefix + node.id, _turn_mark(node, turn)
                if isinstance(node, Loop) and turn is not None and turn.iteration and deep > 0:
                    inside = f"{turn_ids[node.id]}[{turn.iteration}]"
                    path = f"{prefix}{node.id}/"
                    yield from self._block(ref, node.body, path, inside, deep - 1)
            else:
                yield prefix + node.id, _step_mark(steps.get(addresses[node.id]))


def _step_mark(record: StepRecord | None) -> Mark:
    if record is None:
        return Mark()
    note = f"attempt {record.attempt}" if record.attempt > 1 else ""
    if record.state == "succeeded" and record.verdict == "retry":
        return Mark("retry", note)
    return Mark(record.state, note)


def _turn_mark(node: Step | Loop, turn: TurnRecord | None) -> Mark:
    if turn is None:
        most = f"at most {node.max_iterations} times" if isinstance(node, Loop) else "for each item"
        return Mark("pending", most)
    state = {"accept": "succeeded", "skipped": "skipped"}.get(turn.verdict or "", "failed")
    state = state if turn.state == "closed" else "running"
    if not isinstance(node, Loop):
        return Mark(state, f"{turn.width} item" + ("" if turn.width == 1 else "s"))
    run = f", run {turn.run}" if turn.run > 1 else ""
    verdict = f", {turn.verdict}" if turn.verdict else ""
    return Mark(state, f"iteration {turn.iteration} of {turn.max}{run}{verdict}")
