"""Lists the open questions to people, of all sessions or of one tree, and formats them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from pydantic import JsonValue

from app.context import Context
from app.core.addresses import SessionRef, iso
from app.core.records import StepRecord
from app.core.states import SessionStatus
from app.sessions.listing import decode_cursor, encode_cursor, invalid_cursor
from app.store.errors import read_undamaged
from app.store.session_reads import Place
from app.truncate import cut
from leadhand.models.forms import AnswerRules, Form, GivenAnswer, default_of, leaves, parse_rules
from leadhand.models.views.explain import QuestionView, SeenWork
from leadhand.models.views.view import Page

#: Maximum characters of a question in a note.
QUESTION = 500
#: Maximum sessions that one page examines; a page may therefore be short.
LOOKED_AT = 2000
#: Sessions per read.
BATCH = 100
#: Maximum parked steps that are read per session.
STEPS = 1000
#: Maximum depth of child sessions.
DEPTH = 5
#: Maximum characters of a question.
TEXT = 8000
_FAR = 9e15


def answer_command(session: str, address: str, rules: AnswerRules, *, is_plan: bool) -> str:
    """Returns the shell command that answers a question, or that approves a plan's draft.

    >>> answer_command("1a2b3c4d", "ask~1[1]/q", AnswerRules(), is_plan=False)
    "leadhand answer 1a2b3c4d 'ask~1[1]/q' TEXT"
    >>> answer_command("1a2b3c4d", "q", AnswerRules(choices=("a", "b")), is_plan=False)
    'leadhand answer 1a2b3c4d q --choice CHOICE'
    >>> answer_command("1a2b3c4d", "drafting~1[1]/refine", AnswerRules(), is_plan=True)
    'leadhand plan approve 1a2b3c4d'
    """
    if is_plan:
        return f"leadhand plan approve {session}"
    return f"leadhand answer {session} {shlex.quote(address)} {_arguments(rules)}"


def _arguments(rules: AnswerRules) -> str:
    parts = ["--choice CHOICE"] if rules.choices else []
    if rules.form is not None:
        required = [path for path, is_required, field in leaves(rules.form)
                    if is_required and default_of(field) is None]  # fmt: skip
        parts += [f"--field {path}=VALUE" for path in required] or ["--field NAME=VALUE"]
    return " ".join(parts) or "TEXT"


def question_notes(session: str, records: Mapping[str, StepRecord], *, is_plan: bool) -> list[str]:
    """Returns a note for each parked step that asks a person, with the command that answers it."""
    return [
        f"{address} asks: {cut(str(record.parked.get('question') or ''), QUESTION)}"
        f"; answer with: {_short_command(session, record, is_plan=is_plan)}"
        for address, record in sorted(records.items())
        if record.parked is not None and record.parked.get("on") == "human"
    ]


def _short_command(session: str, record: StepRecord, *, is_plan: bool) -> str:
    """The command that answers a session's only question."""
    if is_plan:
        return f"leadhand plan show {session}"
    return (
        f"leadhand answer {session} {_arguments(parse_rules((record.parked or {}).get('rules')))}"
    )


class Position(NamedTuple):
    """A position in the list: after this question, or (address None) after the whole session."""

    at: float
    session: str
    address: str | None


class Asking(NamedTuple):
    """An active session with its parked steps that ask a person, by address."""

    at: float
    ref: SessionRef
    fields: Mapping[str, str]
    records: Mapping[str, StepRecord]


def list_questions(engine: Context, *, limit: int, cursor: str | None) -> Page[QuestionView]:
    """Returns a page of the open questions of all sessions, newest session first.

    A page may be short or empty; there may be more questions while it has a `next`.
    """
    start = _decode(cursor)
    items: list[QuestionView] = []
    damaged: list[Place] = []
    examined, last = 0, start
    for asking in islice(_walk(engine, start, damaged), LOOKED_AT):
        examined += 1
        for view in question_views(asking):
            if asking.ref.id == start.session and view.address <= (start.address or ""):
                continue
            if len(items) == limit:
                return Page(items=items, next=_encode(last), damaged=_ids(damaged))
            items.append(view)
            last = Position(asking.at, asking.ref.id, view.address)
        last = Position(asking.at, asking.ref.id, None)
    partial = examined == LOOKED_AT
    return Page(
        items=items,
        next=_encode(last) if partial else None,
        partial=partial,
        damaged=_ids(damaged),
    )


