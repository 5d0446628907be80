"""One attempt at a step, as the body that carries it out sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pydantic import JsonValue

from app.outcomes import Thread, Usage
from app.program import Action
from workers import environment
from workers.agents.book import AgentBook
from workers.sandbox import Command
from workers.shelf import Shelf
from workers.warm import Calls


@dataclass(frozen=True)
class BodyTask:
    """What is to be done, for whom, where, and until when."""

    session: str
    address: str
    action: Action
    iteration: int
    attempt: int
    #: References are resolved already.
    inputs: dict[str, JsonValue]
    cwd: Path | None
    #: A folder of this attempt's own.
    spill: Path
    timeout_s: float
    #: How the body reaches the API, and what makes the capability that speaks for it there.
    url: str
    mint: Callable[[], str]
    agents: AgentBook
    default_agent: str | None
    #: What the attempt before this one failed with, in one line without secrets.
    failure: str | None = None
    #: The conversation that its agent's turn is part of, and where it goes on, if it has begun.
    conversation: str | None = None
    thread: Thread | None = None
    #: What was said in a conversation up to a turn, as roles and texts.
    earlier: Callable[[str], Sequence[tuple[str, str]]] = field(default=lambda _: ())
    #: Is told what the agent used so far, while it works.
    on_spent: Callable[[Usage], None] = field(default=lambda _: None)

    #: What the worker itself was given, a part of which is handed on.
    inherited: Mapping[str, str] = field(default_factory=environment.inherited)
    #: Where functions that are declared quick are called; without it they are called like others.
    warm: Calls | None = None
    #: The tools of this worker.
    shelf: Shelf = field(default_factory=Shelf)

    def command(
        self,
        line: str | tuple[str, ...],
        *,
        prompt: str | None = None,
        feeds_prompt: bool = True,
        timeout_s: float | None = None,
        variables: Iterable[str] = (),
        on_output: Callable[[bytes], None] | None = None,
    ) -> Command:
        """A command of this body's: in its folder, with its environment and no longer than it."""
        return Command(
            line=line,
            cwd=self.folder,
            env=self._environment(variables),
            spill=self.spill,
            timeout_s=self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s),
            prompt=prompt,
            feeds_prompt=feeds_prompt,
            on_output=on_output,
        )

    @cached_property
    def token(self) -> str:
        """The capability, made for the first program that is handed it: most tools have none."""
        return self.mint()

    @property
    def handed_token(self) -> str:
        """The capability if a program was handed it, else nothing."""
        return str(vars(self).get("token", ""))

    @property
    def folder(self) -> Path:
        """Where it works; a session without a folder works in the attempt's own.

        What is part of a conversation works in one of the session's: some agents find their
        conversations only from where they began them.
        """
        if self.cwd is not None:
            return self.cwd
        own = self.spill if self.conversation is None else self.spill.parent / "talk"
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        return own

    def _environment(self, variables: Iterable[str]) -> dict[str, str]:
        return {
            **environment.clean(self.inherited, named=variables),
            "LEADHAND_URL": self.url,
            "LEADHAND_SESSION": self.session,
            "LEADHAND_STEP": self.address,
            "LEADHAND_ITERATION": str(self.iteration),
            "LEADHAND_KEY": f"{self.session}:{self.address}",
            "LEADHAND_TOKEN": self.token,
        }
