"""The models of loop and workflow documents, which clients submit to the API."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import date
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    ValidationInfo,
    field_validator,
    model_validator,
)

from leadhand.models import patterns
from leadhand.models.session_environment import WithEnvironment
from leadhand.models.suggestions import listed, nearest

#: The default of a loop's max_iterations.
DEFAULT_MAX_ITERATIONS = 3
#: The default number of iterations without a change after which the doer is warned.
DEFAULT_NO_PROGRESS = 3
#: The largest max_iterations of a loop.
MAX_ITERATIONS_CEILING = 10_000
#: The most checkers in all phases of a workflow, and the most names in all their `pipe_from`.
MAX_CHECKERS, MAX_PIPES = 10_000, 10_000
#: A doer's default timeout, in seconds.
AGENT_TIMEOUT_S = 3600.0
#: A checker's default timeout, in seconds.
CHECK_TIMEOUT_S = 300.0


def without_zero(text: str) -> str:
    """Returns the text, or raises ValueError if it has a NUL, which no process argument may."""
    if "\0" in text:
        raise ValueError("it holds a zero character; leave that out")
    return text


Name = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(without_zero)]
Text = Annotated[str, Field(min_length=1, max_length=200_000)]
#: A shell command.
Command = Annotated[Text, AfterValidator(without_zero)]
#: Seconds as a strict number: true and "3" are errors.
Seconds = Annotated[float, Field(strict=True, gt=0, le=7 * 24 * 3600)]
Callable_ = Annotated[str, Field(pattern=patterns.FUNCTION, max_length=300)]
FileName = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(without_zero)]
#: A user's own key, for concurrency and rate limits.
Key = Annotated[str, Field(pattern=patterns.NAME)]
#: A pattern of protected files.
FilePattern = Annotated[
    str,
    Field(min_length=1, max_length=500),
    AfterValidator(without_zero),
    AfterValidator(patterns.check_file_pattern),
]
#: The name of a place, as in LEADHAND_PLACE.
Place = Annotated[str, Field(pattern=patterns.NAME)]
Priority = Literal["high", "normal", "low"]
OnProtected = Literal["terminate", "ask"]
Conversation = Literal["fresh", "continue"]
Rule = Literal["all", "any"] | Annotated[int, Field(strict=True, ge=1, le=100)]

_ON_FAIL = re.compile(r"^(stop|continue|retry:([1-9][0-9]{0,2}))$")
_URL = re.compile(
    r"^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?([/?][\x21\x22\x24-\x7e]*)?$"
)
_PREFIXED = re.compile(r"^(agent|callable|tool|rubric)\s*:\s*(.*)$", re.DOTALL)
_KINDS = ("agent", "callable", "tool", "rubric")
#: `NAME: ...`, a checker with a name; the words of the other forms are no names.
_NAMED = re.compile(r"^([A-Za-z][A-Za-z0-9_.-]*):\s+(\S.*)$", re.DOTALL)
#: `agent(NAME): ...`, an instruction to an agent that is named.
_NAMES_AGENT = re.compile(r"^agent\s*\(([^()]*)\)\s*:\s*(.*)$", re.DOTALL)
#: The name of a Markdown file and nothing else.
_RUBRIC_FILE = re.compile(r"^[^\s;&|<>$`'\"]+\.(md|markdown)$", re.IGNORECASE)


class Document(BaseModel):
    """Frozen; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class Doer(Document):
    """A doer: exactly one of a named agent, a shell command, a Python callable."""

    agent: Name | None = None
    command: Command | None = None
    callable: Callable_ | None = None
    #: A callable that takes milliseconds and may share its process with other calls.
    quick: StrictBool = False

    @model_validator(mode="after")
    def _exactly_one(self) -> Doer:
        if sum(v is not None for v in (self.agent, self.command, self.callable)) != 1:
            raise ValueError("give exactly one of agent, command, callable")
        if self.quick and self.callable is None:
            raise ValueError("quick belongs to a callable")
        return self


