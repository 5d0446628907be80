"""The outcome of an attempt at a step, as its worker reports it and the next prompt quotes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import PydanticSerializationError

from app.core.artifacts import Artifact
from app.core.states import SessionStatus
from app.redaction import redact
from app.truncate import cut
from leadhand.models.verdicts import Counts, Reason, ReasonCode, VerdictWord
from leadhand.models.views.step import ToolCallView

Verdict = VerdictWord
#: Micros per dollar; costs are counted in micros so that sums are exact.
MICROS = 1_000_000
Tokens = Annotated[int, Field(ge=0, le=10**12)]
#: Heading of the quoted error, after the instruction.
AGAIN = (
    "# Previous Error\n\n"
    "The previous attempt at this failed; do it again and avoid that. Its error was:"
)
#: Length of the quoted error in characters.
QUOTED = 240
#: Characters of a doer's end that its next attempt is shown.
ENDING = 4_000


class Usage(BaseModel):
    """Cost and tokens of an attempt; the cost is None if the agent does not report it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cost_usd: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None = None
    input_tokens: Tokens = 0
    output_tokens: Tokens = 0

    @property
    def cost_micros(self) -> int:
        """Returns the cost in millionths of a dollar; 0 if it is unknown."""
        return round((self.cost_usd or 0) * MICROS)


class Thread(BaseModel):
    """The agent's own id of a conversation, with which the next turn resumes; None resets it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: ``agent|identifier``, as the step names it.
    conversation: str
    id: str | None = None
    #: Usage of the whole conversation so far, for agents that do not report it per turn.
    told: Usage | None = None
    #: The id before this one, for agents whose ids name a turn and not the conversation.
    after: str | None = None


class Busy(BaseModel):
    """The agent or service is busy: the step is retried later and holds no worker meanwhile."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: The wait that the service asked for (Retry-After); without it, doubling from one second.
    after_s: Annotated[float, Field(ge=0, le=3600)] | None = None
    #: How often this may happen to one step before it fails.
    tries: Annotated[int, Field(ge=0, le=100)]


class Gate(BaseModel):
    """A gate of a rubric, and whether it passed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gate: str
    passed: bool
    said: str = ""
    #: The tests that it ran, if they are known.
    counts: Counts | None = None


BaselineWord = Literal["red", "green", "unknown"]


class CheckRun(BaseModel):
    """One of several runs of a command that checks, on the same work."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: None if it timed out or could not start.
    verdict: Verdict | None = None
    exit_code: int | None = None
    counts: Counts | None = None
    #: The tests that failed, if they are known; the first of them.
    failed: tuple[str, ...] = ()
    started_ms: int | None = None
    ended_ms: int | None = None


class Baseline(BaseModel):
    """How a checker's command ended before the work."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    word: BaselineWord = "unknown"
    counts: Counts | None = None
    #: The tests that a report named.
    names: tuple[str, ...] = ()
    #: Whether it failed because tests failed (True), in spite of that (False), or is unknown.
    fails_with_tests: bool | None = None
    #: Of a rubric: of each gate, by its command.
    gates: dict[str, Baseline] = {}


class Ruling(BaseModel):
    """A rubric check's details: the rubric's hash and its gates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: 8 hex characters of the file's SHA-256.
    rubric: str
    gates: tuple[Gate, ...] = ()


