"""The real engine on a real store, with nobody there to do the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.engine import Engine
from app.keys import SessionRef
from app.program import Program
from app.records import Hint
from app.settings import Settings
from app.store import Store, connect
from app.transitions import Standing
from leadhand.documents import LoopDocument


class NobodyThere:
    """Hints come to nobody; the sweep would send them again."""

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        pass

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        return {}

    def strays(
        self, gone: Callable[[str, Sequence[str]], set[str]], *, drop: bool
    ) -> Sequence[Standing]:
        return []


def silent_engine(
    url: str, *, clock: Callable[[], int] | None = None, **settings: object
) -> Engine:
    store = Store(connect(url), clock=clock)
    return Engine(store, NobodyThere(), Settings.model_validate(settings))


def loop(**more: object) -> LoopDocument:
    """A loop whose steps nobody carries out."""
    given = {"task": "x", "doer": {"command": "true"}, "checkers": ["true"], **more}
    return LoopDocument.model_validate(given)
