"""Asks the agent of a loop that continues its conversation from iteration to iteration."""

from __future__ import annotations

import threading
import time

from workers.agents.answer import Answer
from workers.agents.ask import ask
from workers.prompts.build import (
    attempt_prompt,
    continued_prompt,
    doer_prompt,
    prompt_with_messages,
)
from workers.prompts.inputs import DoerInputs
from workers.task.task import BodyTask


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
