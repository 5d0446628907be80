"""Tells flaky tests from failing ones: runs a red command again on the same work."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from app.domain.outcomes import Baseline, CheckRun, Outcome
from app.truncate import cut
from leadhand.models.documents import Checker
from workers.agents.output_parser import TEXT_LIMIT
from workers.checkers.baseline import compare
from workers.checkers.commands import CommandRun, listed, run_command
from workers.checkers.verdicts import command_verdict
from workers.task.task import BodyTask

#: The most names of failed tests that are stored for a run.
_NAMES = 50


def run_until_sure(
    task: BodyTask,
    checker: Checker,
    *,
    timeout_s: float,
    cancel: threading.Event,
    base: Baseline | None = None,
) -> Outcome:
    """Runs a checker's command; after a red run also its `reruns`, all of them.

    All red is the first run's verdict. Red and green is flaky: the check abstains. `base` is how
    the command ended before the work.
    """
    once = partial(run_command, task, checker, timeout_s=timeout_s, cancel=cancel, base=base)
    ran = [once()]
    verdicts = [compare(base, command_verdict(ran[0], timeout_s=timeout_s), ran[0].tests)]
    if verdicts[0].decided_by not in ("exit_code", "tests") or verdicts[0].verdict == "accept":
        return verdicts[0]
    for number in range(checker.reruns):
        ran.append(once(spill=task.spill / f"rerun-{number + 1}"))
        verdicts.append(command_verdict(ran[-1], timeout_s=timeout_s))
        if ran[-1].result.cancelled:
            return verdicts[-1]
    return verdicts[0] if len(ran) == 1 else _verdict(ran, verdicts)


def _verdict(ran: Sequence[CommandRun], verdicts: Sequence[Outcome]) -> Outcome:
    first = verdicts[0]
    runs = tuple(_kept(*each) for each in zip(ran, verdicts, strict=True))
    changes: dict[str, object] = {"runs": runs, "ended_ms": verdicts[-1].ended_ms}
    if any(run.verdict == "accept" for run in runs):
        greens = sum(run.verdict == "accept" for run in runs)
        flips = flipping(ran)
        which = f": {listed(flips)} did not end the same way" if flips else ""
        text = f"Flaky: {greens} of {len(runs)} runs on the same work passed{which}."
        changes |= {
            "text": cut(f"{text}\n\n{first.text}", TEXT_LIMIT),
            "decided_by": "flaky",
            "flaky": flips,
        }
    return first.model_copy(update=changes)


def _kept(ran: CommandRun, verdict: Outcome) -> CheckRun:
    decided = verdict.decided_by in ("exit_code", "tests")
    return CheckRun(
        verdict=verdict.verdict if decided else None,
        exit_code=verdict.exit_code,
        counts=verdict.counts,
        failed=ran.tests.failed[:_NAMES] if ran.tests is not None else (),
        started_ms=verdict.started_ms,
        ended_ms=verdict.ended_ms,
    )


def flipping(ran: Sequence[CommandRun]) -> tuple[str, ...]:
    """Returns the tests that failed in some of the runs whose tests are known, and not in all."""
    failed = [frozenset(run.tests.failed) for run in ran if run.tests is not None]
    if not failed:
        return ()
    return tuple(sorted(frozenset.union(*failed) - frozenset.intersection(*failed)))
