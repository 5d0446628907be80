"""Converts nodes and records to the views that the API returns."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import NamedTuple, TypedDict

from pydantic import JsonValue

from app.core.addresses import SessionRef, block_of, iso, iteration_of, path_of, turn_of
from app.core.outcomes import MICROS
from app.core.program import BUDGETS, Action, Loop, Program, Step
from app.core.records import StepRecord, TurnRecord
from app.core.references import substitute
from app.core.routing import full_queue, queue_of
from app.core.states import SessionStatus
from app.redaction import redact_command, without_keys
from app.store.store import Store
from leadhand.models.text import headline, plain
from leadhand.models.verdicts import Reason
from leadhand.models.views.plan import OwnFolderView
from leadhand.models.views.session import BudgetLine, Counters, MadeFrom, NodeProgress, RunningStep
from leadhand.models.views.step import DiffView, StepView, TurnView

#: Counters that are shown unchanged.
COUNTED = ("steps", "iterations", "attempts_failed", "attempts_lost", "phase_retries", "stops")
#: Prefix of the counter of stops of an outermost loop.
_STOPS = "stops/"
#: Maximum characters of a task's first line and of a doer.
_TASK, _DOER = 200, 200


def diff_view(address: str, packed: str) -> DiffView:
    """Unpacks a stored diff (base64, gzip, JSON) to the API's view, with its loop and iteration."""
    fields = json.loads(gzip.decompress(base64.b64decode(packed)))
    loop = path_of(turn_of(block_of(address)))
    return DiffView(address=address, loop=loop, iteration=iteration_of(address), **fields)


def node_progress(
    node: Step | Loop, turn: TurnRecord | None, *, run: int, stops: int = 0
) -> NodeProgress:
    """Builds the progress of a top-level step or loop from its turn; `pending` without one."""
    return NodeProgress(
        node=node.id,
        label=without_keys(node.label or node.id),
        state=turn.state if turn else "pending",
        iteration=turn.iteration if turn else 0,
        max_iterations=turn.max if turn else (node.max_iterations if isinstance(node, Loop) else 0),
        verdict=turn.verdict if turn else None,
        run=run,
        attempts_failed=turn.attempts_failed if turn else 0,
        attempts_lost=turn.attempts_lost if turn else 0,
        stops=stops,
    )


def reason_of(fields: Mapping[str, str]) -> Reason | None:
    """Parses the reason in a session's record, unredacted; None if it has none."""
    text = fields.get("reason")
    return Reason.model_validate_json(text) if text else None


def own_folder_view(fields: Mapping[str, str]) -> OwnFolderView | None:
    """Builds the API's view of the folder that a session has to itself; None without one."""
    text = fields.get("own_folder")
    return OwnFolderView.model_validate(json.loads(text)) if text else None


class MadeBy(TypedDict):
    """Fields of a session's view."""

    depth: int
    detached_from: str | None
    made_from: MadeFrom | None


def made_by(fields: Mapping[str, str]) -> MadeBy:
    """Returns a session's depth, and the sessions that it was forked and detached from, if any."""
    made = fields.get("made_from")
    return {
        "depth": depth_of(fields),
        "detached_from": fields.get("detached_from"),
        "made_from": MadeFrom.model_validate_json(made) if made else None,
    }


def made_by_fork(fields: Mapping[str, str]) -> bool:
    """Whether a session was forked, so that it began with copied records."""
    made = made_by(fields)["made_from"]
    return made is not None and made.verb == "fork"


class Noted(TypedDict):
    """What a person noted on a session."""

    renamed: str | None
    note: str | None
    archived: bool


def noted(fields: Mapping[str, str]) -> Noted:
    """Returns the title and note that a user gave a session, and whether it is archived."""
    return {
        "renamed": fields.get("title"),
        "note": fields.get("note"),
        "archived": fields.get("archived") == "1",
    }


def depth_of(fields: Mapping[str, str]) -> int:
    """Returns the number of ancestors of a session."""
    return int(fields.get("depth") or 0)


def counters(fields: Mapping[str, str]) -> Counters:
    """Returns the counters of a session: iterations, steps, tokens and cost."""
    counted = {name: int(fields.get(name, 0)) for name in COUNTED}
    return Counters(
        **counted,
        cost_usd=int(fields.get("cost_micros", 0)) / MICROS,
        input_tokens=int(fields.get("tokens_in", 0)),
        output_tokens=int(fields.get("tokens_out", 0)),
    )


def stops_of(fields: Mapping[str, str], node: str) -> int:
    """Returns how many runs of an outermost loop ended without acceptance."""
    return int(fields.get(_STOPS + node, 0))


def budget_lines(fields: Mapping[str, str], now_ms: int) -> dict[str, BudgetLine]:
    """Returns the limit and the used part of each budget of a session."""
    limits: dict[str, int] = json.loads(fields.get("budget") or "{}")
    used = {
        name: int(fields.get(name, 0)) for name in ("iterations", "steps", "cost_micros", "stops")
    }
    used["tokens"] = int(fields.get("tokens_in", 0)) + int(fields.get("tokens_out", 0))
    # What children used and have not reported yet counts for the limits, as in `budgets.spent`.
    for counter, name in (
        ("cost_micros", "cost_micros"),
        ("tokens", "tokens_in"),
        ("tokens", "tokens_out"),
    ):
        used[counter] += max(0, int(fields.get(f"below/{name}", 0)))
    of_stages = (int(value) for name, value in fields.items() if name.startswith(_STOPS))
    used["stage_stops"] = max(of_stages, default=0)
    if "wall_ms" in limits:
        left = int(fields["until"]) - now_ms if "until" in fields else int(fields.get("left", 0))
        used["wall_ms"] = limits["wall_ms"] - max(0, left)
    return {
        name: BudgetLine(used=used[counter] / unit, limit=limits[counter] / unit)
        for name, (counter, unit) in BUDGETS.items()
        if counter in limits
    }


