"""Adds the steps that give work a folder of its own, and those that record protected files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from app.core.folders import (
    KEEP,
    MERGE_WORK,
    REBASE,
    WORKSPACE,
    Kind,
    OwnFolder,
    RecordedState,
    Workspace,
)
from app.core.program import Action, Loop, Program, Step, sinks_of
from app.core.references import literal, node_reference, outcome_reference, substitute
from leadhand.models.documents import Protected
from leadhand.models.forms import AnswerRules, GivenAnswer

#: Seconds for a worktree or a copy of a large folder.
TIMEOUT_S = 1800.0
#: Seconds to read the protected files; also for a judge that compares and restores a folder.
COMPARE_TIMEOUT_S = 360.0
#: Seconds in which the folder of a check is set to the work, or prepared, before it runs.
CHECK_FOLDER_S = {None: 0.0, "isolated": COMPARE_TIMEOUT_S, "clean": TIMEOUT_S}
#: Seconds that a person has to answer; then the answer is no.
ANSWER_TIMEOUT_S = 7 * 24 * 3600.0
_YES_OR_NO = AnswerRules(choices=("yes", "no"), default=GivenAnswer(choice="no")).model_dump_json(
    exclude_unset=True, exclude_none=True
)


def survey_step(kind: str | None, *, merge: bool = False, target: str = "") -> Step:
    """Builds the step that inspects a plan's folder before any agent is called.

    With `merge` it makes the branch that gets the work of the tasks, or looks at that of the user.
    """
    more: dict[str, JsonValue] = {"merge": True} if merge else {}
    if merge and target:
        more["target"] = target
    return _step(WORKSPACE, {"do": "survey", "kind": kind, **more})


def clean_program(
    plan: str, origin: str, kind: Kind, runs: Mapping[tuple[str, int], str], *, force: bool
) -> Program:
    """Builds the program that removes the folders of these runs of tasks."""
    listed: list[JsonValue] = [[task, run] for task, run in runs]
    folders: list[JsonValue] = [literal(folder) for folder in runs.values()]
    inputs: dict[str, JsonValue] = {
        "do": "clean", "kind": kind, "plan": plan, "origin": literal(origin),
        "runs": listed, "folders": folders, "force": force,
    }  # fmt: skip
    return Program(name="clean worktrees", body=(_step(WORKSPACE, inputs),))


def audit_program(place: str, *, repair: bool) -> Program:
    """Builds the program that compares a place's folders with the store, and repairs on demand."""
    step = _step("audit", {"do": "audit", "repair": repair})
    loop = Loop(id="once", label="audit", body=(step,), max_iterations=1, result="audit")
    return Program(name=f"audit folders at {place}", body=(loop,))


def in_workspace(program: Program, workspace: Workspace, title: str) -> Program:
    """Adds steps to a task's program: make its folder first and, in a git worktree, commit last."""
    facts: dict[str, JsonValue] = {
        name: literal(value) if isinstance(value, str) else value
        for name, value in workspace.model_dump(exclude={"path"}).items()
    }
    body = [_step(WORKSPACE, {"do": "make", **facts, **_by_products(program)}), *program.body]
    if workspace.kind == "worktree":
        message = f"{title}\n\nTask {workspace.task} of plan {workspace.plan}."
        inputs = {"do": "keep", **facts, "message": literal(message)}
        body.append(_step(KEEP, inputs))
    return Program(name=program.name, body=tuple(body))


def in_own_folder(program: Program, own: OwnFolder, title: str) -> Program:
    """Adds steps to a program that make the session's own folder and commit its work."""
    facts: dict[str, JsonValue] = {"origin": literal(own.origin), "prefix": literal(own.prefix)}
    taken = {node.id for node in program.body}
    make, keep = _free_id(WORKSPACE, taken), _free_id(KEEP, taken)
    first = _step(make, {"do": "open", **facts, **extras_of(own), **_by_products(program)})
    message: dict[str, JsonValue] = {"message": literal(title or program.name)}
    last = _step(keep, {"do": "close", **facts, **message})
    # In a fork, all steps before the last one may be done before the first one of its own.
    started = () if own.state is None else (make,)
    last = last.model_copy(update={"needs": (*started, *sinks_of(program.body))})
    body = (first, *(_started_by(node, make) for node in program.body), last)
    return Program(name=program.name, body=body)


def _by_products(program: Program) -> dict[str, JsonValue]:
    """The input of the first step that has patterns of by-products: one before it may use them."""
    steps = (node for _, node in program.walk() if isinstance(node, Step))
    patterns = next((one.inputs["leave_out"] for one in steps if "leave_out" in one.inputs), None)
    return {} if patterns is None else {"leave_out": patterns}


def without_own_folder(program: Program) -> Program:
    """Removes the steps that `in_own_folder` added; returns other programs as they are."""
    first, last = program.body[0], program.body[-1]
    if own_folder_of(program, root="") is None:
        return program
    body = tuple(
        node.model_copy(update={"needs": ()}) if node.needs == (first.id,) else node
        for node in program.body
        if node not in (first, last)
    )
    return program.model_copy(update={"body": body})


