"""Compiles loops and workflows: each phase is a doer, parallel checkers and a judge."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue

from app.compiler.folders import (
    CHECK_FOLDER_S,
    COMPARE_TIMEOUT_S,
    asking_steps,
    protection,
    recording_step,
)
from app.core.addresses import lock_name
from app.core.program import Action, Loop, Node, OnFail, Program, RetryPolicy, Step
from app.core.references import RESERVED, literal, literals, node_reference, outcome_reference
from leadhand.models.documents import (
    Checker,
    Doer,
    LoopDocument,
    PhaseDocument,
    Protected,
    WorkflowDocument,
)

_LONGEST = 40
#: Words of a command that say how its program is started.
_STARTERS = re.compile(
    r"^(env|sudo|doas|nice|nohup|time|timeout|exec|command|npx|uv|uvx|poetry|pipx"
    r"|python[\d.]*|pypy[\d.]*|(ba|da|z|k|c|tc|fi)?sh|node|deno|bun|ruby|perl|php|Rscript|java)$"
)
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")
#: Options of starters that take the next word, such as the user of `sudo`.
_TAKES_WORD = {"-u", "-g", "-W", "-X", "-r"}
#: Those of which `run` is a subcommand.
_RUNNERS = {"uv", "poetry", "pipx"}
#: Arguments of the starters themselves, such as the seconds of `timeout`.
_NUMBER = re.compile(r"^\d+(\.\d+)?[smhd]?$")
#: What ends one command of a line.
_NEXT = re.compile(r"&&|\|\||;|\n")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SUFFIX = re.compile(r"\.(py|sh|bash|js|mjs|ts|rb|pl|php|R|jar)$")
_ID = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")
_NO_NAME = re.compile(r"[|<\s]+")
#: A judge combines verdicts; where there is a working folder, it compares and restores that first.
JUDGE_TIMEOUT_S = 60.0


def check_names(checkers: Sequence[Checker]) -> list[str]:
    """Returns a short, unique name for each checker: its given name, or one made from its command.

    >>> check_names([Checker.model_validate(one) for one in (
    ...     "cd src && ruff check .", "python3 -m pytest -q", "pytest -x", "agent(critic): Good?")])
    ['ruff', 'pytest', 'pytest-3', 'critic']
    """
    own = {_slug(checker.name) for checker in checkers if checker.name}
    names: list[str] = []
    for number, checker in enumerate(checkers, 1):
        name = _slug(_name_of(checker)) or f"check{number}"
        taken = names if checker.name else [*own, *names]
        names.append(name if name not in taken else _numbered(name, number, {*own, *names}))
    return names


def _numbered(name: str, number: int, taken: set[str]) -> str:
    """The name with its place among the checkers, or with the next number that is free."""
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:_LONGEST]


def _name_of(checker: Checker) -> str:
    if checker.name:
        return checker.name
    if checker.prompt:
        return checker.agent or "agent"
    if checker.rubric:
        return _stem(checker.rubric) or "rubric"
    if function := checker.callable or checker.tool:
        return function.rpartition(":")[2]
    return program_of(checker.command or "")


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]


def program_of(line: str) -> str:
    """Returns the program that a command runs, without leading `cd`, `env` and interpreters.

    Of a pipeline it has all programs: the first one alone may not be what decides.

    >>> program_of("false|tee log.txt"), program_of("cd x && make test 2>&1 | tee log")
    ('false-tee', 'make-tee')
    >>> program_of("grep '|' table"), program_of("python3 -m pytest -k 'a | b' | tail -3")
    ('grep', 'pytest-tail')
    >>> program_of("test $(ls | grep -c '^part') -le 1")
    'test'
    >>> program_of("cd sub && FOO=1 sudo -n env BAR=2 python3 -P checks/tidy.py src")
    'tidy'
    >>> program_of("bash -c 'make test'"), program_of("python3 -c 'import x'"), program_of("./run")
    ('make', 'python3', 'run')
    """
    parts = [part for part in _parts(line) if (words := _split(part)) and words[0] != "cd"]
    for part in parts or [line]:
        found = [_program(stage) for stage in _stages(part)]
        if found[0]:
            return "-".join(filter(None, found))
    first = _split(parts[0]) if parts else [line]
    return _short(first[0]) if first else ""


def _parts(line: str) -> list[str]:
    """The commands of a line; a sign within quotes ends none."""
    try:
        shlex.split(line)
    except ValueError:
        return [line]
    return [line] if re.search(r"['\"]", _NEXT.split(line)[0]) else _NEXT.split(line)


def _split(part: str) -> list[str]:
    try:
        return shlex.split(part)
    except ValueError:
        return part.split()


def _stages(part: str) -> list[list[str]]:
    """The words of each program of a pipeline; a sign in quotes or `$(...)` separates none."""
    signs = shlex.shlex(part, posix=False, punctuation_chars="|&")
    signs.whitespace_split, signs.commenters = True, ""
    stages: list[list[str]] = [[]]
    depth = 0
    try:
        for token in signs:
            bare = _QUOTED.sub("", token)
            depth = max(0, depth + bare.count("$(") - bare.count(")"))
            if token in ("|", "|&") and not depth:
                stages.append([])
            else:
                stages[-1].append(token)
    except ValueError:
        return [_split(part)]
    return [_split(" ".join(stage)) for stage in stages if stage] or [[]]


def _program(words: Sequence[str]) -> str:
    """The first word that is a program itself; empty where there is none."""
    started_by = ""
    for number, word in enumerate(words):
        name = word.rpartition("/")[2]
        if _STARTERS.match(name):
            started_by = name
        elif started_by and word == "-c":
            inner = words[number + 1] if number + 1 < len(words) else ""
            return program_of(inner) if started_by.endswith("sh") else ""
        elif not (_ASSIGNMENT.match(word) or _is_of_starter(started_by, words, number)):
            return _short(word)
    return ""


def _is_of_starter(starter: str, words: Sequence[str], number: int) -> bool:
    """Whether the word is an argument of what starts the program."""
    word, before = words[number], words[number - 1]
    if not starter:
        return False
    is_argument = before in _TAKES_WORD or (word == "run" and starter in _RUNNERS)
    return is_argument or word.startswith("-") or _NUMBER.match(word) is not None


def _short(word: str) -> str:
    return _SUFFIX.sub("", word.rpartition("/")[2])


def compile_loop(document: LoopDocument) -> Program:
    """Compiles a document with a single loop; the node is named `loop`."""
    body = _body(
        document,
        doer=document.doer,
        model=document.model,
        phase=None,
        prior=[],
        has_folder=document.cwd is not None,
    )
    before = _before(document)
    loop = Loop(
        id="loop",
        body=body,
        needs=_needs_of_loop(before),
        max_iterations=document.max_iterations,
        result="do",
        no_progress=document.no_progress,
    )
    return Program(name=document.label or "loop", body=(*before, loop))


def compile_workflow(document: WorkflowDocument) -> Program:
    """Compiles a workflow: each phase becomes a loop that starts after the one before it."""
    ids = {phase.name: _phase_id(n, phase.name) for n, phase in enumerate(document.phases, 1)}
    loops: list[Node] = []
    before: str | None = None
    for number, phase in enumerate(document.phases, 1):
        sources = phase.pipe_from or ((before,) if before else ())
        steps = _before(phase, ids[phase.name], () if before is None else (ids[before],))
        loop = _phase(
            document, phase, ids, sources, later=_commands(document.phases[number : number + 1])
        )
        loops += [*steps, loop.model_copy(update={"needs": _needs_of_loop(steps)})]
        before = phase.name
    return Program(name=document.name, body=tuple(loops))


def _phase(
    document: WorkflowDocument,
    phase: PhaseDocument,
    ids: dict[str, str],
    sources: tuple[str, ...],
    *,
    later: frozenset[str],
) -> Loop:
    prior: list[JsonValue] = [
        {
            "name": literal(source),
            "verdict": node_reference(ids[source], "verdict"),
            "text": node_reference(ids[source], "text"),
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
            has_folder=document.cwd is not None,
            id_=ids[phase.name],
            later=later,
        ),
        max_iterations=phase.max_iterations,
        on_fail=OnFail(phase.on_fail.partition(":")[0]),
        retries=phase.retries,
        no_progress=phase.no_progress,
        result="do",
    )


def _phase_id(number: int, name: str) -> str:
    return name if _ID.match(name) and not _is_reserved(name) else f"phase-{number}"


def _is_reserved(name: str) -> bool:
    """Whether a name looks like a numbered phase or a step before a loop, or is a reserved word."""
    return name.startswith(("phase-", "base.", "protect")) or name in RESERVED


def _before(
    loop: LoopDocument | PhaseDocument, phase: str = "", needs: tuple[str, ...] = ()
) -> tuple[Step, ...]:
    """The steps directly before a loop: its commands side by side, then the protected files.

    What a command changes there is not the doer's, so the files are recorded after it.
    """
    checks = _baseline(loop, phase, needs)
    after = {"needs": _names(checks)}
    return (*checks, *(step.model_copy(update=after) for step in _protected(loop, phase)))


def _needs_of_loop(before: tuple[Step, ...]) -> tuple[str, ...] | None:
    """What a loop waits for, by the steps directly before it; None for the node before."""
    return _names(tuple(step for step in before if "protect" in step.inputs)) or _names(before)


def _names(steps: tuple[Step, ...]) -> tuple[str, ...] | None:
    return tuple(step.id for step in steps) or None


def _protected(loop: LoopDocument | PhaseDocument, phase: str) -> tuple[Step, ...]:
    """The step before a loop that records the protected files."""
    files = _protected_files(loop)
    label = f"protected files before {phase or 'the work'}"
    return (recording_step(_protect_id(phase), files, label=label),) if files else ()


def _protected_files(loop: LoopDocument | PhaseDocument) -> tuple[Protected, ...]:
    """The protected files of a loop that runs."""
    return loop.protected if loop.max_iterations > 0 else ()


def _protect_id(phase: str) -> str:
    return _short_id(f"protect.{phase}" if phase else "protect")


def _baseline(
    loop: LoopDocument | PhaseDocument, phase: str, needs: tuple[str, ...]
) -> tuple[Step, ...]:
    """The steps before a loop that run its commands on the work as it is then."""
    if not _has_baseline(loop):
        return ()
    named = zip(check_names(loop.checkers), loop.checkers, strict=True)
    checkers = {name: checker for name, checker in named if _has_command(checker)}
    dumped = {name: _dump(checker) for name, checker in checkers.items()}
    order = needs_in_turn(dumped, needs, lambda name: _base_id(name, phase))
    return tuple(
        Step(
            id=_base_id(name, phase),
            action=Action.CHECK,
            needs=order[name],
            folder=True,
            timeout_s=checker.timeout_s + CHECK_FOLDER_S[checker.folder],
            label=f"{name} before {phase or 'the work'}",
            inputs={
                "checker": literals({**_dump(checker), "name": name}),
                "is_baseline": True,
                **by_products(loop),
            },
        )
        for name, checker in checkers.items()
    )


def _commands(phases: Sequence[PhaseDocument]) -> frozenset[str]:
    """The commands and rubrics that run before the work of these phases."""
    checkers = (one for phase in phases if _has_baseline(phase) for one in phase.checkers)
    return frozenset(str(one.command or one.rubric) for one in checkers if _has_command(one))


def _keeping(check: Step, checker: Checker, later: frozenset[str]) -> Step:
    """A check whose end is kept, if the same command runs before the work of a later phase."""
    if (checker.command or checker.rubric) not in later or not _has_command(checker):
        return check
    return check.model_copy(update={"inputs": {**check.inputs, "keeps": True}})


def _has_baseline(loop: LoopDocument | PhaseDocument) -> bool:
    return loop.baseline and loop.max_iterations > 0


def by_products(loop: LoopDocument | PhaseDocument) -> dict[str, JsonValue]:
    """The input of the steps that may be the first to take a snapshot of the folder."""
    if loop.leave_out is None:
        return {}
    return {"leave_out": [literal(pattern) for pattern in loop.leave_out]}


def _has_command(checker: Checker) -> bool:
    """Whether it is a command or has gates, and does not write into the folder before the work."""
    return not checker.writes and (checker.command is not None or checker.rubric is not None)


def _base_id(name: str, phase: str) -> str:
    """The name of a baseline: `base.NAME`, or `base.PHASE.NAME` where that is short enough."""
    return _short_id(".".join(part for part in ("base", phase, name) if part))


def _short_id(whole: str) -> str:
    digest = hashlib.sha256(whole.encode()).hexdigest()[:10]
    return whole if _ID.match(whole) else f"{whole[:50]}-{digest}"


def _body(
    loop: LoopDocument | PhaseDocument,
    *,
    doer: Doer | None,
    model: str | None,
    phase: str | None,
    prior: list[JsonValue],
    has_folder: bool,
    id_: str = "",
    later: frozenset[str] = frozenset(),
) -> tuple[Step, ...]:
    do = _do(loop, doer=doer, model=model, phase=phase, prior=prior, id_=id_)
    names, files = check_names(loop.checkers), _protected_files(loop)
    asking = asking_steps(_protect_id(id_), files) if files and loop.on_protected == "ask" else ()
    dumped = dict(zip(names, map(_dump, loop.checkers), strict=True))
    needs = needs_in_turn(dumped, (asking[-1].id if asking else "do",), "check.{}".format)
    checks = tuple(
        _check(loop, doer, name, checker, model=model, phase=phase, id_=id_, needs=needs[name])
        for name, checker in zip(names, loop.checkers, strict=True)
    )
    checks = tuple(_keeping(*each, later) for each in zip(checks, loop.checkers, strict=True))
    return (do, *asking, *checks, _judge(loop, names, checks, has_folder=has_folder))


def needs_in_turn(
    checkers: Mapping[str, JsonValue], first: tuple[str, ...], id_of: Callable[[str], str]
) -> dict[str, tuple[str, ...]]:
    """Returns what each check waits for, by name, at least the steps `first`.

    `checkers` are dumped ones. Those that write run before all others, and isolated ones after
    those beside them, one by one. Clean ones have one folder, so they run one by one too.
    """
    kinds = {name: _kind(one) for name, one in checkers.items()}
    needs, last = dict[str, tuple[str, ...]](), first
    for name in (name for name, kind in kinds.items() if kind == "writes"):
        needs[name], last = last, (id_of(name),)
    beside = [name for name, kind in kinds.items() if kind is None]
    needs |= dict.fromkeys(beside, last)
    after = {"isolated": tuple(map(id_of, beside)) or last, "clean": last}
    for name, kind in kinds.items():
        if kind in after:
            needs[name], after[kind] = after[kind], (id_of(name),)
    return needs


def _kind(checker: JsonValue) -> str | None:
    """How a checker runs; None for one that runs beside others."""
    given = checker if isinstance(checker, dict) else {}
    return next((one for one in ("writes", "isolated", "clean") if given.get(one)), None)


def _do(
    loop: LoopDocument | PhaseDocument,
    *,
    doer: Doer | None,
    model: str | None,
    phase: str | None,
    prior: list[JsonValue],
    id_: str,
) -> Step:
    files, asks = _protected_files(loop), loop.on_protected == "ask"
    protected = protection(_protect_id(id_), files, asks=asks) if files else {}
    return Step(
        id="do",
        action=Action.AGENT,
        timeout_s=loop.timeout_s,
        folder=True,
        quick=doer is not None and doer.quick,
        retry=RetryPolicy(retries=loop.doer_attempts - 1),
        conversation=_conversation(loop, doer, phase),
        limits=_limits(doer.agent if doer else None, model, loop.concurrency_key),
        inputs={
            "task": literal(loop.task),
            "doer": literals(_dump(doer)) if doer else None,
            "model": model,
            "phase": literal(phase) if phase else None,
            "iteration": "${turn.iteration}",
            "max_iterations": "${turn.max}",
            "unchanged": "${turn.same}",
            "no_progress": loop.no_progress,
            "file_scope": [literal(path) for path in loop.file_scope],
            "verify": [literal(check) for check in loop.verify],
            "previous": {
                "work": "${previous.do.text}",
                "feedback": "${previous.judge.text}",
                "judged": "${previous.judge.judged}",
                "tools_failed": "${previous.do.tools_failed}",
            },
            "prior": prior,
            **({"continues": True} if loop.conversation == "continue" else {}),
            **by_products(loop),
            **protected,
        },
    )


def _conversation(
    loop: LoopDocument | PhaseDocument, doer: Doer | None, phase: str | None
) -> str | None:
    """The conversation of a loop that continues it; the session's default agent has no name here.

    A conversation's name is short and has no `|` or `<`, which a phase's name may have.
    """
    if loop.conversation == "fresh":
        return None
    agent = (doer.agent if doer else None) or "default"
    return f"{_NO_NAME.sub('-', agent)[:80]}|{_NO_NAME.sub('-', phase or 'loop')[:64]}"


def _check(
    loop: LoopDocument | PhaseDocument,
    doer: Doer | None,
    name: str,
    checker: Checker,
    *,
    model: str | None,
    phase: str | None,
    id_: str,
    needs: tuple[str, ...],
) -> Step:
    asks = checker.prompt or checker.rubric
    # Without a model of its own a checker asks the doer's. Whether an agent that it names takes
    # that model, only its worker knows.
    theirs = model if checker.agent is None else None
    offered = model if asks and checker.agent is not None and checker.model is None else None
    if asks and checker.model is None and (loop.checker_model or theirs):
        checker = checker.model_copy(update={"model": loop.checker_model or theirs})
    held = loop.quarantine if checker.command is not None else ()
    has_base = _has_baseline(loop) and _has_command(checker)
    return Step(
        id=f"check.{name}",
        action=Action.CHECK,
        needs=needs,
        folder=True,
        quick=checker.quick,
        limits=_limits(checker.agent, checker.model, None),
        timeout_s=checker.limit_s + CHECK_FOLDER_S[checker.folder],
        label=checker.name or name,
        inputs={
            "checker": literals({**_dump(checker), "name": name}),
            "task": literal(loop.task),
            "work": "${do.text}",
            "tools_failed": "${do.tools_failed}",
            "iteration": "${turn.iteration}",
            "doer": literals(_dump(doer)) if doer else None,
            "history": "${history.judge}",
            **(
                {"quarantine": [literals(one.model_dump(mode="json")) for one in held]}
                if held
                else {}
            ),
            **({"base": outcome_reference(_base_id(name, id_))} if has_base else {}),
            **({"phase": literal(phase)} if phase else {}),
            **({"doer_model": literal(offered)} if offered and not checker.model else {}),
        },
    )


def _judge(
    loop: LoopDocument | PhaseDocument,
    names: list[str],
    checks: tuple[Step, ...],
    *,
    has_folder: bool,
) -> Step:
    outcomes: list[JsonValue] = [
        {"name": name, "outcome": outcome_reference(check.id)}
        for name, check in zip(names, checks, strict=True)
    ]
    return Step(
        id="judge",
        action=Action.JUDGE,
        needs=tuple(check.id for check in checks),
        folder=has_folder,
        timeout_s=COMPARE_TIMEOUT_S if has_folder else JUDGE_TIMEOUT_S,
        inputs={
            "rule": loop.rule,
            "work": "${do.text}",
            "digest": "${do.digest}",
            "no_diff": "${do.no_diff}",
            "began_ms": "${do.started_ms}",
            "checks": outcomes,
            "before": "${previous.judge.value}",
        },
    )


def _limits(agent: str | None, model: str | None, key: str | None) -> tuple[str, ...]:
    """The keys of the limits that apply to a step."""
    named = (("agent", agent), ("model", model), ("key", key))
    return tuple(lock_name(f"{kind}:{name}") for kind, name in named if name)


def _dump(who: Doer | Checker) -> dict[str, JsonValue]:
    """Dumps a doer or checker, without what is off."""
    dumped = who.model_dump(exclude_none=True)
    return {name: value for name, value in dumped.items() if value not in (False, 0)}
