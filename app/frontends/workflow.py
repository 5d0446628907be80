"""Loops and workflows of phases: doer -> checkers side by side -> judge, phase after phase."""

from __future__ import annotations

import re

from pydantic import JsonValue

from app.keys import lock_name
from app.program import Action, Loop, OnFail, Program, Step
from app.references import RESERVED, literal
from leadhand.documents import Checker, Doer, LoopDocument, PhaseDocument, WorkflowDocument

_ID = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")
#: A judge only combines what the checks said.
JUDGE_TIMEOUT_S = 60.0


def compile_loop(document: LoopDocument) -> Program:
    """One loop, named `loop`."""
    body = _body(document, doer=document.doer, model=document.model, phase=None, prior=[])
    loop = Loop(
        id="loop",
        body=body,
        max_iterations=document.max_iterations,
        result="do",
        no_progress=document.no_progress,
    )
    return Program(name=document.label or "loop", body=(loop,))


def compile_workflow(document: WorkflowDocument) -> Program:
    """One loop a phase, each after the one before it."""
    ids = {phase.name: _phase_id(n, phase.name) for n, phase in enumerate(document.phases, 1)}
    loops = []
    before: str | None = None
    for phase in document.phases:
        sources = phase.pipe_from or ((before,) if before else ())
        loops.append(_phase(document, phase, ids, sources))
        before = phase.name
    return Program(name=document.name, body=tuple(loops))


def _phase(
    document: WorkflowDocument, phase: PhaseDocument, ids: dict[str, str], sources: tuple[str, ...]
) -> Loop:
    prior: list[JsonValue] = [
        {
            "name": literal(source),
            "verdict": f"${{{ids[source]}:verdict}}",
            "text": f"${{{ids[source]}:text}}",
        }
        for source in sources
    ]
    return Loop(
        id=ids[phase.name],
        label=phase.name,
        body=_body(
            phase,
            doer=phase.doer or document.doer,
            model=phase.model or document.model,
            phase=phase.name,
            prior=prior,
        ),
        max_iterations=phase.max_iterations,
        on_fail=OnFail(phase.on_fail.partition(":")[0]),
        retries=phase.retries,
        no_progress=phase.no_progress,
        result="do",
    )


def _phase_id(number: int, name: str) -> str:
    return name if _ID.match(name) and not _taken(name) else f"phase-{number}"


def _taken(name: str) -> bool:
    """Names that would be taken for another phase's number, or for a reserved word."""
    return name.startswith("phase-") or name in RESERVED


def _body(
    loop: LoopDocument | PhaseDocument,
    *,
    doer: Doer | None,
    model: str | None,
    phase: str | None,
    prior: list[JsonValue],
) -> tuple[Step, ...]:
    do = _do(loop, doer=doer, model=model, phase=phase, prior=prior)
    names = _check_names(loop.checkers)
    checks = tuple(
        _check(loop, doer, name, checker, model=model)
        for name, checker in zip(names, loop.checkers, strict=True)
    )
    return (do, *checks, _judge(loop, names, checks))


def _do(
    loop: LoopDocument | PhaseDocument,
    *,
    doer: Doer | None,
    model: str | None,
    phase: str | None,
    prior: list[JsonValue],
) -> Step:
    return Step(
        id="do",
        action=Action.AGENT,
        timeout_s=loop.timeout_s,
        folder=True,
        quick=doer is not None and doer.quick,
        limits=_limits(doer.agent if doer else None, model, loop.concurrency_key),
        inputs={
            "task": literal(loop.task),
            "doer": _literals(_said(doer)) if doer else None,
            "model": model,
            "phase": literal(phase) if phase else None,
            "iteration": "${turn.iteration}",
            "max_iterations": "${turn.max}",
            "unchanged": "${turn.same}",
            "no_progress": loop.no_progress,
            "file_scope": [literal(path) for path in loop.file_scope],
            "verify": [literal(check) for check in loop.verify],
            "previous": {"work": "${previous.do.text}", "feedback": "${previous.judge.text}"},
            "prior": prior,
        },
    )


def _check(
    loop: LoopDocument | PhaseDocument,
    doer: Doer | None,
    name: str,
    checker: Checker,
    *,
    model: str | None,
) -> Step:
    # Without a model of its own a checker asks the doer's, where it asks the doer's agent.
    theirs = model if checker.agent is None else None
    asks = checker.prompt or checker.rubric
    if asks and checker.model is None and (loop.checker_model or theirs):
        checker = checker.model_copy(update={"model": loop.checker_model or theirs})
    return Step(
        id=f"check.{name}",
        action=Action.CHECK,
        needs=("do",),
        folder=True,
        quick=checker.quick,
        limits=_limits(checker.agent, checker.model, None),
        timeout_s=checker.timeout_s,
        label=checker.name or name,
        inputs={
            "checker": _literals({**_said(checker), "name": name}),
            "task": literal(loop.task),
            "work": "${do.text}",
            "iteration": "${turn.iteration}",
            "doer": _literals(_said(doer)) if doer else None,
            "history": "${history.judge}",
            **(_BEFORE if checker.rubric else {}),
        },
    )


#: What a rubric compares: gates that passed on the same work are not run again.
_BEFORE: dict[str, JsonValue] = {"digest": "${do.digest}", "judged": "${previous.judge.value}"}


def _judge(loop: LoopDocument | PhaseDocument, names: list[str], checks: tuple[Step, ...]) -> Step:
    outcomes: list[JsonValue] = [
        {"name": name, "outcome": f"${{{check.id}:}}"}
        for name, check in zip(names, checks, strict=True)
    ]
    return Step(
        id="judge",
        action=Action.JUDGE,
        needs=tuple(check.id for check in checks),
        timeout_s=JUDGE_TIMEOUT_S,
        inputs={
            "rule": loop.rule,
            "work": "${do.text}",
            "digest": "${do.digest}",
            "began_ms": "${do.started_ms}",
            "checks": outcomes,
        },
    )


def _limits(agent: str | None, model: str | None, key: str | None) -> tuple[str, ...]:
    """The keys whose limits a step stands under."""
    named = (("agent", agent), ("model", model), ("key", key))
    return tuple(lock_name(f"{kind}:{name}") for kind, name in named if name)


def _check_names(checkers: tuple[Checker, ...]) -> list[str]:
    """A short name for each: its own, or its program's, numbered where two would be the same."""
    names: list[str] = []
    for number, checker in enumerate(checkers, 1):
        name = _slug(checker) or f"check{number}"
        names.append(name if name not in names else f"{name}-{number}")
    return names


def _slug(checker: Checker) -> str:
    if checker.name:
        text = checker.name
    elif checker.prompt:
        text = checker.agent or "agent"
    elif checker.rubric:
        text = checker.rubric.rpartition("/")[2].rpartition(".")[0] or "rubric"
    elif checker.callable:
        text = checker.callable.rpartition(":")[2]
    else:
        assert checker.command is not None
        text = checker.command.split()[0].rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:40]


def _said(who: Doer | Checker) -> dict[str, JsonValue]:
    """What is said of who works; an older worker does not know `quick`, where nobody said it."""
    left_out = set() if who.quick else {"quick"}
    return who.model_dump(exclude_none=True, exclude=left_out)


def _literals(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {k: literal(v) if isinstance(v, str) else v for k, v in value.items()}