def running_step(program: Program, address: str, record: StepRecord) -> RunningStep:
    """Builds the API's view of a running step."""
    step = program.step(address)
    return RunningStep(
        address=address,
        action=step.action.value,
        label=without_keys(step.label or step.id),
        since=iso(record.since) if record.since else None,
        attempt=record.attempt,
        worker=record.owner,
    )


def step_view(
    program: Program,
    address: str,
    record: StepRecord,
    place: str,
    *,
    summary: str = "",
    answer: dict[str, JsonValue] | None = None,
) -> StepView:
    """Builds the API's view of a step; with fewer fields if the program no longer has it."""
    step = program.step_or_none(address)
    queue = queue_of(step) if step is not None else ""
    action = step.action if step is not None else None
    name = path_of(address).rpartition("/")[2]
    return StepView(
        address=address,
        node=path_of(address),
        action=action.value if action is not None else "gone",
        label=without_keys((step.label if step is not None else None) or name),
        state=record.state,
        attempt=record.attempt,
        lost=record.lost,
        failed=record.failed,
        worker=record.owner,
        queue=full_queue(queue, place=place, session="") if queue else "",
        started_at=iso(record.since) if record.since else None,
        ended_at=iso(record.ended) if record.ended else None,
        verdict=record.verdict,
        reason=record.reason,
        cost_usd=record.cost_micros / MICROS,
        input_tokens=record.tokens_in,
        output_tokens=record.tokens_out,
        answered_by=record.answered_by if action is Action.HUMAN else None,
        answer=answer if action is Action.HUMAN else None,
        summary=summary,
    )


def turn_view(program: Program, id_: str, turn: TurnRecord) -> TurnView:
    """Builds the API's view of one run of a loop or for_each."""
    path = path_of(id_)
    name = path.rpartition("/")[2]
    node = program.node(path) if program.has(path) else None
    return TurnView(
        address=id_,
        node=path,
        label=without_keys((node and node.label) or name),
        state=turn.state,
        verdict=turn.verdict,
        reason=turn.reason,
        iteration=turn.iteration,
        max_iterations=turn.max,
        items=turn.width if turn.each else None,
        continues=turn.origin.run if turn.origin else None,
        from_iteration=turn.origin.opened if turn.origin else 1,
        started_at=iso(turn.since) if turn.since else None,
        ended_at=iso(turn.ended) if turn.ended else None,
    )


def shown_status(store: Store, ref: SessionRef, fields: Mapping[str, str]) -> str:
    """Returns the stored status, or `waiting` for an active session with only parked steps."""
    parked = store.count_members(ref, "parked") if fields["status"] == SessionStatus.ACTIVE else 0
    return status_of(fields, parked, store.count_members(ref, "live") if parked else 0)


def status_of(fields: Mapping[str, str], parked: int, live: int) -> str:
    """Returns a session's status, or `waiting` if it is active and all its live steps are parked.

    >>> status_of({"status": "active"}, 2, 2), status_of({"status": "stopped"}, 2, 2)
    ('waiting', 'stopped')
    """
    status = fields["status"]
    return "waiting" if status == SessionStatus.ACTIVE and parked and parked == live else status


class AboutLoop(NamedTuple):
    """The description of a session of one loop; empty for flows and workflows."""

    task: str | None = None
    doer: str | None = None
    checkers: tuple[str, ...] = ()


def about_loop(kind: str, program: Program | None) -> AboutLoop:
    """Returns a `loop` session's task (first line), doer and checkers; empty for other kinds."""
    if program is None or kind != "loop":
        return AboutLoop()
    # Beside it are the steps that make and keep the session's own folder.
    loop = next((node for node in program.body if isinstance(node, Loop)), None)
    if loop is None:
        return AboutLoop()
    steps = [node for node in loop.body if isinstance(node, Step)]
    checkers = [step.label or step.id for step in steps if step.action is Action.CHECK]
    do = next((step for step in steps if step.id == "do"), None)
    inputs = {} if do is None else do.inputs
    return AboutLoop(
        task=_first_line(inputs.get("task")),
        doer=_doer(inputs.get("doer")) if do is not None else None,
        checkers=tuple(without_keys(name) for name in checkers),
    )


def _first_line(task: JsonValue) -> str | None:
    text = substitute(task, lambda _: None)
    return headline(without_keys(text), most=_TASK) or None if isinstance(text, str) else None


def _doer(doer: JsonValue) -> str:
    """A doer as text.

    >>> _doer({"agent": "claude"}), _doer({"command": "make it"}), _doer(None)
    ('agent claude', 'command make it', 'the default agent')
    """
    for kind, value in doer.items() if isinstance(doer, dict) else ():
        if kind in ("agent", "command", "callable") and isinstance(value, str):
            text = substitute(value, lambda _: None)
            return plain(f"{kind} {redact_command(str(text))}", most=_DOER)
    return "the default agent"
