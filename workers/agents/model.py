"""Runs an agent that is an OpenAI-compatible model.

The request is made by a process of its own, so that timeouts and stops work as for any agent.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

from app.core.outcomes import Thread
from workers.agents.command import run_and_parse
from workers.agents.output_parser import TEXT_LIMIT, TURN_LIMIT, OutputParser
from workers.agents.question import Answer, Question
from workers.registry.agent_entry import Agent, UsagePaths
from workers.registry.errors import PromptTooLong

#: How to parse the output of `workers.agents.chat_completion`.
_CHAT = Agent(
    command=(sys.executable, "-P", "-m", "leadhand.serve", "chat"),
    output="lines",
    answer="answer",
    failed="failed",
    busy=("busy",),
    final=("final",),
    retry_after_s="after_s",
    usage=UsagePaths(
        input_tokens=("usage.prompt_tokens",),
        cached_tokens=("usage.prompt_tokens_details.cached_tokens",),
        output_tokens=("usage.completion_tokens",),
    ),
    running=UsagePaths(
        input_tokens=("running.input_tokens",), output_tokens=("running.output_tokens",)
    ),
)


def ask_model(question: Question, cancel: threading.Event) -> Answer:
    """Send a model the conversation and the prompt; return its answer. Raises PromptTooLong."""
    task, agent, thread_before = question.task, question.agent, question.thread_before
    assert agent.model is not None
    output_format = _CHAT.model_copy(
        update={"prices": agent.prices, "busy_tries": agent.busy_tries}
    )
    # The thread id of a turn is the step's address: that step's outcome stores prompt and answer.
    here = question.next_thread(Thread(conversation="", id=task.address, after=thread_before.id))
    if here is not None and len(question.prompt) > TURN_LIMIT:
        raise PromptTooLong(question.name, len(question.prompt), TURN_LIMIT)
    limit = TEXT_LIMIT if here is None else TURN_LIMIT
    parser = OutputParser(output_format, before=None, on_spent=task.on_spent, limit=limit)
    messages = [{"role": role, "content": text} for role, text in _turns(question)]
    request = {
        **agent.model.model_dump(),
        "name": question.model or agent.model.name,
        "messages": [*messages, {"role": "user", "content": question.prompt}],
    }
    command = task.command(
        output_format.command or (),
        prompt=json.dumps(request),
        timeout_s=question.timeout_s,
        variables=agent.variables,
        on_output=parser.write,
        shows_stdout=False,
    )
    answer = run_and_parse(question, command, parser, cancel)
    return replace(answer, thread=here, is_remembered=here is not None)


def _turns(question: Question) -> Sequence[tuple[str, str]]:
    """The turns before the prompt, as roles and texts."""
    first, before = question.follows, question.thread_before.id
    if first is not None:
        return (("user", first.prompt), ("assistant", first.whole))
    return question.task.earlier(before) if before is not None else ()