def list_questions_of_tree(engine: Context, session: str, *, limit: int) -> Page[QuestionView]:
    """Returns the open questions of a session and of the children that its steps wait for.

    Raises SessionUnknown.
    """
    ref = engine.registry.ref(session)
    return Page(items=list(islice(_tree(engine, ref, DEPTH), limit)))


def _tree(engine: Context, ref: SessionRef, deeper: int) -> Iterator[QuestionView]:
    fields = engine.store.fields(ref)
    if fields.get("status") != SessionStatus.ACTIVE:
        return
    parked = engine.store.members(ref, "parked", STEPS)
    records = engine.store.steps(ref, parked)
    yield from question_views(Asking(0, ref, fields, _questions(records)))
    for record in records.values():
        child = (record.parked or {}).get("child")
        if isinstance(child, str) and deeper:
            yield from _tree(engine, SessionRef(child, ref.root), deeper - 1)


def _walk(engine: Context, start: Position, damaged: list[Place]) -> Iterator[Asking]:
    """Yields the active sessions from a position on, newest first, without `damaged` ones."""
    # A session that was left in its middle is read again: its id with a suffix is behind it.
    last = start.session if start.address is None else f"{start.session}\0"
    before, index = Place(start.at, last), engine.store.session_index()
    while found := index.page(SessionStatus.ACTIVE, before=before, limit=BATCH):
        yield from read_undamaged(partial(_asking, engine), found, damaged)
        before = found[-1]


def _asking(engine: Context, found: Sequence[Place]) -> list[Asking]:
    """The questions of sessions, without deleted ones."""
    known = engine.store.fields_of([place.session for place in found])
    parked = engine.store.overview().parked([ref for ref, _ in known.values()], STEPS)
    return [
        Asking(place.at, ref, fields, _questions(engine.store.steps(ref, parked[ref])))
        for place in found
        if place.session in known
        for ref, fields in [known[place.session]]
    ]


def _ids(places: Sequence[Place]) -> list[str]:
    return [place.session for place in places]


def _questions(records: Mapping[str, StepRecord]) -> dict[str, StepRecord]:
    return {
        address: record
        for address, record in sorted(records.items())
        if record.parked is not None and record.parked.get("on") == "human"
    }


def question_views(asking: Asking) -> Iterator[QuestionView]:
    """Builds the API's views of the questions that a session asks."""
    # The only question of a plan's session is about its draft.
    is_plan = asking.fields.get("kind") == "plan"
    for address, record in asking.records.items():
        parked = record.parked or {}
        until = parked.get("until_ms")
        rules = parse_rules(parked.get("rules"))
        yield QuestionView(
            session=asking.ref.id,
            name=asking.fields.get("label") or asking.fields["name"],
            address=address,
            question=cut(str(parked.get("question") or ""), TEXT),
            since=None if record.since is None else iso(record.since),
            until=iso(until) if isinstance(until, int) else None,
            answer=answer_command(asking.ref.id, address, rules, is_plan=is_plan),
            form=_as_json(rules.form),
            choices=list(rules.choices or ()),
            default=_as_json(rules.default),
            seen=_seen(parked.get("seen")),
            about="plan" if is_plan else None,
        )


def _seen(stored: JsonValue) -> SeenWork | None:
    return SeenWork.model_validate_json(stored) if isinstance(stored, str) else None


def _as_json(part: Form | GivenAnswer | None) -> dict[str, JsonValue] | None:
    if part is None:
        return None
    return part.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def _encode(position: Position) -> str:
    return encode_cursor(list(position))


def _decode(cursor: str | None) -> Position:
    if cursor is None:
        return Position(_FAR, "", None)
    match decode_cursor(cursor):
        case [int() | float() as at, str() as session, str() | None as address] if 0 <= at <= _FAR:
            return Position(float(at), session, address)
        case _:
            raise invalid_cursor(cursor)
