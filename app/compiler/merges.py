"""Compiles the sessions that merge a task's work, and that bring a plan's work home."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from app.compiler.folders import protection, recording_step
from app.compiler.workflow import by_products, check_names, compile_loop, needs_in_turn
from app.core.folders import ASK_TIMEOUT_S, ASKS, RESOLVES, Merge
from app.core.program import Action, Loop, OnFail, Program, Step
from app.core.references import literal, outcome_reference
from leadhand.models.documents import LoopDocument
from leadhand.models.forms import AnswerRules, GivenAnswer

#: Seconds for a rebase in a large repository.
TIMEOUT_S = 1800.0
#: The choices of a person who is asked about a merge.
AGAIN, GIVE_UP = "again", "give up"
#: The steps of the task's loop that a merge has others for.
_OTHERS = {"${do.": "${resolve.", "${previous.do.": "${previous.resolve.",
           "${history.judge}": "${history.land}"}  # fmt: skip


def merge_program(document: LoopDocument, merge: Merge) -> Program:
    """Builds the program that merges a task: an agent resolves conflicts, checkers test the result.

    An attempt rebases, lets the resolver work on a conflict or on what the checkers refused last,
    checks, and fast-forwards. After several attempts a person is asked.
    """
    facts: dict[str, JsonValue] = {
        name: literal(value) if isinstance(value, str) else value
        for name, value in merge.model_dump().items()
    } | by_products(document)
    attempt = Loop(
        id="attempt",
        label="merge",
        body=_attempt(document, facts),
        max_iterations=1 + RESOLVES,
        on_fail=OnFail.CONTINUE,
        result="land",
    )
    body = (_begin(), attempt, _after(), _ask(merge))
    whole = Loop(id="merge", label="merge", body=body, max_iterations=1 + ASKS)
    return Program(name=f"merge/{merge.task}", body=(whole,))


def apply_program(plan: str, origin: str, source: str, target: str) -> Program:
    """Builds the program that fast-forwards a branch of the user to the branch of a plan."""
    inputs: dict[str, JsonValue] = {
        "do": "apply_plan", "plan": plan, "origin": literal(origin), "source": literal(source),
        "target": literal(target),
    }  # fmt: skip
    return _single("apply", inputs)


def diff_program(origin: str, pairs: Sequence[tuple[str, str]]) -> Program:
    """Builds the program that compares each branch with the branch that it will be merged into."""
    listed: list[JsonValue] = [[literal(target), literal(source)] for target, source in pairs]
    return _single("diff", {"do": "diff", "origin": literal(origin), "pairs": listed})


def _single(name: str, inputs: dict[str, JsonValue]) -> Program:
    """A program of one step, whose text is the session's result."""
    step = _step(name, inputs, folder=name == "apply")
    loop = Loop(id="once", label=name, body=(step,), max_iterations=1, result=name)
    return Program(name=f"{name} plan", body=(loop,))


def _attempt(document: LoopDocument, facts: dict[str, JsonValue]) -> tuple[Step, ...]:
    # The folder of a merge has no state before the work.
    loop = compile_loop(document.model_copy(update={"baseline": False})).node("loop")
    assert isinstance(loop, Loop)
    steps = {step.id: step for step in loop.body if isinstance(step, Step)}
    names = check_names(document.checkers)
    checks = [steps[f"check.{name}"] for name in names]
    dumped = {name: one.inputs["checker"] for name, one in zip(names, checks, strict=True)}
    needs = needs_in_turn(dumped, ("commit",), "check.{}".format)
    checks = [
        one.model_copy(update={"needs": needs[one.id.removeprefix("check.")]}) for one in checks
    ]
    rebase = _step(
        "rebase",
        {
            **facts, "do": "rebase", "advice": "${begin.advice}", "refused": "${begin.refused}",
            "feedback": "${previous.land.feedback}", "left": "${previous.commit.conflict}",
        },
        folder=True,
    )  # fmt: skip
    resolve = steps["do"].model_copy(
        update={
            "id": "resolve",
            "label": "resolver",
            "when": "${rebase.ask}",
            "conversation": None,
            "inputs": {
                name: steps["do"].inputs.get(name) for name in ("doer", "model")
            } | {"task": "${rebase.ask}"} | by_products(document)
            | (protection("protect", document.protected) if document.protected else {}),
        }
    )  # fmt: skip
    commit = _step(
        "commit",
        {**facts, "do": "commit", "begun": "${rebase.rebased}", "asked": "${rebase.ask}"},
        folder=True,
    )
    return (rebase, *_recording(document), resolve, commit, *(_check(one) for one in checks),
            _land(document, facts, names, checks))  # fmt: skip


