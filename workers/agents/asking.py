"""Asks an agent: starts its program with a prompt and waits for the answer."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from app.outcomes import Outcome
from app.reasons import ReasonCode
from workers.agents.answers import read_answer
from workers.agents.errors import AgentUnnamed, AnswerUnreadable, ModelUnwanted
from workers.agents.prompts import again_prompt
from workers.body_task import BodyTask
from workers.endings import failed, failure
from workers.sandbox import ProcessResult, run


@dataclass(frozen=True)
class Answer:
    """What an agent said; a failure where it said nothing that counts."""

    agent: str
    result: ProcessResult
    text: str = ""
    failure: Outcome | None = None


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
    model: str | None,
    timeout_s: float,
    cancel: threading.Event,
) -> Answer:
    """The agent's answer. Raises AgentUnknown and ModelUnwanted."""
    agent = task.agents.agent(name)
    prompt = again_prompt(prompt, task.failure)
    if model is not None and not agent.model_args:
        raise ModelUnwanted(name, model)
    command = task.command(
        agent.argv(prompt=prompt, model=model),
        prompt=prompt,
        feeds_prompt=not agent.takes_prompt_as_argument,
        timeout_s=timeout_s if agent.timeout_s is None else min(timeout_s, agent.timeout_s),
        variables=agent.env,
    )
    result = run(command, cancel)
    who = f"agent {name!r}"
    bad = failure(result, who=who, timeout_s=command.timeout_s)
    if bad is not None:
        return Answer(name, result, failure=_with_way_out(bad, result))
    try:
        return Answer(name, result, text=read_answer(agent.answer, result.stdout))
    except AnswerUnreadable as error:
        text = f"{who} gave no readable answer: {error}"
        return Answer(name, result, failure=failed(ReasonCode.INVALID_ANSWER, text, result=result))


def _with_way_out(bad: Outcome, result: ProcessResult) -> Outcome:
    """Where the program is not there, also what can be done about it."""
    if result.not_started is None or bad.reason is None:
        return bad
    hint = "install it on the worker's PATH, or set its command in agents.toml"
    reason = bad.reason.model_copy(update={"text": f"{bad.reason.text}; {hint}"})
    return bad.model_copy(update={"reason": reason})
