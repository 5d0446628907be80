"""Lists the steps of a session, and the trees of sessions: who started whom, and how each is."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from app.context import Context
from app.core.addresses import SessionRef, by_number, iso
from app.core.outcomes import MICROS
from app.core.program import Program
from app.core.records import StepRecord
from app.plans.phases import Phases
from app.redaction import without_keys, without_secrets
from app.sessions.listing import address_of, encode_cursor
from app.sessions.presenters import (
    about_loop,
    depth_of,
    reason_of,
    shown_status,
    step_view,
    turn_view,
)
from app.store.store import Store
from leadhand.errors import KeyDamaged, ProgramNewer, SessionUnknown
from leadhand.models.text import plain, reason_text
from leadhand.models.views.session import TreeCause, TreeNode, TreeView
from leadhand.models.views.step import StepsPage, TurnView

#: Maximum sessions between a session and the root that are followed upwards.
DEEPEST = 100
Fields = Mapping[str, str]
#: The most characters of a step's summary.
SUMMARY = 200
#: Outcomes that are read at once: each may have 64 kB of text.
_BATCH = 50
#: What addresses are sorted by.
_Key = list[tuple[int, str]]


def read_tree(engine: Context, session: str, *, limit: int = 200) -> TreeView:
    """Returns a session and its descendants, at most `limit`, parents first, and its causes.

    At most `limit` sessions, the upper levels first.
    """
    ref, fields = _session(engine, session)
    known = {session: fields}
    below: dict[str, list[str]] = {}
    damaged: list[str] = []
    level, left_out = [session], 0
    while level:
        following: list[str] = []
        for one in level:
            children = _children(engine, SessionRef(one, ref.root), known[one], damaged)
            room = limit - len(known)
            left_out += max(0, len(children) - room)
            below[one] = list(children)[:room]
            known |= {child: children[child] for child in below[one]}
            following += below[one]
        level = following
    shown = {SessionRef(one, ref.root): known[one] for one in _in_order(session, below)}
    items = _nodes(engine, shown, damaged)
    if session in damaged:
        raise KeyDamaged
    return TreeView(
        session=session,
        root=ref.root,
        items=items,
        damaged=list(dict.fromkeys(damaged)),
        causes=list(_causes(engine, ref, fields)),
        note=_note(len(known), left_out),
    )


def is_within(engine: Context, session: str, top: str) -> bool:
    """Whether a session is `top` itself or its descendant, also one detached from it."""
    ref = engine.store.ref(session)
    for _ in range(DEEPEST):
        if ref is None or ref.id == top:
            return ref is not None
        fields = engine.store.values(ref, "session", ["parent", "detached_from"])
        above = _above(fields)
        ref = SessionRef(above, ref.root) if above else None
    return False


def _session(engine: Context, session: str) -> tuple[SessionRef, Fields]:
    ref = engine.registry.ref(session)
    fields = engine.store.fields(ref)
    if "status" not in fields:
        raise SessionUnknown(session)
    return ref, fields


def _below(engine: Context, ref: SessionRef, fields: Fields) -> list[str]:
    """The children of a session, and the sessions that it let continue."""
    return [*engine.store.children(ref), *fields.get("detached", "").split()]


def _children(
    engine: Context, ref: SessionRef, fields: Fields, damaged: list[str]
) -> dict[str, Fields]:
    """The fields of a session's children, the oldest first, without deleted ones.

    Sessions with a damaged key are added to `damaged`.
    """
    try:
        found = engine.store.fields_of(_below(engine, ref, fields), damaged)
    except KeyDamaged:
        damaged.append(ref.id)
        return {}
    kept = {one: fields for one, (_, fields) in found.items() if "status" in fields}
    return dict(sorted(kept.items(), key=lambda item: (int(item[1]["created"]), item[0])))


def _nodes(
    engine: Context, shown: Mapping[SessionRef, Fields], damaged: list[str]
) -> list[TreeNode]:
    """The nodes of sessions, without those that have a damaged key."""
    now_ms, phases, nodes = engine.store.now_ms(), Phases(engine.store), list[TreeNode]()
    for ref, fields in shown.items():
        if ref.id in damaged:
            continue
        try:
            nodes.append(_node(engine, ref, fields, now_ms, phases))
        except KeyDamaged:
            damaged.append(ref.id)
    return nodes


def _node(
    engine: Context, ref: SessionRef, fields: Fields, now_ms: int, phases: Phases
) -> TreeNode:
    began, ended = int(fields["created"]), fields.get("ended")
    about = about_loop(fields["kind"], _program(engine, fields["program"]))
    parent = json.loads(fields["parent"]) if fields.get("parent") else {}
    return TreeNode(
        id=ref.id,
        parent=parent.get("session"),
        started_by=parent.get("address"),
        detached_from=fields.get("detached_from"),
        depth=depth_of(fields),
        kind=fields["kind"],
        title=fields.get("title") or fields.get("label") or about.task or fields["name"],
        status=shown_status(engine.store, ref, fields),
        phase=phases.view(ref, fields),
        reason=reason_of(fields),
        created_at=iso(began),
        elapsed_s=max(0, (int(ended) if ended else now_ms) - began) / 1000,
        cost_usd=_cost_micros(fields) / MICROS,
    )


def _program(engine: Context, program: str) -> Program | None:
    try:
        return engine.registry.program(program)
    except (ProgramNewer, SessionUnknown):
        return None


def _causes(engine: Context, ref: SessionRef, fields: Fields) -> Iterator[TreeCause]:
    """Yields why the session ended, the root cause first, then the ends of those above it."""
    links = list(chain.chain()) if (chain := reason_of(fields)) else []
    for link in reversed(links):
        yield TreeCause(session=ref.id, code=link.code, text=link.text, at=link.at)
    for _ in range(DEEPEST):
        above = _above(fields)
        if above is None:
            return
        ref = SessionRef(above, ref.root)
        fields = engine.store.fields(ref)
        if reason := reason_of(fields):
            yield TreeCause(session=above, code=reason.code, text=reason.text, at=reason.at)


def _above(fields: Fields) -> str | None:
    """The session that started a session, also if that has let it continue."""
    if fields.get("parent"):
        return str(json.loads(fields["parent"])["session"])
    return fields.get("detached_from")


def _cost_micros(fields: Fields) -> int:
    """The cost of a session and of those below it, reported or not."""
    return sum(max(0, int(fields.get(name, 0))) for name in ("cost_micros", "below/cost_micros"))


def _in_order(session: str, below: Mapping[str, list[str]]) -> Iterator[str]:
    yield session
    for child in below.get(session, ()):
        yield from _in_order(child, below)


def _note(shown: int, left_out: int) -> str | None:
    if not left_out:
        return None
    return (
        f"{shown} sessions are shown, {left_out} and those below them are left out;"
        " raise the limit, or ask for the tree of one of these sessions"
    )


def steps_page(
    store: Store, ref: SessionRef, program: Program, place: str, *, limit: int, cursor: str | None
) -> StepsPage:
    """Returns a page of a session's steps that became ready, by address, and the turns among them.

    A skipped loop or for_each has no steps: only its turn says that it was skipped.
    """
    after = by_number(address_of(cursor)) if cursor is not None else None
    known = sorted(store.names(ref, "steps"), key=by_number)
    ahead = known if after is None else known[bisect_right(known, after, key=by_number) :]
    shown = ahead[:limit]
    records = store.steps(ref, shown)
    items = [
        step_view(program, address, records[address], place, summary=summary, answer=answer)
        for address, summary, answer in _summaries(store, ref, shown, records)
    ]
    last = by_number(shown[-1]) if len(ahead) > limit else None
    return StepsPage(
        items=items,
        next=encode_cursor(shown[-1]) if last is not None else None,
        turns=list(_turns_between(store, ref, program, after, last)),
    )


def _turns_between(
    store: Store, ref: SessionRef, program: Program, after: _Key | None, last: _Key | None
) -> Iterator[TurnView]:
    """The turns after one address up to another, by address; the program's own turn is left out."""
    ids = sorted((id_ for id_ in store.names(ref, "turns") if id_), key=by_number)
    start = bisect_right(ids, after, key=by_number) if after is not None else 0
    end = bisect_right(ids, last, key=by_number) if last is not None else len(ids)
    records = store.turns(ref, ids[start:end])
    yield from (turn_view(program, id_, records[id_]) for id_ in ids[start:end] if id_ in records)


