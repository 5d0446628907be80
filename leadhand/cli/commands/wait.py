"""`leadhand wait`: waits until sessions have ended, and prints their results."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from leadhand.cli.render.tables import echo_json

if TYPE_CHECKING:
    from leadhand.models.views.result import ResultView
    from leadhand.models.views.session import SessionView


@click.command("wait")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--summary", is_flag=True, help="Print only the first line of each result.")
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="Seconds for each session.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def wait_command(
    *, sessions: tuple[str, ...], summary: bool, timeout_s: float | None, as_json: bool
) -> int:
    """Wait until all sessions have ended, and print their results.

    Each result begins with one line: the session's name, id and status, and the reason.

    Exits with 0 if all are done, 3 if any failed, else 2 if any was stopped, exited or aborted.
    Ctrl-C leaves them running.
    """
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.exit_codes import HALTED, worst
    from leadhand.cli.leave_running import leaving_running
    from leadhand.cli.questions import ASKED, answering_questions
    from leadhand.cli.render.session_text import head_line
    from leadhand.client.waiting import reporting_troubles

    with open_client(needs_worker=True) as client:
        views = [client.session(session) for session in dict.fromkeys(sessions)]
        try:
            running = [view.id for view in views if not view.ended]
            for view in views if sys.stderr.isatty() else ():
                if view.ended:
                    continue
                tell(f"waiting for {head_line(view)}")
            with (
                leaving_running(running),
                reporting_troubles(client, running, tell, shown=ASKED),
                answering_questions(client, running, as_json=as_json),
            ):
                results = [client.wait(view.id, timeout_s) for view in views]
        except KeyboardInterrupt:
            tell("the sessions continue; stop one with: leadhand stop ID")
            return HALTED
    _show(views, results, summary=summary, as_json=as_json)
    return worst(result.status for result in results)


def _show(
    views: list[SessionView], results: list[ResultView], *, summary: bool, as_json: bool
) -> None:
    from leadhand.cli.render.result_text import ending, work_lines
    from leadhand.models.text import block, plain

    if as_json:
        dumps = [result.model_dump(mode="json") for result in results]
        echo_json(dumps[0] if len(dumps) == 1 else {"sessions": dumps})
        return
    for view, result in zip(views, results, strict=True):
        name = f"[{plain(view.title, most=60)} ({view.id})]"
        click.echo(f"{name} {result.status}: {ending(result)}")
        work = work_lines(view.id, result.status, result.worktree)
        for line in () if summary else (*block(result.result_text), *work):
            click.echo(line)
