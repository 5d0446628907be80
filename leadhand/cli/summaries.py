"""How a session ended, as text for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from leadhand.cli.tables import plural, table
from leadhand.text import block, plain, reason_text
from leadhand.views import Reason, ResultView

_MOST_LINES = 40


def ending(result: ResultView) -> str:
    """One line: the verdict, after how much, and why.

    >>> from leadhand.views import ResultView
    >>> ending(ResultView(session_id="1a2b3c4d", kind="loop", status="completed",
    ...                   verdict="accept", iterations=2))
    'accept after 2 iterations'
    >>> ending(ResultView(session_id="1a2b3c4d", kind="flow", status="completed",
    ...                   verdict="accept", iterations=0))
    'accept'
    """
    text = result.verdict or result.status
    if result.iterations or result.kind != "flow":  # a flow may have no loop at all
        text += f" after {plural(result.iterations, 'iteration')}"
    why = plain(result.exit_reason) or _why(
        accepted=result.verdict == "accept", reason=result.reason
    )
    return f"{text}: {why}" if why else text


def loop_summary(result: ResultView) -> Iterator[str]:
    """Lines on how a loop ended and what to do next."""
    yield f"session {result.session_id}: {ending(result)}"
    yield from _warnings(result)
    lines = list(block(result.result_text, indent="  "))
    yield from lines[-_MOST_LINES:]
    yield from _nearest(result)
    yield from next_steps(result)


def workflow_summary(result: ResultView) -> Iterator[str]:
    """Lines on how each phase ended and what to do next."""
    yield f"session {result.session_id}: {ending(result)}"
    yield from _warnings(result)
    head = ["PHASE", "VERDICT", "ITERATIONS", "RUNS", "RESULT"]
    rows = [
        [
            phase.name,
            phase.verdict,
            phase.iterations,
            phase.runs,
            phase.exit_reason
            or _why(accepted=phase.passed, reason=phase.reason)
            or phase.result_text,
        ]
        for phase in result.phases
    ]
    yield from table(head, rows)
    yield from _nearest(result)
    yield from next_steps(result)


def flow_summary(result: ResultView) -> Iterator[str]:
    """Lines on how a flow ended and what to do next."""
    why = plain(result.exit_reason) or _why(
        accepted=result.status == "completed", reason=result.reason
    )
    yield f"session {result.session_id}: {result.status}" + (f": {why}" if why else "")
    yield from _warnings(result)
    yield from _nearest(result)
    yield from next_steps(result)


def _nearest(result: ResultView) -> Iterator[str]:
    """The iteration that came nearest to acceptance, and what stood between."""
    best = result.best_iteration
    if best is None:
        return
    run = f" of run {best.run}" if best.run > 1 else ""
    yield f"nearest: iteration {best.iteration}{run}, {best.accepted} of {best.checks} accepted"
    for one in result.missing:
        yield f"  missing {plain(one.name)}: {plain(one.feedback or one.verdict or 'lost')}"


#: Reasons of an end that a higher limit would have put off.
_LIMITS = ("budget", "circuit_open", "stop_limit")


def next_steps(result: ResultView) -> Iterator[str]:
    """What a user may want to do with a session that is not done."""
    if result.reason is not None and result.reason.code in _LIMITS:
        yield f"go on with a higher limit: leadhand explain {result.session_id} tells how"
    elif result.status in ("failed", "stopped"):
        limit = " --max-iterations N" if result.verdict == "max_iterations" else ""
        yield f"go on with: leadhand resume {result.session_id}{limit}"
    if result.kind == "flow":
        yield f"what was said: leadhand transcript {result.session_id}"
    if result.kind != "flow" or result.iterations:  # a flow may have no loop at all
        yield f"all iterations: leadhand show {result.session_id}"


def _why(*, accepted: bool, reason: Reason | None) -> str:
    return "" if accepted or reason is None else reason_text(reason.model_dump())


def _warnings(result: ResultView) -> Iterator[str]:
    for warning in result.warnings:
        yield f"warning: {plain(warning, most=400)}"
