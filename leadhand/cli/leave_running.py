"""Ends a waiting command on SIGTERM, and says that its sessions continue."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from leadhand.cli.connect import tell
from leadhand.cli.exit_codes import HALTED


class Terminated(SystemExit):
    """SIGTERM arrived while the command waited."""


@contextmanager
def leaving_running(sessions: Sequence[str], state: str = "continues") -> Iterator[None]:
    """Within its `with` block, SIGTERM prints how to follow the sessions, and exits.

    `state` is the predicate of a sentence on a session.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread can handle signals.
        return
    before = signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        yield
    except Terminated:
        for session in sessions:
            tell(f"session {session} {state}; follow it with: leadhand watch {session}")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def following(session: str) -> Iterator[None]:
    """Within its `with` block, SIGTERM or Ctrl-C exits and prints that the session continues."""
    try:
        with leaving_running([session]):
            yield
    except KeyboardInterrupt:
        tell(f"session {session} continues; stop it with: leadhand stop {session}")
        raise SystemExit(HALTED) from None


def _raise_terminated(_number: int, _frame: FrameType | None) -> None:
    raise Terminated(HALTED)
