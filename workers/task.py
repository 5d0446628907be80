"""The values that a step's body gets: one attempt with its inputs, folder, limits and agents."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from app.core.addresses import block_of, turn_of
from app.core.environment import SessionEnvironment
from app.core.messages import Message
from app.core.outcomes import Outcome, Thread, Usage
from app.core.program import Action
from app.core.states import SessionStatus
from app.folders import StoreFolders
from app.sessions.attempts import Work
from leadhand.models.documents import Rule
from workers.folders.protected import PROTECTED, ProtectedFolder, Records
from workers.inline_calls import InlineCalls
from workers.live_output import LiveOutput
from workers.processes import environment
from workers.processes.process import Command, unlimited
from workers.processes.user_folders import claim_session_folder
from workers.processes.warm_pool import Warm
from workers.registry.agents import AgentBook
from workers.registry.tools import ToolCatalogue

#: The inputs of a doer that a continued conversation already has, as long as they stay the same.
_TASK_INPUTS = ("task", "lines", "file_scope", "verify")


def as_text(value: object) -> object:
    """Converts a value to text: '' for None, JSON for anything but text."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _known_fields(value: object) -> object:
    """An outcome without the fields that only a newer worker knows."""
    if not isinstance(value, dict) or "word" not in value:
        return None
    return {name: item for name, item in value.items() if name in Outcome.model_fields}


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


#: Text, or the value of a reference converted to text.
Text = Annotated[str, BeforeValidator(as_text)]


class Inputs(BaseModel):
    """Frozen; ignores fields that only a newer worker knows."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Check(BaseModel):
    """One checker and its outcome; None if all of its attempts were lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    outcome: Outcome | None = None


#: What decided on a checker's verdict if its answer was none.
UNCLEAR: Literal["none"] = "none"


class _LenientCheck(Check):
    outcome: Annotated[Outcome | None, BeforeValidator(_known_fields)] = None


class _Decided(Inputs):
    name: str
    decided_by: str | None = None


class _Judged(Inputs):
    checks: tuple[_Decided, ...] = ()


class JudgeInputs(Inputs):
    """The checks of an iteration, and the rule that combines their verdicts."""

    rule: Rule = "all"
    checks: tuple[_LenientCheck, ...]
    #: The checks of the previous iteration.
    before: _Judged | None = None

    @property
    def unclear_before(self) -> frozenset[str]:
        """The names of the checkers whose last answer was no verdict."""
        checks = self.before.checks if self.before is not None else ()
        return frozenset(one.name for one in checks if one.decided_by == UNCLEAR)


class BreakInputs(Inputs):
    """The inputs of a break or decide step: a question, a script, a command or a ready answer."""

    #: Asked of the agent (by default the default agent), which answers yes or no.
    question: Text = ""
    agent: str | None = None
    model: str | None = None
    #: Prints ``{"answer": "yes"}`` or ``{"answer": "no"}`` and nothing else.
    script: str | None = None
    #: Exit code 0 means that the condition holds; any other, that it does not.
    command: str | None = None
    answer: Text = ""
    #: The answer that ends the loop or makes the condition hold.
    break_on: Annotated[Literal["yes", "no"], BeforeValidator(_lower)] = "yes"


class ToolInputs(Inputs):
    """The inputs of a tool step."""

    tool: str
    #: Whether the function takes milliseconds and may share a process with other calls.
    quick: bool = False
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    #: What the result must say, so that the call counts as successful.
    expect: Literal["success"] | None = None


