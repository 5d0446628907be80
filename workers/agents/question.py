"""A prompt for one agent, with its model, timeout and conversation."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.outcomes import Outcome, Thread, Usage
from app.truncate import cut
from leadhand.models.views.step import ToolCallView
from workers.agents.output_parser import TEXT_LIMIT
from workers.processes.exit_outcome import add_process_facts, mark_retryable
from workers.processes.process import ProcessResult
from workers.prompts import all_tools_failed
from workers.registry.agent_entry import Agent, Role
from workers.task import BodyTask

__all__ = ["Question", "Role"]


@dataclass(frozen=True)
class Answer:
    """An agent's answer to one prompt, or the failure that came instead."""

    agent: str
    prompt: str
    result: ProcessResult
    text: str = ""
    #: The same text, before it is cut.
    whole: str = ""
    failure: Outcome | None = None
    usage: Usage | None = None
    #: From where the next turn resumes the conversation.
    thread: Thread | None = None
    #: With what a further question goes on; None if the agent has no memory of the answer.
    own_thread: Thread | None = None
    #: Whether a retry would fail in the same way.
    final: bool = False
    #: Whether later turns replay this turn from its outcome, so that the prompt is stored whole.
    is_remembered: bool = False
    #: The first tool calls, and their number if all of them failed.
    tools: tuple[ToolCallView, ...] | None = None
    tools_failed: int | None = None

    def mark_retryable(self, failure: Outcome) -> Outcome:
        """Return the failure marked as retryable, unless the agent reported it as final."""
        return failure if self.final else mark_retryable(failure, self.result)

    def add_usage(self, outcome: Outcome) -> Outcome:
        """Return the outcome with usage, thread, prompt and tool calls of this answer added."""
        fields = {
            "usage": self.usage,
            "thread": self.thread if self.failure is None else None,
            "prompt": self._kept(self.prompt),
            "raw": None if self.text.strip() == outcome.text else self._kept(self.text),
            "tools": self.tools,
            "tools_failed": self.tools_failed,
            "warning": self._add_warning(outcome.warning),
        }
        return add_process_facts(outcome.model_copy(update=fields), self.result)

    def _add_warning(self, warning: str | None) -> str | None:
        """The outcome's warning, and one about tool calls if all of them failed."""
        if self.tools_failed is None:
            return warning
        failed = f"agent {self.agent!r}: {all_tools_failed(self.tools_failed)}"
        return failed if warning is None else f"{warning}; {failed}"

    def _kept(self, text: str) -> str:
        """Cuts a text, unless later turns of the conversation need the whole of it."""
        return text if self.is_remembered else cut(text, TEXT_LIMIT)


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
