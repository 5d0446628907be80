"""Suggests what to do about a session that has ended, by what failed (pure)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue

from app.compiler.folders import opening_step
from app.compiler.plan import EXECUTE
from app.core.addresses import path_of
from app.core.program import Action, Loop, Program, Step, graph_steps, step_of_maker
from app.core.references import as_path, names_of, references_in
from app.core.states import SessionStatus
from app.history.values import name_in_commands
from app.redaction import without_keys
from app.sessions.results import fails_again, origins
from leadhand.graphs.documents import GraphDocument
from leadhand.graphs.faults import missing_reference
from leadhand.graphs.values import as_text
from leadhand.models.suggestions import nearest
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.explain import SuggestedAction

#: Reasons of steps that may succeed if they are tried again.
_AGAIN = (
    ReasonCode.FAILED_STEP,
    ReasonCode.TIMEOUT,
    ReasonCode.LOST,
    ReasonCode.INVALID_ANSWER,
    ReasonCode.CHECKER_DOWN,
    ReasonCode.DECLINED,
)
_NO_TOOL = re.compile(r"^ToolNotFound: tool '(?P<tool>[^']+)'")
#: The options of a command for the fields that have a name and a value each.
_OPTIONS = {"tools": "--tool", "inputs": "--set"}
#: The refusal of a step whose session's worktree or copy was removed.
_FOLDER_GONE = re.compile(r"^the (worktree|copy|folder) '.*' (of session \w+ )?is gone", re.DOTALL)
#: Suggested forks with another input, each with one input.
_INPUTS = 3


class Why(StrEnum):
    """What each kind of suggestion does; a test carries out each of them."""

    CONTINUES = "it continues where it was"
    FAILED_RUNS_AGAIN = "what failed runs again"
    FILES_PUT_BACK = "the protected files are put back, and what failed runs again"
    FILES_TAKEN = "the protected files are taken as they are, and what failed runs again"
    LIMIT_RAISED = "the limit that was reached is raised"
    OTHERS_DECIDE = "the other checkers decide without it"
    FOLDER_MADE_AGAIN = (
        "the session's folder is made again, with what is committed on its branch, and all steps"
        " that work in it run again"
    )
    OTHER_TOOL = "{} is a tool that the workers have"
    WITH_ITS_TOOL = "it runs again once a worker has its tool"
    RUNS_AGAIN = "it runs again, with what depends on it"
    WHOLE_TIME = "it has its whole time again"
    OTHER_WORKER = "another worker takes it"
    ANSWERS_AGAIN = "it answers again"
    ASKED_AGAIN = "the question is asked again"
    VALUE_MADE_AGAIN = "it makes the value again; if that is always the same, change it first"
    OTHER_INPUT = "write another value of the input {!r} in place of this one"
    WITHOUT_ITEM = "the list continues without this item"
    WITHOUT_STEP = "what depends on it continues without it"
    REFUSED_FOR_GOOD = "it begins anew, where the work so far was refused for good"
    ENDED_FOR_GOOD = "it begins anew; a session that has ended for good cannot continue"


class Ended(NamedTuple):
    """A session that has ended, as far as suggestions need it."""

    session: str
    kind: str
    status: str
    program: Program
    #: The options of `leadhand resume` that raise the limit that was reached, as fields too.
    resume_options: str
    resume_arguments: Mapping[str, JsonValue]
    #: The checks that did not accept in the last iteration, by address.
    refusing: tuple[str, ...]
    #: The tools that workers have.
    tools: tuple[str, ...]
    has_document: bool
    #: The document of a graph; None if it is not stored.
    graph: GraphDocument | None = None


def suggestions(ended: Ended, reason: Reason | None) -> list[SuggestedAction]:
    """Suggests actions after a session has ended or stopped, the most promising first."""
    match ended.status:
        case SessionStatus.STOPPED:
            return [_resume(ended, Why.CONTINUES)]
        case SessionStatus.FAILED if reason and reason.root.code is ReasonCode.TAMPERED:
            back, taken = _resume(ended, Why.FILES_PUT_BACK), _resume(ended, Why.FILES_TAKEN)
            return [back, _accepting(taken)]
        case SessionStatus.FAILED:
            return list(_for_failure(ended, reason))
        case SessionStatus.EXITED | SessionStatus.ABORTED:
            return list(_for_final(ended))
        case _:
            return []


def _for_failure(ended: Ended, reason: Reason | None) -> Iterator[SuggestedAction]:
    root = reason.root if reason is not None else None
    if root is None:
        yield _resume(ended, Why.FAILED_RUNS_AGAIN)
        return
    if _FOLDER_GONE.match(root.text) and (maker := opening_step(ended.program)) is not None:
        yield _action(ended, "retry", maker.id, Why.FOLDER_MADE_AGAIN, {})
        return
    if ended.resume_options:
        yield _resume(ended, Why.LIMIT_RAISED)
    if root.code is ReasonCode.MAX_ITERATIONS:
        for check in ended.refusing:
            yield _skip(ended, check, Why.OTHERS_DECIDE)
    at = _step_of(ended, root) or _step_of(ended, _last_placed(reason))
    found = list(_for_step(ended, at, root)) if at is not None else []
    yield from found
    if not ended.resume_options and not (found and fails_again(root)):
        yield _resume(ended, Why.FAILED_RUNS_AGAIN)
    if root.code in (ReasonCode.TERMINATED, ReasonCode.NO_PROGRESS):
        yield from _rerun(ended, Why.REFUSED_FOR_GOOD)


def _for_step(ended: Ended, at: str, root: Reason) -> Iterator[SuggestedAction]:
    """Suggestions for the step that failed: `at` is its address, without an item."""
    step = ended.program.step(at)
    missing = _NO_TOOL.match(root.text)
    other = nearest(missing["tool"], ended.tools) if missing is not None else None
    if missing is not None and other is not None and ended.has_document:
        name = (step.label if ended.kind == "graph" else None) or missing["tool"]
        yield _action(
            ended, "fork", None, Why.OTHER_TOOL.format(other),
            {"tools": {name: other}, "folder": "as-is"},
        )  # fmt: skip
    if fails_again(root):
        yield from _for_value(ended, step, root)
    elif root.code in _AGAIN:
        yield _action(ended, "retry", at, _why_again(root, missing is not None), {})
    if step.action is not Action.JUDGE and not (ended.kind == "plan" and _is_fixed(at)):
        item = (root.at or "").partition("#")[2] if step.for_each is not None else ""
        if item:
            yield _skip(ended, f"{at}#{item}", Why.WITHOUT_ITEM)
        yield _skip(ended, at, Why.WITHOUT_STEP)


def _why_again(root: Reason, is_missing_tool: bool) -> str:
    if is_missing_tool:
        return Why.WITH_ITS_TOOL
    reasons: Mapping[str, Why] = {
        ReasonCode.TIMEOUT: Why.WHOLE_TIME,
        ReasonCode.LOST: Why.OTHER_WORKER,
        ReasonCode.INVALID_ANSWER: Why.ANSWERS_AGAIN,
        ReasonCode.DECLINED: Why.ASKED_AGAIN,
    }
    return reasons.get(root.code, Why.RUNS_AGAIN)


def _last_placed(reason: Reason | None) -> Reason | None:
    """The deepest cause that has an address: the end of a child session has none."""
    links = list(reason.chain()) if reason is not None else []
    return next((link for link in reversed(links) if link.at), None)


def _step_of(ended: Ended, cause: Reason | None) -> str | None:
    """The address of the step that failed, without its item; None for a loop or the session."""
    at = ((cause and cause.at) or "").partition("#")[0]
    path = path_of(at)
    if not at or not ended.program.has(path) or isinstance(ended.program.node(path), Loop):
        return None
    made_for = step_of_maker(ended.program, path)
    return at if made_for is None else made_for.id


def _for_value(ended: Ended, step: Step, root: Reason) -> Iterator[SuggestedAction]:
    """Suggestions that make another value where the step could not use the one that it got."""
    if ended.graph is None:
        source = _source_in_flow(ended.program, step, root)
        if source is not None:
            yield _action(ended, "retry", source, Why.VALUE_MADE_AGAIN, {})
        return
    nodes = {one.label: one.id for one in graph_steps(ended.program)}
    written = next(one for one in ended.graph.steps if nodes[one.name] == step.id)
    found = origins(ended.graph, written, root)
    for name in found.steps[:1]:
        yield _action(ended, "retry", nodes[name], Why.VALUE_MADE_AGAIN, {})
    for name in found.inputs[:_INPUTS]:
        value = ended.graph.inputs[name]
        if without_keys(as_text(value)) == as_text(value):
            why = Why.OTHER_INPUT.format(name)
            yield _action(ended, "fork", None, why, {"inputs": {name: value}, "folder": "as-is"})


def _source_in_flow(program: Program, step: Step, root: Reason) -> str | None:
    """The step of a flow, outside of loops, that made no value for a reference."""
    written = missing_reference(root.text)
    for one in references_in(step.inputs):
        if one.value is not None and one.value.text == written:
            path = (as_path(names_of(one)[-1]) or "").partition("/")
            return path[0] if not path[1] and program.has(path[0]) else None
    return None


def _is_fixed(at: str) -> bool:
    return path_of(at).rpartition("/")[2] in (EXECUTE, "decompose")


def _for_final(ended: Ended) -> Iterator[SuggestedAction]:
    yield from _rerun(ended, Why.ENDED_FOR_GOOD)


def _rerun(ended: Ended, why: str) -> Iterator[SuggestedAction]:
    if ended.has_document and ended.kind != "guard":
        yield _action(ended, "rerun", None, why, {})


def _resume(ended: Ended, why: str) -> SuggestedAction:
    found = _action(ended, "resume", None, why, {})
    command = f"{found.command}{ended.resume_options}"
    return found.model_copy(update={"arguments": dict(ended.resume_arguments), "command": command})


def _accepting(resume: SuggestedAction) -> SuggestedAction:
    """The same resume, which takes protected files as they are."""
    return resume.model_copy(
        update={
            "arguments": {**resume.arguments, "accept_protected": True},
            "command": f"{resume.command} --accept-protected",
        }
    )


def _skip(ended: Ended, at: str, why: str) -> SuggestedAction:
    return _action(ended, "skip", at, why, {})


def _action(
    ended: Ended, verb: str, address: str | None, why: str, arguments: Mapping[str, JsonValue]
) -> SuggestedAction:
    at = address and name_in_commands(ended.program, address)
    words = ["leadhand", verb, ended.session, *([at] if at else [])]
    for name, value in arguments.items():
        if isinstance(value, dict):
            option = _OPTIONS[name]
            words += [word for n, v in value.items() for word in (option, f"{n}={as_text(v)}")]
        else:
            words += [f"--{name}", str(value)]
    return SuggestedAction(
        verb=verb,
        session=ended.session,
        address=at,
        arguments=dict(arguments),
        why=why,
        command=shlex.join(words),
    )
