"""Asks an agent: starts its program with a prompt and waits for the answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from app.outcomes import Outcome, Thread, Usage
from app.reasons import ReasonCode
from app.texts import cut
from workers.agents.entries import Agent, Role
from workers.agents.errors import AgentUnnamed, AnswerUnreadable, ModelUnwanted
from workers.agents.hearing import TEXT_LIMIT, Hearing
from workers.agents.prompts import again_prompt
from workers.body_task import BodyTask
from workers.endings import failed, failure, stamped
from workers.sandbox import ProcessResult, run


@dataclass(frozen=True)
class Answer:
    """What an agent said; a failure where it said nothing that counts."""

    agent: str
    prompt: str
    result: ProcessResult
    text: str = ""
    failure: Outcome | None = None
    usage: Usage | None = None
    #: Where its conversation goes on.
    thread: Thread | None = None

    def told(self, outcome: Outcome) -> Outcome:
        """The outcome that was made of it, with what the asking took."""
        said = {
            "usage": self.usage,
            "thread": self.thread if self.failure is None else None,
            "prompt": cut(self.prompt, TEXT_LIMIT),
        }
        return stamped(outcome.model_copy(update=said), self.result)


def agent_named(task: BodyTask, *names: str | None) -> str:
    """The first agent that is named, or the default. Raises AgentUnnamed."""
    for name in (*names, task.default_agent):
        if name is not None:
            return name
    raise AgentUnnamed


def ask(
    task: BodyTask,
    name: str,
    prompt: str,
    *,
    role: Role,
    model: str | None,
    timeout_s: float,
    cancel: threading.Event,
) -> Answer:
    """The agent's answer. Raises AgentUnknown and ModelUnwanted."""
    agent = task.agents.agent(name)
    prompt = again_prompt(prompt, task.failure)
    if model is not None and not agent.model_args:
        raise ModelUnwanted(name, model)
    before = _before(task, agent)
    hearing = Hearing(agent, before=before.told, on_spent=task.on_spent)
    command = task.command(
        agent.argv(prompt=prompt, model=model, thread=before.id, role=role),
        prompt=prompt,
        feeds_prompt=not agent.takes_prompt_as_argument,
        timeout_s=timeout_s if agent.timeout_s is None else min(timeout_s, agent.timeout_s),
        variables=agent.variables,
        on_output=hearing.write,
    )
    result = run(command, cancel)
    text, bad = _heard(name, hearing, result, timeout_s=command.timeout_s)
    return Answer(
        name,
        prompt,
        result,
        text=text,
        failure=bad,
        usage=hearing.usage,
        thread=_thread(task, agent, hearing),
    )


def _heard(
    name: str, hearing: Hearing, result: ProcessResult, *, timeout_s: float
) -> tuple[str, Outcome | None]:
    """The answer, and what is wrong with it."""
    who = f"agent {name!r}"
    text, unreadable = "", None
    try:
        text = hearing.answer(result.stdout)
    except AnswerUnreadable as error:
        why = f"{who} gave no readable answer: {error}"
        unreadable = failed(ReasonCode.INVALID_ANSWER, why, result=result)
    bad = failure(result, who=who, timeout_s=timeout_s, said=hearing.failure)
    if bad is not None:
        return text, _with_way_out(bad, result)
    return text, unreadable


def _before(task: BodyTask, agent: Agent) -> Thread:
    """Where its conversation goes on; an agent that cannot go on begins anew each time."""
    begun = task.thread if agent.remembers else None
    return begun or Thread(conversation=task.conversation or "")


def _thread(task: BodyTask, agent: Agent, hearing: Hearing) -> Thread | None:
    """Where the step's conversation goes on, if it is part of one and the agent named it."""
    if task.conversation is None or hearing.thread is None or not agent.remembers:
        return None
    return Thread(conversation=task.conversation, id=hearing.thread, told=hearing.told)


def _with_way_out(bad: Outcome, result: ProcessResult) -> Outcome:
    """Where the program is not there, also what can be done about it."""
    if result.not_started is None or bad.reason is None:
        return bad
    hint = "install it on the worker's PATH, or set its command in agents.toml"
    reason = bad.reason.model_copy(update={"text": f"{bad.reason.text}; {hint}"})
    return bad.model_copy(update={"reason": reason})
