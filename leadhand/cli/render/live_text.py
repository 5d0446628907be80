"""Formats a session's progress: a screen for a terminal, a line per event for a pipe (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from leadhand.cli.render.progress import (
    NOTE,
    WAITS,
    LoopLine,
    Picture,
    StepLine,
    cost_of,
    loop_name,
    spot_of,
    waits_for,
)
from leadhand.cli.render.tables import plural
from leadhand.models.text import plain, reason_text
from leadhand.models.views.step import Event

#: The colours of words on a terminal.
STYLES = {
    "accept": "green",
    "completed": "green",
    "succeeded": "green",
    "retry": "yellow",
    "stopped": "yellow",
    "exit": "yellow",
    "exited": "yellow",
    "lost": "red",
    "max_iterations": "red",
    "terminate": "red",
    "failed": "red",
    "aborted": "red",
    "running": "cyan",
    "active": "cyan",
}
#: How the list of a for_each ended, by its verdict.
_ENDS_OF_LISTS = {"accept": "done", "terminate": "failed"}
#: Steps that are not shown: they only combine the verdicts of others.
_SILENT_STEPS = frozenset({"judge"})
#: The most steps of one iteration that a screen lists.
_MOST_STEPS = 12
#: The most tasks that one line names.
_TASKS = 8


class Line(NamedTuple):
    """One line of a screen, and the word that selects its colour."""

    text: str
    word: str = ""

    @property
    def style(self) -> str:
        """Return the colour of the line, by its state word; "" for a word without one."""
        return STYLES.get(self.word, "")


def elapsed(ms: int) -> str:
    """Formats milliseconds as `h:mm:ss`, or as `m:ss` below an hour.

    >>> elapsed(3_000), elapsed(62_500), elapsed(3_661_000)
    ('0:03', '1:02', '1:01:01')
    """
    minutes, seconds = divmod(max(ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def screen(picture: Picture, *, now_ms: int, height: int = 40) -> list[Line]:
    """Formats a session's progress as lines, the newest last; leaves out the oldest if too many."""
    lines: list[Line] = []
    for loop, line in picture.loops.items():
        lines += _loop_lines(picture, loop, line, now_ms=now_ms)
    most = max(height - 2, 3)
    if len(lines) > most:
        lines = [Line(f"  ... {len(lines) - most + 1} lines above"), *lines[-(most - 1) :]]
    return [_head(picture, now_ms=now_ms), *lines]


def sentence(picture: Picture, event: Event) -> str | None:
    """Describes an event in one line; None for an event that is not shown."""
    subject = event.type.partition(".")[0]
    text: str | None = None
    if subject == "session":
        text = _session_sentence(event)
    elif subject == "loop" and event.address is not None:
        text = _loop_sentence(picture, event)
    elif subject == "step" and event.address is not None:
        text = _step_sentence(picture, event)
    elif event.type == "inbox.message":
        text = _message_sentence(event)
    elif subject == "plan":
        text = plan_news(event)
    if text is None:
        return None
    return f"[{elapsed(event.at_ms - (picture.started_ms or event.at_ms))}] {text}"


def failures_of(event: Event) -> set[str]:
    """Returns the text of the failure that an event of a step shows, in the forms of later lines.

    >>> done = Event(id="1-0", type="step.settled", at_ms=0, address="do")
    >>> failures_of(done.model_copy(update={"fields": {"word": "failed", "text": "exit code 4"}}))
    {'exit code 4'}
    """
    if event.type != "step.settled" or event.fields.get("word") != "failed":
        return set()
    text = plain(event.fields.get("text") or "", most=NOTE)
    return {
        text,
        reason_text(event.fields.get("text")),
        reason_text(event.fields.get("reason")),
    } - {""}