class Checker(Document):
    """A checker: exactly one of a command, an instruction to an agent, a callable, tool or rubric.

    As text, ``agent: ...`` or ``agent(NAME): ...`` is an instruction, ``callable:
    module:function`` a callable, ``tool: module:function`` a tool, ``rubric: FILE`` or the name of
    a Markdown file a rubric, and anything else a shell command whose exit code decides. ``NAME:``
    before any of these, with a space after it, gives it a name.
    """

    name: Name | None = None
    command: Command | None = None
    prompt: Text | None = None
    callable: Callable_ | None = None
    #: A function in the workers' tool folders, which their operator wrote.
    tool: Callable_ | None = None
    #: A Markdown file in the working folder: gates to run, and criteria for an agent.
    rubric: FileName | None = None
    #: The agent that judges by ``prompt`` or ``rubric``; by default the doer's default agent.
    agent: Name | None = None
    model: Name | None = None
    timeout_s: Seconds = CHECK_TIMEOUT_S
    #: A callable or tool that takes milliseconds and may share its process with other calls.
    quick: StrictBool = False
    #: Whether its changes in the folder are part of the work, as those of a formatter. Such
    #: checkers run before the others, one by one.
    writes: StrictBool = False
    #: Whether it runs by itself, after those beside it, on the work as the doer left it: what other
    #: checkers have changed is put back before it. It needs a worktree or copy of the session's.
    isolated: StrictBool = False
    #: Whether it runs in a folder beside the working folder, which has the doer's work without
    #: ignored files: only the session's `prepare` and `copy` bring some there.
    clean: StrictBool = False
    #: Of a command: the JUnit report that it writes, or `none`: then its exit code alone decides.
    #: By default each pytest that it starts is asked for one, and known outputs are read.
    report: FileName | None = None
    #: Of a command: whether exit code 0 accepts if no test ran, or no report came.
    allow_empty: StrictBool = False
    #: Of a command: how often it runs again on the same work after it failed. If some runs pass,
    #: it is flaky: it abstains, and the other checkers decide.
    reruns: Annotated[int, Field(strict=True, ge=0, le=20)] = 0

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = value.strip()
        if not text:
            raise ValueError("a checker must not be empty; give a command or 'agent: ...'")
        named = _NAMES_AGENT.match(text)
        if named is not None:
            agent, prompt = named.groups()
            return {"agent": agent, "prompt": prompt}
        match = _PREFIXED.match(text)
        if match is not None:
            kind, rest = match.groups()
            return {"prompt" if kind == "agent" else kind: rest}
        return _named_or_command(text)

    @model_validator(mode="after")
    def _exactly_one(self) -> Checker:
        kinds = (self.command, self.prompt, self.callable, self.tool, self.rubric)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("give exactly one of command, prompt, callable, tool, rubric")
        asks = self.prompt is not None or self.rubric is not None
        if not asks and (self.agent is not None or self.model is not None):
            raise ValueError("agent and model belong to a checker with a prompt or a rubric")
        if self.quick and self.callable is None and self.tool is None:
            raise ValueError("quick belongs to a callable or a tool")
        how = [name for name in ("quick", "writes", "isolated", "clean") if getattr(self, name)]
        if len(how) > 1:
            raise ValueError(f"{' and '.join(how[:2])} exclude each other; leave one out")
        if self.command is None and (self.report is not None or self.allow_empty or self.reruns):
            raise ValueError("report, allow_empty and reruns belong to a command")
        return self

    @property
    def limit_s(self) -> float:
        """Return the most seconds of a check: each run may take its timeout."""
        return self.timeout_s * (1 + self.reruns)

    @property
    def folder(self) -> Literal["isolated", "clean"] | None:
        """Return the setting by which the check has its folder prepared, if any."""
        return "isolated" if self.isolated else "clean" if self.clean else None


def _named_or_command(text: str) -> dict[str, Any]:
    """The fields of a checker that is written `NAME: SPEC`, or is a command or a rubric's file."""
    match = _NAMED.match(text)
    if match is None:
        return {"rubric" if _RUBRIC_FILE.match(text) else "command": text}
    name, spec = match.groups()
    if name.lower() in _KINDS:
        raise ValueError(f"{name!r} is no name for a checker; write `{name.lower()}: ...`")
    checker = Checker.model_validate(spec)
    if checker.name is not None:
        raise ValueError(f"a checker has one name, not {name!r} and {checker.name!r}")
    return {**checker.model_dump(include=checker.model_fields_set), "name": name}


class Quarantined(Document):
    """A test whose failure alone does not refuse the work, for a time."""

    #: As pytest or its report writes it: `tests/test_a.py::test_b`, with or without parameters.
    test: Annotated[str, Field(min_length=1, max_length=500)]
    #: Who answers for it.
    owner: Annotated[str, Field(min_length=1, max_length=200)]
    #: The last day on which it counts (UTC), such as 2026-12-31.
    until: date


WebhookEvent = Literal["ended", "failed", "waiting", "reported", "proposed", "task_failed"]


