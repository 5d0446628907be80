"""Asks an agent: starts what it is with a prompt and waits for the answer."""

from __future__ import annotations

import threading
from typing import assert_never

from workers.agents.answers import Answer
from workers.agents.errors import AgentUnnamed, AgentUnusable, ModelUnwanted
from workers.agents.functions import ask_function
from workers.agents.models import ask_model
from workers.agents.programs import ask_program
from workers.agents.prompts import again_prompt
from workers.agents.question import Question, Role
from workers.agents.usable import missing_here
from workers.body_task import BodyTask


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
    """The agent's answer. Raises AgentUnknown, AgentUnusable, ModelUnwanted, PromptTooLong."""
    agent = task.agents.agent(name)
    if model is not None and not agent.takes_model:
        raise ModelUnwanted(name, model)
    missing = missing_here(agent)
    if missing is not None:
        raise AgentUnusable(name, missing)
    question = Question(
        task=task,
        name=name,
        agent=agent,
        prompt=again_prompt(prompt, task.failure),
        role=role,
        model=model,
        timeout_s=timeout_s if agent.timeout_s is None else min(timeout_s, agent.timeout_s),
    )
    match agent.kind:
        case "command":
            return ask_program(question, cancel)
        case "model":
            return ask_model(question, cancel)
        case "callable":
            return ask_function(question, cancel)
    assert_never(agent.kind)
