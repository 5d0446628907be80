"""Builds the result of an ended session from its turns and ledger (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Literal

from app.domain.program import Loop, Program
from app.domain.records import TurnRecord
from app.queries.presenters import counters, made_by_fork, own_folder_view
from app.redaction import without_keys
from leadhand.models.reasons import Reason, ReasonCode
from leadhand.models.views.result import BestIteration, LedgerEntry, Missing, PhaseView, ResultView

#: The name of the text of a plan or flow among those of the loops; no loop is named so.
WHOLE = ""
LoopVerdict = Literal["accept", "terminate", "max_iterations", "exit"]


def result_of(
    session: str,
    fields: Mapping[str, str],
    reason: Reason | None,
    program: Program,
    turns: Mapping[str, TurnRecord],
    ledger: Sequence[LedgerEntry],
    texts: Mapping[str, str],
    warnings: list[str],
    *,
    nearest: Callable[[Loop, TurnRecord], LedgerEntry | None] = lambda _loop, _turn: None,
) -> ResultView:
    """Builds the result of an ended session, with a part for each phase that ran.

    `texts` are the result texts of the outermost loops by id. `nearest` returns the nearest
    iteration of an unaccepted loop without a judge.
    """
    status = fields["status"]
    counted = counters(fields)
    copied = copied_entries(fields, counted.iterations, ledger)
    phases = [
        _phase(node, turns[node.id], status, reason, ledger, copied, texts, nearest)
        for node in program.body
        if isinstance(node, Loop) and node.id in turns and turns[node.id].verdict != "skipped"
    ]
    last = phases[-1] if phases else None
    return ResultView(
        session_id=session,
        kind=fields["kind"],
        status=status,
        verdict=_verdict(status, phases),
        iterations=len(ledger) - copied,
        copied_iterations=copied,
        history=list(ledger),
        result_text=texts.get(WHOLE, last.result_text if last else ""),
        exit_reason=_exit_text(reason),
        reason=reason,
        warnings=warnings,
        phases=phases if fields["kind"] == "workflow" else [],
        best_iteration=last.best_iteration if last else None,
        missing=last.missing if last else [],
        worktree=own_folder_view(fields),
        cost_usd=counted.cost_usd,
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
    )


def _phase(
    node: Loop,
    turn: TurnRecord,
    status: str,
    reason: Reason | None,
    ledger: Sequence[LedgerEntry],
    copied: int,
    texts: Mapping[str, str],
    nearest: Callable[[Loop, TurnRecord], LedgerEntry | None],
) -> PhaseView:
    history = [entry for entry in ledger if entry.loop == node.id]
    before = sum(entry.loop == node.id for entry in ledger[:copied])
    verdict = _loop_verdict(turn, status)
    passed = verdict == "accept"
    best = None if passed else best_of(history) or nearest(node, turn)
    return PhaseView(
        name=without_keys(node.label or node.id),
        passed=passed,
        verdict=verdict,
        iterations=len(history) - before,
        copied_iterations=before,
        history=history,
        result_text=texts.get(node.id, ""),
        exit_reason=_exit_text(reason) if verdict == "exit" else "",
        reason=turn.reason,
        runs=turn.run,
        best_iteration=None if best is None else _nearest(best),
        missing=[] if best is None else _missing(best),
    )


def copied_entries(fields: Mapping[str, str], counted: int, ledger: Sequence[LedgerEntry]) -> int:
    """Returns how many of the first entries of a ledger a fork has copied; 0 for other sessions.

    A fork counts its own iterations from 0. Each of them adds an entry.
    """
    return max(0, len(ledger) - counted) if made_by_fork(fields) else 0


def best_of(history: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Returns the iteration most checkers accepted, the newest of equals; None without checks."""
    judged = [entry for entry in history if entry.checks]
    return max(reversed(judged), key=_count_accepts, default=None)


def _count_accepts(entry: LedgerEntry) -> int:
    return sum(check.get("verdict") == "accept" for check in entry.checks)


def _nearest(entry: LedgerEntry) -> BestIteration:
    return BestIteration(
        run=entry.run,
        iteration=entry.iteration,
        accepted=_count_accepts(entry),
        checks=len(entry.checks),
        work=entry.work,
    )


def _missing(entry: LedgerEntry) -> list[Missing]:
    """The checkers that did not accept the work, with their feedback."""
    return [
        Missing.model_validate({name: check.get(name) or "" for name in ("name", "feedback")}
                               | {"verdict": check.get("verdict")})
        for check in entry.checks
        if check.get("verdict") != "accept"
    ]  # fmt: skip


def _loop_verdict(turn: TurnRecord, status: str) -> LoopVerdict:
    match turn.verdict:
        case "accept":
            return "accept"
        case "max_iterations":
            return "max_iterations"
        case "exit":
            return "exit"
        case _:
            return "exit" if status == "exited" and turn.verdict is None else "terminate"


def _verdict(status: str, phases: Sequence[PhaseView]) -> LoopVerdict | None:
    """The verdict of a session, derived from its status and last loop; None if stopped."""
    match status:
        case "completed":
            return "accept"
        case "exited":
            return "exit"
        case "failed":
            limit = phases and phases[-1].verdict == "max_iterations"
            return "max_iterations" if limit else "terminate"
        case _:
            return None


def _exit_text(reason: Reason | None) -> str:
    """The reason that was given to exit, also in a child session whose exit reached this one."""
    links = () if reason is None else reason.chain()
    exits = takewhile(lambda link: link.code is ReasonCode.EXIT, links)
    return next((link.text for link in reversed([*exits])), "")
