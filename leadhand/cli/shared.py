"""`leadhand kv` and `leadhand lock`: values and named locks of a tree of sessions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.connect import shows, tell
from leadhand.cli.group import Group
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.shared import LockGrant, LockOwnerView, LockView

#: Signals that are passed on to the command.
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The last seconds of a grant that was not renewed: the command is asked to end, then killed.
_LAST_S = 2.0
#: Keys per request, the most that a page may have.
_PAGE = 500
_if_version = click.option(
    "--if-version", type=click.IntRange(0), metavar="N",
    help="Only if this is the version as it is now; 0: only if there is no value.",
)  # fmt: skip


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
    from leadhand.client.client import Client
    from leadhand.errors import LeadhandError

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
        from leadhand.errors import ApiAway, LeadhandError, Unavailable

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
    from leadhand.settings import environment

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


def _named_or_own(_: click.Context, __: click.Parameter, session: str | None) -> str:
    """The given session id, else LEADHAND_SESSION's. Raises ClickException without both."""
    from leadhand.settings import ClientSettings

    session = session or ClientSettings.from_env().session
    if session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: name a session of the tree with --session ID"
        )
    return session


_session = click.option(
    "--session", metavar="ID", callback=_named_or_own,
    help="A session of the tree; by default the own one.",
)  # fmt: skip


@click.group("kv", cls=Group)
def kv_command() -> None:
    """Share values within a tree of sessions.

    A tree has at most 1,000 keys, and a value at most 64 KiB of JSON.
    """


@kv_command.command("get")
@click.argument("key")
@_session
@click.option("--json", "as_json", is_flag=True, help="With its version, time and author.")
def get_command(*, key: str, session: str, as_json: bool) -> int:
    """Print the value under KEY: a text as it is, anything else as JSON."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        found = client.value(session, key)
    if as_json:
        click.echo(found.model_dump_json())
    else:
        text = found.value
        click.echo(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False))
    return 0


@kv_command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
@_session
@_if_version
@click.option("--json", "is_json", is_flag=True, help="VALUE is JSON; otherwise it is a text.")
def set_command(
    *, key: str, value: str, session: str, if_version: int | None, is_json: bool
) -> int:
    """Store VALUE under KEY, and print its version. `-` as the VALUE reads standard input."""
    from leadhand.cli.connect import open_client

    text = sys.stdin.read() if value == "-" else value
    given = _parsed(text) if is_json else text
    with open_client(needs_worker=False) as client:
        head = client.set_value(session, key, given, if_version=if_version)
    click.echo(f"{head.key}  version {head.version}")
    return 0


@kv_command.command("delete")
@click.argument("key")
@_session
@_if_version
@shows("delete_value", needs_worker=False)
def delete_command(_: None, *, key: str, **__: object) -> Iterator[str]:
    """Delete the value under KEY, also if there is none."""
    yield f"{key}  deleted"


@kv_command.command("list")
@click.argument("prefix", default="")
@_session
@click.option("--json", "as_json", is_flag=True, help="One JSON object per key and line.")
def list_command(*, prefix: str, session: str, as_json: bool) -> int:
    """List the keys that begin with PREFIX, by default all."""
    from leadhand.cli.connect import open_client

    cursor, shown = None, False
    with open_client(needs_worker=False) as client:
        while True:
            page = client.values(session, prefix=prefix, limit=_PAGE, cursor=cursor)
            for head in page.items:
                shown = True
                line = f"{head.key}  version {head.version}  {head.at}  {plain(head.by)}"
                click.echo(head.model_dump_json() if as_json else line)
            cursor = page.next
            if cursor is None:
                break
    if not shown and not as_json:
        click.echo("no keys")
    return 0


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.ClickException(f"VALUE is no JSON: {error}; leave out --json") from None


@click.group("lock", cls=Group)
def lock_command() -> None:
    """Share named locks within a tree of sessions."""


@lock_command.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@_session
@click.option(
    "--ttl", type=click.FloatRange(5, 3600), default=30.0, show_default=True, metavar="S",
    help="Seconds after which the lock is free if it is not renewed.",
)  # fmt: skip
@click.option(
    "--wait", type=click.FloatRange(0), metavar="S",
    help="Wait at most this long for the lock; by default until it is free.",
)  # fmt: skip
def run_command(
    *, name: str, command: tuple[str, ...], session: str, ttl: float, wait: float | None
) -> int:
    """Run COMMAND while holding the lock NAME, as in: lock run deploy -- make deploy.

    Its exit code is that of COMMAND. The lock is renewed while COMMAND runs; if it is lost, COMMAND
    is killed. LEADHAND_LOCK_FENCE is the number of the grant, which grows with each one.
    """
    from leadhand.cli.connect import reach

    with reach(needs_worker=False) as (url, token):
        return run_under_lock(url, token, session, name, command, ttl_s=ttl, wait_s=wait)


@lock_command.command("list")
@click.argument("session", required=False, callback=_named_or_own)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per lock and line.")
def list_locks_command(*, session: str, as_json: bool) -> int:
    """List the locks of SESSION's tree, who holds them and who waits.

    In a doer or checker, SESSION is by default its own.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        locks = client.locks(session)
    for lock in locks:
        click.echo(lock.model_dump_json() if as_json else "\n".join(_lines(lock)))
    if not locks and not as_json:
        click.echo("no locks")
    return 0


def _lines(lock: LockView) -> Iterator[str]:
    if lock.holder is None:
        yield f"{lock.name}  free"
    else:
        until = f"until {lock.until}, fence {lock.fence}"
        yield f"{lock.name}  held by {_owner(lock.holder)}, {until}"
    for number, waiter in enumerate(lock.waiting, start=1):
        yield f"    {number}. {_owner(waiter)} waits"


def _owner(owner: LockOwnerView) -> str:
    where = f" ({plain(owner.address)})" if owner.address else ""
    return f"session {owner.session}{where} since {owner.since}"
