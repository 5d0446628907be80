"""Views of what happened in a session: steps, events, diffs, transcript, output, artifacts."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from leadhand.models.verdicts import Reason
from leadhand.models.views.view import Page, View


class StepView(View):
    """One step, at its address."""

    address: str
    node: str
    action: str
    label: str
    state: str
    attempt: int = 0
    lost: int = 0
    failed: int = 0
    worker: str | None = None
    queue: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    verdict: str | None = None
    reason: Reason | None = None
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    #: Who answered its question: a token's name, `deadline`, or null.
    answered_by: str | None = None
    #: The answer to its question: `text`, and where it has them `choice` and `fields`.
    answer: dict[str, JsonValue] | None = None
    #: The first line of its outcome's text, of why it failed, or of the question that it asks.
    summary: str = ""


class TurnView(View):
    """One run of a loop or of a for_each, at its address."""

    address: str
    node: str
    label: str
    state: str
    #: How it ended, such as `accept`, `max_iterations` or `skipped`; null while it is open.
    verdict: str | None = None
    reason: Reason | None = None
    #: Of a loop: the newest iteration, and the limit.
    iteration: int = 0
    max_iterations: int = 0
    #: Of a for_each: the number of its items; null for a loop.
    items: int | None = None
    #: The run that it continues after a resume or in a fork, and the iteration at which it began:
    #: earlier iterations belong to that run.
    continues: str | None = None
    from_iteration: int = 1
    started_at: str | None = None
    ended_at: str | None = None


class StepsPage(Page[StepView]):
    """A page of steps, with the runs of loops and lists among them."""

    #: Those whose addresses are between the last step of the page before and the last of this one;
    #: on the last page also all that come after.
    turns: list[TurnView] = []


class ToolCallView(View):
    """A tool call of an agent; input and result have their first 500 characters only."""

    name: str
    input: str = ""
    result: str = ""
    #: None if the call had no result when the attempt ended.
    failed: bool | None = None


class TranscriptEntry(View):
    """A message in a session: to an agent, from it, from a person, or a note."""

    #: Its place in the transcript, from 1.
    seq: int
    at: str
    address: str
    label: str
    role: Literal["user", "assistant", "human", "note"]
    text: str
    #: The answer as it was given, where `text` was parsed from it.
    raw: str | None = None
    #: The agent's first 100 tool calls, in order.
    tools: list[ToolCallView] = []
    #: Whether the text is shortened; the outcome at its address has all of it.
    cut: bool = False
    #: The number of the step in its list in the flow's file, from 1, and the length of the list.
    index: int | None = None
    total: int | None = None
    #: The number of loops around the step, and the iteration of the innermost.
    depth: int = 0
    iteration: int | None = None
    agent: str | None = None
    identifier: str | None = None
    attempt: int = 0
    verdict: str | None = None
    cost_usd: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0


class OutputPart(View):
    """A part of the output of a running body, redacted."""

    #: Counts the parts of one attempt in the order in which they were read.
    seq: int
    #: `agent`: texts and tool calls that were parsed from an agent's output.
    stream: Literal["stdout", "stderr", "agent"]
    text: str
    #: Bytes that were dropped just before it, because they came faster than they are published.
    dropped: int = 0
    at: str


class OutputView(View):
    """What one attempt at a step wrote: the last 64 KiB, kept for a day after its last part."""

    address: str
    #: Which attempt: the number that grows with each claim of the step.
    fence: int
    #: Whether the attempt is still at work.
    running: bool
    last_at: str
    parts: list[OutputPart] = []


class Event(View):
    """One event of a session."""

    id: str
    type: str
    at_ms: int
    address: str | None = None
    fields: dict[str, JsonValue] = {}

    @property
    def position(self) -> tuple[int, int]:
        """Return the event's position in the session's stream, as two numbers to sort by."""
        return position(self.id)


class DiffView(View):
    """The diff of one doer's work, or of what changed while its checkers ran."""

    address: str
    loop: str
    iteration: int
    #: Digests of the folder before and after.
    before: str
    after: str
    #: A git diff; truncated if it is long.
    patch: str
    by: Literal["doer", "checkers"] = "doer"


#: Why a session, or one of its iterations, has no diffs; `NoDiffs` explains each.
NoDiffsWhy = Literal[
    "no_folder", "not_ended", "not_compared", "no_git", "slow", "unreadable", "unchanged",
    "replaced",
]  # fmt: skip


class NoDiffs(View):
    """Why there are no diffs."""

    #: `no_folder`: the session has none. `not_ended`: no doer's step has ended. `not_compared`: an
    #: attempt ended before its folder was compared, such as a lost one. `no_git`: git is not
    #: installed on the worker. `slow`: the folder took too long to read, or is in no repository and
    #: larger than LEADHAND_COPY_MAX. `unreadable`: the worker could not read all of it.
    #: `unchanged`: no file was changed. `replaced`: newer diffs replaced those that were stored.
    why: NoDiffsWhy
    #: The session's working folder.
    folder: str | None = None


class DiffsPage(Page[DiffView]):
    """A page of diffs, or the reason why there are none."""

    #: Null if there are diffs.
    none: NoDiffs | None = None


def position(event_id: str) -> tuple[int, int]:
    """Converts an event id to two numbers by which events are sorted.

    >>> position("1700000000000-7") < position("1700000000000-12")
    True
    """
    first, _, second = event_id.partition("-")
    return int(first), int(second)


class ArtifactView(View):
    """One artifact of a session."""

    #: The step's address and the kind, such as `search/value`.
    name: str
    #: The address of the step.
    step: str
    #: The name of the step as its document has it; empty if that is its address, or in a loop.
    label: str = ""
    #: value: its result, as JSON; result: what a flow that it called returned; stdout, stderr: what
    #: its program wrote.
    kind: Literal["value", "result", "stdout", "stderr"]
    #: SHA-256 of its bytes, in hexadecimal.
    digest: str
    size: int
    media_type: str
    #: When the step ended.
    at: str


class UploadView(View):
    """How far an upload is."""

    digest: str
    #: Whether the artifact is stored.
    complete: bool
