"""Pure: what is written down of who said what: agents, those who told them, and people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from app.outcomes import Outcome, Usage
from app.program import Action, Step, iteration_of
from app.reasons import Reason, ReasonCode
from app.retry import AGAIN
from app.texts import cut
from app.views import TranscriptEntry

#: Characters of a text that a record keeps; the whole is in the step's outcome.
TEXT = 8000
#: What stands in the transcript for an instruction that is given again.
SAME = "The same instruction again, and:"
#: What the script knows, or the reader: where the record stands, and when it was written.
_LATER = {"seq", "at"}
#: Steps of a flow whose outcome is noted although nobody speaks in them.
_JUDGING = (Action.BREAK, Action.DECIDE, Action.CHECK)
_TOLD = ("subflow",)
#: What comes of a question whose time is over.
UNANSWERED = Outcome(
    word="failed", reason=Reason(code=ReasonCode.DEADLINE, text="nobody answered in time")
)


def records_of(step: Step, address: str, outcome: Outcome, *, attempt: int = 0) -> list[str]:
    """The records (JSON) of one outcome, in order; none of steps in which nobody speaks."""
    about = _about(step, address, attempt)
    return [
        entry.model_dump_json(exclude_defaults=True, exclude=_LATER)
        for entry in _entries(step, outcome, about)
    ]


def question_of(step: Step, address: str, question: JsonValue, *, attempt: int = 0) -> list[str]:
    """The record (JSON) of a question that a person is asked; none where there is none."""
    if step.action is not Action.HUMAN or not isinstance(question, str) or not question:
        return []
    entry = _entry(_about(step, address, attempt), "note", question)
    return [entry.model_dump_json(exclude_defaults=True, exclude=_LATER)]


def _entries(
    step: Step, outcome: Outcome, about: Mapping[str, JsonValue]
) -> Iterator[TranscriptEntry]:
    is_human = step.action is Action.HUMAN
    speaks = step.action is Action.AGENT or outcome.prompt is not None or step.conversation
    if outcome.word == "skipped":
        return
    if not (speaks or is_human):
        yield from _noted(step, outcome, about)
        return
    # A question was written down when it was asked.
    if outcome.prompt is not None and not is_human:
        yield _entry(about, "user", _told(outcome.prompt, again=about["attempt"] not in (0, 1)))
    forgets = outcome.thread is not None and outcome.thread.id is None
    if outcome.text and not (forgets and step.action is Action.TOOL):
        role = "human" if is_human else "assistant"
        entry = _entry(about, role, outcome.text)
        yield entry.model_copy(update={"verdict": outcome.verdict} | _used(outcome.usage))
    if outcome.word == "failed":
        yield _failed(outcome, about)
    if outcome.thread is not None and forgets:
        yield _entry(about, "note", f"conversation {outcome.thread.conversation} is forgotten")


def _told(prompt: str, *, again: bool) -> str:
    r"""What an agent was told; of an instruction that is given again what is new in it.

    >>> _told(f"Build it.\n\n{AGAIN} no such file", again=True).splitlines()[0]
    'The same instruction again, and:'
    """
    _, sign, error = prompt.rpartition(AGAIN)
    return f"{SAME}\n\n{sign}{error}" if again and sign else prompt


def _noted(
    step: Step, outcome: Outcome, about: Mapping[str, JsonValue]
) -> Iterator[TranscriptEntry]:
    """What a flow's scripts decided and found, and how its subflows ended."""
    if step.origin is None or not (step.action in _JUDGING or step.origin.kind in _TOLD):
        return
    if step.action is Action.CHILD:
        yield _entry(about, "note", _ended(outcome))
        return
    if outcome.word != "succeeded":
        if outcome.word == "failed":
            yield _failed(outcome, about)
        return
    entry = _entry(about, "note", outcome.text or str(outcome.verdict or "done"))
    yield entry.model_copy(update={"verdict": outcome.verdict})


def _ended(outcome: Outcome) -> str:
    """Which child session ended and how, down to the root cause."""
    causes = [link.text for link in outcome.reason.chain() if link.text] if outcome.reason else []
    return ": ".join(dict.fromkeys([outcome.text or "it has not begun", *causes[-1:]]))


def _failed(outcome: Outcome, about: Mapping[str, JsonValue]) -> TranscriptEntry:
    why = outcome.reason.text if outcome.reason else "it failed"
    used = {} if outcome.text else _used(outcome.usage)
    return _entry(about, "note", f"failed: {why}").model_copy(update=used)


def _entry(about: Mapping[str, JsonValue], role: str, text: str) -> TranscriptEntry:
    said = {"role": role, "text": cut(text, TEXT), "cut": len(text) > TEXT}
    return TranscriptEntry.model_validate({"seq": 0, "at": "", **about, **said})


def _about(step: Step, address: str, attempt: int) -> dict[str, JsonValue]:
    """Where in the program it was said, by whom, and in which conversation."""
    agent, _, identifier = (step.conversation or "").partition("|")
    origin, depth = step.origin, address.count("[")
    return {
        "address": address,
        "label": step.label or step.id,
        "index": origin.index if origin else None,
        "total": origin.total if origin else None,
        "depth": depth,
        "iteration": iteration_of(address) if depth else None,
        "agent": (origin and origin.agent) or agent or _agent_of(step),
        "identifier": (origin and origin.identifier) or identifier or None,
        "attempt": attempt,
    }


def _agent_of(step: Step) -> str | None:
    """The agent that its inputs name, as a doer, a checker or one who decides."""
    for value in (step.inputs.get("doer"), step.inputs.get("checker"), step.inputs):
        agent = value.get("agent") if isinstance(value, dict) else None
        if isinstance(agent, str):
            return agent
    return None


def _used(usage: Usage | None) -> dict[str, JsonValue]:
    return {} if usage is None else usage.model_dump()


def as_markdown(title: str, entries: Iterator[TranscriptEntry]) -> Iterator[str]:
    """The transcript for people to read, part by part."""
    yield f"# {_in_one_line(title)}\n"
    for entry in entries:
        yield f"\n## {entry.seq}. {_headline(entry)}\n\n{_quoted(entry.text)}\n"


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
    """A name so that nothing in it begins a line of ours."""
    return " ".join(text.split())


def _quoted(text: str) -> str:
    """A text so that its own headings do not look like ours."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or ">"