def _head(picture: Picture, *, now_ms: int) -> Line:
    until = picture.latest_ms if picture.ended else now_ms
    parts = [f"session {picture.session}", plain(picture.name, most=60), picture.status]
    if picture.started_ms is not None:
        parts.append(elapsed(until - picture.started_ms))
    parts.append("" if picture.ended else share_text(picture, now_ms=now_ms))
    if picture.cost_usd:
        parts.append(f"${picture.cost_usd:.4f}")
    text = "  ".join(part for part in parts if part)
    return Line(text, picture.status)


def share_text(picture: Picture, *, now_ms: int | None = None) -> str:
    """Formats the done share of the work in percent, and the estimated time left; "" if unknown.

    >>> share_text(Picture("1a2b3c4d", share=0.425, left_ms=62_000, at_most=True))
    '42 %, at most about 1:02 left'
    """
    if picture.share is None:
        return ""
    text = f"{int(picture.share * 100)} %"
    if picture.left_ms is None or picture.share >= 1:
        return text
    left = picture.left_ms - max(0, (now_ms or picture.latest_ms) - picture.latest_ms)
    most = "at most " if picture.at_most else ""
    return f"{text}, {most}about {elapsed(left)} left"


def _loop_lines(picture: Picture, loop: str, line: LoopLine, *, now_ms: int) -> list[Line]:
    steps = [item for item in line.steps.items() if item[0] not in _SILENT_STEPS]
    named = [(picture.step(loop, step), line) for step, line in steps]
    if not loop:
        return _step_lines(named, now_ms=now_ms, indent="  ")
    name = plain(loop_name(loop, picture.labels), most=40)
    if line.closed_ms is not None:
        took = elapsed(line.closed_ms - line.opened_ms)
        turns = _of(line.iteration, line.max_iterations)
        return [Line(f"  {name:<16} {line.verdict:<14} {turns:<16} {took}", line.verdict)]
    turn = f"iteration {_of(line.iteration, line.max_iterations)}"
    head = Line(f"  {name:<16} {turn:<31} {elapsed(now_ms - line.opened_ms)}", "running")
    return [head, *_step_lines(named, now_ms=now_ms, indent="      ")]


def _step_lines(steps: list[tuple[str, StepLine]], *, now_ms: int, indent: str) -> list[Line]:
    quiet = ("succeeded", "accept", "waiting")
    if len(steps) > _MOST_STEPS:  # running and failed steps come first
        steps = sorted(steps, key=lambda item: item[1].word in quiet)
    lines = [_step_line(name, step, now_ms=now_ms, indent=indent) for name, step in steps]
    if len(lines) > _MOST_STEPS:
        lines = [*lines[:_MOST_STEPS], Line(f"{indent}... and {len(lines) - _MOST_STEPS} more")]
    return lines


def _step_line(name: str, step: StepLine, *, now_ms: int, indent: str) -> Line:
    after_word = step.note
    if step.word == "running":
        after_word = elapsed(now_ms - step.since_ms) + _again(step)
    text = f"{indent}{plain(name, most=30):<20} {step.word:<10} {after_word}"
    return Line(text.rstrip(), step.word)


def _session_sentence(event: Event) -> str | None:
    status = event.fields.get("status")
    if not isinstance(status, str):
        return None
    why = reason_text(event.fields.get("reason"))
    verb = "ended" if event.type == "session.ended" else "is"
    after = event.fields.get("after")
    where = f" after {plain(after)}" if isinstance(after, str) else ""
    return f"session {verb} {plain(status)}{where}" + (f": {why}" if why else "")


def _message_sentence(event: Event) -> str:
    fields = event.fields
    mark = ", failure" if fields.get("escalates") else ""
    who = f"{plain(fields.get('kind'))} from {plain(fields.get('from'), most=60)}{mark}"
    return f"message {plain(fields.get('id'))}, {who}: {plain(fields.get('text'), most=NOTE)}"


