"""Tells launchers when the leases end for which their processes work."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable

#: Seconds between two checks of the lease.
EVERY_S = 0.2
#: A warm process is notified of a later end if the one it knows is less than so many seconds ahead.
#: So one whose calls take milliseconds is notified every half minute, not twice for each call.
SPARE_S = 5.0
#: A process whose lease ends within so many seconds is given no new work: it may be killed already.
LAST_S = 1.0


def renew(lifeline: int, until: float) -> None:
    """Writes the new end of the lease to the pipe of a command's launcher; ignores errors."""
    with contextlib.suppress(OSError):  # the launcher ended, or is frozen and does not read
        os.write(lifeline, f"{until!r}\n".encode())


class WarmLease:
    """What the launcher of a warm process knows: the end of its calls' leases, or an earlier time.

    The launcher kills the process then, so an end that is too early costs a frozen worker a call,
    and one that is too late would break the lease.
    """

    def __init__(self, lifeline: int) -> None:
        self._lifeline = lifeline
        #: On the monotonic clock; infinite while the launcher knows of no lease.
        self.known = float("inf")

    def limit(self, until: float, *, exactly: bool = False) -> None:
        """Let the launcher kill the process at this time; unless `exactly`, possibly earlier."""
        if until < self.known or (until > self.known and (exactly or self._is_near(SPARE_S))):
            self._send(until)

    def rest(self) -> None:
        """Remove the time limit of the process, so that it may stay idle."""
        if self.is_limited:
            self._send(float("inf"))

    def rest_if_near(self) -> None:
        """Remove the time limit of the idle process if that time is near."""
        if self._is_near(SPARE_S):
            self.rest()

    @property
    def is_limited(self) -> bool:
        """Whether the launcher has a time at which it kills the process."""
        return self.known != float("inf")

    @property
    def is_over(self) -> bool:
        """Whether the launcher has killed the process, or may do it at any moment."""
        return self._is_near(LAST_S)

    def _is_near(self, seconds: float) -> bool:
        return self.known - time.monotonic() < seconds

    def _send(self, until: float) -> None:
        self.known = until
        renew(self._lifeline, until)


class LeaseRenewal:
    """Owns the writing end of a lifeline: renews over it, and closes it once.

    It renews from a thread that nothing else can block.
    """

    def __init__(self, lifeline: int, until: Callable[[], float], *, sent: float) -> None:
        self._lifeline = lifeline
        self._until = until
        #: The end of the lease that the launcher knows.
        self._sent = sent
        self._lock = threading.Lock()
        self._over = threading.Event()

    def start(self, cancel: threading.Event) -> None:
        """Start a thread that renews the lease until the process ends or `cancel` is set.

        The loop that reads the output cannot do it: a write to a lost file server may block it.
        """
        if self._sent != float("inf"):
            name = "renew lease"
            threading.Thread(target=self._run, args=(cancel,), name=name, daemon=True).start()

    def cut(self) -> None:
        """Close the pipe to the launcher, which then ends its process tree."""
        self._over.set()
        with self._lock:
            if self._lifeline >= 0:
                os.close(self._lifeline)
                self._lifeline = -1

    def _run(self, cancel: threading.Event) -> None:
        while not self._over.wait(EVERY_S) and not cancel.is_set():
            until = self._until()
            with self._lock:  # once closed, the descriptor may be that of another file
                if until != self._sent and self._lifeline >= 0:
                    self._sent = until
                    renew(self._lifeline, until)
