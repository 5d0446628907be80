"""The real engine on a real store, without workers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence

from redis import Redis
from redis.connection import ConnectionInterface

from app.core.addresses import SessionRef
from app.core.program import Program
from app.core.records import Hint, QueueDepth
from app.engine import Engine
from app.settings import Settings
from app.store.store import Store, connect
from leadhand.models.documents import LoopDocument

#: The token of the operator, and the secret of the installation.
OPERATOR = "the operator's own"
SECRET = "signs capabilities"


class NobodyThere:
    """Drops hints; the sweep would send them again."""

    def __init__(self, depths: Mapping[str, int] | None = None) -> None:
        self._depths = depths or {}

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        pass

    def publish_all(self, batch: Sequence[tuple[SessionRef, Program, Sequence[Hint]]]) -> None:
        for ref, program, hints in batch:
            self.publish(ref, program, hints)

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        return {name: self._depths[name] for name in queues if name in self._depths}

    def strays(
        self, gone: Callable[[str, Sequence[str]], set[str]], *, drop: bool
    ) -> Sequence[QueueDepth]:
        return []


def silent_engine(
    url: str,
    *,
    clock: Callable[[], int] | None = None,
    depths: Mapping[str, int] | None = None,
    **settings: object,
) -> Engine:
    client = connect(url)
    store = Store(client, clock=clock)
    engine = Engine(store, NobodyThere(depths), Settings.model_validate(settings))
    # An open socket that the garbage collector finds would fail the test that runs at that moment.
    # Tests keep the engine or only its store, so that the store decides when the sockets close.
    weakref.finalize(store, _close, client, store._scripts._idle)
    return engine


def _close(client: Redis, idle: list[tuple[int, float, ConnectionInterface]]) -> None:
    client.close()
    for _, _, connection in idle:
        connection.disconnect()


def engine_without_store() -> Engine:
    """An engine whose Redis refuses every connection."""
    return silent_engine("redis://127.0.0.1:9/0")


def loop(**more: object) -> LoopDocument:
    """A loop whose steps no worker carries out."""
    given = {
        "task": "x",
        "doer": {"command": "true"},
        "baseline": False,
        "checkers": ["true"],
        **more,
    }
    return LoopDocument.model_validate(given)
