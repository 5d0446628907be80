"""The identity of the store that a worker serves, in memory shared with its pool processes."""

from __future__ import annotations

import multiprocessing

from app.store.identity import Identity


class ServedStore:
    """Written by the parent's store guard, read by every process forked after its creation.

    The guard of a pool process uses it as its memory, to compare with what the parent knows.
    """

    place: str | None = None

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._id = context.Array("c", 32, lock=False)
        self._sweeps = context.Value("q", 0, lock=False)
        self._closed = context.Value("b", 0, lock=False)

    def update(self, identity: Identity | None) -> None:
        """Set the store that this worker serves; None stops claims until one is accepted."""
        if identity is not None:
            self._id.value = identity.id.encode()
            self._sweeps.value = identity.sweeps
        self._closed.value = int(identity is None)

    def is_closed(self) -> bool:
        """Whether Redis holds a store that was not accepted."""
        return bool(self._closed.value)

    def expected(self) -> Identity | None:
        """Return the identity that each new connection must match; None before the first."""
        return self.read()

    def read(self) -> Identity | None:
        """Return the store identity that the host's processes share; None if there is none yet."""
        id_ = self._id.value.decode()
        return Identity(id_, self._sweeps.value) if id_ else None

    def write(self, identity: Identity) -> None:
        """Do nothing: only the parent writes, with `update`."""
