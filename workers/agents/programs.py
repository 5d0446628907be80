"""Asks an agent that is a program, and reads what it prints."""

from __future__ import annotations

import threading

from app.outcomes import Outcome, Thread
from app.reasons import ReasonCode
from app.texts import cut
from workers.agents.answers import Answer
from workers.agents.errors import AnswerUnreadable
from workers.agents.hearing import Hearing
from workers.agents.question import Question
from workers.endings import failed, failure
from workers.sandbox import Command, ProcessResult, run

_SAID = 2_000


def ask_program(question: Question, cancel: threading.Event) -> Answer:
    """The answer of the program, which is ended with all that it started if need be."""
    task, agent, begun = question.task, question.agent, question.begun
    hearing = Hearing(agent, before=begun.told, on_spent=task.on_spent)
    argv = agent.argv(
        prompt=question.prompt, model=question.model, thread=begun.id, role=question.role
    )
    command = task.command(
        argv,
        prompt=question.prompt,
        feeds_prompt=not agent.takes_prompt_as_argument,
        timeout_s=question.timeout_s,
        variables=agent.variables,
        on_output=hearing.write,
    )
    answer = answered(question, command, hearing, cancel)
    thread = Thread(conversation="", id=hearing.thread, told=hearing.told)
    return answer.going_on(question.goes_on(thread))


def answered(
    question: Question, command: Command, hearing: Hearing, cancel: threading.Event
) -> Answer:
    """What a command that speaks for an agent came to."""
    result = run(command, cancel)
    text, unreadable = "", None
    try:
        text = hearing.answer(result.stdout)
    except AnswerUnreadable as error:
        unreadable = _unreadable(question.who, hearing, error, result)
    bad = failure(result, who=question.who, timeout_s=command.timeout_s, said=hearing.failure)
    bad = _with_way_out(bad, result) if bad is not None else unreadable
    ended = result.cancelled or result.timed_out
    if bad is not None and hearing.busy is not None and not ended:
        bad = bad.model_copy(update={"busy": hearing.busy, "retryable": True})
    return Answer(
        question.name,
        question.prompt,
        result,
        text=text,
        failure=bad,
        usage=hearing.usage,
        final=hearing.final,
    )


def _unreadable(
    who: str, hearing: Hearing, error: AnswerUnreadable, result: ProcessResult
) -> Outcome:
    """An agent that says that it failed, or one that says nothing that could be understood."""
    if hearing.failure is not None:
        text = f"{who} failed: {cut(hearing.failure, _SAID)}"
        return failed(ReasonCode.FAILED_STEP, text, result=result)
    text = f"{who} gave no readable answer: {error}"
    return failed(ReasonCode.INVALID_ANSWER, text, result=result)


_WAYS_OUT = {
    "program": "; install it on the worker's PATH, or set its command in agents.toml",
    "permission": "; make it executable there (chmod +x), or name what runs it before it",
    "room": ": without {prompt} in its command the prompt comes there",
}


def _with_way_out(bad: Outcome, result: ProcessResult) -> Outcome:
    """Where the program could not start, also what can be done about it."""
    if bad.reason is None or result.lacks is None or result.lacks not in _WAYS_OUT:
        return bad
    reason = bad.reason.model_copy(update={"text": bad.reason.text + _WAYS_OUT[result.lacks]})
    return bad.model_copy(update={"reason": reason})
