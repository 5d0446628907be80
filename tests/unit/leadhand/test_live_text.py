"""The line that a screen shows for an event of a plan."""

from __future__ import annotations

import pytest

from leadhand.cli.render.live_text import plan_news, sentence
from leadhand.cli.render.progress import Picture
from leadhand.models.views.step import Event


def event(what: object, *tasks: object, **more: object) -> Event:
    fields = {"version": 3, "what": what, "by": "engine", "tasks": list(tasks), **more}
    return Event.model_validate(
        {"id": "1-0", "type": "plan.changed", "at_ms": 1000, "address": "", "fields": fields}
    )


RUNNING = {"id": "a", "state": "running", "run": 1, "session": "0000000a"}


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (event("drafted", {"id": "a"}, {"id": "b"}), "plan: 2 tasks drafted"),
        (event("edited", {"id": "a"}, by="token 7"), "plan: edited by token 7"),
        (event("started", RUNNING), "plan: a started as session 0000000a"),
        (event("reported", {**RUNNING, "word": "blocked"}), "plan: a reported blocked"),
        (event("completed", {**RUNNING, "fact": "accepted"}), "plan: a accepted"),
        (
            event("failed", {"id": "\x1b[31ma", "fact": "exited"}, {"id": "b", "state": "waiting"}),
            "plan: a failed, its session is exited",
        ),
        (event("began", {"id": "a", "state": "starting"}), None),
        (event("advanced"), None),
        (event(7, "no task", {"fact": ["accepted"]}), "plan: a task failed, its session is"
                                                      " ['accepted']"),
        (
            event("completed", *({"id": f"t{n}", "fact": "accepted"} for n in range(10))),
            "plan: " + "; ".join(f"t{n} accepted" for n in range(8)) + "; and 2 more",
        ),
    ],
)  # fmt: skip
def test_event_of_a_plan_is_one_line(changed: Event, line: str | None) -> None:
    assert plan_news(changed) == line


def test_screen_shows_it_with_the_time() -> None:
    shown = sentence(Picture(session="1a2b3c4d"), event("started", RUNNING))
    assert shown == "[0:00] plan: a started as session 0000000a"
