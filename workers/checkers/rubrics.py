"""The body of a check by a rubric: gates are run as commands, criteria judged by an agent."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from app.outcomes import Gate, Outcome, Ruling
from app.reasons import Reason, ReasonCode
from app.rubrics import Rubric, RubricUnclear, Sentence, criteria_of, parse_rubric, sentence
from app.texts import cut
from workers.agents.asking import agent_named, ask
from workers.agents.prompts import checker_prompt
from workers.body_task import BodyTask
from workers.checkers.agents import judged
from workers.endings import ended, failed, stamped, why_not_started
from workers.inputs import CheckInputs
from workers.sandbox import ProcessResult, run
from workers.worktree import Worktree

#: Bytes of a rubric that are read.
_MOST = 256 * 1024
#: Characters of what a gate said that are kept.
_SAID = 2_000


def by_rubric(
    task: BodyTask, given: CheckInputs, name: str, timeout_s: float, cancel: threading.Event
) -> Outcome:
    """All gates, then the criteria; the file is read anew each time, and its hash is kept."""
    deadline = time.monotonic() + timeout_s
    try:
        rubric = _read(task.folder / name)
    except (OSError, ValueError, RubricUnclear) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        text = f"rubric {name!r} cannot be read: {why}"
        reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
        said = {"verdict": "terminate", "text": text, "decided_by": "not_started"}
        return Outcome.model_validate({"word": "succeeded", "reason": reason, **said})
    given = _on_the_work(task, given)
    gates, result = _gates(task, given, rubric, deadline, cancel)
    if result is not None and result.cancelled:
        return failed(ReasonCode.CANCELLED, "the rubric's check was cancelled", result=result)
    asked = None
    if rubric.asks_an_agent:
        asked = _asked(task, given, rubric, gates, deadline, cancel)
        if asked.word == "failed":
            return asked
    return _outcome(given, rubric, gates, asked, result)


def _on_the_work(task: BodyTask, given: CheckInputs) -> CheckInputs:
    """With the folder's digest as it is now, where nobody looked at it since it was changed.

    Between the steps of a flow anything may change it, also what is no doer.
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
    """Every gate, whatever the others say; not those that passed before on the same work."""
    passed = _passed_before(given)
    gates: list[Gate] = []
    result = None
    for line in rubric.gates:
        if line in passed:
            gates.append(Gate(gate=line, passed=True, kept=True))
            continue
        left_s = max(0.1, deadline - time.monotonic())
        result = run(task.command(line, timeout_s=left_s), cancel)
        gates.append(_gate(line, result))
        if result.cancelled:
            break
    return gates, result


def _gate(line: str, result: ProcessResult) -> Gate:
    if result.succeeded:
        return Gate(gate=line, passed=True)
    why = why_not_started(result)
    said = why or ("it timed out" if result.timed_out else ended(result))
    return Gate(gate=line, passed=False, said=cut(said, _SAID))


def _passed_before(given: CheckInputs) -> frozenset[str]:
    """The gates that passed in the iteration before, where the work is the same still."""
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
    """What an agent makes of the criteria."""
    checker = given.checker
    name = agent_named(task, checker.agent, given.doer.agent if given.doer else None)
    prompted = checker.model_copy(update={"prompt": criteria_of(rubric, gates)})
    left_s = max(0.1, deadline - time.monotonic())
    answer = ask(
        task,
        name,
        checker_prompt(given.model_copy(update={"checker": prompted})),
        role="checker",
        model=checker.model,
        timeout_s=left_s,
        cancel=cancel,
    )
    return answer.told(judged(name, answer, left_s))


def _outcome(
    given: CheckInputs,
    rubric: Rubric,
    gates: list[Gate],
    asked: Outcome | None,
    result: ProcessResult | None,
) -> Outcome:
    said = Sentence(asked.verdict or "retry", asked.text) if asked is not None else None
    verdict, feedback = sentence(rubric, gates, said)
    ruling = Ruling(rubric=rubric.hash, gates=tuple(gates), digest=given.digest)
    changes = {"verdict": verdict, "text": feedback, "ruling": ruling, "decided_by": "rubric"}
    if asked is not None:
        return asked.model_copy(update=changes)
    outcome = Outcome.model_validate({"word": "succeeded", **changes})
    return (
        outcome
        if result is None
        else stamped(outcome, result).model_copy(update={"exit_code": None})
    )