class Webhook(Document):
    """A URL that is called with events of the session."""

    url: str = Field(max_length=2000, repr=False)
    #: ended: the session ended; failed: it ended as failed; waiting: all of it waits for people. Of
    #: a plan: reported and proposed by a child session; task_failed: a task has failed for good.
    events: Annotated[tuple[WebhookEvent, ...], Field(min_length=1, max_length=6)] = ("ended",)
    #: Signs the requests, so that the receiver can verify them; without it they are not signed.
    secret: str | None = Field(default=None, min_length=16, max_length=200, repr=False)

    @field_validator("url")
    @classmethod
    def _leads_somewhere(cls, value: str) -> str:
        try:
            if not _URL.match(value) or urlsplit(value).port == 0:
                raise ValueError
        except ValueError:
            raise ValueError(
                "it cannot be called; give https://HOST/PATH in plain ASCII,"
                " without user, password or fragment"
            ) from None
        return value


class WorktreeOptions(Document):
    """What a session's own folder gets beside the files that git tracks."""

    #: Ignored files or folders of the repository that are copied, such as `.env`; also as `copy`.
    copy_files: Annotated[tuple[FileName, ...], Field(max_length=100)] = ()
    #: A command that runs in the folder before all else, and again only for other lock files.
    prepare: Command | None = None

    @model_validator(mode="before")
    @classmethod
    def _copy_is_copy_files(cls, value: Any) -> Any:
        if isinstance(value, dict) and "copy" in value:
            if "copy_files" in value:
                raise ValueError("give copy or copy_files, not both")
            value = dict(value)
            value["copy_files"] = value.pop("copy")
        return value

    @field_validator("copy_files")
    @classmethod
    def _within_the_repository(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            path = PurePosixPath(name)
            if path.is_absolute() or not path.parts or {"..", ".git"} & {*path.parts}:
                raise ValueError(f"{name!r} is not within the repository; give a path from its top")
        return value


class Protected(Document):
    """Files that a doer must leave as they are; a text is the pattern alone."""

    #: As in .gitignore: `conftest.py` in any folder, `tests/` with all that is below it,
    #: `src/**/test_*.py` from the working folder.
    pattern: FilePattern
    #: What a doer may still do there: create files.
    allow: Annotated[tuple[Literal["create"], ...], Field(max_length=1)] = ()

    @model_validator(mode="before")
    @classmethod
    def _text_is_a_pattern(cls, value: Any) -> Any:
        return {"pattern": value} if isinstance(value, str) else value


class ProtectedPaths(Document):
    """`[protect]` of leadhand.toml."""

    #: Patterns of files that a doer must leave as they are: texts, or tables as in documents,
    #: whose own patterns are added.
    paths: tuple[Protected, ...] = ()


#: Patterns as in .gitignore of what programs leave in a folder, which is no work.
LeaveOut = Annotated[tuple[FilePattern, ...], Field(max_length=100)]


class Budget(Document):
    """The limits of a whole session; reaching one ends the session.

    The cost and tokens of a child session also count in its parent, once it has ended. Time in
    which the session is stopped does not count.
    """

    iterations: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] | None = None
    steps: Annotated[int, Field(strict=True, ge=1, le=100_000_000)] | None = None
    wall_s: Annotated[float, Field(strict=True, gt=0, le=365 * 24 * 3600)] | None = None
    #: US dollars, as the agents report them.
    cost_usd: Annotated[float, Field(strict=True, gt=0, le=1_000_000)] | None = None
    #: Input and output tokens together.
    tokens: Annotated[int, Field(strict=True, ge=1, le=10**12)] | None = None
    #: Runs of one outermost loop, and of all of them together, that end without acceptance.
    stage_stops: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None
    stops: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = None

    def limits(self) -> dict[str, int]:
        """Return the limits that are set, by counter, such as cost in millionths of a dollar."""
        given = {
            "iterations": self.iterations,
            "steps": self.steps,
            "tokens": self.tokens,
            "stage_stops": self.stage_stops,
            "stops": self.stops,
            "cost_micros": None if self.cost_usd is None else max(1, round(self.cost_usd * 1e6)),
            "wall_ms": None if self.wall_s is None else max(1, round(self.wall_s * 1000)),
        }
        return {name: limit for name, limit in given.items() if limit is not None}


