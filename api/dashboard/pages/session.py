"""The page of one session: a header, and a tab for each side of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from flask import Blueprint, Response, g, request

from api.dashboard.buttons import RESTS, Button, can_fork, controls_of, step_buttons, suggested
from api.dashboard.patches import LINES, files_of, numbered
from api.dashboard.render import elapsed_s, page
from api.dashboard.timeline import cells_of, matrices, timeline
from api.requests import drawing_response
from api.serving import Call, carry_out
from app.core.records import StepRecord
from app.core.states import SessionStatus
from app.engine import Engine
from app.security.api_tokens import Scope
from app.sessions.drawings import draw_svg
from app.sessions.inbox import list_messages
from app.sessions.outputs import list_outputs
from app.sessions.questions import list_questions_of_tree
from app.sessions.tree import read_tree
from leadhand.contract import sessions
from leadhand.contract.operation import NoQuery, Operation
from leadhand.contract.sessions import SVG
from leadhand.errors import SessionUnknown, of_status
from leadhand.models.views.result import Evidence, LedgerEntry
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import DiffView, TranscriptEntry

#: Entries that a panel shows at once.
ITERATIONS, ENTRIES, STEPS, EVENTS, TREE = 200, 60, 100, 200, 200
BARS = 200
#: Steps at which a stopped session resumes that the transcript names.
RESUMES = 5
#: Transcript entries that are shown beside a question.
NEWEST = 4
TABS = (
    ("overview", "Overview"), ("timeline", "Timeline"), ("transcript", "Transcript"),
    ("changes", "Changes"), ("output", "Output"), ("steps", "Steps"), ("drawing", "Drawing"),
    ("tree", "Tree"), ("log", "Log"),
)  # fmt: skip
#: Parts of the page that are no more than an operation: path and template have its last word.
PARTS = (sessions.RECEIPT,)
Values = Mapping[str, object]


class SessionPage:
    """Reads what the tabs of a session show."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tabs: Mapping[str, Callable[[SessionView], Values]] = {
            "overview": self._overview,
            "timeline": self._timeline,
            "transcript": self._transcript,
            "changes": self._changes,
            "output": self._output,
            "steps": self._steps,
            "drawing": lambda _: {},
            "tree": self._tree,
            "log": self._log,
        }

    def show(self, session: str) -> Response:
        """GET /ui/sessions/ID: show the page of one session."""
        return page("session.html", self._values(session))

    def panel(self, session: str, name: str) -> Response:
        """GET .../panels/NAME: return the header of the page or its open tab."""
        template = "session_head.html" if name == "head" else f"tabs/{self._tab()}.html"
        values = self._values(session, with_tab=name != "head")
        return page(template, values)

    def iteration(self, session: str, number: int) -> Response:
        """GET .../iterations/N: show verdicts, feedback and output of one iteration."""
        entries = self._engine.queries.ledger(session, limit=number + 1).items
        if number >= len(entries):
            raise SessionUnknown(session)
        entry = entries[number]
        check = request.args.get("check", type=int)
        cells = [cell for cell in cells_of(entry) if check is None or cell.number == check]
        return page(
            "iteration.html", id=session, number=number, entry=entry, cells=cells, check=check,
            outputs=self._check_outputs(session, entry) if check is not None else [],
        )  # fmt: skip

    def newest(self, session: str) -> Response:
        """GET .../newest?but=ADDRESS: show the newest transcript, without that of step ADDRESS."""
        asking = request.args.get("but")
        found = self._engine.queries.newest_transcript(session, limit=2 * NEWEST)
        entries = [one for one in found if one.address != asking][-NEWEST:]
        return page("newest.html", id=session, entries=entries)

    def diff_file(self, session: str, number: int, file: int) -> Response:
        """GET .../diffs/N/files/M: show some lines of one file of a diff."""
        start = max(0, request.args.get("start", 0, type=int))
        diffs = self._diffs(session)
        files = files_of(diffs[number].patch) if number < len(diffs) else []
        if file >= len(files):
            raise of_status(404, f"session {session} has no such file of a diff")
        patch = files[file]
        lines = list(numbered(patch, start=start))
        more = start + LINES if len(patch.lines) > start + LINES else None
        return page(
            "diff_lines.html", id=session, number=number, file=patch, lines=lines, more=more
        )

    def part(self, operation: Operation[NoQuery], session: str) -> Response:
        """GET .../PART: show what an operation reads."""
        found = carry_out(
            self._engine, operation, Call({"session": session}, None, None), NoQuery()
        )
        return page(f"{_last_word(operation)}.html", found=found)

    def drawing(self, session: str) -> Response:
        """GET .../drawing.svg: draw the program of the session with its states."""
        return drawing_response(draw_svg(self._engine, session), SVG)

    def _values(self, session: str, *, with_tab: bool = True) -> Values:
        view = self._engine.queries.session(session)
        tab = self._tab()
        shown = self._tabs[tab](view) if with_tab else {}
        return {
            "view": view,
            "tab": tab,
            "tabs": TABS,
            "elapsed": elapsed_s(view.created_at, view.ended_at),
            "controls": controls_of(view) if Scope.CONTROL in g.visitor.scopes else [],
            **shown,
        }

    def _tab(self) -> str:
        asked = request.args.get("tab", "overview")
        return asked if asked in self._tabs else "overview"

    def _overview(self, view: SessionView) -> Values:
        found = self._engine.queries.ledger(view.id, limit=ITERATIONS)
        questions = list_questions_of_tree(self._engine, view.id, limit=20).items
        return {
            "explained": self._engine.explainer.explain(view.id),
            "suggested": suggested,
            "matrices": matrices(found.items),
            "more_iterations": found.next is not None,
            "questions": questions,
            "evidence": self._evidence(view),
            "messages": list_messages(self._engine, view.id, unread=True, limit=20).items,
        }

    def _evidence(self, view: SessionView) -> Evidence | None:
        """On what the acceptance of the session's work is based."""
        done = view.status == SessionStatus.COMPLETED
        return self._engine.queries.result(view.id).evidence if done else None

    def _timeline(self, view: SessionView) -> Values:
        found = self._engine.queries.steps(view.id, limit=BARS)
        made = timeline(found.items, now=self._engine.store.now_ms() / 1000)
        return {"timeline": made, "more_steps": found.next is not None}

    def _transcript(self, view: SessionView) -> Values:
        cursor = request.args.get("cursor") or None
        entries = self._engine.queries.transcript(view.id, limit=ENTRIES, cursor=cursor)
        ref = self._engine.queries.ref(view.id)
        addresses = sorted({one.address for one in entries.items if one.address})
        steps = self._engine.store.steps(ref, addresses)
        return {
            "entries": entries,
            "bubble": partial(bubble_of, view, steps),
            "resumes_at": resumes_at(view, self._engine.store.members(ref, "live", RESUMES)),
        }

    def _changes(self, view: SessionView) -> Values:
        found = self._engine.queries.diffs(view.id, limit=200)
        diffs = [(n, diff, files_of(diff.patch)) for n, diff in enumerate(found.items)]
        return {"diffs": diffs, "none": found.none}

    def _output(self, view: SessionView) -> Values:
        step = request.args.get("step") or None
        return {"outputs": list_outputs(self._engine, view.id, step=step, limit=10)}

    def _steps(self, view: SessionView) -> Values:
        cursor = request.args.get("cursor") or None
        return {
            "steps": self._engine.queries.steps(view.id, limit=STEPS, cursor=cursor),
            "step_buttons": step_buttons,
            "forks": can_fork(view),
        }

    def _tree(self, view: SessionView) -> Values:
        return {"tree": read_tree(self._engine, view.id, limit=TREE)}

    def _log(self, view: SessionView) -> Values:
        after = request.args.get("after") or "0"
        events = self._engine.queries.events(view.id, after=after, limit=EVENTS)
        return {"events": events, "more": len(events) == EVENTS}

    def _check_outputs(self, session: str, entry: LedgerEntry) -> list[object]:
        """The stored output of the iteration's steps, as long as it is kept."""
        found = list_outputs(self._engine, session, step=None, limit=50)
        return [one for one in found if entry.address and one.address.startswith(entry.address)]

    def _diffs(self, session: str) -> list[DiffView]:
        return self._engine.queries.diffs(session, limit=200).items

    def add_to(self, routes: Blueprint) -> None:
        """Registers the routes of a session's page and of the parts that it loads."""
        base = "/sessions/<session>"
        routes.add_url_rule(base, "session", self.show)
        routes.add_url_rule(f"{base}/panels/<name>", "session_panel", self.panel)
        routes.add_url_rule(f"{base}/iterations/<int:number>", "iteration", self.iteration)
        routes.add_url_rule(f"{base}/newest", "newest", self.newest)
        for operation in PARTS:
            part = _last_word(operation)
            routes.add_url_rule(f"{base}/{part}", part, partial(self.part, operation))
        routes.add_url_rule(f"{base}/drawing.svg", "session_drawing", self.drawing)
        routes.add_url_rule(
            f"{base}/diffs/<int:number>/files/<int:file>", "diff_file", self.diff_file
        )


