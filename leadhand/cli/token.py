"""`leadhand token` and `leadhand ui`: API tokens, and the sign-in to the dashboard."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.group import Group
from leadhand.cli.render.tables import echo_json, table
from leadhand.cli.render.times import clock_time

if TYPE_CHECKING:
    from leadhand.models.views.fleet import TokenView

EVENTS = ("ended", "failed", "waiting", "reported", "proposed", "task_failed")
SCOPES = ("read", "submit", "control", "exec:free", "admin")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_SPAN = re.compile(r"([1-9][0-9]{0,9})([smhdw])")


class Span(click.ParamType[int]):
    """A length of time such as 12h or 30d, in seconds."""

    name = "span"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Convert one number with one unit, such as `30d`, to seconds; an integer is kept.

        >>> Span().convert("30d", None, None)
        2592000
        """
        if isinstance(value, int):
            return value
        match = _SPAN.fullmatch(value)
        if match is None:
            self.fail(
                f"{value!r} is not a span; give a number and s, m, h, d or w, as 30d", param, ctx
            )
        return int(match.group(1)) * _UNITS[match.group(2)]


@click.group("token", cls=Group, context_settings={"max_content_width": 100})
def token_command() -> None:
    """Create, list and revoke API tokens.

    This needs a token with the scope admin, such as the API's own.

    \b
    read       read sessions, events, workers, queues and limits
    submit     start sessions of named agents
    control    stop, resume, exit, abort, move and delete sessions
    exec:free  submit commands and callables: runs anything on a worker
    admin      create and revoke tokens, set limits: everything
    """  # noqa: D301 - click takes the character itself for "leave these lines as they are"


@token_command.command("create")
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPES),
    help="A scope of the token; may be repeated.",
)  # fmt: skip
@click.option(
    "--expires", type=Span(), metavar="SPAN", help="The token's lifetime, such as 12h or 30d."
)
@click.option(
    "--max-sessions", type=click.IntRange(0), metavar="N",
    help="The most sessions of the token that have not ended.",
)  # fmt: skip
@click.option(
    "--steps-per-day", type=click.IntRange(0), metavar="N",
    help="The number of steps per day (UTC) after which it starts no more sessions.",
)  # fmt: skip
@click.option(
    "--bytes-per-day", type=click.IntRange(0), metavar="N",
    help="The most bytes of documents per day (UTC).",
)  # fmt: skip
@click.option(
    "--webhook", metavar="URL",
    help="The webhook of its sessions, unless their documents name one.",
)  # fmt: skip
@click.option(
    "--webhook-event", "events", multiple=True, type=click.Choice(EVENTS),
    help="An event that is sent to the webhook (ended); may be repeated.",
)  # fmt: skip
@click.option(
    "--webhook-secret-file", "secret", metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file with the secret that signs the webhook's requests.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def create(
    *,
    name: str,
    scopes: tuple[str, ...],
    expires: int | None,
    webhook: str | None,
    events: tuple[str, ...],
    secret: Path | None,
    as_json: bool,
    **quotas: int | None,
) -> int:
    """Create an API token called NAME and print it; it is shown only once.

    Only the token goes to standard output, so that it can be redirected:
    leadhand token create ci --scope read --scope submit > token
    """
    from leadhand.cli.connect import open_client, tell
    from leadhand.models.views.fleet import Quotas

    given = Quotas(**quotas) if any(value is not None for value in quotas.values()) else None
    hook = _webhook(webhook, events, secret)
    with open_client(needs_worker=False) as client:
        made = client.create_token(
            name, list(dict.fromkeys(scopes)), expires_s=expires, quotas=given, webhook=hook
        )
    if as_json:
        echo_json(made)
        return 0
    tell(
        f"token {made.id} is created; it is shown only once, so keep it where only you can read it"
    )
    click.echo(made.token)
    return 0


@token_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def list_(*, as_json: bool) -> int:
    """Print all API tokens, the newest first, without their secrets."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        found = client.tokens()
    if as_json:
        echo_json({"items": [view.model_dump(mode="json") for view in found], "next": None})
        return 0
    head = ["ID", "NAME", "SCOPES", "SESSIONS", "STEPS", "BYTES", "EXPIRES", "LAST USED"]
    rows = [_row(view) for view in found]
    for line in table(head, rows) if rows else ["no tokens but the API's own"]:
        click.echo(line)
    return 0


@token_command.command("revoke")
@click.argument("tokens", metavar="ID...", nargs=-1, required=True)
def revoke(*, tokens: tuple[str, ...]) -> int:
    """Revoke API tokens.

    Each process of the API refuses them within 3 seconds.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        for token in dict.fromkeys(tokens):
            client.revoke_token(token)
            click.echo(f"token {token} is revoked")
    return 0


def _webhook(
    url: str | None, events: tuple[str, ...], secret: Path | None
) -> dict[str, object] | None:
    """The webhook as a JSON object; the API validates it."""
    if url is None:
        if events or secret is not None:
            raise click.UsageError("--webhook-event and --webhook-secret-file need --webhook URL")
        return None
    hook: dict[str, object] = {"url": url}
    if events:
        hook["events"] = list(dict.fromkeys(events))
    if secret is not None:
        hook["secret"] = _secret(secret)
    return hook


def _secret(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = f"{path} cannot be read as text"
        raise click.BadParameter(why, param_hint="--webhook-secret-file") from error


def _row(view: TokenView) -> list[object]:
    quotas, spent = view.quotas, view.spent
    expires = "expired" if view.expired else _time(view.expires_at)
    return [
        view.id,
        view.name,
        ",".join(view.scopes),
        _of(spent.sessions, quotas.max_sessions),
        _of(spent.steps, quotas.steps_per_day),
        _of(spent.bytes, quotas.bytes_per_day),
        expires,
        _time(view.last_used_at),
    ]


def _time(at: str | None) -> str:
    return "never" if at is None else clock_time(at)


def _of(spent: int, quota: int | None) -> str:
    """What was used, and of how much.

    >>> _of(3, 10), _of(3, None)
    ('3/10', '3')
    """
    return str(spent) if quota is None else f"{spent}/{quota}"


@click.command("ui")
@click.option("--print", "only_print", is_flag=True, help="Print the link; open no browser.")
def ui_command(*, only_print: bool) -> int:
    """Open the dashboard in a browser, signed in.

    The link works once and within a minute. Without LEADHAND_URL the user's services stay
    up until this command ends, with Ctrl-C.
    """
    import webbrowser

    from leadhand.cli.connect import open_client, tell
    from leadhand.settings import ClientSettings

    own = ClientSettings.from_env().url is None
    with open_client(needs_worker=True) as client:
        link = client.sign_in_link()
        if only_print or not webbrowser.open(link.url):
            click.echo(link.url)
        if only_print and own:
            tell("the services end some time after the last command; `leadhand up` keeps them up")
        elif own:
            tell("the dashboard is open; Ctrl-C ends this command, sessions continue")
            _wait_for_interrupt()
    return 0


def _wait_for_interrupt() -> None:
    from contextlib import suppress
    from threading import Event

    with suppress(KeyboardInterrupt):
        Event().wait()