def _recording(document: LoopDocument) -> tuple[Step, ...]:
    """The step that records the protected files before the resolver works."""
    if not document.protected:
        return ()
    label = "protected files before the resolver"
    step = recording_step("protect", document.protected, label=label)
    return (step.model_copy(update={"when": "${rebase.ask}"}),)


def _check(step: Step) -> Step:
    """A checker of the task, which judges the merged work; without any it does not run."""
    return step.model_copy(update={"when": "${commit.checks}", "inputs": _renamed(step.inputs)})


def _land(
    document: LoopDocument, facts: dict[str, JsonValue], names: list[str], checks: list[Step]
) -> Step:
    outcomes: list[JsonValue] = [
        {"name": name, "outcome": outcome_reference(check.id)}
        for name, check in zip(names, checks, strict=True)
    ]
    inputs = {
        **facts, "do": "land", "done": "${commit.rebased}", "rule": document.rule,
        "checks": outcomes,
    }  # fmt: skip
    needs = tuple(check.id for check in checks)
    return _step("land", inputs, folder=True).model_copy(update={"needs": needs})


def _renamed(inputs: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Inputs of a check whose references name the steps of a merge."""
    found: dict[str, JsonValue] = {}
    for name, value in inputs.items():
        if isinstance(value, str):
            for old, new in _OTHERS.items():
                value = value.replace(old, new, 1) if value.startswith(old) else value
        found[name] = value
    return found


def _begin() -> Step:
    """Takes the person's answer to the round before."""
    inputs: dict[str, JsonValue] = {
        "do": "begin", "choice": "${previous.ask.choice}", "fields": "${previous.ask.fields}",
        "refused": "${previous.after.refused}", "code": "${previous.after.code}",
    }  # fmt: skip
    return _step("begin", inputs)


def _after() -> Step:
    """Ends the loop once the work is merged, or fails after the last round."""
    inputs: dict[str, JsonValue] = {
        "do": "after", "verdict": "${attempt:verdict}", "text": "${attempt:text}",
        "code": "${attempt:value.code}",
        "iteration": "${turn.iteration}", "max": "${turn.max}",
    }  # fmt: skip
    return _step("after", inputs)


def _ask(merge: Merge) -> Step:
    form: JsonValue = {
        "type": "object",
        "properties": {
            "advice": {
                "type": "string",
                "title": "Advice",
                "description": "What the resolver is to do, if it is to try again.",
            }
        },
    }
    rules = AnswerRules.model_validate(
        {"form": form, "choices": [AGAIN, GIVE_UP], "default": GivenAnswer(choice=GIVE_UP)}
    )
    return Step(
        id="ask",
        label=f"merge of {merge.task}",
        action=Action.HUMAN,
        timeout_s=ASK_TIMEOUT_S,
        inputs={
            "question": "${after.question}",
            "rules": rules.model_dump_json(exclude_unset=True, exclude_none=True),
        },
    )


def _step(id_: str, inputs: dict[str, JsonValue], *, folder: bool = False) -> Step:
    return Step(id=id_, action=Action.WORKSPACE, folder=folder, timeout_s=TIMEOUT_S, inputs=inputs)