def _last_word(operation: Operation[NoQuery]) -> str:
    return operation.path.rpartition("/")[2]


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page of one session and its parts."""
    SessionPage(engine).add_to(routes)


class Bubble(NamedTuple):
    """The status of the attempt that an entry belongs to, and what a person can do from there."""

    #: Empty if nothing is known of the step.
    status: str = ""
    #: Whether the last resume of the session continued after this step.
    resumed_here: bool = False
    #: Resumes the session after this step; None where it cannot.
    resume: Button | None = None


def bubble_of(view: SessionView, steps: Mapping[str, StepRecord], entry: TranscriptEntry) -> Bubble:
    """Returns the step state and resume button shown beside an answer; empty for other entries."""
    step = steps.get(entry.address)
    if step is None or entry.role not in ("assistant", "human"):
        return Bubble()
    if entry.attempt and entry.attempt < step.attempt:
        return Bubble("retried")
    resume = None
    if view.status in RESTS and step.state == "succeeded":
        resume = Button("resume", "Resume after", {"after": entry.address})
    return Bubble(step.state, view.resumed_after == entry.address, resume)


def resumes_at(view: SessionView, live: Sequence[str]) -> list[str]:
    """Returns the addresses of the steps where a stopped or failed session continues; or empty."""
    if view.status == "stopped":
        return sorted(live)
    if view.status == "failed" and view.reason is not None:
        found = [link.at for link in view.reason.chain() if link.at]
        return found[-1:]
    return []
