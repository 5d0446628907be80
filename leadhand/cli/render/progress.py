"""The state of a running session for display, computed from its events (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from leadhand.models.text import plain, reason_text
from leadhand.models.views.step import Event

#: The word shown for a step after each event; a settled step shows its verdict.
_STEP_WORDS = {
    "step.ready": "waiting",
    "step.claimed": "running",
    "step.released": "waiting",
    "step.retried": "failed",
    "step.expired": "lost",
    "step.parked": "parked",
    "step.blocked": "waiting",
    "step.cancelled": "cancelled",
}
#: Events that carry the step's label in a flow.
_NAMING = ("step.claimed", "step.blocked")
#: Events of steps that wait for something specific.
WAITS = ("step.parked", "step.blocked")
#: The most characters of the text of an event, which the server has shortened already.
NOTE = 220
_PARKED_ON = {
    "human": "for a person",
    "wait": "for its time",
    "stop": "for its agent's next stop",
    "child": "for a session",
    "plan": "for the sessions of its tasks",
}
_ITERATION = re.compile(r"\[(\d+)\]$")


class Spot(NamedTuple):
    """A parsed address: the loop with its run, the iteration, and the step."""

    loop: str
    iteration: int
    step: str


@dataclass(frozen=True)
class StepLine:
    """One step of the current iteration."""

    word: str
    since_ms: int
    attempt: int = 1
    note: str = ""


@dataclass(frozen=True)
class LoopLine:
    """One run of a loop."""

    opened_ms: int
    iteration: int = 0
    max_iterations: int = 0
    steps: Mapping[str, StepLine] = field(default_factory=lambda: MappingProxyType({}))
    verdict: str = ""
    reason: str = ""
    closed_ms: int | None = None
    #: Whether it is the list of a for_each, which has items in place of iterations.
    is_list: bool = False


@dataclass(frozen=True)
class Picture:
    """A session's progress; loops and steps are in the order of their first event."""

    session: str
    name: str = ""
    status: str = "active"
    started_ms: int | None = None
    latest_ms: int = 0
    #: Of the steps that have ended, as far as their agents report it.
    cost_usd: float = 0.0
    ended: bool = False
    #: The share of the work that is done, the estimated time of the rest, and whether that is a
    #: maximum; None where the server does not say.
    share: float | None = None
    left_ms: int | None = None
    at_most: bool = False
    #: The labels of nodes, by their path in the program.
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    loops: Mapping[str, LoopLine] = field(default_factory=lambda: MappingProxyType({}))
    #: The labels of a flow's steps, each with its number in its list: `2/6 review`.
    steps: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def step(self, loop: str, step: str) -> str:
        """Return the label under which the progress display shows a step of a loop."""
        return step_name(step, self.steps.get(step_path(loop, step), ""))


def apply_event(picture: Picture, event: Event) -> Picture:
    """Returns the state of the progress display after an event; the given state is not changed."""
    picture = replace(
        picture,
        started_ms=event.at_ms if picture.started_ms is None else picture.started_ms,
        latest_ms=max(picture.latest_ms, event.at_ms),
    )
    subject = event.type.partition(".")[0]
    if subject == "session":
        return _after_session(picture, event)
    if subject == "loop" and event.address is not None:
        return _after_loop(picture, event)
    if subject == "step" and event.address is not None:
        return _after_step(picture, event)
    return picture


def spot_of(address: str, *, is_loop: bool = False) -> Spot:
    """Parses the address of a step or loop, such as `a~1[2]/do`, to loop, iteration and step.

    >>> spot_of("green~1[2]/check.lint")
    Spot(loop='green~1', iteration=2, step='check.lint')
    >>> spot_of("green~2[3]", is_loop=True)
    Spot(loop='green~2', iteration=3, step='')
    >>> spot_of("fetch~1#17")
    Spot(loop='', iteration=0, step='fetch~1#17')
    """
    block, _, step = (address, "", "") if is_loop else address.rpartition("/")
    match = _ITERATION.search(block)
    return Spot(_ITERATION.sub("", block), int(match.group(1)) if match else 0, step)


def loop_name(loop: str, labels: Mapping[str, str]) -> str:
    """Formats a loop's address for display: labels instead of node names, iteration and run.

    >>> loop_name("outer~1[1]/inner~2", {"outer": "The outer one"})
    'The outer one 1 > inner (run 2)'
    """
    path, names = "", []
    for part in loop.split("/"):
        node, run, iteration = _parts(part)
        path = f"{path}/{node}" if path else node
        name = labels.get(path, node)
        name += f" (run {run})" if run > 1 else ""
        names.append(f"{name} {iteration}" if iteration else name)
    return " > ".join(names)


def step_name(step: str, label: str = "") -> str:
    """Returns the displayed name of a step: its label, if it has one, with its run and item.

    >>> step_name("do"), step_name("check.lint"), step_name("fetch~1#17")
    ('doer', 'lint', 'fetch 17')
    """
    step, _, item = step.partition("#")
    node, run, _ = _parts(step)
    name = label or ("doer" if node == "do" else node.removeprefix("check."))
    name += f" (run {run})" if run > 1 else ""
    return f"{name} {item}" if item else name


def _after_session(picture: Picture, event: Event) -> Picture:
    status = event.fields.get("status")
    if not isinstance(status, str):
        return picture
    return replace(
        picture,
        status=plain(status),
        ended=event.type == "session.ended",
    )