@dataclass(frozen=True)
class BodyTask:
    """One attempt at a step, as its body sees it."""

    session: str
    address: str
    action: Action
    iteration: int
    attempt: int
    #: With all references resolved.
    inputs: dict[str, JsonValue]
    cwd: Path | None
    #: This attempt's own folder for prompts and output.
    spill: Path
    timeout_s: float
    #: The API's URL, and the function that mints the body's step token.
    url: str
    mint: Callable[[], str]
    agents: AgentBook
    default_agent: str | None
    #: How often the step's retry policy repeats a failed attempt.
    retries: int = 0
    #: Hosts that tools may reach at private addresses.
    tool_hosts: tuple[str, ...] = ()
    #: The error of the previous attempt, in one line without secrets.
    failure: str | None = None
    #: For a doer: how the previous attempt ended, with its exit code and last lines.
    ending: str | None = None
    #: Whether it is the first step after a stop, during which a person may have changed the folder.
    after_stop: bool = False
    #: The messages of the session's inbox that this attempt gets.
    messages: tuple[Message, ...] = ()
    #: Mints the token that lives as long as the session, for agents that ask for it.
    mint_for_session: Callable[[], str] = field(default=str)
    #: The conversation of this turn, and the thread to resume if the conversation has one.
    conversation: str | None = None
    thread: Thread | None = None
    #: Returns a conversation's messages up to a turn, as roles and texts.
    earlier: Callable[[str], Sequence[tuple[str, str]]] = field(default=lambda _: ())
    #: Of the doer of a recheck, which is not started: the work that is checked again.
    passed_on: Outcome | None = None
    #: Called with the agent's usage so far, while it works.
    on_spent: Callable[[Usage], None] = field(default=lambda _: None)

    #: Of a session with a folder, which `cwd` may be below: what is stored of its protected files.
    protected: Records | None = None
    #: The folder of the plan whose task this is; rubrics are read there, and not in the worktree.
    origin: Path | None = None
    #: The inputs of the step that makes the session's folder, or the folder of a merge.
    workspace: Mapping[str, JsonValue] | None = None
    #: The top of the worktree or copy that the session has to itself.
    own_top: Path | None = None
    #: Whether other sessions may write to the folder at the same time.
    is_beside: bool = False
    #: The session that has the snapshots of the folder; '' for the step's own.
    owner: str = ""
    #: The folder of the worktrees and copies of tasks, and the most bytes of a copy.
    worktrees: Path | None = None
    copy_max: int = 0
    #: Called with what was done with a task's folder: its fields in the plan; or with `work`, the
    #: digest of a state that is judged and that no doer has made, '' if it is unknown.
    on_workspace: Callable[[Mapping[str, JsonValue]], None] = field(default=lambda _: None)
    #: Returns the digest of the session's work as its last doer left it, if it is recorded.
    recorded_work: Callable[[], str | None] = field(default=lambda: None)
    #: Returns the diff of the loop's work, which a checker judges; '' where it is unknown.
    work_diff: Callable[[], str] = field(default=str)
    #: Reserves the folder of a session in one of these statuses for so many seconds, and returns
    #: its status if that is another one; None if the attempt is lost. And releases it.
    reserve: Callable[[str, Collection[SessionStatus], float], str | None] = field(
        default=lambda *_: ""
    )
    release: Callable[[str], None] = field(default=lambda _: None)
    #: The id of the store; and what it has on record of folders here and of these sessions, None if
    #: the attempt is lost.
    store: str = ""
    stored_folders: Callable[[Sequence[str]], StoreFolders | None] = field(
        default=lambda _: StoreFolders("", {}, ())
    )
    #: Collects the body's output for live display.
    live: LiveOutput | None = None
    #: Returns when the attempt's lease expires, on the monotonic clock.
    until: Callable[[], float] = field(default=unlimited)
    #: The worker's environment; the body's is a part of it.
    worker_environment: Mapping[str, str] = field(default_factory=environment.inherited)
    #: What the session's submitter passed.
    session_environment: SessionEnvironment = field(default_factory=SessionEnvironment)
    #: Whether the session may bring commands: its token had the scope exec:free.
    is_free: bool = True
    #: The warm processes for quick functions; without them each gets a process of its own.
    warm: Warm | None = None
    #: Called when a check is seen not to be quick, possibly several times: what waits for its end
    #: is done now.
    on_slow: Callable[[], None] = field(default=lambda: None)
    #: Calls functions in this process; None calls none.
    inline: InlineCalls | None = None
    #: The tools of this worker.
    shelf: ToolCatalogue = field(default_factory=ToolCatalogue)

    @property
    def home(self) -> Path:
        """Return the folder beside which the snapshots of the working folder are."""
        return self.spill.parent.with_name(self.owner) if self.owner else self.spill.parent

    def command(
        self,
        line: str | tuple[str, ...],
        *,
        prompt: str | None = None,
        feeds_prompt: bool = True,
        timeout_s: float | None = None,
        variables: Iterable[str] = (),
        on_output: Callable[[bytes], None] | None = None,
        shows_stdout: bool = True,
        report: Path | None = None,
    ) -> Command:
        """Build a command that runs in the step's folder and environment, within its time limits.

        Its output is shown while it runs; its standard output only with `shows_stdout`. Each
        pytest that it starts writes its report into the pipe `report`.
        """
        env = self._environment(variables)
        if self.action is Action.CHECK:  # a doer may have left bytecode that is not of the sources
            env = environment.with_bytecode_in(env, self.bytecode)
        return Command(
            line=line,
            cwd=self.folder,
            env=env if report is None else environment.with_pytest_report(env, report),
            report=report,
            spill=self.spill,
            timeout_s=self.timeout_s if timeout_s is None else min(timeout_s, self.timeout_s),
            prompt=prompt,
            result=self._judged,
            feeds_prompt=feeds_prompt,
            on_output=on_output,
            on_read=self._on_read(shows_stdout=shows_stdout),
            until=self.until,
        )

    def protected_folder(self, cancel: threading.Event) -> ProtectedFolder | None:
        """Return the protected files of the session's folder; None without a folder."""
        if self.protected is None:
            return None
        return ProtectedFolder(self.protected, self.spill.parent / PROTECTED, cancel)

    @property
    def bytecode(self) -> Path:
        """Return the folder of the bytecode of what the session's checks run in Python."""
        return self.spill.parent / "pycache"

    @property
    def _judged(self) -> str | None:
        """The doer's answer that this step judges; None for steps that judge none."""
        work = self.inputs.get("work") if self.action is Action.CHECK else None
        return None if work is None else str(as_text(work))

    def _on_read(
        self, *, shows_stdout: bool
    ) -> Callable[[Literal["stdout", "stderr"], bytes], None] | None:
        live = self.live
        if live is None or shows_stdout:
            return None if live is None else live.write
        return lambda stream, chunk: live.write(stream, chunk) if stream == "stderr" else None

    @cached_property
    def token(self) -> str:
        """Return the API token of this step, created on first use."""
        return self.mint()

    @cached_property
    def session_token(self) -> str:
        """Return the API token that lasts as long as the session, created on first use."""
        return self.mint_for_session()

    @property
    def handed_tokens(self) -> frozenset[str]:
        """Return the API tokens created so far for the step's programs."""
        return frozenset(str(vars(self).get(name, "")) for name in ("token", "session_token"))

    @property
    def folder(self) -> Path:
        """Return the working folder; without one, a temporary one of the attempt or conversation.

        Some agents find a conversation only in the folder where it began, so all conversations of
        a session share one folder.
        """
        if self.cwd is not None:
            return self.cwd
        own = self.spill if self.conversation is None else self.spill.parent / "talk"
        claim_session_folder(own)
        return own

    @cached_property
    def inherited(self) -> Mapping[str, str]:
        """Returns the worker's environment, with values replaced by the submitting shell's."""
        return self.session_environment.inherit(self.worker_environment)

    def inherit(self, variables: Iterable[str]) -> dict[str, str]:
        """Returns a step's environment, without Leadhand's own: common, named and passed ones."""
        named = environment.clean(self.inherited, named=variables)
        return {**named, **self.session_environment.passed}

    def _environment(self, variables: Iterable[str]) -> dict[str, str]:
        variables = frozenset(variables)
        outlives = environment.SESSION_TOKEN in variables
        return {
            **self.inherit(variables),
            "LEADHAND_URL": self.url,
            "LEADHAND_SESSION": self.session,
            "LEADHAND_STEP": self.address,
            "LEADHAND_ITERATION": str(self.iteration),
            "LEADHAND_KEY": f"{self.session}:{self.address}",
            "LEADHAND_TOKEN": self.token,
            **environment.place(self.worker_environment),
            **({environment.SESSION_TOKEN: self.session_token} if outlives else {}),
        }


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
