"""`leadhand kv`: values that a tree of sessions shares."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from leadhand.cli.commands import own_session
from leadhand.cli.group import Group
from leadhand.models.text import plain

#: Keys per request, the most that a page may have.
_PAGE = 500

_if_version = click.option(
    "--if-version", type=click.IntRange(0), metavar="N",
    help="Only if this is the version as it is now; 0: only if there is no value.",
)  # fmt: skip


@click.group("kv", cls=Group)
def kv_command() -> None:
    """Share values within a tree of sessions.

    A tree has at most 1,000 keys, and a value at most 64 KiB of JSON.
    """


@kv_command.command("get")
@click.argument("key")
@own_session.option
@click.option("--json", "as_json", is_flag=True, help="With its version, time and author.")
def get_command(*, key: str, session: str | None, as_json: bool) -> int:
    """Print the value under KEY: a text as it is, anything else as JSON."""
    from leadhand.cli.connect import open_client

    session = own_session.named_or_own(session)
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
@own_session.option
@_if_version
@click.option("--json", "is_json", is_flag=True, help="VALUE is JSON; otherwise it is a text.")
def set_command(
    *, key: str, value: str, session: str | None, if_version: int | None, is_json: bool
) -> int:
    """Store VALUE under KEY, and print its version. `-` as the VALUE reads standard input."""
    from leadhand.cli.connect import open_client

    session = own_session.named_or_own(session)
    text = sys.stdin.read() if value == "-" else value
    given = _parsed(text) if is_json else text
    with open_client(needs_worker=False) as client:
        head = client.set_value(session, key, given, if_version=if_version)
    click.echo(f"{head.key}  version {head.version}")
    return 0


@kv_command.command("delete")
@click.argument("key")
@own_session.option
@_if_version
def delete_command(*, key: str, session: str | None, if_version: int | None) -> int:
    """Delete the value under KEY, also if there is none."""
    from leadhand.cli.connect import open_client

    session = own_session.named_or_own(session)
    with open_client(needs_worker=False) as client:
        client.delete_value(session, key, if_version=if_version)
    click.echo(f"{key}  deleted")
    return 0


@kv_command.command("list")
@click.argument("prefix", default="")
@own_session.option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per key and line.")
def list_command(*, prefix: str, session: str | None, as_json: bool) -> int:
    """List the keys that begin with PREFIX, by default all."""
    from leadhand.cli.connect import open_client

    session = own_session.named_or_own(session)
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
