"""Chooses the conversation that an agent's step is part of, and where it continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.addresses import block_of, turn_of
from app.domain.outcomes import Thread
from app.operations.attempts import Work

#: The inputs of a doer that a continued conversation already has, as long as they stay the same.
_TASK_INPUTS = ("task", "lines", "file_scope", "verify")


class Conversation(NamedTuple):
    #: Its name; None for a step that is part of none.
    name: str | None
    #: The last committed thread, which the step continues.
    thread: Thread | None


def conversation_of(work: Work) -> Conversation:
    """Returns a step's conversation name and thread; each run of a loop begins a new conversation.

    So the next run of the loop begins a fresh one, whatever an older run left. The name of a loop's
    conversation ends with a digest of the task: a thread that was committed under another digest
    has another task.
    """
    name, thread = work.step.conversation, work.grant.thread
    if name is None or work.inputs.get("continues") is not True:
        return Conversation(name, thread)
    run = f"{name}@{turn_of(block_of(work.grant.address))}"
    is_same_run = thread is not None and f"{thread.conversation} ".startswith(f"{run} ")
    return Conversation(f"{run} {_digest(work.inputs)}", thread if is_same_run else None)


def _digest(inputs: Mapping[str, JsonValue]) -> str:
    """8 hex characters of the SHA-256 of a doer's task, file scope and verification."""
    told = json.dumps([inputs.get(name) for name in _TASK_INPUTS])
    return hashlib.sha256(told.encode()).hexdigest()[:8]
