"""Sends a prompt to a named agent and waits for its answer."""

from __future__ import annotations

import threading
import time
from typing import assert_never

from workers.agents.command import ask_program
from workers.agents.function import ask_function
from workers.agents.model import ask_model
from workers.agents.question import Answer, Question, Role
from workers.prompts import (
    DoerInputs,
    attempt_prompt,
    continued_prompt,
    doer_prompt,
    prompt_with_messages,
    retry_prompt,
)
from workers.registry.agents import missing_here
from workers.registry.errors import AgentUnnamed, AgentUnusable, ModelUnwanted
from workers.task import BodyTask


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


def ask_on(
    task: BodyTask, given: DoerInputs, name: str, cancel: threading.Event
) -> tuple[Answer, str | None]:
    """Asks an agent in its earlier conversation; if that is lost, in a new one, with a warning.

    The agent continues from the last committed thread, with the feedback as its prompt, and with
    the task if that has changed since. Without a thread, or where the agent no longer has it, it
    begins a new conversation with the whole prompt.
    """
    deadline = time.monotonic() + task.timeout_s
    agent = task.agents.agent(name)
    thread = task.thread if agent.remembers else None
    if thread is None or thread.id is None:
        return _ask_afresh(task, given, name, deadline, cancel), None
    has_new_task = thread.conversation != task.conversation
    prompt = _prompt(task, continued_prompt(given, has_new_task=has_new_task))
    answer = _ask(task, given, name, prompt, deadline, cancel, is_fresh=False)
    if not agent.lost_thread(_output(answer)) or answer.failure is None:
        return answer, None
    return _ask_afresh(task, given, name, deadline, cancel), _warning(given, name)


def _ask_afresh(
    task: BodyTask, given: DoerInputs, name: str, deadline: float, cancel: threading.Event
) -> Answer:
    """Begins a new conversation with the whole prompt."""
    return _ask(
        task, given, name, _prompt(task, doer_prompt(given)), deadline, cancel, is_fresh=True
    )


def _prompt(task: BodyTask, prompt: str) -> str:
    return prompt_with_messages(attempt_prompt(prompt, task.ending), task.messages)


def _ask(
    task: BodyTask,
    given: DoerInputs,
    name: str,
    prompt: str,
    deadline: float,
    cancel: threading.Event,
    *,
    is_fresh: bool,
) -> Answer:
    return ask(
        task,
        name,
        prompt,
        role="doer",
        model=given.model,
        timeout_s=max(0.1, deadline - time.monotonic()),
        cancel=cancel,
        is_fresh=is_fresh,
    )


def _output(answer: Answer) -> str:
    return f"{answer.result.stdout.text}\n{answer.result.stderr.text}"


def _warning(given: DoerInputs, name: str) -> str:
    where = f"phase {given.phase!r}" if given.phase else "the loop"
    return (
        f"agent {name!r} no longer has the conversation of {where}:"
        f" iteration {given.iteration} began a new one with the whole task"
    )
