"""What one agent is asked, and on whose behalf."""

from __future__ import annotations

from dataclasses import dataclass

from app.outcomes import Thread
from workers.agents.entries import Agent, Role
from workers.body_task import BodyTask

__all__ = ["Question", "Role"]


@dataclass(frozen=True)
class Question:
    """A prompt for an agent, and how long the answer may take."""

    task: BodyTask
    name: str
    agent: Agent
    prompt: str
    role: Role
    model: str | None
    timeout_s: float

    @property
    def who(self) -> str:
        return f"agent {self.name!r}"

    @property
    def begun(self) -> Thread:
        """Where its conversation goes on; an agent that cannot go on begins anew each time."""
        begun = self.task.thread if self.agent.remembers else None
        return begun or Thread(conversation=self.task.conversation or "")

    def goes_on(self, thread: Thread) -> Thread | None:
        """Where it goes on from now, if the step is part of a conversation that was named."""
        if self.task.conversation is None or thread.id is None or not self.agent.remembers:
            return None
        return thread.model_copy(update={"conversation": self.task.conversation})
