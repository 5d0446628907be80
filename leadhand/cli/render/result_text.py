"""Formats the result of a session as text (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leadhand.cli.render.tables import plural, table
from leadhand.models.text import block, plain, plain_ends, reason_text
from leadhand.models.verdicts import Reason
from leadhand.models.views.plan import OwnFolderView
from leadhand.models.views.result import (
    ChangedFiles,
    CheckEvidence,
    Evidence,
    PhaseView,
    ResultView,
)

_MOST_LINES = 40
_MOST_FILES = 3
#: The kinds of sessions that may have no loop at all.
_WITHOUT_LOOPS = ("flow", "graph")


def ending(result: ResultView) -> str:
    """Formats how a session ended: verdict or plan result, iterations, cost, tokens and reason.

    >>> from leadhand.models.views.result import ResultView
    >>> ending(ResultView(session_id="1a2b3c4d", kind="loop", status="completed",
    ...                   verdict="accept", iterations=2))
    'accept after 2 iterations'
    >>> ending(ResultView(session_id="1a2b3c4d", kind="flow", status="completed",
    ...                   verdict="accept", iterations=0))
    'accept'
    >>> ending(ResultView(session_id="1a2b3c4d", kind="loop", status="completed", cost_usd=0.25,
    ...                   verdict="accept", iterations=1, input_tokens=900, output_tokens=100))
    'accept after 1 iteration ($0.2500, 1000 tokens)'
    >>> ending(ResultView(session_id="1a2b3c4d", kind="plan", status="completed",
    ...                   verdict="accept", iterations=1, result_text="4 of 4 tasks accepted"))
    '4 of 4 tasks accepted'
    """
    text = result.verdict or result.status
    if result.kind == "plan":
        text = plain(result.result_text) or result.status
    elif result.iterations or result.kind not in _WITHOUT_LOOPS:
        text += f" after {plural(result.iterations, 'iteration')}"
        text += f" and {result.copied_iterations} copied" if result.copied_iterations else ""
    text += _usage(result)
    why = plain(result.exit_reason) or _why(
        accepted=result.verdict == "accept", reason=result.reason
    )
    return f"{text}: {_where(result)}{why}" if why else text


def _usage(result: ResultView) -> str:
    """Cost and tokens in brackets, as far as agents report them."""
    tokens = result.input_tokens + result.output_tokens
    parts = [f"${result.cost_usd:.4f}"] if result.cost_usd else []
    parts += [plural(tokens, "token")] if tokens else []
    return f" ({', '.join(parts)})" if parts else ""


def _where(result: ResultView) -> str:
    """The phase in which a workflow ended before its last one was accepted."""
    last = result.phases[-1] if result.phases else None
    return (
        "" if last is None or last.passed or result.exit_reason else f"phase {plain(last.name)!r}: "
    )


def loop_summary(result: ResultView) -> Iterator[str]:
    """Formats the result of a loop, and commands to run next."""
    yield f"session {result.session_id}: {ending(result)}"
    yield from _warnings(result)
    lines = list(block(result.result_text, indent="  "))
    yield from lines[-_MOST_LINES:]
    yield from evidence_lines(result.evidence)
    yield from _nearest(result)
    yield from next_steps(result)


def workflow_summary(result: ResultView) -> Iterator[str]:
    """Formats the result of each phase, and commands to run next."""
    yield f"session {result.session_id}: {ending(result)}"
    yield from _warnings(result)
    head = ["PHASE", "VERDICT", "ITERATIONS", "RUNS", "RESULT"]
    rows = [
        [
            phase.name,
            _verdict(result, phase),
            f"{phase.iterations} and {phase.copied_iterations} copied"
            if phase.copied_iterations
            else phase.iterations,
            phase.runs,
            phase.exit_reason
            or _why(accepted=phase.passed, reason=phase.reason)
            or phase.result_text,
        ]
        for phase in result.phases
    ]
    yield from table(head, rows)
    yield from evidence_lines(result.evidence)
    yield from _nearest(result)
    yield from next_steps(result)


def _verdict(result: ResultView, phase: PhaseView) -> str:
    """The phase's verdict; the session's status for the phase that a stop or an abort met."""
    is_met = result.verdict is None and phase == result.phases[-1] and not phase.passed
    return result.status if is_met and phase.reason is None else phase.verdict


def flow_summary(result: ResultView) -> Iterator[str]:
    """Formats the result of a flow, and commands to run next."""
    why = plain(result.exit_reason) or _why(
        accepted=result.status == "completed", reason=result.reason
    )
    head = f"session {result.session_id}: {result.status}{_usage(result)}"
    yield f"{head}: {why}" if why else head
    yield from _warnings(result)
    if result.kind == "flow":
        yield from list(block(result.result_text, indent="  "))[-_MOST_LINES:]
    yield from evidence_lines(result.evidence)
    yield from _nearest(result)
    yield from next_steps(result)


def _nearest(result: ResultView) -> Iterator[str]:
    """The iteration with the most accepting checkers, and the feedback of the others."""
    best = result.best_iteration
    if best is None:
        return
    run = f" of run {best.run}" if best.run > 1 else ""
    yield f"nearest: iteration {best.iteration}{run}, {best.accepted} of {best.checks} accepted"
    for one in result.missing:
        feedback = plain_ends(one.feedback or one.verdict or "lost", most=240)
        yield f"  missing {plain(one.name)}: {feedback}"


#: Reasons that mean that a limit was reached.
_LIMITS = ("budget", "circuit_open", "stop_limit")


def work_lines(session: str, status: str, own: OwnFolderView | None) -> Iterator[str]:
    """Formats where the work of an ended session is, and the command that brings it home."""
    if own is None or not own.is_to_be_applied:
        return
    where = f"on branch {plain(own.branch)}, in" if own.branch else "in"
    yield f"its work is {where} {plain(own.folder, most=400)}"
    if own.refused is not None:
        yield f"not applied: {plain(own.refused, most=1000)}"
    force = "" if status in ("completed", "exited") else " --force"
    yield f"bring it home with: leadhand apply {session}{force}"


def evidence_lines(evidence: Evidence | None) -> Iterator[str]:
    """Formats on what an acceptance is based: changed files, tests that ran, and notes."""
    if evidence is None:
        return
    parts = [] if evidence.files is None else [_files(evidence.files)]
    parts += [f"{plain(one.name)} {_check(one)}" for one in evidence.checks]
    if evidence.left_out:
        parts.append(f"left out: {_first(evidence.left_out)}")
    yield f"evidence: {'; '.join(parts)}"
    for note in evidence.notes:
        yield f"note: {plain(note, most=400)}"


def _check(one: CheckEvidence) -> str:
    """What a check found: the tests that it ran or its verdict, and how it was before the work."""
    found = one.counts.text if one.counts is not None else one.verdict or "lost"
    notes = [one.ran] if one.ran is not None else []
    notes += [f"{one.baseline} before"] if one.baseline in ("red", "green") else []
    return f"{found} ({', '.join(map(plain, notes))})" if notes else found


def _files(changed: ChangedFiles) -> str:
    """The number of changed files, and the first of them."""
    which = f" ({_first(changed.files, changed.count)})" if changed.files else ""
    return f"{plural(changed.count, 'file')} changed{which}"


def _first(files: Sequence[str], count: int | None = None) -> str:
    """The first of the files, of which there may be more than are named."""
    names = [plain(name) for name in files[:_MOST_FILES]]
    more = ["..."] if (len(files) if count is None else count) > len(names) else []
    return ", ".join([*names, *more])


def next_steps(result: ResultView) -> Iterator[str]:
    """Yields lines with the commands that resume or inspect a session, by its result."""
    yield from work_lines(result.session_id, result.status, result.worktree)
    if result.reason is not None and result.reason.code in _LIMITS:
        yield f"to resume with a higher limit, see: leadhand explain {result.session_id}"
    elif result.status in ("failed", "stopped"):
        limit = " --max-iterations N" if result.verdict == "max_iterations" else ""
        yield f"continue with: leadhand resume {result.session_id}{limit}"
    if result.kind == "flow":
        yield f"transcript: leadhand transcript {result.session_id}"
    if result.kind == "graph":
        yield f"all steps: leadhand show {result.session_id}"
    elif result.kind not in _WITHOUT_LOOPS or result.iterations:
        yield f"all iterations: leadhand show {result.session_id}"


def _why(*, accepted: bool, reason: Reason | None) -> str:
    return "" if accepted or reason is None else reason_text(reason.model_dump())


def _warnings(result: ResultView) -> Iterator[str]:
    for warning in result.warnings:
        yield f"warning: {plain(warning, most=400)}"
