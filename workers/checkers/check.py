"""Runs check steps: a command, an agent, a callable, a tool or a rubric judges the doer's work."""

from __future__ import annotations

import threading

from pydantic import JsonValue

from app.core.outcomes import Baseline, Busy, Outcome
from leadhand.functions.modules import offered_arguments
from leadhand.models.verdicts import ReasonCode
from workers.agents.ask import agent_named
from workers.checkers.baseline import Found, find_by_command, run_baseline
from workers.checkers.clean_folder import (
    UNKNOWN,
    NotClean,
    NotPrepared,
    in_clean_folder,
    state_as_found,
)
from workers.checkers.reruns import run_until_sure
from workers.checkers.rubric import by_rubric, find_by_rubric
from workers.checkers.verdicts import ask_verdict, function_verdict, not_started
from workers.folders.protected import ProtectedFolder
from workers.functions import call, forget_bytecode, with_place
from workers.git.git import Cancelled
from workers.processes.exit_outcome import failed_outcome
from workers.prompts import CheckInputs, LookInputs, ProtectInputs
from workers.task import BodyTask

#: How often a check whose folder could not be prepared is tried again: as often as one whose worker
#: is lost.
PREPARE_TRIES = 5


def check(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Runs a checker and returns its verdict: terminate if it cannot start, retry on a timeout.

    The step before a loop with protected files records these; others ask a person about changes.
    """
    if not task.inputs.keys().isdisjoint(("protect", "look")):
        files = task.protected_folder(cancel)
        if files is not None:
            return _of_protected(files, task)
    given = CheckInputs.model_validate(task.inputs)
    try:
        if given.is_baseline:
            return run_baseline(task, lambda digest: _find_baseline(task, given, digest, cancel))
        if given.checker.clean:
            found = state_as_found(task) if given.as_found else None
            with in_clean_folder(task, cancel, found) as inside:
                return _judge(inside, given, cancel).model_copy(update={"ran": "clean"})
    except NotClean as error:
        failed = failed_outcome(ReasonCode.FAILED_STEP, f"the check did not run: {error}")
        again = Busy(tries=PREPARE_TRIES) if isinstance(error, NotPrepared) else None
        return failed.model_copy(update={"busy": again})
    except Cancelled:
        return failed_outcome(ReasonCode.CANCELLED, "the check was cancelled")
    return _judge(task, given, cancel)


def _find_baseline(
    task: BodyTask, given: CheckInputs, digest: str | None, cancel: threading.Event
) -> Found:
    """Runs a check before the work, in a state of the folder."""
    by = find_by_command if given.checker.command is not None else find_by_rubric
    timeout_s = min(given.checker.timeout_s, task.timeout_s)
    if not given.checker.clean:
        forget_bytecode(task, task.bytecode)
        return by(task, given.checker, digest, timeout_s=timeout_s, cancel=cancel)
    try:
        with in_clean_folder(task, cancel, digest or UNKNOWN) as inside:
            forget_bytecode(inside, inside.bytecode)
            return by(inside, given.checker, digest, timeout_s=timeout_s, cancel=cancel)
    except NotClean as error:
        return Found(Baseline(), f": {error}", None)


def _of_protected(files: ProtectedFolder, task: BodyTask) -> Outcome:
    """Records protected files, or asks a person about changed ones."""
    if "protect" in task.inputs:
        return files.record(ProtectInputs.model_validate(task.inputs).protect, task.address)
    asked = LookInputs.model_validate(task.inputs)
    return files.look(asked.protected, asked.look, task.address)


def _judge(task: BodyTask, given: CheckInputs, cancel: threading.Event) -> Outcome:
    timeout_s = min(given.checker.timeout_s, task.timeout_s)
    if given.checker.callable is not None:
        return _by_callable(task, given, given.checker.callable, timeout_s, cancel)
    if given.checker.tool is not None:
        return _by_tool(task, given, given.checker.tool, timeout_s, cancel)
    forget_bytecode(task, task.bytecode)
    if given.checker.command is not None:
        return run_until_sure(task, given, timeout_s=timeout_s, cancel=cancel)
    if given.checker.rubric is not None:
        return by_rubric(task, given, given.checker.rubric, timeout_s, cancel)
    return _by_agent(task, given, timeout_s, cancel)


def _by_agent(
    task: BodyTask, given: CheckInputs, timeout_s: float, cancel: threading.Event
) -> Outcome:
    name = agent_named(task, given.checker.agent, given.doer.agent if given.doer else None)
    return ask_verdict(task, given, name, timeout_s=timeout_s, cancel=cancel)


#: What a function that judges does not get: it is for the worker, or for commands.
_OWN = {
    "checker", "doer", "doer_model", "tools_failed", "is_baseline", "base", "keeps", "quarantine",
    "gates_only", "as_found",
}  # fmt: skip


def _context(given: CheckInputs) -> dict[str, JsonValue]:
    return given.model_dump(mode="json", exclude=_OWN)


def _by_callable(
    task: BodyTask, given: CheckInputs, name: str, timeout_s: float, cancel: threading.Event
) -> Outcome:
    quick = given.checker.quick
    called = call(task, name, _context(given), timeout_s=timeout_s, cancel=cancel, quick=quick)
    return function_verdict(name, called, timeout_s=timeout_s)


def _by_tool(
    task: BodyTask, given: CheckInputs, name: str, timeout_s: float, cancel: threading.Event
) -> Outcome:
    context = with_place(task, _context(given))
    function = task.shelf.inline.find(name)
    if function is not None and task.inline is not None:
        task.on_slow()  # it may hold the interpreter
        limit_s = min(timeout_s, function.timeout_s)
        called = task.inline.call(
            task.shelf.inline, function, context, timeout_s=limit_s, fill=offered_arguments
        )
        if called is not None:
            return function_verdict(name, called, timeout_s=limit_s)
    tool = task.shelf.tool(name)
    if tool is None or tool.why_not is not None:
        return not_started(task.shelf.unusable_text(name))
    taken = {one.name for one in tool.parameters}
    called = call(
        task,
        name,
        {key: value for key, value in context.items() if key in taken},
        timeout_s=timeout_s,
        cancel=cancel,
        quick=given.checker.quick,
        tools=task.shelf.folders,
    )
    return function_verdict(name, called, timeout_s=timeout_s)
