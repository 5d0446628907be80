"""Compiles the session that applies another one's work: merge, check again, fast-forward.

The checkers are those that accepted the work. They run in a worktree that has the merged work, as
in the merge of a plan's task.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import JsonValue

from app.compiler.folders import TIMEOUT_S, extras_of
from app.compiler.workflow import needs_in_turn
from app.core.folders import APPLY, OwnFolder
from app.core.program import Action, Loop, Program, Step
from app.core.references import literal, outcome_reference, references_in
from leadhand.models.views.result import LedgerEntry

#: Which checkers run again: those that are no agents, all, or none.
Mode = Literal["commands", "all", "none"]
#: How often the work is merged and checked, if the user's branch moves meanwhile.
_TIMES = 2


class Recheck(NamedTuple):
    """How merged work is checked before the user's branch gets it."""

    checks: tuple[Step, ...] = ()
    #: The state of the folder that the checkers accepted; empty if none did.
    digest: str = ""
    #: Why nothing runs again; empty if checkers do.
    why_not: str = ""
    #: The names of checkers that are not asked again.
    left_out: tuple[str, ...] = ()


def recheck_of(program: Program, entry: LedgerEntry | None, digest: str, mode: Mode) -> Recheck:
    """Chooses the checkers that run again on the merged work of a session with this program.

    `entry` is its last iteration, and `digest` the state of the worktree that was judged there.
    """
    if entry is None or not entry.checks:
        return Recheck(why_not="the session has no checkers")
    if entry.verdict != "accept":
        return Recheck(why_not="its work was not accepted")
    names = [str(one["name"]) for one in entry.checks if one.get("verdict") == "accept"]
    if not names:
        return Recheck(why_not="no checker accepted it: all of them were skipped")
    steps = [_check_step(program, entry, name) for name in names]
    if mode == "none":
        return Recheck((), digest, "no checker was to run again (--recheck=none)")
    chosen = [one for one in steps if mode == "all" or not _is_agent(one)]
    left = tuple(_name(one) for one in steps if one not in chosen)
    if not chosen:
        return Recheck((), digest, "only agents judged it, and --recheck=all asks them", left)
    dumped = {_name(one): one.inputs["checker"] for one in chosen}
    needs = needs_in_turn(dumped, ("merge",), "check.{}".format)
    steps = [_again(one, mode, needs[_name(one)]) for one in chosen]
    return Recheck(tuple(steps), digest, "", left)


def apply_program(
    session: str, own: OwnFolder, folder: str, *, is_copy: bool, recheck: Recheck
) -> Program:
    """Builds the program that brings a session's work from its own folder into the original one."""
    facts: dict[str, JsonValue] = {
        "session": session, "origin": literal(own.origin), "prefix": literal(own.prefix),
        "folder": literal(folder),
    }  # fmt: skip
    if is_copy:
        body: tuple[Step, ...] = (_step(APPLY, {"do": "apply", **facts}),)
    else:
        merge: dict[str, JsonValue] = {
            "do": "merge", **facts, **extras_of(own._replace(state=None)),
            "digest": recheck.digest, "why_not": literal(recheck.why_not),
        }  # fmt: skip
        body = (_step("merge", merge), *recheck.checks, _land(facts, recheck))
    loop = Loop(id=APPLY, label=APPLY, body=body, max_iterations=_TIMES, result=APPLY)
    return Program(name=f"apply {session}", body=(loop,))


def _land(facts: dict[str, JsonValue], recheck: Recheck) -> Step:
    checks: list[JsonValue] = [
        {"name": _name(one), "outcome": outcome_reference(one.id)} for one in recheck.checks
    ]
    inputs: dict[str, JsonValue] = {
        "do": "apply", **facts, "merged": "${merge.merged}", "checks": checks,
        "left_out": [*recheck.left_out],
        "iteration": "${turn.iteration}", "max": "${turn.max}",
    }  # fmt: skip
    needs = tuple(one.id for one in recheck.checks) or ("merge",)
    return _step(APPLY, inputs).model_copy(update={"needs": needs})


def _check_step(program: Program, entry: LedgerEntry, name: str) -> Step:
    """The step of a checker in the loop that an iteration belongs to."""
    step = program.node(f"{entry.loop}/check.{name}")
    assert isinstance(step, Step)
    return step


def _name(step: Step) -> str:
    return step.id.removeprefix("check.")


def _is_agent(step: Step) -> bool:
    """Whether an agent judges, by an instruction alone. A rubric has gates."""
    checker = step.inputs["checker"]
    return isinstance(checker, dict) and checker.get("prompt") is not None


def _again(step: Step, mode: Mode, needs: tuple[str, ...]) -> Step:
    """A checker that judges the merged work; what refers to its own session is left out."""
    inputs = {name: value for name, value in step.inputs.items() if not _refers(value)}
    inputs |= {"work": "${merge.text}", "iteration": "${turn.iteration}"}
    if mode == "commands":
        inputs["gates_only"] = True
    return Step(
        id=step.id,
        action=Action.CHECK,
        needs=needs,
        when="${merge.checks}",
        folder=True,
        quick=step.quick,
        limits=step.limits,
        timeout_s=step.timeout_s,
        label=step.label,
        inputs=inputs,
    )


def _refers(value: JsonValue) -> bool:
    return any(True for _ in references_in(value))


def _step(id_: str, inputs: dict[str, JsonValue]) -> Step:
    return Step(id=id_, action=Action.WORKSPACE, folder=True, timeout_s=TIMEOUT_S, inputs=inputs)
