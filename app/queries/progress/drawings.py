"""Draws a session: its program, and the path that it took."""

from __future__ import annotations

from collections.abc import Callable

from app.compiler.flow import compile_flow
from app.domain.ids import SessionRef
from app.domain.program import Program
from app.domain.states import ENDED
from app.queries.progress.program_shape import shape_of
from app.queries.progress.taken_path import TakenPath
from app.redaction import without_keys
from app.store.store import Store
from leadhand.drawing.layout import layout_of
from leadhand.drawing.plain_text import to_text
from leadhand.drawing.shape import Block
from leadhand.drawing.svg import to_svg
from leadhand.errors import SessionUnknown
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
        """Returns an SVG drawing of a session's program, with the path that it took."""
        return without_keys(to_svg(layout_of(self._shape(session)), f"session {session}"))

    def text(self, session: str, width: int) -> str:
        """Returns a text drawing of a session's path, in lines of at most `width` characters."""
        return without_keys("\n".join(to_text(self._shape(session), width)) + "\n")

    def flow_svg(self, document: FlowDocument) -> str:
        """Returns an SVG drawing of a flow's definition, without states. Raises InvalidDocument."""
        # The shape does not depend on the inputs that a run must give.
        inputs = {name: "[]" if text is None else text for name, text in document.inputs.items()}
        program = compile_flow(document.model_copy(update={"inputs": inputs}))
        return without_keys(to_svg(layout_of(shape_of(program, {})), f"flow {document.name}"))

    def _shape(self, session: str) -> Block:
        ref = self._ref(session)
        found = self._store.values(ref, "session", ["program", "status"])
        if "program" not in found:
            raise SessionUnknown(session)
        program = self._program(found["program"])
        has_ended = found.get("status", "") in ENDED
        return shape_of(program, TakenPath(self._store, ref).marks(program, has_ended=has_ended))
