"""The body of break and decide steps: a yes or a no of an agent, a script or a command."""

from __future__ import annotations

import threading

from app.decisions import Decision, Undecided, parse_decision, parse_only_decision
from app.outcomes import Outcome
from app.program import Action
from app.reasons import Reason, ReasonCode
from app.texts import cut
from workers.agents.asking import agent_named, ask
from workers.agents.hearing import TEXT_LIMIT
from workers.agents.prompts import decision_prompt
from workers.body_task import BodyTask
from workers.endings import failed, failure, stamped, why_not_started
from workers.inputs import BreakInputs
from workers.sandbox import ProcessResult, run

#: Characters of an answer that decided nothing which its error quotes.
_QUOTED = 200


def decide(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Accept where it is so (the loop ends, the condition holds), retry where it is not.

    Where nobody can tell it fails: what is not understood never ends a loop.
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
        return failed(ReasonCode.INVALID_ANSWER, text)
    return _word(task, answer == given.break_on, text=given.answer)


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
        return answer.told(answer.tried_again(answer.failure))
    found = parse_decision(answer.text)
    if isinstance(found, Undecided):
        return answer.told(_invalid(f"agent {name!r}", found, answer.text, answer.result))
    return answer.told(_decided(task, given, found))


def _by_script(task: BodyTask, given: BreakInputs, line: str, cancel: threading.Event) -> Outcome:
    """Strict: it ends with exit code 0 in time, and prints one decision and nothing else."""
    result = run(task.command(line), cancel)
    bad = failure(result, who="decision script", timeout_s=task.timeout_s)
    if bad is not None:
        return bad if result.cancelled or why_not_started(result) else _as_invalid(bad)
    found = parse_only_decision(result.stdout.text)
    if isinstance(found, Undecided):
        return _invalid("decision script", found, result.stdout.text, result)
    return stamped(_decided(task, given, found), result)


def _by_command(task: BodyTask, line: str, cancel: threading.Event) -> Outcome:
    """Exit code 0 makes it so, any other does not."""
    result = run(task.command(line), cancel)
    unusable = result.cancelled or result.timed_out or why_not_started(result)
    bad = failure(result, who=f"{task.action.value} command", timeout_s=task.timeout_s)
    if bad is not None and (unusable or result.exit_code is None):
        return bad
    said = cut(result.stdout.text.strip(), TEXT_LIMIT)
    return stamped(_word(task, result.exit_code == 0, text=said), result)


def _decided(task: BodyTask, given: BreakInputs, found: Decision) -> Outcome:
    outcome = _word(task, found.answer == given.break_on, text=found.text)
    return outcome.model_copy(update={"decided_by": found.found_by})


def _word(task: BodyTask, is_so: bool, *, text: str) -> Outcome:
    if not is_so:
        return Outcome(word="succeeded", verdict="retry", text=text)
    reason = Reason(code=ReasonCode.BREAK, text="the break's condition was met")
    breaks = task.action is Action.BREAK
    return Outcome(word="succeeded", verdict="accept", text=text, reason=reason if breaks else None)


def _invalid(who: str, found: Undecided, said: str, result: ProcessResult) -> Outcome:
    text = f"{who} decided nothing ({found.code}): it said {_shown(said)}; {found.text}"
    return failed(ReasonCode.INVALID_ANSWER, text, result=result, retryable=True)


def _as_invalid(bad: Outcome) -> Outcome:
    """A script that failed or took too long has not answered."""
    assert bad.reason is not None
    reason = Reason(code=ReasonCode.INVALID_ANSWER, text=bad.reason.text, beneath=bad.reason)
    return bad.model_copy(update={"reason": reason, "retryable": True})


def _shown(said: str) -> str:
    return repr(cut(said.strip(), _QUOTED)) if said.strip() else "nothing"