class Outcome(BaseModel):
    """The result of an attempt, reported once by its worker.

    `text` is for the next reader (a doer's answer, a checker's feedback). References resolve to
    `value` if it is set.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    word: Literal["succeeded", "failed", "skipped"]
    #: Of a check, judge or doer: its verdict about the work.
    verdict: Verdict | None = None
    #: Of a judge: the verdict of the checks, if the folder changed while they ran. It is stale.
    stale: Verdict | None = None
    #: Of a judge: whether the checks run again on the same work, since the verdict is stale.
    recheck: Literal[True] | None = None
    #: Of a judge: False if all checks that did not accept timed out; its text is no feedback then.
    judged: Literal[False] | None = None
    #: Of a doer that was not started: the step whose work is checked again.
    passed_on: str | None = None
    text: str = ""
    value: JsonValue = None
    reason: Reason | None = None
    #: Whether the step's retry policy applies to a failed attempt.
    retryable: bool = True
    #: Of a failed attempt: it is retried later, in addition to the retry policy.
    busy: Busy | None = None
    exit_code: int | None = None
    #: Of a failed attempt: the names of its error, for the retry policy. They are not stored.
    errors: tuple[str, ...] = Field(default=(), exclude=True)
    #: Of an exception group: those of each member. They are not stored.
    members: tuple[tuple[str, ...], ...] = Field(default=(), exclude=True)
    #: Path of the whole output on the worker's host, until the worker has stored it as an artifact;
    #: stored in outcomes of versions without artifacts.
    spill: str | None = None
    #: What is stored as artifacts: the value, if it is too long for the outcome, and whole outputs.
    artifacts: tuple[Artifact, ...] | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    #: The rule that decided the verdict, for diagnosis.
    decided_by: str | None = None
    #: Of a command that checks: the tests that it ran, if they are known.
    counts: Counts | None = None
    #: Of a command that was run again after it failed: all runs, and the tests that flipped.
    runs: tuple[CheckRun, ...] | None = None
    flaky: tuple[str, ...] | None = None
    #: Of a command that checks: the tests in quarantine that failed, and nothing else.
    quarantined: tuple[str, ...] | None = None
    #: Of a command that checks: how it ended before the work, if that is known.
    baseline: BaselineWord | None = None
    #: Of a check: whether it ran by itself, or in a clean folder; None beside others.
    ran: Literal["isolated", "clean"] | None = None
    #: Of a rubric check.
    ruling: Ruling | None = None
    usage: Usage | None = None
    #: The new thread of the conversation that this step is part of.
    thread: Thread | None = None
    #: Digest of the working folder after a doer's attempt.
    digest: str | None = None
    #: Path of the stored diff of a doer's work.
    diff: str | None = None
    #: Why a doer's work has no diff.
    no_diff: Literal["no_git", "slow", "unreadable", "unchanged"] | None = None
    #: For the people who read the session's warnings.
    warning: str | None = None
    #: The answer of an agent or a script as it was given, where `text` is what was parsed from it.
    raw: str | None = None
    #: The agent's prompt; truncated, unless later turns of the conversation need it in full.
    prompt: str | None = None
    #: The first tool calls of the agent, in order.
    tools: tuple[ToolCallView, ...] | None = None
    #: The number of the agent's tool calls, if all of them failed.
    tools_failed: int | None = None

    @property
    def is_proven_flaky(self) -> bool:
        """Whether runs failed, passed and failed again: a machine that recovers shows that not."""
        ends = "".join(
            "F" if run.verdict == "retry" else "P" if run.verdict else "-"
            for run in self.runs or ()
        )
        return re.search("F.*P.*F", ends) is not None


def without_surrogates(outcome: Outcome) -> Outcome:
    r"""Replaces lone surrogates in an outcome, which JSON cannot hold, with question marks.

    >>> without_surrogates(Outcome(word="succeeded", text="half a \ud83d")).text
    'half a ?'
    """
    return serialize(outcome)[0]


def serialize(outcome: Outcome) -> tuple[Outcome, str]:
    """Serializes an outcome; returns it without lone surrogates, and its JSON."""
    try:
        return outcome, outcome.model_dump_json(exclude_none=True)
    except PydanticSerializationError:
        storable = Outcome.model_validate(_writable(outcome.model_dump()))
        return storable, storable.model_dump_json(exclude_none=True)


def _writable(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_writable(name): _writable(item) for name, item in value.items()}
        case list() | tuple():
            return [_writable(item) for item in value]
        case _:
            return value


def deleted_child(child: str) -> Outcome:
    """Builds the failed outcome of a step whose child session was deleted before it ended."""
    text = f"child session {child} was deleted before it ended"
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
    return Outcome(word="failed", text=text, reason=reason, retryable=False)


def outcome_of_child(child: str, fields: Mapping[str, str], result: JsonValue = None) -> Outcome:
    """Returns the outcome of a step whose child ended: succeeded, or failed with its reason.

    `result` is what the child returned, if the step called it as a tool.
    """
    status = fields["status"]
    text = f"child session {child} is {status}"
    value: dict[str, JsonValue] = {
        "session": child, "name": fields.get("name", ""), "status": status,
    }  # fmt: skip
    if result is not None:
        value["result"] = result
    if status == SessionStatus.COMPLETED:
        return Outcome(word="succeeded", text=text, value=value)
    beneath = Reason.model_validate_json(fields["reason"]) if fields.get("reason") else None
    if beneath is not None:
        value["why"] = list(beneath.chain())[-1].text
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text, child=child, beneath=beneath)
    return Outcome(word="failed", text=text, value=value, reason=reason, retryable=False)


def quote_error(text: str) -> str:
    r"""Quote an error's first line for the next attempt's prompt: redacted, at most 240 characters.

    >>> quote_error("\n  token=abcdef was refused \n at line 3")
    'token=[redacted] was refused'
    """
    # Redact before truncating: half a secret would not be recognised.
    lines = (line.strip() for line in text[:100_000].splitlines())
    first = next((line for line in lines if line), "")
    shown = redact(first[: 20 * QUOTED])
    return shown if len(shown) <= QUOTED else shown[: QUOTED - 1] + "…"


def ending_of(outcome: Outcome) -> str | None:
    r"""Returns a failed attempt's reason and last output, redacted; None if it did not fail.

    >>> from leadhand.models.verdicts import Reason, ReasonCode
    >>> reason = Reason(code=ReasonCode.FAILED_STEP, text="doer exited with code 3: no such file")
    >>> print(ending_of(Outcome(word="failed", text="line 1\nline 2", reason=reason)))
    doer exited with code 3: no such file
    <BLANKLINE>
    Its output ended with:
    line 1
    line 2
    """
    if outcome.word != "failed" or outcome.reason is None:
        return None
    how, output = outcome.reason.text, outcome.text.strip()
    if output and output[-200:] not in how:
        how = f"{cut(how, ENDING // 2)}\n\nIts output ended with:\n{output[-ENDING // 2 :]}"
    return redact(cut(how, ENDING))