class _Loop(Document):
    task: Text
    #: Seconds for each checker that names no `timeout_s` of its own.
    checker_timeout_s: Seconds = CHECK_TIMEOUT_S
    checkers: Annotated[tuple[Checker, ...], Field(min_length=1, max_length=100)]
    rule: Rule = "all"
    max_iterations: Annotated[int, Field(strict=True, ge=0, le=MAX_ITERATIONS_CEILING)] = (
        DEFAULT_MAX_ITERATIONS
    )
    doer: Doer | None = None
    model: Name | None = None
    checker_model: Name | None = None
    timeout_s: Seconds = AGENT_TIMEOUT_S
    #: How often a doer may be started in one iteration until it succeeds.
    doer_attempts: Annotated[int, Field(strict=True, ge=1, le=100)] = 1
    #: Whether each iteration begins a new conversation with the agent or continues the last one.
    conversation: Conversation = "fresh"
    file_scope: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    verify: Annotated[tuple[Text, ...], Field(max_length=1000)] = ()
    #: After so many iterations with the same work and the same verdicts the doer is warned, and
    #: one later the loop ends; 0 means never.
    no_progress: Annotated[int, Field(strict=True, ge=0, le=1000)] = DEFAULT_NO_PROGRESS
    #: Whether checkers that are commands run once before the first doer, to tell checks that were
    #: red before the work from those that were green.
    baseline: StrictBool = True
    #: Tests whose failures alone do not make a command refuse the work.
    quarantine: Annotated[tuple[Quarantined, ...], Field(max_length=200)] = ()
    #: Files that the doer must leave as they were before the loop; otherwise the loop, and the
    #: session, end as `tampered`.
    protected: Annotated[tuple[Protected, ...], Field(max_length=100)] = ()
    #: Whether such a change ends the session, or a person decides about it.
    on_protected: OnProtected = "terminate"
    #: Untracked files that are neither work nor a change by checkers; by default caches of Python,
    #: `node_modules`, `.venv` and `.env`. Untracked files above 50 MB are left out in any case.
    leave_out: LeaveOut | None = None
    #: Doers with the same key share its limits, across sessions.
    concurrency_key: Key | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_checker_is_a_list(cls, value: Any) -> Any:
        if isinstance(value, dict) and "checker" in value:
            if "checkers" in value:
                raise ValueError("give checker or checkers, not both")
            value = dict(value)
            checker = value.pop("checker")
            value["checkers"] = checker if isinstance(checker, (list, tuple)) else [checker]
        return value

    @field_validator("checkers")
    @classmethod
    def _names_differ(cls, value: tuple[Checker, ...]) -> tuple[Checker, ...]:
        check_names(value)
        return value

    @field_validator("checkers")
    @classmethod
    def _take_the_loops_timeout(
        cls, value: tuple[Checker, ...], info: ValidationInfo
    ) -> tuple[Checker, ...]:
        most = info.data.get("checker_timeout_s", CHECK_TIMEOUT_S)
        if most == CHECK_TIMEOUT_S:
            return value
        return tuple(
            one
            if "timeout_s" in one.model_fields_set
            else one.model_copy(update={"timeout_s": most})
            for one in value
        )

    @field_validator("rule")
    @classmethod
    def _can_be_met(cls, value: Rule, info: ValidationInfo) -> Rule:
        checkers = info.data.get("checkers")
        if isinstance(value, int) and checkers is not None and value > len(checkers):
            raise ValueError(
                f"rule asks for {value} checkers to accept, but there are {len(checkers)};"
                " ask for fewer, or name more checkers"
            )
        return value


def check_names(checkers: Iterable[Checker]) -> None:
    """Raises ValueError for checkers of the same name."""
    for name, count in Counter(one.name for one in checkers if one.name is not None).items():
        if count > 1:
            raise ValueError(f"{count} are named {name!r}; names must differ")


def _check_continues(loop: _Loop, doer: Doer | None) -> None:
    """Raises ValueError for a conversation to continue where no agent works."""
    if loop.conversation == "continue" and doer is not None and doer.agent is None:
        what = "a command" if doer.command is not None else "a function"
        raise ValueError(
            f"conversation is 'continue', but the doer is {what}; let an agent work,"
            " or leave conversation out"
        )


def check_protected(protected: Collection[Protected], cwd: str | None) -> None:
    """Raises ValueError for protected files without a folder that they are in."""
    if protected and cwd is None:
        raise ValueError("protected needs a working folder; give cwd, or leave protected out")


def check_folder_needs(checkers: Iterable[Checker], cwd: str | None) -> None:
    """Raises ValueError for a checker that needs the doer's work in a folder, without one."""
    if cwd is None and any(one.isolated or one.clean for one in checkers):
        raise ValueError("isolated and clean checkers need a working folder; give cwd")


