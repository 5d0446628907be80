"""Builds the result of an ended session, and says where an unusable value came from (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Literal, NamedTuple

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.artifacts import ArtifactSource, marker
from app.core.program import Action, Loop, Program, Step
from app.core.records import TurnRecord
from app.history.values import NOT_RUN, read_values
from app.redaction import without_keys
from app.sessions.presenters import counters, made_by_fork, own_folder_view
from app.store.store import Store
from leadhand.errors import ArtifactUnknown
from leadhand.graphs.documents import GraphDocument, GraphStep
from leadhand.graphs.faults import missing_reference
from leadhand.models.references import Reference, ReferenceFault, parse, references_in, target_of
from leadhand.models.tool_schemas import BUILT_IN_TOOLS
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.result import BestIteration, LedgerEntry, Missing, PhaseView, ResultView

#: The name of the text of a plan or flow among those of the loops; no loop is named so.
WHOLE = ""
LoopVerdict = Literal["accept", "terminate", "max_iterations", "exit"]
#: Bytes of artifacts that one result holds; further ones are shown by their digests.
MOST_BYTES = 4 * 1024 * 1024
_UNFIT = re.compile(
    r"^tool '[^']*': (?:argument '(?P<argument>[^']*)'|there is no argument )", re.DOTALL
)
_NO_LIST = re.compile(r"^for_each needs a list of at most \d+ items; ")


def result_of(
    session: str,
    fields: Mapping[str, str],
    reason: Reason | None,
    program: Program,
    turns: Mapping[str, TurnRecord],
    ledger: Sequence[LedgerEntry],
    texts: Mapping[str, str],
    warnings: list[str],
    *,
    nearest: Callable[[Loop, TurnRecord], LedgerEntry | None] = lambda _loop, _turn: None,
) -> ResultView:
    """Builds the result of an ended session, with a part for each phase that ran.

    `texts` are the result texts of the outermost loops by id. `nearest` returns the nearest
    iteration of an unaccepted loop without a judge.
    """
    status = fields["status"]
    counted = counters(fields)
    copied = copied_entries(fields, counted.iterations, ledger)
    phases = [
        _phase(node, turns[node.id], status, reason, ledger, copied, texts, nearest)
        for node in program.body
        if isinstance(node, Loop) and node.id in turns and turns[node.id].verdict != "skipped"
    ]
    last = phases[-1] if phases else None
    return ResultView(
        session_id=session,
        kind=fields["kind"],
        status=status,
        verdict=_verdict(status, phases),
        iterations=len(ledger) - copied,
        copied_iterations=copied,
        history=list(ledger),
        result_text=texts.get(WHOLE, last.result_text if last else ""),
        exit_reason=_exit_text(reason),
        reason=reason,
        warnings=warnings,
        phases=phases if fields["kind"] == "workflow" else [],
        best_iteration=last.best_iteration if last else None,
        missing=last.missing if last else [],
        worktree=own_folder_view(fields),
        cost_usd=counted.cost_usd,
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
    )


def _phase(
    node: Loop,
    turn: TurnRecord,
    status: str,
    reason: Reason | None,
    ledger: Sequence[LedgerEntry],
    copied: int,
    texts: Mapping[str, str],
    nearest: Callable[[Loop, TurnRecord], LedgerEntry | None],
) -> PhaseView:
    history = [entry for entry in ledger if entry.loop == node.id]
    before = sum(entry.loop == node.id for entry in ledger[:copied])
    verdict = _loop_verdict(turn, status)
    passed = verdict == "accept"
    best = None if passed else best_of(history) or nearest(node, turn)
    return PhaseView(
        name=without_keys(node.label or node.id),
        passed=passed,
        verdict=verdict,
        iterations=len(history) - before,
        copied_iterations=before,
        history=history,
        result_text=texts.get(node.id, ""),
        exit_reason=_exit_text(reason) if verdict == "exit" else "",
        reason=turn.reason,
        runs=turn.run,
        best_iteration=None if best is None else _nearest(best),
        missing=[] if best is None else _missing(best),
    )


def copied_entries(fields: Mapping[str, str], counted: int, ledger: Sequence[LedgerEntry]) -> int:
    """Returns how many of the first entries of a ledger a fork has copied; 0 for other sessions.

    A fork counts its own iterations from 0. Each of them adds an entry.
    """
    return max(0, len(ledger) - counted) if made_by_fork(fields) else 0


def best_of(history: Sequence[LedgerEntry]) -> LedgerEntry | None:
    """Returns the iteration most checkers accepted, the newest of equals; None without checks."""
    judged = [entry for entry in history if entry.checks]
    return max(reversed(judged), key=_count_accepts, default=None)


def _count_accepts(entry: LedgerEntry) -> int:
    return sum(check.get("verdict") == "accept" for check in entry.checks)


def _nearest(entry: LedgerEntry) -> BestIteration:
    return BestIteration(
        run=entry.run,
        iteration=entry.iteration,
        accepted=_count_accepts(entry),
        checks=len(entry.checks),
        work=entry.work,
    )


def _missing(entry: LedgerEntry) -> list[Missing]:
    """The checkers that did not accept the work, with their feedback."""
    return [
        Missing.model_validate({name: check.get(name) or "" for name in ("name", "feedback")}
                               | {"verdict": check.get("verdict")})
        for check in entry.checks
        if check.get("verdict") != "accept"
    ]  # fmt: skip


def _loop_verdict(turn: TurnRecord, status: str) -> LoopVerdict:
    match turn.verdict:
        case "accept":
            return "accept"
        case "max_iterations":
            return "max_iterations"
        case "exit":
            return "exit"
        case _:
            return "exit" if status == "exited" and turn.verdict is None else "terminate"


def _verdict(status: str, phases: Sequence[PhaseView]) -> LoopVerdict | None:
    """The verdict of a session, derived from its status and last loop; None if stopped."""
    match status:
        case "completed":
            return "accept"
        case "exited":
            return "exit"
        case "failed":
            limit = phases and phases[-1].verdict == "max_iterations"
            return "max_iterations" if limit else "terminate"
        case _:
            return None


def _exit_text(reason: Reason | None) -> str:
    """The reason that was given to exit, also in a child session whose exit reached this one."""
    links = () if reason is None else reason.chain()
    exits = takewhile(lambda link: link.code is ReasonCode.EXIT, links)
    return next((link.text for link in reversed([*exits])), "")


class GraphResults(NamedTuple):
    """What the steps of a graph returned, by name, and the names of those that failed."""

    results: dict[str, JsonValue]
    failed: list[str]


def graph_results(
    store: Store, ref: SessionRef, program: Program, artifacts: ArtifactSource
) -> GraphResults:
    """Returns the results of a graph's steps by name, without skipped ones, and which failed.

    That of a step that failed is `{"error": text}`, and that of one whose artifact is too long or
    missing `{"artifact": digest, "bytes": size}`.
    """
    steps = [
        node
        for node in program.body
        # Others make the list of a for_each, or the folder of the session.
        if isinstance(node, Step) and not node.quick and node.action is not Action.WORKSPACE
    ]
    values = read_values(store, ref, program, [step.id for step in steps], _Bounded(artifacts))
    found = {
        without_keys(step.label or step.id): values[step.id].held
        for step in steps
        if values[step.id] is not NOT_RUN and values[step.id].skipped is None
    }
    results = {name: held.value for name, held in found.items()}
    return GraphResults(results, [name for name, held in found.items() if held.failed])


class _Bounded:
    """Reads artifacts up to a number of bytes together."""

    def __init__(self, source: ArtifactSource) -> None:
        self._source = source
        self._left = MOST_BYTES

    def read(self, ref: SessionRef, digest: str, size: int) -> bytes:
        """The artifact, or what is shown in its place."""
        if size <= self._left:
            with suppress(ArtifactUnknown):
                self._left -= size
                return self._source.read(ref, digest, size)
        return json.dumps(marker(digest, size)).encode()


class Origins(NamedTuple):
    """The steps and inputs that a value was made from, the nearest first."""

    #: The names of the steps whose tools may return another value if they are called again.
    steps: tuple[str, ...] = ()
    #: The names of the inputs.
    inputs: tuple[str, ...] = ()


def fails_again(root: Reason) -> bool:
    r"""Whether a step failed because of the values that it was given: it fails in the same way.

    >>> from leadhand.models.verdicts import ReasonCode
    >>> failed = lambda text: Reason(code=ReasonCode.FAILED_STEP, text=text)
    >>> fails_again(failed("tool 'a': argument 'n': it is \"x\"; it should be a valid integer"))
    True
    >>> fails_again(failed("${a.b} has no value: it has no 'b'; it has: c"))
    True
    >>> fails_again(failed("tool 'a' raised: ValueError: argument 'n': it is odd"))
    False
    """
    refused = any(form.match(root.text) for form in (_UNFIT, _NO_LIST))
    return refused or missing_reference(root.text) is not None


def origins(document: GraphDocument, step: GraphStep, root: Reason) -> Origins:
    """Returns the steps and inputs that a refused value of this step was made from."""
    by_name = {one.name: one for one in document.steps}
    steps, inputs = dict[str, None](), dict[str, None]()
    todo = [(step, one) for one in _refused(step, root)]
    while todo:
        at, reference = todo.pop(0)
        with suppress(ReferenceFault):
            target = target_of(reference, by_name)
            if target.kind == "input":
                inputs[target.name] = None
            elif target.kind == "item":
                todo += [(at, one) for one in references_in(at.for_each)]
            elif target.kind == "step" and target.name not in steps:
                steps[target.name] = None
                source = by_name[target.name]
                todo += [(source, one) for one in references_in([source.values, source.for_each])]
    return Origins(
        tuple(name for name in steps if by_name[name].tool not in BUILT_IN_TOOLS), tuple(inputs)
    )


def _refused(step: GraphStep, root: Reason) -> Iterator[Reference]:
    """The references whose values the step could not use."""
    written = missing_reference(root.text)
    unfit = _UNFIT.match(root.text)
    value: JsonValue = None
    if written is not None:
        with suppress(ReferenceFault):
            yield from (one for one in parse(written) if isinstance(one, Reference))
    elif unfit is not None:
        value = step.values.get(unfit["argument"] or "")
    elif _NO_LIST.match(root.text):
        value = step.for_each
    yield from references_in(value)