def own_folder_of(program: Program, root: str) -> OwnFolder | None:
    """Returns the worktree or copy that sessions with this program make; None if they make none."""
    inputs = opening_inputs(program)
    if inputs is None or inputs["do"] != "open":
        return None
    files, prepare = inputs.get("copy"), inputs.get("prepare")
    return OwnFolder(
        root,
        str(inputs["origin"]),
        str(inputs["prefix"]),
        tuple(map(str, files)) if isinstance(files, list) else (),
        str(prepare or ""),
        recorded_state(inputs),
    )


def recorded_state(inputs: Mapping[str, JsonValue]) -> RecordedState | None:
    """Returns the state to which an opening step sets the folder; None for a new folder."""
    state = inputs.get("state")
    if not isinstance(state, dict):
        return None
    return RecordedState(
        str(state["session"]), str(state["tree"]), str(state["step"]), int(str(state["at_ms"]))
    )


def extras_of(own: OwnFolder) -> dict[str, JsonValue]:
    """Returns the inputs of a step that makes a session's folder which only some sessions have."""
    files: list[JsonValue] = [literal(name) for name in own.copy_files]
    state: JsonValue = None if own.state is None else {**own.state._asdict()}
    given: dict[str, JsonValue] = {
        "copy": files, "prepare": literal(own.prepare), "state": state,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value}


def opening_inputs(program: Program) -> Mapping[str, JsonValue] | None:
    """Returns the inputs of the step that makes the session's folder; None without such a step."""
    step = opening_step(program)
    inputs = substitute(step.inputs, lambda _: None) if step is not None else None
    return inputs if isinstance(inputs, dict) else None


def opening_step(program: Program) -> Step | None:
    """Returns the step that makes the session's folder; None without such a step."""
    within = (program.node(path) for path in (REBASE, MERGE_WORK) if program.has(path))
    first = next(within, program.body[0])
    if not isinstance(first, Step) or first.action is not Action.WORKSPACE:
        return None
    return first if first.inputs.get("do") in ("make", "open", "rebase", "merge") else None


def discard_program(session: str, own: OwnFolder, folder: str, *, force: bool) -> Program:
    """Builds the program that removes the worktree or copy that a session made for itself."""
    inputs: dict[str, JsonValue] = {
        "do": "discard", "session": session, "origin": literal(own.origin),
        "prefix": literal(own.prefix), "folder": literal(folder), "force": force,
    }  # fmt: skip
    body = (_step("discard", inputs),)
    return Program(name=f"discard {session}", body=body)


def _free_id(wanted: str, taken: set[str]) -> str:
    """The name, or the first with a number that no node of the program has."""
    names = (wanted, *(f"{wanted}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def _started_by(node: Step | Loop, first: str) -> Step | Loop:
    """The node; one that would start at once needs the first step."""
    return node.model_copy(update={"needs": (first,)}) if node.needs == () else node


def _step(id_: str, inputs: dict[str, JsonValue]) -> Step:
    return Step(id=id_, action=Action.WORKSPACE, folder=True, timeout_s=TIMEOUT_S, inputs=inputs)


def recording_step(id_: str, protected: Sequence[Protected], *, label: str) -> Step:
    """Builds the step before the work that records the protected files."""
    return _reading(id_, {"protect": _patterns(protected)}, label=label)


def protection(
    step: str, protected: Sequence[Protected], *, asks: bool = False
) -> dict[str, JsonValue]:
    """Builds the inputs with which a worker compares the protected files after a step.

    `step` is the one that has recorded them, as references name it. With `asks` a person decides
    about changes in steps of their own.
    """
    before = outcome_reference(step)
    more: dict[str, JsonValue] = {"asks": True} if asks else {}
    return {"protected": {"patterns": _patterns(protected), "before": before, **more}}


def asking_steps(step: str, protected: Sequence[Protected]) -> tuple[Step, ...]:
    """Builds the steps after a doer in which a person takes or refuses changes of protected files.

    The question is about the files as they are: if they differ once it is answered, it is asked
    once more.
    """
    given = protection(step, protected)
    first = _reading("protected", {**given, "look": {}})
    steps, shown = [first], "protected"
    for again in ("", "-again"):
        asked, taken = f"protected.ask{again}", f"protected.take{again}"
        when = node_reference(shown, "question")
        look: JsonValue = {
            "answer": node_reference(asked, "choice"),
            "shown": node_reference(shown, "files"),
            "is_last": bool(again),
        }
        steps += [
            Step(
                id=asked,
                action=Action.HUMAN,
                when=when,
                label="protected files",
                timeout_s=ANSWER_TIMEOUT_S,
                inputs={"question": when, "rules": _YES_OR_NO},
            ),
            _reading(taken, {**given, "look": look}, when=when),
        ]
        shown = taken
    return tuple(steps)


def _reading(
    id_: str,
    inputs: dict[str, JsonValue],
    *,
    label: str = "protected files",
    when: str | None = None,
) -> Step:
    return Step(
        id=id_,
        action=Action.CHECK,
        when=when,
        folder=True,
        timeout_s=COMPARE_TIMEOUT_S,
        label=label,
        inputs=inputs,
    )


def _patterns(protected: Sequence[Protected]) -> list[JsonValue]:
    return [{"pattern": literal(one.pattern), "allow": list(one.allow)} for one in protected]
