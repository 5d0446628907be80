"""The services of an embedded stack, each restarted with back-off when it dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from leadhand.local import state_dir
from leadhand.local.errors import EmbeddedError
from leadhand.local.guarded_process import GuardedProcess

_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 10.0
#: Seconds after which a service counts as started, so that the back-off is reset.
_RAN_WELL_S = 30.0


class Service(Protocol):
    """A process that can be restarted and stopped."""

    @property
    def log(self) -> Path:
        """Return the path of the log file of the process."""

    def relaunch(self) -> None:
        """Start the process again."""

    def has_ended(self) -> bool:
        """Whether the process has ended, or was never started."""

    def output(self) -> str:
        """Return the end of what the process has written since it was last started."""

    def stop(self, is_urgent: Callable[[], bool]) -> None:
        """Stop the process and wait for its end, only a moment if that is urgent and harmless."""


class Program:
    """A service that is a command with an environment; -1 leaves the umask as it is."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        home: Path,
        env: Mapping[str, str],
        stop_s: float,
        umask: int = -1,
    ) -> None:
        self._command = command
        self._umask = umask
        self._home = home
        self._env = env
        self._stop_s = stop_s
        self._process: GuardedProcess | None = None
        self._log_began = 0
        self.log = home / "log" / f"{name}.log"

    def relaunch(self) -> None:
        """Start the program's process."""
        self._log_began = state_dir.size(self.log)
        # Run in the state folder: a server may read settings from its current folder.
        self._process = GuardedProcess(
            self._command, cwd=self._home, env=self._env, log=self.log, umask=self._umask
        )

    def has_ended(self) -> bool:
        """Whether the process has ended, or was never started."""
        return self._process is None or self._process.exit_code is not None

    def output(self) -> str:
        """Return the end of what the process has written since it was last started."""
        return state_dir.tail(self.log, since=self._log_began)

    def ask_to_end(self) -> None:
        """Send SIGTERM to the process without waiting."""
        if self._process:
            self._process.ask_to_end()

    def stop(self, is_urgent: Callable[[], bool]) -> None:
        """Stop the process; kill it if it does not end in time, or if its end is urgent."""
        if self._process:
            self._process.end(within_s=self._stop_s, is_urgent=is_urgent)


class RestartedService:
    """Restarts one service when it ends; time is an argument."""

    def __init__(self, name: str, service: Service, *, began_s: float) -> None:
        self.name = name
        self.service = service
        self.ends_in_a_row = 0
        self._began_s = began_s
        self._due_s: float | None = None

    def check(self, now_s: float) -> str | None:
        """Restart the service with back-off once it has ended; return a message or None."""
        if self._due_s is not None:
            return self._start(now_s) if now_s >= self._due_s else None
        if not self.service.has_ended():
            return None
        if now_s - self._began_s > _RAN_WELL_S:
            self.ends_in_a_row = 0
        return f"{self.name} has ended; {self._schedule_restart(now_s)}"

    def _start(self, now_s: float) -> str:
        try:
            self.service.relaunch()
        except (EmbeddedError, OSError) as error:  # such as a full disk, which may be freed later
            return f"{self.name} cannot be started: {error}; {self._schedule_restart(now_s)}"
        self._began_s, self._due_s = now_s, None
        return f"{self.name} is restarted"

    def _schedule_restart(self, now_s: float) -> str:
        delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(self.ends_in_a_row, 10))
        self.ends_in_a_row += 1
        self._due_s = now_s + delay_s
        return f"it is restarted in {delay_s:g} s"