def _loop_sentence(picture: Picture, event: Event) -> str | None:
    spot = spot_of(event.address or "", is_loop=True)
    line = picture.loops[spot.loop]
    name = plain(loop_name(spot.loop, picture.labels), most=60)
    if event.type != "loop.closed":
        if not line.iteration:
            return None  # max_iterations is 0; the loop.closed event says so
        return f"{name}: iteration {_of(line.iteration, line.max_iterations)}"
    turns = f"{line.iteration} iteration" + ("" if line.iteration == 1 else "s")
    how = _ENDS_OF_LISTS.get(line.verdict, line.verdict)
    word = how if line.is_list else f"{line.verdict} after {turns}"
    return f"{name}: {word}" + (f": {line.reason}" if line.reason else "")


def _step_sentence(picture: Picture, event: Event) -> str | None:
    spot = spot_of(event.address or "")
    if spot.step in _SILENT_STEPS or event.type == "step.ready":
        return None
    who = plain(picture.step(spot.loop, spot.step), most=60)
    if spot.loop:
        limit = picture.loops[spot.loop].max_iterations
        loop = plain(loop_name(spot.loop, picture.labels), most=60)
        who = f"{loop} {_of(spot.iteration, limit, '/')} {who}"
    done = share_text(picture) if event.type == "step.settled" and not picture.ended else ""
    return f"{who}: {_step_news(event)}" + (f"  [{done}]" if done else "")


def _step_news(event: Event) -> str:
    fields = event.fields
    if event.type == "step.settled":
        word = plain(fields.get("verdict") or fields.get("word") or "done")
        note = plain(fields.get("text") or "", most=NOTE) or reason_text(fields.get("reason"))
        cost = cost_of(event)
        took = fields.get("elapsed_ms")
        word += f" after {elapsed(took)}" if isinstance(took, int) and took >= 1000 else ""
        word += f" (${cost:.4f})" if cost else ""
        return f"{word}: {note}" if note else word
    if event.type == "step.claimed":
        attempt = fields.get("attempt")
        again = f", attempt {attempt}" if isinstance(attempt, int) and attempt > 1 else ""
        return f"runs on {plain(fields.get('worker') or 'a worker')}{again}"
    if event.type == "step.expired":
        return "timed out" if fields.get("why") == "timeout" else "lost its worker, will be retried"
    if event.type == "step.retried":
        return f"failed, will be retried: {reason_text(fields.get('reason'))}".rstrip(": ")
    if event.type in WAITS:
        return f"waits {waits_for(event)}".rstrip()
    if event.type == "step.released":
        return "handed back"
    return plain(event.type.partition(".")[2])


def _again(step: StepLine) -> str:
    return f"  attempt {step.attempt}" if step.attempt > 1 else ""


def _of(iteration: int, limit: int, between: str = " of ") -> str:
    return f"{iteration}{between}{limit}" if limit else str(iteration)


def plan_news(event: Event) -> str | None:
    """Describes what an event changed in the plan; None if it is not shown."""
    given = event.fields.get("tasks")
    tasks = [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []
    match event.fields.get("what"):
        case "drafted":
            return f"plan: {plural(len(tasks), 'task')} drafted"
        case "edited":
            return f"plan: edited by {plain(event.fields.get('by') or 'a person', most=60)}"
        case what:
            news = [text for task in tasks for text in _task_news(task, str(what))]
    if not news:
        return None
    more = f"; and {len(news) - _TASKS} more" if len(news) > _TASKS else ""
    return f"plan: {'; '.join(news[:_TASKS])}{more}"


def _task_news(task: Mapping[str, object], what: str) -> Iterator[str]:
    name = plain(task.get("id") or "a task", most=40)
    session = plain(task.get("session") or "", most=20)
    if task.get("fact") == "accepted":
        yield f"{name} accepted"
    elif task.get("fact"):
        yield f"{name} failed, its session is {plain(task['fact'], most=20)}"
    elif what == "reported" and task.get("word"):
        yield f"{name} reported {plain(task['word'], most=20)}"
    elif what == "started" and task.get("state") == "running" and session:
        yield f"{name} started as session {session}"
