"""A running command on a leash: it can be ended, and it ends when we do."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from leadhand import leash

#: How long a tree that was cut may take to vanish.
_VANISH_S = 15.0


class Leashed:
    """One command, started at once, with its output appended to a log."""

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
        with log.open("ab") as output, read.open("rb") as given:
            self._process = subprocess.Popen(  # noqa: S603 - an argv, no shell
                [*leash.command(), *command],
                cwd=cwd,
                env=env,
                stdin=given,
                stdout=output,
                stderr=output,
                pass_fds=pass_fds,
                start_new_session=True,  # Ctrl-C in a terminal is for who started us
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Ask once: a second time means "now" to a worker that finishes what it has begun."""
        if not self._asked:
            self._asked = True
            self._process.send_signal(signal.SIGTERM)

    def end(self, *, within_s: float) -> None:
        """Ask it to end; cut the leash on what has not ended in time."""
        self.ask_to_end()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.cut()

    def cut(self) -> None:
        """Kill it and all that descends from it."""
        self._process.send_signal(leash.CUT)
        self._process.wait(_VANISH_S)
