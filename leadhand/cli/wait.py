"""`leadhand wait`: blocks until sessions have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.cli.tables import echo_json

if TYPE_CHECKING:
    from leadhand.views import ResultView, SessionView


@click.command("wait")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--summary", is_flag=True, help="One line for each session.")
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="Seconds for each session.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def wait_command(
    *, sessions: tuple[str, ...], summary: bool, timeout_s: float | None, as_json: bool
) -> int:
    """Wait until all sessions have ended, and print their results.

    Exits with 0 if all are done, 3 if any failed, else 2 if any was stopped, exited or aborted.
    Ctrl-C leaves them running.
    """
    from leadhand.cli.codes import HALTED, worst
    from leadhand.cli.connecting import connected, tell

    with connected() as client:
        views = [client.session(session) for session in dict.fromkeys(sessions)]
        try:
            results = [client.wait(view.id, timeout_s) for view in views]
        except KeyboardInterrupt:
            tell("the sessions go on; stop one with: leadhand stop ID")
            return HALTED
    _show(views, results, summary=summary, as_json=as_json)
    return worst(result.status for result in results)


def _show(
    views: list[SessionView], results: list[ResultView], *, summary: bool, as_json: bool
) -> None:
    from leadhand.cli.summaries import ending
    from leadhand.text import block, plain

    if as_json:
        dumps = [result.model_dump(mode="json") for result in results]
        echo_json(dumps[0] if len(dumps) == 1 else {"sessions": dumps})
        return
    for view, result in zip(views, results, strict=True):
        name = f"[{plain(view.label or view.name, most=60)} ({view.id})]"
        if summary:
            click.echo(f"{name} {result.status}: {ending(result)}")
            continue
        if len(results) > 1:
            click.echo(name)
        for line in block(result.result_text) if result.result_text else [ending(result)]:
            click.echo(line)
