"""Formats the events of plans as one line each (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from leadhand.cli.render.tables import plural
from leadhand.models.text import plain
from leadhand.models.views import Event

#: The most tasks that one line names.
_TASKS = 8


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
