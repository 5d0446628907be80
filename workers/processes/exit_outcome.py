"""Turns the result of a process that failed, timed out or was cancelled into an outcome."""

from __future__ import annotations

from app.core.outcomes import Outcome
from app.truncate import cut
from leadhand.models.text import render_terminal
from leadhand.models.verdicts import Reason, ReasonCode
from workers.processes.process import ProcessResult

#: Characters at the end of the output that a reason quotes.
TAIL_LIMIT = 2_000
#: A shell's exit codes for a command that could not be started.
_NOT_STARTED = {126: "cannot be executed", 127: "was not found"}


def why_not_started(result: ProcessResult) -> str | None:
    """Returns why a command could not start; None if it started."""
    if result.not_started is not None:
        return result.not_started
    if result.through_shell and result.exit_code in _NOT_STARTED:
        why = result.stderr.text.strip() or f"the command {_NOT_STARTED[result.exit_code]}"
        return cut(why, TAIL_LIMIT)
    return None


def failure(
    result: ProcessResult, *, who: str, timeout_s: float, message: str | None = None
) -> Outcome | None:
    """Returns the outcome of a process that failed; None if it succeeded.

    `message` is the program's own error message; by default the end of its output is quoted.
    """
    why = why_not_started(result)
    if why is not None:
        return failed_outcome(
            ReasonCode.FAILED_STEP, f"{who} could not start: {why}", result=result
        )
    if result.cancelled:
        return failed_outcome(ReasonCode.CANCELLED, f"{who} was cancelled", result=result)
    if result.timed_out:
        text = timeout_text(result, who=who, timeout_s=timeout_s)
        return failed_outcome(ReasonCode.TIMEOUT, text, result=result, retryable=True)
    if result.exit_code != 0:
        return failed_outcome(
            ReasonCode.FAILED_STEP, f"{who} {describe_end(result, message)}", result=result
        )
    return None


def timeout_text(result: ProcessResult, *, who: str, timeout_s: float) -> str:
    """Describes that a process took too long, and the signer that its git waited for, if any."""
    text = f"{who} timed out after {timeout_s:g} seconds"
    if not result.signer:
        return text
    return (
        f"{text}; it waited for {result.signer}, which signs commits (commit.gpgSign) and may ask"
        " for a passphrase: unlock the key before, or turn signing off for this repository"
    )


def describe_end(result: ProcessResult, message: str | None = None) -> str:
    """Describes how a failed process ended, with its message or the end of its output."""
    how = (
        f"exited with code {result.exit_code}"
        if result.exit_code is not None
        else f"was killed by signal {result.signal}"
        if result.signal is not None
        else "was lost with its launcher"
    )
    message = message or result.stderr.text.strip() or result.stdout.text.strip()
    return f"{how}: {render_terminal(message)[-TAIL_LIMIT:]}" if message else how


#: Reasons for which an agent step is worth a retry.
_TRANSIENT = (ReasonCode.FAILED_STEP, ReasonCode.INVALID_ANSWER, ReasonCode.TIMEOUT)


def mark_retryable(bad: Outcome, result: ProcessResult) -> Outcome:
    """Mark an agent's failure as retryable, unless it was cancelled or did not start.

    The step's retry policy says how often it is retried; a loop's doer is not.
    """
    is_final = result.cancelled or why_not_started(result) is not None
    transient = bad.reason is not None and bad.reason.code in _TRANSIENT
    return bad.model_copy(update={"retryable": True}) if transient and not is_final else bad


def failed_outcome(
    code: ReasonCode, text: str, *, result: ProcessResult | None = None, retryable: bool = False
) -> Outcome:
    """Builds a failed outcome with its reason, and with the facts of its process if it had one."""
    outcome = Outcome(word="failed", reason=Reason(code=code, text=text), retryable=retryable)
    return outcome if result is None else add_process_facts(outcome, result)


def add_process_facts(outcome: Outcome, result: ProcessResult) -> Outcome:
    """Returns the outcome with the process's times, exit code and path of spilled output."""
    spill = result.stdout.spill or result.stderr.spill
    return outcome.model_copy(
        update={
            "exit_code": result.exit_code,
            "spill": None if spill is None else str(spill),
            "started_ms": result.started_ms,
            "ended_ms": result.ended_ms,
        }
    )
