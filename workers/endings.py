"""How a process's end reads as an outcome, wherever it did not simply succeed."""

from __future__ import annotations

from app.outcomes import Outcome
from app.reasons import Reason, ReasonCode
from app.texts import cut
from workers.sandbox import ProcessResult

#: Characters of what a process last said that its reason quotes.
TAIL_LIMIT = 2_000
#: What a shell answers where the command itself could not be started.
_NOT_STARTED = {126: "cannot be executed", 127: "was not found"}


def why_not_started(result: ProcessResult) -> str | None:
    """Why a command did not start at all, as the system or its shell says."""
    if result.not_started is not None:
        return result.not_started
    if result.through_shell and result.exit_code in _NOT_STARTED:
        said = result.stderr.text.strip() or f"the command {_NOT_STARTED[result.exit_code]}"
        return cut(said, TAIL_LIMIT)
    return None


def failure(
    result: ProcessResult, *, who: str, timeout_s: float, said: str | None = None
) -> Outcome | None:
    """The outcome of a process that did not succeed; None where it did.

    `said` is what it told of its failure, where that is better than the last of what it printed.
    """
    why = why_not_started(result)
    if why is not None:
        return failed(ReasonCode.FAILED_STEP, f"{who} could not start: {why}", result=result)
    if result.cancelled:
        return failed(ReasonCode.CANCELLED, f"{who} was cancelled", result=result)
    if result.timed_out:
        text = f"{who} timed out after {timeout_s:g} seconds"
        return failed(ReasonCode.TIMEOUT, text, result=result, retryable=True)
    if result.exit_code != 0:
        return failed(ReasonCode.FAILED_STEP, f"{who} {ended(result, said)}", result=result)
    return None


def ended(result: ProcessResult, said: str | None = None) -> str:
    """How it ended badly, and the last of what it said about that."""
    how = (
        f"exited with code {result.exit_code}"
        if result.exit_code is not None
        else f"was killed by signal {result.signal}"
        if result.signal is not None
        else "was lost with its launcher"
    )
    said = said or result.stderr.text.strip() or result.stdout.text.strip()
    return f"{how}: {said[-TAIL_LIMIT:]}" if said else how


#: What an agent may do better at another go.
_PASSING = (ReasonCode.FAILED_STEP, ReasonCode.INVALID_ANSWER, ReasonCode.TIMEOUT)


def worth_another_try(bad: Outcome, result: ProcessResult) -> Outcome:
    """An agent that failed may do better, but not one that was ended or is not there.

    How often it is tried is its step's own policy; a loop's doer is not.
    """
    hopeless = result.cancelled or why_not_started(result) is not None
    passing = bad.reason is not None and bad.reason.code in _PASSING
    return bad.model_copy(update={"retryable": True}) if passing and not hopeless else bad


def failed(
    code: ReasonCode, text: str, *, result: ProcessResult | None = None, retryable: bool = False
) -> Outcome:
    """A failed outcome with its reason, and with what the process left."""
    outcome = Outcome(word="failed", reason=Reason(code=code, text=text), retryable=retryable)
    return outcome if result is None else stamped(outcome, result)


def stamped(outcome: Outcome, result: ProcessResult) -> Outcome:
    """The outcome with the process's times, exit code and spilled output."""
    spill = result.stdout.spill or result.stderr.spill
    return outcome.model_copy(
        update={
            "exit_code": result.exit_code,
            "spill": None if spill is None else str(spill),
            "started_ms": result.started_ms,
            "ended_ms": result.ended_ms,
        }
    )
