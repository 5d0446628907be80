"""Asks an OpenAI-compatible model, in a process of its own: it is ended as any agent is."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace

from app.outcomes import Thread
from workers.agents.answers import Answer
from workers.agents.entries import Agent, Told
from workers.agents.errors import PromptTooLong
from workers.agents.hearing import TEXT_LIMIT, TURN_LIMIT, Hearing
from workers.agents.programs import answered
from workers.agents.question import Question

#: How the answers of `workers.agents.chat` are read.
_CHAT = Agent(
    command=(sys.executable, "-P", "-m", "workers.agents.chat"),
    output="lines",
    answer="answer",
    failed="failed",
    busy=("busy",),
    final=("final",),
    retry_after_s="after_s",
    usage=Told(
        input_tokens=("usage.prompt_tokens",),
        cached_tokens=("usage.prompt_tokens_details.cached_tokens",),
        output_tokens=("usage.completion_tokens",),
    ),
    running=Told(input_tokens=("running.input_tokens",), output_tokens=("running.output_tokens",)),
)


def ask_model(question: Question, cancel: threading.Event) -> Answer:
    """The model's answer to the conversation so far and this prompt. Raises PromptTooLong."""
    task, agent, begun = question.task, question.agent, question.begun
    assert agent.model is not None
    reads = _CHAT.model_copy(update={"prices": agent.prices, "busy_tries": agent.busy_tries})
    # A turn is named by the step that spoke it, whose outcome keeps what was said.
    here = question.goes_on(Thread(conversation="", id=task.address, after=begun.id))
    if here is not None and len(question.prompt) > TURN_LIMIT:
        raise PromptTooLong(question.name, len(question.prompt), TURN_LIMIT)
    limit = TEXT_LIMIT if here is None else TURN_LIMIT
    hearing = Hearing(reads, before=None, on_spent=task.on_spent, limit=limit)
    earlier = task.earlier(begun.id) if begun.id is not None else []
    messages = [{"role": role, "content": text} for role, text in earlier]
    asked = {
        **agent.model.model_dump(),
        "name": question.model or agent.model.name,
        "messages": [*messages, {"role": "user", "content": question.prompt}],
    }
    command = task.command(
        reads.command or (),
        prompt=json.dumps(asked),
        timeout_s=question.timeout_s,
        variables=agent.variables,
        on_output=hearing.write,
    )
    answer = answered(question, command, hearing, cancel)
    return replace(answer.going_on(here), is_remembered=here is not None)
