"""Runs a command under a named lock: renews it meanwhile, and kills the command if it is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.connect import tell
from leadhand.client.client import Client
from leadhand.errors import ApiAway, LeadhandError, Unavailable
from leadhand.settings import environment

if TYPE_CHECKING:
    from leadhand.models.views.shared import LockGrant

#: Signals that are passed on to the command.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The last seconds of a grant that was not renewed: the command is asked to end, then killed.
_LAST_S = 2.0


class _Lost(Exception):
    """The grant is over, or ends before it can be renewed."""


def run_under_lock(
    url: str,
    token: str | None,
    session: str,
    name: str,
    command: Sequence[str],
    *,
    ttl_s: float,
    wait_s: float | None,
) -> int:
    """Runs a command under a named lock, kills it if that is lost; returns its exit code."""
    with Client(url, token, say=tell) as client:
        grant = client.acquire_lock(session, name, ttl_s=ttl_s, wait_s=wait_s)
        try:
            # A renewal must not outlast the grant: this client gives up early.
            with Client(url, token, timeout_s=ttl_s / 4, patience_s=0) as renewing:
                # The grant may be older than its response.
                grant = renewing.renew_lock(session, grant, ttl_s=ttl_s)
                return _run(_Renewal(renewing, session, grant, ttl_s), command)
        finally:
            with suppress(LeadhandError):
                client.release_lock(session, grant)


class _Renewal:
    """Renews a grant, and knows until when it is valid at least."""

    def __init__(self, client: Client, session: str, grant: LockGrant, ttl_s: float) -> None:
        self.grant = grant
        self.ttl_s = ttl_s
        self._client = client
        self._session = session
        self.until = time.monotonic() + ttl_s - _LAST_S

    def renew(self) -> None:
        """Renew the grant. Raises _Lost."""
        sent = time.monotonic()
        try:
            self._client.renew_lock(self._session, self.grant, ttl_s=self.ttl_s)
            self.until = sent + self.ttl_s - _LAST_S
        except (ApiAway, Unavailable) as error:
            if time.monotonic() >= self.until:
                raise _Lost(str(error)) from None
        except LeadhandError as error:
            raise _Lost(str(error)) from None

    @property
    def next_s(self) -> float:
        """Seconds until the next renewal."""
        return max(0.1, min(self.ttl_s / 3, self.until - time.monotonic()))


def _run(renewal: _Renewal, command: Sequence[str]) -> int:
    env = environment() | {
        "LEADHAND_LOCK": renewal.grant.name,
        "LEADHAND_LOCK_FENCE": str(renewal.grant.fence),
    }
    # At a terminal the command stays in the foreground's process group, so that it can read.
    group = None if sys.stdin.isatty() else 0
    try:
        process = subprocess.Popen(command, env=env, process_group=group)  # noqa: S603 - the user's
    except OSError as error:
        raise click.ClickException(f"{command[0]} cannot be started: {error.strerror}") from None
    with _signals_passed_on(process, has_group=group is not None):
        while True:
            try:
                code = process.wait(renewal.next_s)
            except subprocess.TimeoutExpired:
                pass
            else:
                return code if code >= 0 else 128 - code
            try:
                renewal.renew()
            except _Lost as error:
                _kill(process, has_group=group is not None)
                text = f"lock {renewal.grant.name!r} is lost, so the command was killed: {error}"
                raise click.ClickException(text) from None


def _kill(process: subprocess.Popen[bytes], *, has_group: bool) -> None:
    _send(process, signal.SIGTERM, has_group=has_group)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_S / 2)
    _send(process, signal.SIGKILL, has_group=has_group)
    process.wait()


def _send(process: subprocess.Popen[bytes], number: int, *, has_group: bool) -> None:
    with suppress(ProcessLookupError):
        if has_group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


@contextmanager
def _signals_passed_on(process: subprocess.Popen[bytes], *, has_group: bool) -> Iterator[None]:
    """Sends signals on to the command, whose end then ends this process."""

    def pass_on(number: int, frame: Any) -> None:  # noqa: ARG001 - the signature of a handler
        if has_group or number != signal.SIGINT:  # a terminal sends it to its whole group
            _send(process, number, has_group=has_group)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