class LoopDocument(_Loop, WithEnvironment):
    """One doer-checker loop."""

    kind: Literal["loop"] = "loop"
    label: Name | None = None
    priority: Priority = "normal"
    cwd: str | None = None
    #: Whether it works in a worktree of the folder's repository, or in a copy of the folder, until
    #: its work is applied.
    worktree: StrictBool | WorktreeOptions = False
    place: Place | None = None
    webhook: Webhook | None = None
    budget: Budget = Budget()

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return absolute(value)

    @model_validator(mode="after")
    def _continues_with_an_agent(self) -> LoopDocument:
        _check_continues(self, self.doer)
        check_protected(self.protected, self.cwd)
        check_folder_needs(self.checkers, self.cwd)
        return self


class PhaseDocument(_Loop):
    """A named loop of a workflow."""

    name: Name
    on_fail: str = "stop"
    #: Earlier phases whose results the prompt has; by default the phase before this one.
    pipe_from: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()

    @model_validator(mode="before")
    @classmethod
    def _pipe_is_pipe_from(cls, value: Any) -> Any:
        if isinstance(value, dict) and "pipe" in value:
            if "pipe_from" in value:
                raise ValueError("give pipe or pipe_from, not both")
            value = dict(value)
            pipe = value.pop("pipe")
            value["pipe_from"] = () if pipe is None else pipe
        return value

    @field_validator("pipe_from", mode="before")
    @classmethod
    def _one_source_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("on_fail")
    @classmethod
    def _known_policy(cls, value: str) -> str:
        if not _ON_FAIL.match(value):
            raise ValueError(f"on_fail is {value!r}; use 'stop', 'continue' or 'retry:N'")
        return value

    @property
    def retries(self) -> int:
        """Return how many extra runs ``on_fail`` grants the phase."""
        return int(self.on_fail[6:]) if self.on_fail.startswith("retry:") else 0


class WorkflowDocument(Document, WithEnvironment):
    """Loops in sequence, each with its own task, checkers and policy."""

    kind: Literal["workflow"] = "workflow"
    name: Name
    phases: Annotated[tuple[PhaseDocument, ...], Field(min_length=1, max_length=1000)]
    doer: Doer | None = None
    model: Name | None = None
    label: Name | None = None
    priority: Priority = "normal"
    cwd: str | None = None
    #: Whether it works in a worktree of the folder's repository, or in a copy of the folder, until
    #: its work is applied.
    worktree: StrictBool | WorktreeOptions = False
    place: Place | None = None
    webhook: Webhook | None = None
    budget: Budget = Budget()

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return absolute(value)

    @field_validator("phases")
    @classmethod
    def _fit_together(cls, value: tuple[PhaseDocument, ...]) -> tuple[PhaseDocument, ...]:
        checkers = sum(len(phase.checkers) for phase in value)
        if checkers > MAX_CHECKERS:
            raise ValueError(
                f"they have {checkers} checkers together; a workflow has at most {MAX_CHECKERS}"
            )
        pipes = sum(len(phase.pipe_from) for phase in value)
        if pipes > MAX_PIPES:
            raise ValueError(
                f"they have {pipes} pipes together; a workflow has at most {MAX_PIPES}"
            )
        seen: set[str] = set()
        for phase in value:
            if phase.name in seen:
                raise ValueError(f"Duplicate phase name: {phase.name!r}; names must differ")
            unknown = [source for source in phase.pipe_from if source not in seen]
            if unknown:
                raise ValueError(_unknown_source(phase.name, unknown[0], seen))
            seen.add(phase.name)
        return value

    @model_validator(mode="after")
    def _continue_with_agents(self) -> WorkflowDocument:
        for phase in self.phases:
            try:
                _check_continues(phase, phase.doer or self.doer)
                check_protected(phase.protected, self.cwd)
                check_folder_needs(phase.checkers, self.cwd)
            except ValueError as error:
                raise ValueError(f"phase {phase.name!r}: {error}") from None
        return self


def _unknown_source(phase: str, source: str, earlier: Collection[str]) -> str:
    """Says that a phase pipes from none of the earlier ones, and which it can name."""
    near = nearest(source, earlier)
    if near is not None:
        fix = f"did you mean {near!r}?"
    elif earlier:
        fix = f"name an earlier phase: {listed(map(repr, sorted(earlier)))}"
    else:
        fix = "leave it out, since no phase is before this one"
    return f"pipe_from of phase {phase!r} has the unknown phase {source!r}; {fix}"


def absolute(value: str | None, *, name: str = "cwd") -> str | None:
    """Returns a folder if it is an absolute path, or None. Raises ValueError for other paths."""
    if value is not None and ("\0" in value or not PurePosixPath(value).is_absolute()):
        raise ValueError(f"{name} is {value!r}; give an absolute path")
    return value
