"""Writes what became of the nodes of a drawing: state, iterations, reason, earlier runs (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from app.domain.program import Action, Loop, Step
from app.domain.records import StepRecord, TurnRecord
from app.redaction import without_keys
from leadhand.drawing.shape import Mark
from leadhand.models.reasons import Reason
from leadhand.models.text import plain, reason_text

#: The most characters of a reason and of the label of the loop around, and groups of iterations.
_WHY, _AROUND, _GROUPS = 120, 24, 5
#: Equal words in a row that are listed one by one.
_LISTED = 3
NOT_REACHED = "not reached"
_STATES = {"accept": "succeeded", "skipped": "skipped", "cancelled": "cancelled"}
#: The states of steps whose reason is shown.
_WITH_REASON = ("failed", "skipped", "cancelled")


class Before(NamedTuple):
    """What happened at a node before its newest run, and around it."""

    #: The number of the newest run, and the ends of some before it, by their numbers.
    run: int = 1
    runs: Sequence[tuple[int, str]] = ()
    #: Of a loop in a loop: how it ended in the iterations of that loop, by their numbers.
    around: str = ""
    iterations: Sequence[tuple[int, str]] = ()
    #: Of a loop whose newest run has no iteration: the earlier run, or the iteration of the loop
    #: around it, whose run is drawn.
    drawn_run: int = 0
    drawn_iteration: int = 0

    def lines(self, *, opened: int = 1) -> tuple[str, ...]:
        """Format each part as a short line."""
        parts = []
        if self.run > 1:
            parts.append(f"run {self.run}" + (f" from iteration {opened} on" if opened > 1 else ""))
        parts += [f"run {number}: {end}" for number, end in self.runs]
        if len(self.iterations) > 1:
            parts.append(f"{self._around()} {_grouped(self.iterations)}")
        if self.drawn_run:
            parts.append(f"shown is run {self.drawn_run}")
        elif self.drawn_iteration:
            parts.append(f"shown is that of {self._around()} {self.drawn_iteration}")
        return tuple(parts)

    def _around(self) -> str:
        return plain(without_keys(self.around), most=_AROUND)


def step_mark(
    step: Step, record: StepRecord | None, before: Before, *, is_over: bool = False
) -> Mark:
    """Returns what became of a step; `is_over` says that its block has ended."""
    earlier = before.lines()
    if record is None:
        return Mark(note=NOT_REACHED if is_over else "", before=earlier)
    notes = [f"attempt {record.attempt}"] if record.attempt > 1 else []
    if record.state == "succeeded":
        notes += _answer(step, record.verdict)
    is_refusal = record.verdict == "retry" and step.action is not Action.DECIDE
    state = "retry" if record.state == "succeeded" and is_refusal else record.state
    why = _why(record.reason) if state in _WITH_REASON else ""
    return Mark(state, ", ".join(notes), why, earlier)


def _answer(step: Step, verdict: str | None) -> list[str]:
    """What a decision or a break said."""
    if verdict is None or step.action not in (Action.DECIDE, Action.BREAK):
        return []
    if step.action is Action.DECIDE:
        return ["yes" if verdict == "accept" else "no"]
    return [f"ends the {step.ends}" if verdict == "accept" else "goes on"]


def turn_mark(
    node: Step | Loop, turn: TurnRecord | None, before: Before, *, is_over: bool = False
) -> Mark:
    """Returns what became of a loop or for_each, with the iterations of its newest run."""
    opened = turn.origin.opened if turn is not None and turn.origin is not None else 1
    earlier = before.lines(opened=opened)
    if turn is None:
        most = f"at most {node.max_iterations} times" if isinstance(node, Loop) else "for each item"
        return Mark(note=NOT_REACHED if is_over else most, before=earlier)
    state = _STATES.get(turn.verdict or "", "failed") if turn.state == "closed" else "running"
    if state == "skipped":
        return Mark(state, "", _why(turn.reason), earlier)
    why = _why(turn.reason) if state == "failed" and turn.verdict != "max_iterations" else ""
    if isinstance(node, Loop):
        return Mark(state, iterations_text(turn), why, earlier)
    return Mark(state, f"{turn.width} item" + ("" if turn.width == 1 else "s"), why, earlier)


def iterations_text(turn: TurnRecord) -> str:
    """Formats the iterations of a loop's run with their verdicts, in one short line.

    >>> iterations_text(TurnRecord(state="closed", iteration=4, max=5, verdict="accept"))
    'iterations 1-4 of 5: retry, retry, retry, accept'
    >>> iterations_text(TurnRecord(state="closed", iteration=99, max=99, verdict="max_iterations"))
    'iterations 1-99 of 99: 99 x retry, the limit'
    >>> iterations_text(TurnRecord(state="open", iteration=1, max=3))
    'iteration 1 of 3'
    """
    count, verdict = turn.iteration, turn.verdict
    if count == 0 or (count == 1 and verdict is None):
        return f"iteration {count} of {turn.max}"
    is_limit = verdict == "max_iterations"
    words = ["retry"] * (count - 1) + ["retry" if is_limit else verdict or "under way"]
    listed = []
    for word, same in groupby(words):
        number = len(list(same))
        listed += [word] * number if number <= _LISTED else [f"{number} x {word}"]
    head = "iteration 1" if count == 1 else f"iterations 1-{count}"
    return f"{head} of {turn.max}: {', '.join(listed)}" + (", the limit" if is_limit else "")


def end_of_turn(turn: TurnRecord | None) -> str:
    """Formats in few words how a run of a loop or for_each ended.

    >>> end_of_turn(TurnRecord(state="closed", iteration=2, verdict="accept"))
    'accept after 2'
    """
    if turn is None:
        return NOT_REACHED
    if turn.state != "closed":
        return "under way"
    end = turn.verdict or turn.state
    return f"{end} after {turn.iteration}" if turn.iteration else end


def _grouped(ends: Iterable[tuple[int, str]]) -> str:
    """Formats the ends of iterations; those that ended alike in a row are one group.

    >>> _grouped([(1, "accept after 2"), (2, "accept after 2"), (3, "skipped")])
    '1-2: accept after 2, 3: skipped'
    """
    groups = []
    for end, same in groupby(ends, key=lambda one: one[1]):
        numbers = [number for number, _ in same]
        span = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
        groups.append(f"{span}: {end}")
    shown = groups[-_GROUPS:]
    return ", ".join(["\N{HORIZONTAL ELLIPSIS}", *shown] if len(groups) > _GROUPS else shown)


def _why(reason: Reason | None) -> str:
    # A credential that is cut in two would not be recognised any more.
    text = "" if reason is None else without_keys(reason_text(reason.model_dump()))
    return plain(text, most=_WHY)