def _summaries(
    store: Store, ref: SessionRef, shown: Sequence[str], records: dict[str, StepRecord]
) -> Iterator[tuple[str, str, dict[str, JsonValue] | None]]:
    """The addresses that have a record, each with its summary and a person's answer."""
    present = [address for address in shown if address in records]
    for start in range(0, len(present), _BATCH):
        batch = present[start : start + _BATCH]
        outcomes = store.values(ref, "out", batch)
        for address in batch:
            record, outcome = records[address], outcomes.get(address)
            yield address, _summary(record, outcome), _answer(record, outcome)


def _answer(record: StepRecord, outcome: str | None) -> dict[str, JsonValue] | None:
    """The answer that a step got, without credentials."""
    if record.answered_by is None or record.state != "succeeded" or outcome is None:
        return None
    stored = json.loads(outcome)
    value = stored.get("value")
    more = value if isinstance(value, dict) else {}
    answer = without_secrets({"text": stored.get("text") or "", **more})
    assert isinstance(answer, dict)
    return answer


def _summary(record: StepRecord, outcome: str | None) -> str:
    """The first line of a step's outcome, of why it failed, or of the question that it asks."""
    if record.reason is not None and record.state != "succeeded":
        return plain(without_keys(reason_text(record.reason.model_dump())), most=SUMMARY)
    if outcome is not None:
        return _first_line(str(json.loads(outcome).get("text") or ""))
    parked = record.parked or {}
    if parked.get("on") == "human":
        return _first_line(str(parked.get("question") or ""))
    return plain(f"session {parked['child']}") if parked.get("child") else ""


def _first_line(text: str) -> str:
    first = next((line for line in text.splitlines() if line.strip()), "")
    return plain(without_keys(first), most=SUMMARY)
