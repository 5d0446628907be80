"""Builds the transcript: prompts, answers of agents and people, decisions (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from app.core.addresses import iteration_of
from app.core.messages import Message
from app.core.outcomes import AGAIN, Outcome
from app.core.program import Action, Step
from app.redaction import without_keys
from app.truncate import cut
from leadhand.models.text import tool_lines
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.step import TranscriptEntry

#: Maximum characters of a record's text; the step's outcome has the whole text.
TEXT = 8000
#: Replaces a repeated instruction.
SAME = "The same instruction again, and:"
_PASSED_ON = "the doer was not started: its work is checked again, as the folder is now"
#: Fields that the Lua function and the reader add.
_LATER = {"seq", "at"}
#: Steps of a flow whose outcome is recorded although they are not part of a conversation.
_JUDGING = (Action.BREAK, Action.DECIDE, Action.CHECK)
_NOTED_KINDS = ("subflow",)
#: The outcome of a question that was not answered in time.
UNANSWERED = Outcome(
    word="failed", reason=Reason(code=ReasonCode.DEADLINE, text="no answer arrived in time")
)


def records_of(step: Step, address: str, outcome: Outcome, *, attempt: int = 0) -> list[str]:
    """Builds the transcript records (JSON) of one outcome, in order; empty if it has no text."""
    if outcome.word == "skipped" or not (_is_spoken(step, outcome) or _is_noted(step)):
        return []
    about = _about(step, address, attempt)
    return [
        entry.model_dump_json(exclude_defaults=True, exclude=_LATER)
        for entry in _entries(step, outcome, about)
    ]


def question_of(step: Step, address: str, question: JsonValue, *, attempt: int = 0) -> list[str]:
    """Returns a list: the transcript record (JSON) of a question to a person, if it is one."""
    if step.action is not Action.HUMAN or not isinstance(question, str) or not question:
        return []
    entry = _entry(_about(step, address, attempt), "note", question)
    return [entry.model_dump_json(exclude_defaults=True, exclude=_LATER)]


def messages_of(step: Step, address: str, given: Sequence[Message], *, attempt: int) -> list[str]:
    """Builds the transcript record (JSON) of the inbox messages of an attempt; empty if none."""
    if not given:
        return []
    lines = [f"{one.id}. {one.kind} from {one.from_}: {one.text}" for one in given]
    text = "\n".join(["messages that this turn got:", *lines])
    entry = _entry(_about(step, address, attempt), "note", text)
    return [entry.model_dump_json(exclude_defaults=True, exclude=_LATER)]


def _is_spoken(step: Step, outcome: Outcome) -> bool:
    """Whether an agent or a person says the outcome: it is an entry of its own."""
    by_action = step.action in (Action.AGENT, Action.HUMAN)
    return by_action or outcome.prompt is not None or bool(step.conversation)


def _is_noted(step: Step) -> bool:
    """Whether the step is a decision or check of a flow, or its subflow: it gets a note."""
    origin = step.origin
    return origin is not None and (step.action in _JUDGING or origin.kind in _NOTED_KINDS)


def _entries(
    step: Step, outcome: Outcome, about: Mapping[str, JsonValue]
) -> Iterator[TranscriptEntry]:
    is_human = step.action is Action.HUMAN
    if not _is_spoken(step, outcome):
        yield from _decision_notes(step, outcome, about)
        return
    # A question was recorded when the step was parked.
    if outcome.prompt is not None and not is_human:
        yield _entry(
            about, "user", _shorten_prompt(outcome.prompt, again=about["attempt"] not in (0, 1))
        )
    if outcome.passed_on is not None:
        yield _entry(about, "note", _PASSED_ON)
        return
    forgets = outcome.thread is not None and outcome.thread.id is None
    text = outcome.text or outcome.raw
    if text and not (forgets and step.action is Action.TOOL):
        role = "human" if is_human else "assistant"
        entry = _with_raw(_entry(about, role, text), outcome)
        yield entry.model_copy(update={"verdict": outcome.verdict} | _work_fields(outcome))
    if outcome.word == "failed":
        yield _failure_note(outcome, about)
    if outcome.thread is not None and forgets:
        yield _entry(about, "note", f"conversation {outcome.thread.conversation} is forgotten")


def _shorten_prompt(prompt: str, *, again: bool) -> str:
    r"""An agent's prompt; of a repeated instruction only the new part.

    >>> _shorten_prompt(f"Build it.\n\n{AGAIN} no such file", again=True).splitlines()[0]
    'The same instruction again, and:'
    """
    _, sign, error = prompt.rpartition(AGAIN)
    return f"{SAME}\n\n{sign}{error}" if again and sign else prompt


def _decision_notes(
    step: Step, outcome: Outcome, about: Mapping[str, JsonValue]
) -> Iterator[TranscriptEntry]:
    """Yields records of a flow's decisions and checks, and of the ends of its subflows."""
    if step.action is Action.CHILD:
        yield _entry(about, "note", _end_of_child(outcome))
        return
    if outcome.word != "succeeded":
        if outcome.word == "failed":
            yield _with_raw(_failure_note(outcome, about), outcome)
        return
    entry = _with_raw(
        _entry(about, "note", outcome.text or str(outcome.verdict or "done")), outcome
    )
    yield entry.model_copy(update={"verdict": outcome.verdict})


