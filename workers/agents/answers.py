"""What an agent said, whatever kind of agent it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.outcomes import Outcome, Thread, Usage
from app.texts import cut
from workers.agents.hearing import TEXT_LIMIT
from workers.endings import stamped, worth_another_try
from workers.sandbox import ProcessResult


@dataclass(frozen=True)
class Answer:
    """What an agent said; a failure where it said nothing that counts."""

    agent: str
    prompt: str
    result: ProcessResult
    text: str = ""
    failure: Outcome | None = None
    usage: Usage | None = None
    #: Where its conversation goes on.
    thread: Thread | None = None
    #: Whether it would fail in the same way again.
    final: bool = False
    #: Whether later turns of the conversation are told what its outcome keeps.
    is_remembered: bool = False

    def going_on(self, thread: Thread | None) -> Answer:
        """The same, with where its conversation goes on."""
        return replace(self, thread=thread)

    def tried_again(self, failure: Outcome) -> Outcome:
        """What becomes of the step that it failed."""
        return failure if self.final else worth_another_try(failure, self.result)

    def told(self, outcome: Outcome) -> Outcome:
        """The outcome that was made of it, with what the asking took."""
        said = {
            "usage": self.usage,
            "thread": self.thread if self.failure is None else None,
            "prompt": self.prompt if self.is_remembered else cut(self.prompt, TEXT_LIMIT),
        }
        return stamped(outcome.model_copy(update=said), self.result)