def _after_loop(picture: Picture, event: Event) -> Picture:
    spot = spot_of(event.address or "", is_loop=True)
    # No event opens the list of a for_each, and it has no iterations.
    is_list = event.type == "loop.closed" and not event.fields.get("iterations")
    line = picture.loops.get(spot.loop) or LoopLine(opened_ms=event.at_ms, is_list=is_list)
    if event.type == "loop.closed":
        verdict = plain(event.fields.get("verdict") or "")
        line = replace(
            line,
            verdict=verdict,
            reason="" if verdict == "accept" else reason_text(event.fields.get("reason")),
            iteration=_number(event.fields.get("iterations")) or line.iteration,
            closed_ms=event.at_ms,
        )
    else:
        line = _at_iteration(line, _number(event.fields.get("iteration")) or spot.iteration)
        line = replace(line, max_iterations=_number(event.fields.get("max")) or line.max_iterations)
    return _with_loop(_with_label(picture, spot.loop, event), spot.loop, line)


def _with_label(picture: Picture, loop: str, event: Event) -> Picture:
    label = event.fields.get("label")
    if not isinstance(label, str) or not label:
        return picture
    path = "/".join(_parts(part)[0] for part in loop.split("/"))
    return replace(picture, labels=MappingProxyType({**picture.labels, path: label}))


def _with_step_name(picture: Picture, spot: Spot, event: Event) -> Picture:
    """The picture with the name of the step as written, and the number that a flow gives it."""
    label, index = event.fields.get("label"), _number(event.fields.get("index"))
    if event.type not in _NAMING or not isinstance(label, str):
        return picture
    name = f"{index}/{_number(event.fields.get('total'))} {label}" if index else label
    steps = {**picture.steps, step_path(spot.loop, spot.step): name}
    return replace(picture, steps=MappingProxyType(steps))


def step_path(loop: str, step: str) -> str:
    """Returns the node path of a step in a loop: its address without run numbers.

    >>> step_path("outer~1[1]/inner~2", "ask"), step_path("", "ask~2")
    ('outer/inner/ask', 'ask')
    """
    parts = [part for part in loop.split("/") if part]
    return "/".join([*(_parts(part)[0] for part in parts), _parts(step)[0]])


def _after_step(picture: Picture, event: Event) -> Picture:
    spot = spot_of(event.address or "")
    picture = _with_step_name(picture, spot, event)
    picture = replace(picture, cost_usd=picture.cost_usd + cost_of(event))
    picture = _with_share(picture, event)
    line = picture.loops.get(spot.loop) or LoopLine(opened_ms=event.at_ms)
    if spot.iteration < line.iteration:
        return picture  # A late event of an earlier iteration.
    line = _at_iteration(line, spot.iteration)
    steps = {**line.steps, spot.step: _step_line(line.steps.get(spot.step), event)}
    return _with_loop(picture, spot.loop, replace(line, steps=MappingProxyType(steps)))


def _with_share(picture: Picture, event: Event) -> Picture:
    """The picture with the share of the work that is done after a step."""
    told = event.fields.get("progress")
    if not isinstance(told, dict) or not isinstance(told.get("share"), int | float):
        return picture
    left = told.get("left_ms")
    share = float(str(told["share"]))
    return replace(picture, share=share, left_ms=left if isinstance(left, int) else None)


def _step_line(before: StepLine | None, event: Event) -> StepLine:
    if event.type == "step.settled":
        fields = event.fields
        note = plain(fields.get("text") or "", most=NOTE) or reason_text(fields.get("reason"))
        word = plain(fields.get("verdict") or fields.get("word") or "done")
        return StepLine(word, event.at_ms, note=note)
    word = _STEP_WORDS.get(event.type, before.word if before else "waiting")
    attempt = _number(event.fields.get("attempt")) or (before.attempt if before else 1)
    note = waits_for(event) if event.type in WAITS else ""
    return StepLine(word, event.at_ms, attempt=attempt, note=note)


def cost_of(event: Event) -> float:
    """Returns the cost in US dollars that an event reports; 0 if it has none."""
    cost = event.fields.get("cost_usd")
    return float(cost) if isinstance(cost, int | float) else 0.0


def waits_for(event: Event) -> str:
    """Describes what a parked or blocked step waits for, from its event; "" if unknown."""
    fields = event.fields
    if event.type == "step.blocked":
        held = fields.get("holder")
        lock = plain(fields.get("lock") or "a lock")
        return f"for {lock}" + (f", held by session {plain(held)}" if held else "")
    child = fields.get("child")
    if child:
        return f"for session {plain(child)}"
    return _PARKED_ON.get(str(fields.get("on")), "")


def _at_iteration(line: LoopLine, iteration: int) -> LoopLine:
    if iteration <= line.iteration:
        return line
    return replace(line, iteration=iteration, steps=MappingProxyType({}))


def _with_loop(picture: Picture, loop: str, line: LoopLine) -> Picture:
    return replace(picture, loops=MappingProxyType({**picture.loops, loop: line}))


def _parts(part: str) -> tuple[str, int, int]:
    match = _ITERATION.search(part)
    node, _, run = _ITERATION.sub("", part).partition("~")
    return node, int(run) if run.isdecimal() else 1, int(match.group(1)) if match else 0


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
