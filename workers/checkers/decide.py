"""Runs break and decide steps: asks an agent, a script or a command for yes or no."""

from __future__ import annotations

import threading

from app.core.outcomes import Outcome
from app.core.program import Action
from app.truncate import cut
from leadhand.models.verdicts import Reason, ReasonCode
from workers.agents.ask import agent_named, ask
from workers.agents.output_parser import TEXT_LIMIT
from workers.checkers.answers import Decision, Undecided, parse_decision, parse_only_decision
from workers.checkers.verdicts import with_raw
from workers.processes.exit_outcome import (
    add_process_facts,
    failed_outcome,
    failure,
    why_not_started,
)
from workers.processes.process import ProcessResult, run
from workers.prompts import decision_prompt
from workers.task import BodyTask, BreakInputs

#: Characters of an invalid answer that its error quotes.
_QUOTED = 200


def decide(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Runs a break step: returns accept if its condition holds, which ends the loop, else retry.

    An answer that cannot be parsed fails the step: it never ends a loop.
    """
    given = BreakInputs.model_validate(task.inputs)
    if given.script is not None:
        return _by_script(task, given, given.script, cancel)
    if given.command is not None:
        return _by_command(task, given.command, cancel)
    if given.question.strip():
        return _by_agent(task, given, cancel)
    answer = given.answer.strip().lower()
    if answer not in ("yes", "no"):
        text = f"the answer is {cut(given.answer, _QUOTED)!r}; it must be 'yes' or 'no'"
        return failed_outcome(ReasonCode.INVALID_ANSWER, text)
    return _verdict(task, answer == given.break_on, text=given.answer)


def _by_agent(task: BodyTask, given: BreakInputs, cancel: threading.Event) -> Outcome:
    name = agent_named(task, given.agent)
    answer = ask(
        task,
        name,
        decision_prompt(given.question),
        role="checker",
        model=given.model,
        timeout_s=task.timeout_s,
        cancel=cancel,
    )
    if answer.failure is not None:
        return answer.add_usage(answer.mark_retryable(answer.failure))
    found = parse_decision(answer.whole)
    if isinstance(found, Undecided):
        return answer.add_usage(_invalid(f"agent {name!r}", found, answer.text, answer.result))
    return answer.add_usage(_decided(task, given, found))


def _by_script(task: BodyTask, given: BreakInputs, line: str, cancel: threading.Event) -> Outcome:
    """Requires exit code 0 in time and an output of one decision and nothing else."""
    result = run(task.command(line), cancel)
    bad = failure(result, who="decision script", timeout_s=task.timeout_s)
    if bad is not None:
        return bad if result.cancelled or why_not_started(result) else _as_invalid(bad)
    found = parse_only_decision(result.stdout.text)
    if isinstance(found, Undecided):
        return _invalid("decision script", found, result.stdout.text, result)
    return add_process_facts(with_raw(_decided(task, given, found), result.stdout.text), result)


def _by_command(task: BodyTask, line: str, cancel: threading.Event) -> Outcome:
    """Exit code 0 is yes, any other is no."""
    result = run(task.command(line), cancel)
    unusable = result.cancelled or result.timed_out or why_not_started(result)
    bad = failure(result, who=f"{task.action.value} command", timeout_s=task.timeout_s)
    if bad is not None and (unusable or result.exit_code is None):
        return bad
    output = cut(result.stdout.text.strip(), TEXT_LIMIT)
    return add_process_facts(_verdict(task, result.exit_code == 0, text=output), result)


def _decided(task: BodyTask, given: BreakInputs, found: Decision) -> Outcome:
    outcome = _verdict(task, found.answer == given.break_on, text=found.text)
    return outcome.model_copy(update={"decided_by": found.found_by})


def _verdict(task: BodyTask, is_so: bool, *, text: str) -> Outcome:
    if not is_so:
        return Outcome(word="succeeded", verdict="retry", text=text)
    reason = Reason(code=ReasonCode.BREAK, text="the break's condition was met")
    breaks = task.action is Action.BREAK
    return Outcome(word="succeeded", verdict="accept", text=text, reason=reason if breaks else None)


def _invalid(who: str, found: Undecided, answer: str, result: ProcessResult) -> Outcome:
    text = f"{who} gave no decision ({found.code}): it said {_shown(answer)}; {found.text}"
    failed = failed_outcome(ReasonCode.INVALID_ANSWER, text, result=result, retryable=True)
    return with_raw(failed, answer)


def _as_invalid(bad: Outcome) -> Outcome:
    """Marks a script that failed or timed out as one without an answer."""
    assert bad.reason is not None
    reason = Reason(code=ReasonCode.INVALID_ANSWER, text=bad.reason.text, beneath=bad.reason)
    return bad.model_copy(update={"reason": reason, "retryable": True})


def _shown(answer: str) -> str:
    return repr(cut(answer.strip(), _QUOTED)) if answer.strip() else "nothing"