def _end_of_child(outcome: Outcome) -> str:
    """Text for a child session's end, with the root cause."""
    causes = [link.text for link in outcome.reason.chain() if link.text] if outcome.reason else []
    return ": ".join(dict.fromkeys([outcome.text or "it has not started", *causes[-1:]]))


def _failure_note(outcome: Outcome, about: Mapping[str, JsonValue]) -> TranscriptEntry:
    why = outcome.reason.text if outcome.reason else "it failed"
    work = {} if outcome.text or outcome.raw else _work_fields(outcome)
    return _entry(about, "note", f"failed: {why}").model_copy(update=work)


def _with_raw(entry: TranscriptEntry, outcome: Outcome) -> TranscriptEntry:
    """Adds the answer as it was given, where the text of the entry was parsed from it."""
    if outcome.raw is None or outcome.raw == entry.text:
        return entry
    return entry.model_copy(update={"raw": cut(outcome.raw, TEXT)})


def _entry(about: Mapping[str, JsonValue], role: str, text: str) -> TranscriptEntry:
    fields = {"role": role, "text": cut(text, TEXT), "cut": len(text) > TEXT}
    return TranscriptEntry.model_validate({"seq": 0, "at": "", **about, **fields})


def _about(step: Step, address: str, attempt: int) -> dict[str, JsonValue]:
    """The fields that all records of a step share: address, label, agent, conversation."""
    agent, _, identifier = (step.conversation or "").partition("|")
    origin, depth = step.origin, address.count("[")
    return {
        "address": address,
        "label": without_keys(step.label or step.id),
        "index": origin.index if origin else None,
        "total": origin.total if origin else None,
        "depth": depth,
        "iteration": iteration_of(address) if depth else None,
        "agent": (origin and origin.agent) or agent or _agent_of(step),
        "identifier": (origin and origin.identifier) or identifier or None,
        "attempt": attempt,
    }


def _agent_of(step: Step) -> str | None:
    """The agent that a step's inputs name as doer, checker or decider."""
    for value in (step.inputs.get("doer"), step.inputs.get("checker"), step.inputs):
        agent = value.get("agent") if isinstance(value, dict) else None
        if isinstance(agent, str):
            return agent
    return None


def _work_fields(outcome: Outcome) -> dict[str, object]:
    """Cost, tokens and tool calls."""
    usage = {} if outcome.usage is None else outcome.usage.model_dump()
    return usage | {"tools": [*(outcome.tools or ())]}


def as_markdown(title: str, entries: Iterator[TranscriptEntry]) -> Iterator[str]:
    """Yields a session's transcript as Markdown: its title, then the text of each record."""
    yield f"# {_in_one_line(title)}\n"
    for entry in entries:
        yield f"\n## {entry.seq}. {_headline(entry)}\n\n{_quote(entry.text)}\n"
        if entry.tools:
            lines = _quote("\n".join(tool_lines(entry.tools)))
            yield f"\nTool calls:\n\n{lines}\n"
        if entry.raw is not None:
            yield f"\nThe whole answer:\n\n{_quote(entry.raw)}\n"


def _headline(entry: TranscriptEntry) -> str:
    who = "|".join(part for part in (entry.agent, entry.identifier) if part)
    parts = [_in_one_line(entry.label), entry.role + (f" ({_in_one_line(who)})" if who else "")]
    if entry.index is not None:
        parts.append(f"step {entry.index} of {entry.total}")
    if entry.iteration is not None:
        parts.append(f"iteration {entry.iteration} at {entry.address}")
    if entry.attempt > 1:
        parts.append(f"attempt {entry.attempt}")
    if entry.verdict is not None:
        parts.append(entry.verdict)
    if entry.cost_usd is not None:
        parts.append(f"${entry.cost_usd:.4f}")
    return " · ".join([*parts, entry.at])


def _in_one_line(text: str) -> str:
    """Joins a name to one line, so that it cannot start a Markdown heading."""
    return " ".join(text.split())


def _quote(text: str) -> str:
    """Formats a text as a Markdown quote, so that its headings are not headings of the page."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or ">"
