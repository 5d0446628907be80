"""Plan documents for the chaos runs, drawn from a seed, each with the end that it must come to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, NamedTuple

from tests.chaos.ends import End

#: Builds a body's command line, from its kind and arguments.
Command = Callable[..., str]

#: What the description of a task tells its doer to do, and what its doer does by that.
FAILS, GIVES_UP, PROPOSES = "It fails.", "It gives up.", "It proposes "
#: The checkers of a plan, by the iteration from which they accept.
_ACCEPTS = {"soon": 1, "later": 2, "never": 99}
_MOST = 2


class Task(NamedTuple):
    """What a task must come to."""

    id: str
    dependencies: tuple[str, ...]
    #: accepted, failed or exited, once it runs.
    fact: str


class Plans:
    """Draws plans."""

    def __init__(self, rng: Random, command: Command, *, longest_s: float) -> None:
        self._rng = rng
        self._command = command
        self._longest_s = longest_s

    def plan(self) -> tuple[End, dict[str, Any]]:
        """Tasks with dependencies, of which some fail or give up, and one may propose another."""
        rng = self._rng
        tasks = [self._task(number) for number in range(rng.randint(3, 7))]
        if rng.random() < 0.5:
            tasks[0]["description"] += f" {PROPOSES}extra."
        document = {
            "kind": "plan", "request": "Build it by chaos.", "tasks": tasks, "refine": False,
            "doer": {"command": self._command("task")},
            "baseline": False, "checkers": self._checkers(),
            "at_once": rng.randint(1, 3), "task_retries": rng.randint(0, 1),
            "on_task_failure": "stop" if rng.random() < 0.2 else "continue",
            "proposals": "accept", "workspace": "shared",
        }  # fmt: skip
        return end_of(document), document

    def _checkers(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "command": self._command("check", 0.05, f"*:{at}")}
            for name, at in _ACCEPTS.items()
        ]

    def _task(self, number: int) -> dict[str, Any]:
        rng = self._rng
        seconds = round(rng.uniform(0.02, 0.4) * self._longest_s, 2)
        before = range(number)
        needs = rng.sample(before, min(number, rng.choice((0, 1, 1, 2))))
        extra = rng.choices(("", FAILS, GIVES_UP), (10, 1, 1))[0]
        checker = rng.choices(tuple(_ACCEPTS), (8, 3, 1))[0]
        return {
            "id": f"t{number}", "title": f"Task {number}",
            "description": f"Take {seconds} s for it. {extra}".strip(),
            "dependencies": [f"t{needed}" for needed in needs],
            "checkers": [checker], "max_iterations": _MOST,
            "priority": rng.choice((0, 5, 5, 9)),
        }  # fmt: skip


def tasks_of(document: Mapping[str, Any]) -> list[Task]:
    """The tasks of a drawn plan, with those that they propose."""
    found = []
    for task in document["tasks"]:
        found.append(Task(task["id"], tuple(task["dependencies"]), _fact(task)))
        proposed = re.search(f"{PROPOSES}(\\w+)", task["description"])
        if proposed:
            found.append(Task(proposed.group(1), (), "accepted"))
    return found


def _fact(task: Mapping[str, Any]) -> str:
    if GIVES_UP in task["description"]:
        return "exited"
    never = _ACCEPTS[task["checkers"][0]] > _MOST
    return "failed" if never or FAILS in task["description"] else "accepted"


def accepted_of(tasks: Iterable[Task]) -> tuple[set[str], set[str]]:
    """The tasks that are accepted if nobody ends the plan early, and those that never start."""
    accepted, blocked = set[str](), set[str]()
    for task in tasks:  # dependencies come first
        if not accepted.issuperset(task.dependencies):
            blocked.add(task.id)
        elif task.fact == "accepted":
            accepted.add(task.id)
    return accepted, blocked


def end_of(document: Mapping[str, Any]) -> End:
    """How the session of a drawn plan ends."""
    tasks = tasks_of(document)
    accepted, blocked = accepted_of(tasks)
    if document["on_task_failure"] == "stop" and len(accepted) < len(tasks):
        return End("failed", "failed_step")
    if blocked:
        return End("failed", "blocked_on")
    return End() if accepted else End("failed", "failed_step")
