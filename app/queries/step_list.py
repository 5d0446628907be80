"""Lists a session's steps, each with the first line of its outcome, and its turns."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from app.domain.addresses import by_number
from app.domain.ids import SessionRef
from app.domain.program import Program
from app.domain.records import StepRecord
from app.queries.cursors import address_of, encode_cursor
from app.queries.presenters import step_view, turn_view
from app.redaction import without_keys, without_secrets
from app.store.store import Store
from leadhand.models.text import plain, reason_text
from leadhand.models.views.step import StepsPage, TurnView

#: The most characters of a step's summary.
SUMMARY = 200
#: Outcomes that are read at once: each may have 64 kB of text.
_BATCH = 50
#: What addresses are sorted by.
_Key = list[tuple[int, str]]


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
