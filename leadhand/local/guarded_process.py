"""A child process with its descendants that ends when this process does (see process_guard)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from leadhand import process_guard

#: Seconds that a killed tree gets to end.
_VANISH_S = 15.0


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
            self._process.send_signal(signal.SIGTERM)

    def end(self, *, within_s: float) -> None:
        """Send SIGTERM to the process; kill its tree if it does not end in time."""
        self.ask_to_end()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.cut()

    def cut(self) -> None:
        """Kill the process and all its descendants."""
        self._process.send_signal(process_guard.CUT)
        self._process.wait(_VANISH_S)
