"""Compares two sessions side by side: facts, costs, and the verdicts of each iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from flask import Blueprint, Response, request

from api.dashboard.panels.matrix import cells_of
from api.dashboard.render import cost, count, duration, elapsed_s, page, reason
from app.engine import Engine
from leadhand.models.views import LedgerEntry, SessionView

#: Iterations of each session that the page compares.
ITERATIONS = 100


class Row(NamedTuple):
    """A fact of both sessions."""

    label: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        """Whether the sessions differ in it."""
        return self.left != self.right


_FACTS: tuple[tuple[str, Callable[[SessionView], str]], ...] = (
    ("Status", lambda view: view.status),
    ("Reason", lambda view: reason(view.reason)),
    ("Task", lambda view: view.task or view.name),
    ("Doer", lambda view: view.doer or ""),
    ("Checkers", lambda view: ", ".join(view.checkers)),
    ("Folder", lambda view: view.cwd or ""),
    ("Iterations", lambda view: str(view.counters.iterations)),
    ("Steps", lambda view: str(view.counters.steps)),
    ("Failed attempts", lambda view: str(view.counters.attempts_failed)),
    ("Elapsed", lambda view: duration(elapsed_s(view.created_at, view.ended_at))),
    ("Cost", lambda view: cost(view.counters.cost_usd)),
    ("Tokens in", lambda view: count(view.counters.input_tokens)),
    ("Tokens out", lambda view: count(view.counters.output_tokens)),
)


def facts(left: SessionView, right: SessionView) -> list[Row]:
    """Returns the facts of both sessions, without those that neither has."""
    rows = [Row(label, fact(left), fact(right)) for label, fact in _FACTS]
    return [row for row in rows if row.left or row.right]


def iterations(left: list[LedgerEntry], right: list[LedgerEntry]) -> Iterator[Row]:
    """Yields the verdicts of each iteration of both sessions, in the order of their ledgers."""
    for number, (first, second) in enumerate(zip_longest(left, right), 1):
        yield Row(f"Iteration {number}", _verdicts(first), _verdicts(second))


def _verdicts(entry: LedgerEntry | None) -> str:
    if entry is None:
        return ""
    checks = [f"{one.name} {one.verdict or 'not judged'}" for one in cells_of(entry)]
    judged = f" ({', '.join(checks)})" if checks else ""
    return f"{entry.verdict.replace('_', ' ')}{judged}"


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Register the route."""

    def compare() -> Response:
        """GET /ui/compare?left=ID&right=ID."""
        ids = {side: request.args.get(side, "").strip() for side in ("left", "right")}
        if not all(ids.values()):
            return page("compare.html", ids=ids, rows=None)
        left, right = (engine.queries.session(one) for one in ids.values())
        ledgers = [engine.queries.ledger(one, limit=ITERATIONS).items for one in ids.values()]
        rows = [*facts(left, right), *iterations(*ledgers)]
        return page("compare.html", ids=ids, left=left, right=right, rows=rows)

    routes.add_url_rule("/compare", "compare", compare)
