"""Runs checks by a rubric: gates as commands, criteria judged by an agent."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from app.domain.outcomes import Gate, Outcome, Ruling
from app.domain.reasons import ReasonCode
from app.truncate import cut
from leadhand.models.documents import Checker
from workers.agents.ask import agent_named, ask
from workers.checkers.checker_model import checker_model
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
from workers.checkers.verdicts import agent_verdict, not_started
from workers.folders.worktree import Worktree
from workers.processes.exit_outcome import (
    add_process_facts,
    describe_end,
    failed_outcome,
    why_not_started,
)
from workers.processes.process import ProcessResult
from workers.prompts.build import checker_prompt
from workers.prompts.inputs import CheckInputs
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
    given = _with_digest(task, given)
    gates, result = _gates(task, given, rubric, deadline, cancel)
    if result is not None and result.cancelled:
        return failed_outcome(
            ReasonCode.CANCELLED, "the rubric's check was cancelled", result=result
        )
    asked = None
    if rubric.asks_an_agent:
        asked = _asked(task, given, rubric, gates, deadline, cancel)
        if asked.word == "failed":
            return asked
    return _outcome(given, rubric, gates, asked, result)


def _with_digest(task: BodyTask, given: CheckInputs) -> CheckInputs:
    """Adds the folder's current digest where no doer recorded one.

    Between the steps of a flow, steps other than doers may change the folder.
    """
    if given.digest is not None or given.judged is None or task.cwd is None:
        return given
    tree = Worktree(task.cwd, task.spill.parent / "work")
    return given.model_copy(update={"digest": tree.snapshot()})


def _read(path: Path) -> Rubric:
    with path.open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise RubricUnclear(f"is longer than {_MOST} bytes", "cut it")
    return parse_rubric(data.decode(errors="replace"))


def _gates(
    task: BodyTask,
    given: CheckInputs,
    rubric: Rubric,
    deadline: float,
    cancel: threading.Event,
) -> tuple[list[Gate], ProcessResult | None]:
    """Runs every gate but those that already passed on the same work."""
    passed = _passed_before(given)
    gates: list[Gate] = []
    result = None
    for line in rubric.gates:
        if line in passed:
            gates.append(Gate(gate=line, passed=True, kept=True))
            continue
        left_s = max(0.1, deadline - time.monotonic())
        ran = run_command(task, Checker(command=line), timeout_s=left_s, cancel=cancel)
        result = ran.result
        gates.append(_gate(line, ran))
        if result.cancelled:
            break
    return gates, result


def _gate(line: str, ran: CommandRun) -> Gate:
    result, counts = ran.result, None if ran.tests is None else ran.tests.counts
    if result.succeeded and not ran.refusal:
        return Gate(gate=line, passed=True, counts=counts)
    why = why_not_started(result) or ran.refusal
    output = why or (TIMED_OUT if result.timed_out else describe_end(result))
    return Gate(gate=line, passed=False, said=cut(output, _SAID), counts=counts)


def _passed_before(given: CheckInputs) -> frozenset[str]:
    """The gates that passed in the iteration before on the same work."""
    if given.digest is None or given.judged is None:
        return frozenset()
    return frozenset(
        gate.gate
        for check in given.judged.checks
        if check.name == given.checker.name and check.digest == given.digest
        for gate in check.gates
        if gate.passed
    )


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
    left_s = max(0.1, deadline - time.monotonic())
    answer = ask(
        task,
        name,
        checker_prompt(given.model_copy(update={"checker": prompted})),
        role="checker",
        model=checker_model(task, given, name),
        timeout_s=left_s,
        cancel=cancel,
    )
    return answer.add_usage(agent_verdict(name, answer, timeout_s=left_s))


def _outcome(
    given: CheckInputs,
    rubric: Rubric,
    gates: list[Gate],
    asked: Outcome | None,
    result: ProcessResult | None,
) -> Outcome:
    by_agent = Sentence(asked.verdict or "retry", asked.text) if asked is not None else None
    verdict, feedback = sentence(rubric, gates, by_agent)
    ruling = Ruling(rubric=rubric.hash, gates=tuple(gates), digest=given.digest)
    changes = {"verdict": verdict, "text": feedback, "ruling": ruling, "decided_by": "rubric"}
    if asked is not None:
        return asked.model_copy(update=changes)
    outcome = Outcome.model_validate({"word": "succeeded", **changes})
    return (
        outcome
        if result is None
        else add_process_facts(outcome, result).model_copy(update={"exit_code": None})
    )
