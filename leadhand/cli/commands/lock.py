"""`leadhand lock`: runs a command under a named lock of a tree of sessions, and lists locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from leadhand.cli.commands import own_session
from leadhand.cli.group import Group
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.models.views.shared import LockOwnerView, LockView


@click.group("lock", cls=Group)
def lock_command() -> None:
    """Share named locks within a tree of sessions."""


@lock_command.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@own_session.option
@click.option(
    "--ttl", type=click.FloatRange(5, 3600), default=30.0, show_default=True, metavar="S",
    help="Seconds after which the lock is free if it is not renewed.",
)  # fmt: skip
@click.option(
    "--wait", type=click.FloatRange(0), metavar="S",
    help="Wait at most this long for the lock; by default until it is free.",
)  # fmt: skip
def run_command(
    *, name: str, command: tuple[str, ...], session: str | None, ttl: float, wait: float | None
) -> int:
    """Run COMMAND while holding the lock NAME, as in: lock run deploy -- make deploy.

    Its exit code is that of COMMAND. The lock is renewed while COMMAND runs; if it is lost, COMMAND
    is killed. LEADHAND_LOCK_FENCE is the number of the grant, which grows with each one.
    """
    from leadhand.cli.commands.held_lock import run_under_lock
    from leadhand.cli.connect import reach

    session = own_session.named_or_own(session)
    with reach(needs_worker=False) as (url, token):
        return run_under_lock(url, token, session, name, command, ttl_s=ttl, wait_s=wait)


@lock_command.command("list")
@click.argument("session", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per lock and line.")
def list_command(*, session: str | None, as_json: bool) -> int:
    """List the locks of SESSION's tree, who holds them and who waits.

    In a doer or checker, SESSION is by default its own.
    """
    from leadhand.cli.connect import open_client

    session = own_session.named_or_own(session)
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
