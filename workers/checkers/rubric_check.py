"""Runs checks by a rubric: gates as commands, criteria judged by an agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

from app.domain.outcomes import Baseline, Gate, Outcome, Ruling
from app.truncate import cut
from leadhand.models.documents import Checker
from leadhand.models.pipelines import hidden_exit_code
from leadhand.models.reasons import ReasonCode
from workers.agents.ask import agent_named
from workers.checkers.ask_verdict import ask_verdict
from workers.checkers.baseline import (
    Found,
    KeptBases,
    baseline_of,
    compare,
    joined,
    missing_tests,
)
from workers.checkers.commands import CommandRun, run_command
from workers.checkers.rubric import (
    TIMED_OUT,
    Rubric,
    RubricUnclear,
    Sentence,
    criteria_of,
    parse_rubric,
    sentence,
)
from workers.checkers.verdicts import is_unclear, not_started
from workers.processes.exit_outcome import (
    add_process_facts,
    describe_end,
    failed_outcome,
    why_not_started,
)
from workers.processes.process import ProcessResult
from workers.prompts.inputs import CheckInputs
from workers.task.inputs import UNCLEAR
from workers.task.task import BodyTask

#: The largest rubric, in bytes.
_MOST = 256 * 1024
#: Characters of a gate's output that are stored.
_SAID = 2_000


def by_rubric(
    task: BodyTask, given: CheckInputs, name: str, timeout_s: float, cancel: threading.Event
) -> Outcome:
    """Runs a check by a rubric file: all gate commands first, then an agent judges the criteria."""
    deadline = time.monotonic() + timeout_s
    try:
        rubric = _read((task.origin or task.folder) / name)
    except (OSError, ValueError, RubricUnclear) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return not_started(f"rubric {name!r} cannot be read: {why}")
    if given.gates_only:
        rubric = rubric._replace(criteria="", nice="")
    bases = given.base.gates if given.base is not None else {}
    runs = _run_gates(task, rubric, deadline, cancel, bases)
    if given.keeps:
        _keep_gates(KeptBases(task, task.recorded_work()), runs)
    gates = [_gate(line, ran) for line, ran in runs.items()]
    result = [*runs.values()][-1].result if runs else None
    if result is not None and result.cancelled:
        return failed_outcome(
            ReasonCode.CANCELLED, "the rubric's check was cancelled", result=result
        )
    asked = None
    if rubric.asks_an_agent:
        asked = _asked(task, given, rubric, gates, deadline, cancel)
        if asked.word == "failed":
            return asked
    outcome = compare(given.base, _outcome(rubric, gates, asked, result), None)
    # The file is not read at the submit, where other commands are looked at.
    hidden = [hidden_exit_code(line) for line in rubric.gates] if task.iteration == 1 else []
    gone = [missing_tests(bases.get(line), ran.tests) for line, ran in runs.items()]
    found = (outcome.warning, *(gone if outcome.verdict == "accept" else ()), *hidden)
    warnings = [text for text in found if text is not None]
    return outcome.model_copy(update={"warning": "; ".join(warnings) or None})


def _read(path: Path) -> Rubric:
    with path.open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise RubricUnclear(f"is longer than {_MOST} bytes", "cut it")
    return parse_rubric(data.decode(errors="replace"))


def find_by_rubric(
    task: BodyTask,
    checker: Checker,
    digest: str | None,
    *,
    timeout_s: float,
    cancel: threading.Event,
) -> Found:
    """Runs the gates of a rubric before the work, but not again in the same state.

    No agent is asked.
    """
    try:
        rubric = _read((task.origin or task.folder) / str(checker.rubric))
    except (OSError, ValueError, RubricUnclear):
        return Found(Baseline(), ": the rubric cannot be read", None)
    kept = KeptBases(task, digest)
    known = {line: kept.get(Checker(command=line)) for line in rubric.gates}
    left = rubric._replace(gates=tuple(line for line, base in known.items() if base is None))
    runs = _run_gates(task, left, time.monotonic() + timeout_s, cancel, {})
    _keep_gates(kept, runs)
    bases = {
        line: base or (baseline_of(runs[line]) if line in runs else Baseline())
        for line, base in known.items()
    }
    text = "\n".join(["", "", *(f"- `{line}`: {base.word}" for line, base in bases.items())])
    result = [*runs.values()][-1].result if runs else None
    return Found(joined(bases), text.rstrip(), result)


def _keep_gates(kept: KeptBases, runs: Mapping[str, CommandRun]) -> None:
    """Keep how the gates of a rubric ended in one state of the folder."""
    for line, ran in runs.items():
        kept.put(Checker(command=line), baseline_of(ran))


def _run_gates(
    task: BodyTask,
    rubric: Rubric,
    deadline: float,
    cancel: threading.Event,
    bases: Mapping[str, Baseline],
) -> dict[str, CommandRun]:
    """Runs every gate, also after one that failed."""
    runs: dict[str, CommandRun] = {}
    for line in rubric.gates:
        left_s = max(0.1, deadline - time.monotonic())
        gate = Checker(command=line)
        ran = run_command(task, gate, timeout_s=left_s, cancel=cancel, base=bases.get(line))
        runs[line] = ran
        if ran.result.cancelled:
            break
    return runs


def _gate(line: str, ran: CommandRun) -> Gate:
    result, counts = ran.result, None if ran.tests is None else ran.tests.counts
    if result.succeeded and not ran.refusal:
        return Gate(gate=line, passed=True, counts=counts)
    why = why_not_started(result) or ran.refusal
    output = why or (TIMED_OUT if result.timed_out else describe_end(result))
    return Gate(gate=line, passed=False, said=cut(output, _SAID), counts=counts)


def _asked(
    task: BodyTask,
    given: CheckInputs,
    rubric: Rubric,
    gates: list[Gate],
    deadline: float,
    cancel: threading.Event,
) -> Outcome:
    """Asks an agent to judge the criteria."""
    checker = given.checker
    name = agent_named(task, checker.agent, given.doer.agent if given.doer else None)
    prompted = checker.model_copy(update={"prompt": criteria_of(rubric, gates)})
    return ask_verdict(
        task,
        given.model_copy(update={"checker": prompted}),
        name,
        timeout_s=max(0.1, deadline - time.monotonic()),
        cancel=cancel,
    )


def _outcome(
    rubric: Rubric, gates: list[Gate], asked: Outcome | None, result: ProcessResult | None
) -> Outcome:
    by_agent = Sentence(asked.verdict or "retry", asked.text) if asked is not None else None
    verdict, feedback = sentence(rubric, gates, by_agent)
    lacks_a_word = asked is not None and is_unclear(asked) and verdict == "retry"
    changes = {
        "verdict": verdict,
        "text": feedback,
        "ruling": Ruling(rubric=rubric.hash, gates=tuple(gates)),
        "decided_by": UNCLEAR if lacks_a_word and all(one.passed for one in gates) else "rubric",
    }
    if asked is not None:
        return asked.model_copy(update=changes)
    outcome = Outcome.model_validate({"word": "succeeded", **changes})
    return (
        outcome
        if result is None
        else add_process_facts(outcome, result).model_copy(update={"exit_code": None})
    )
