"""The body of a check step: a command, an agent or a callable judges the doer's work."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.outcomes import Outcome, Verdict
from app.texts import cut
from leadhand.verdicts import parse_verdict
from workers.agents.asking import agent_named, ask
from workers.agents.prompts import checker_prompt
from workers.body_task import BodyTask
from workers.callables import Called, call, call_of, called_warm
from workers.checkers.agents import judged
from workers.checkers.rubrics import by_rubric
from workers.checkers.sentences import early_end, not_started, verdict_of
from workers.endings import ended
from workers.inputs import CheckInputs
from workers.sandbox import run
from workers.warm import Call


def check(task: BodyTask, cancel: threading.Event) -> Outcome:
    """The checker's verdict; one that cannot start says terminate, a slow one asks for a retry."""
    given = CheckInputs.model_validate(task.inputs)
    timeout_s = min(given.checker.timeout_s, task.timeout_s)
    if given.checker.command is not None:
        return _by_command(task, given.checker.command, timeout_s, cancel)
    if given.checker.rubric is not None:
        return by_rubric(task, given, given.checker.rubric, timeout_s, cancel)
    if given.checker.callable is not None:
        return _by_callable(task, given, given.checker.callable, timeout_s, cancel)
    return _by_agent(task, given, timeout_s, cancel)


def _by_command(task: BodyTask, line: str, timeout_s: float, cancel: threading.Event) -> Outcome:
    result = run(task.command(line, timeout_s=timeout_s), cancel)
    early = early_end(result, who="Checker command", timeout_s=timeout_s)
    if early is not None:
        return early
    if result.exit_code == 0:
        return verdict_of("accept", result.stdout.text.strip(), "exit_code", result)
    said = [text for text in (result.stdout.text.strip(), result.stderr.text.strip()) if text]
    silent = f"Command {ended(result)}"
    return verdict_of("retry", "\n".join(said) or silent, "exit_code", result)


def _by_agent(
    task: BodyTask, given: CheckInputs, timeout_s: float, cancel: threading.Event
) -> Outcome:
    checker = given.checker
    name = agent_named(task, checker.agent, given.doer.agent if given.doer else None)
    answer = ask(
        task,
        name,
        checker_prompt(given),
        role="checker",
        model=checker.model,
        timeout_s=timeout_s,
        cancel=cancel,
    )
    return answer.told(judged(name, answer, timeout_s))


class QuickCheck(NamedTuple):
    """A check by a function that is declared quick: what is asked, which may be sent ahead."""

    task: BodyTask
    name: str
    call: Call
    timeout_s: float

    def outcome(self, cancel: threading.Event) -> Outcome:
        """The verdict, of the answer of whoever the task has for such calls."""
        assert self.task.warm is not None
        called = called_warm(self.task.warm, self.call, timeout_s=self.timeout_s, cancel=cancel)
        return _judged(self.name, called, self.timeout_s)


def quick_check(task: BodyTask) -> QuickCheck | None:
    """The body of a check that is quick; None of any other. Raises ValidationError."""
    given = CheckInputs.model_validate(task.inputs)
    name = given.checker.callable
    if name is None or not given.checker.quick:
        return None
    timeout_s = min(given.checker.timeout_s, task.timeout_s)
    return QuickCheck(task, name, call_of(task, name, _context(given)), timeout_s)


def _context(given: CheckInputs) -> dict[str, JsonValue]:
    return given.model_dump(mode="json", exclude={"checker", "doer"})


def _by_callable(
    task: BodyTask, given: CheckInputs, name: str, timeout_s: float, cancel: threading.Event
) -> Outcome:
    quick = given.checker.quick
    called = call(task, name, _context(given), timeout_s=timeout_s, cancel=cancel, quick=quick)
    return _judged(name, called, timeout_s)


def _judged(name: str, called: Called, timeout_s: float) -> Outcome:
    who = f"Checker {name!r}"
    early = early_end(called.result, who=who, timeout_s=timeout_s)
    if early is not None:
        return early
    if called.missing is not None:
        return not_started(f"{who} could not start: {called.missing}", called.result)
    if called.raised is not None:
        return verdict_of("retry", called.raised, "raised", called.result)
    if called.unfinished:
        return verdict_of("retry", f"{who} {ended(called.result)}", "failed", called.result)
    return _returned(who, called)


def _returned(who: str, called: Called) -> Outcome:
    """A bool, a text to parse, a pair of verdict and feedback, or a dict of them."""
    value = called.value
    word, feedback = value, called.result.stdout.text.strip()
    if isinstance(value, str):
        parsed = parse_verdict(value)
        return verdict_of(parsed.verdict, parsed.feedback, parsed.decided_by, called.result)
    if isinstance(value, list) and len(value) == 2:
        word, feedback = value[0], str(value[1] or "")
    if isinstance(value, dict):
        word, feedback = value.get("verdict"), str(value.get("feedback") or "")
    verdict = _as_verdict(word)
    if verdict is None:
        text = f"{who} returned no verdict but {cut(repr(value), 500)}"
        return verdict_of("retry", text, "returned", called.result)
    return verdict_of(verdict, feedback, "returned", called.result)


def _as_verdict(word: JsonValue) -> Verdict | None:
    if isinstance(word, bool):
        return "accept" if word else "retry"
    return _VERDICTS.get(word.strip().lower()) if isinstance(word, str) else None


_VERDICTS: Mapping[str, Verdict] = {
    "accept": "accept",
    "retry": "retry",
    "terminate": "terminate",
}
