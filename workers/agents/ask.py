"""Sends a prompt to a named agent and waits for its answer."""

from __future__ import annotations

import threading
from typing import assert_never

from workers.agents.answer import Answer
from workers.agents.command import ask_program
from workers.agents.function import ask_function
from workers.agents.model import ask_model
from workers.agents.question import Question, Role
from workers.prompts.build import retry_prompt
from workers.registry.errors import AgentUnnamed, AgentUnusable, ModelUnwanted
from workers.registry.preflight import missing_here
from workers.task.task import BodyTask


def agent_named(task: BodyTask, *names: str | None) -> str:
    """Returns the first agent name that is not None, else the default one. Raises AgentUnnamed."""
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
    is_fresh: bool = False,
    follows: Answer | None = None,
) -> Answer:
    """Run the agent on the prompt and return its answer.

    With `follows` it is a further question after that answer, in the same conversation.

    Raises AgentUnknown, AgentUnusable, ModelUnwanted, PromptTooLong.
    """
    agent = task.agents.agent(name)
    if model is not None and not agent.takes_model:
        raise ModelUnwanted(name, model)
    missing = missing_here(agent, task.inherit(agent.variables))
    if missing is not None:
        raise AgentUnusable(name, missing)
    # A doer's prompt already has the end of the previous attempt.
    is_first = follows is None and not (role == "doer" and task.ending is not None)
    question = Question(
        task=task,
        name=name,
        agent=agent,
        prompt=retry_prompt(prompt, task.failure) if is_first else prompt,
        role=role,
        model=model,
        timeout_s=timeout_s if agent.timeout_s is None else min(timeout_s, agent.timeout_s),
        is_fresh=is_fresh,
        follows=follows,
    )
    match agent.kind:
        case "command":
            return ask_program(question, cancel)
        case "model":
            return ask_model(question, cancel)
        case "callable":
            return ask_function(question, cancel)
    assert_never(agent.kind)
