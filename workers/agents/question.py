"""A prompt for one agent, with its model, timeout and conversation."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.outcomes import Thread
from workers.agents.answer import Answer
from workers.registry.agent_entry import Agent, Role
from workers.task.task import BodyTask

__all__ = ["Question", "Role"]


@dataclass(frozen=True)
class Question:
    """A prompt for one agent, and the limits of its answer."""

    task: BodyTask
    name: str
    agent: Agent
    prompt: str
    role: Role
    model: str | None
    timeout_s: float
    #: Whether it begins a new conversation, whatever thread the step could continue.
    is_fresh: bool = False
    #: The answer to which this is a further question.
    follows: Answer | None = None

    @property
    def who(self) -> str:
        """Return the agent's name as error messages show it."""
        return f"agent {self.name!r}"

    @property
    def thread_before(self) -> Thread:
        """Return the agent's conversation thread to resume; an empty one if there is none."""
        if self.follows is not None:
            return self.follows.own_thread or Thread(conversation="")
        resumes = self.agent.remembers and not self.is_fresh
        thread = self.task.thread if resumes else None
        return thread or Thread(conversation=self.task.conversation or "")

    def next_thread(self, thread: Thread) -> Thread | None:
        """Return the thread, named after the conversation, for the next turn; None without one."""
        if self.task.conversation is None or thread.id is None or not self.agent.remembers:
            return None
        return thread.model_copy(update={"conversation": self.task.conversation})
