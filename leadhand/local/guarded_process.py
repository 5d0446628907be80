"""A child process with its descendants that ends when this process does (see process_guard)."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from leadhand import process_guard

#: Seconds that a killed tree gets to end.
_VANISH_S = 15.0
_LOOK_S = 0.01


class GuardedProcess:
    """A running command, with its output appended to a log."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
        read: Path = Path(os.devnull),
        pass_fds: Sequence[int] = (),
        umask: int = -1,
    ) -> None:
        self._asked = False
        with log.open("ab") as output, read.open("rb") as source:
            self._process = subprocess.Popen(  # noqa: S603 - an argv, no shell
                [*process_guard.command(), *command],
                cwd=cwd,
                env=env,
                stdin=source,
                stdout=output,
                stderr=output,
                pass_fds=pass_fds,
                umask=umask,
                start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
            )

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the process; None while it runs."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Send SIGTERM, only once: a second one makes a worker abandon its steps."""
        if not self._asked:
            self._asked = True
            self._send(signal.SIGTERM)

    def end(self, *, within_s: float, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """Send SIGTERM to the process; kill its tree if it does not end in time.

        The time is over, too, once `is_urgent` returns True.
        """
        self.ask_to_end()
        give_up = time.monotonic() + within_s
        while self.exit_code is None:
            if time.monotonic() >= give_up or is_urgent():
                self.cut()
                return
            time.sleep(_LOOK_S)

    def cut(self) -> None:
        """Kill the process and all its descendants."""
        self._send(process_guard.CUT)
        self._process.wait(_VANISH_S)

    def _send(self, number: int) -> None:
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)  # one that is stopped would not receive it
