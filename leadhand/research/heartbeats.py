"""Heartbeats of attempts, from a thread: a tool may block the event loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from leadhand.client.client import Client
from leadhand.errors import LeadhandError, Refused
from leadhand.models.local_work import BeatWork
from leadhand.models.views.work import WorkGrant

#: Heartbeats within one lease, and the longest pause between two: a stop and the time limit of a
#: workflow reach a tool with a heartbeat.
_PER_LEASE, _LONGEST_S = 3, 2.0

#: Called with the order of a beat (stop, cancel, lost) for the attempt of this nonce.
OnOrder = Callable[[str, str], None]


class Heartbeats:
    """Extends the leases of all attempts in hand, until it is closed."""

    def __init__(
        self, client: Client, session: str, on_order: OnOrder, logger: logging.Logger
    ) -> None:
        self._client = client
        self._session = session
        self._on_order = on_order
        self._logger = logger
        self._attempts: dict[str, BeatWork] = {}
        self._pause_s = _LONGEST_S
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="leadhand-beats", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout=_LONGEST_S)

    def keep(self, grant: WorkGrant) -> None:
        """Start to send heartbeats for an attempt, from another thread, until `drop`."""
        beat = BeatWork(address=grant.address, fence=grant.fence, nonce=grant.nonce)
        with self._changed:
            self._attempts[grant.nonce] = beat
            shorter_s = min(_LONGEST_S, grant.lease_s / _PER_LEASE)
            if shorter_s < self._pause_s:
                self._pause_s = shorter_s
                self._changed.notify()

    def drop(self, nonce: str) -> None:
        """Stop sending heartbeats for an attempt."""
        with self._changed:
            self._attempts.pop(nonce, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                # `keep` wakes it, too: a pause that has begun may be longer than a new lease.
                if not self._is_closed:
                    self._changed.wait(self._pause_s)
                if self._is_closed:
                    return
                attempts = dict(self._attempts)
            for nonce, beat in attempts.items():
                self._beat(nonce, beat)

    def _beat(self, nonce: str, beat: BeatWork) -> None:
        try:
            order = self._client.beat_work(self._session, beat).order
        except Refused as error:
            self._logger.warning("heartbeat refused: %s", error)
            order = "lost"  # the session was deleted, or the token is void
        except LeadhandError as error:
            self._logger.warning("heartbeat not sent: %s", error)
            return
        if order != "ok":
            self._on_order(nonce, order)
