"""Sessions over HTTP: start them, read them, steer them, forget them."""

from __future__ import annotations

from flask import Blueprint, Response

from api import bodies
from api.answers import JSON_LINES, MARKDOWN, answer, attachment, session_answer
from api.auth import allow, current_caller, current_owner, current_visitor
from api.bodies import NoQuery, PageQuery, SessionsQuery
from api.port import Engine, Verb
from app.bulk import How, carry_out, preview
from leadhand.documents import Budget


class Sessions:
    """One method for each thing that can be done with a session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def submit(self) -> Response:
        bodies.query(NoQuery)
        key = bodies.idempotency_key()
        document = bodies.document()
        allow(document)
        submitted = self._engine.submit(document, idempotency_key=key, owner=current_owner())
        view = self._engine.session(submitted.session)
        location = f"/v1/sessions/{submitted.session}"
        return session_answer(view, 202, headers={"Location": location})

    def listed(self) -> Response:
        asked = bodies.query(SessionsQuery)
        page = self._engine.sessions(asked.wanted(), limit=asked.limit, cursor=asked.cursor)
        return answer(page)

    def bulk(self) -> Response:
        bodies.query(NoQuery)
        asked = bodies.body(bodies.Bulk)
        if asked.dry_run:
            return answer(preview(self._engine, asked.verb, asked.filter, cursor=asked.cursor))
        how = How(asked.verb, reason=asked.reason, force=asked.force)
        return answer(carry_out(self._engine, how, asked.filter, cursor=asked.cursor))

    def one(self, session: str) -> Response:
        bodies.query(NoQuery)
        return session_answer(self._engine.session(session))

    def export(self, session: str) -> Response:
        asked = bodies.query(bodies.ExportQuery)
        exported = self._engine.export(session)
        if asked.part == "all":
            return attachment(exported.model_dump_json(), "application/json", f"{session}.json")
        lines = "".join(f"{entry.model_dump_json()}\n" for entry in exported.ledger)
        return attachment(lines, JSON_LINES, f"{session}.jsonl")

    def result(self, session: str) -> Response:
        bodies.query(NoQuery)
        return answer(self._engine.result(session))

    def steps(self, session: str) -> Response:
        asked = bodies.query(PageQuery)
        return answer(self._engine.steps(session, limit=asked.limit, cursor=asked.cursor))

    def ledger(self, session: str) -> Response:
        asked = bodies.query(PageQuery)
        return answer(self._engine.ledger(session, limit=asked.limit, cursor=asked.cursor))

    def diffs(self, session: str) -> Response:
        asked = bodies.query(bodies.DiffsQuery)
        return answer(
            self._engine.diffs(
                session, iteration=asked.iteration, limit=asked.limit, cursor=asked.cursor
            )
        )

    def receipt(self, session: str) -> Response:
        bodies.query(NoQuery)
        return answer(self._engine.receipt(session))

    def explain(self, session: str) -> Response:
        bodies.query(NoQuery)
        return answer(self._engine.explain(session))

    def transcript(self, session: str) -> Response:
        asked = bodies.query(bodies.TranscriptQuery)
        if asked.format == "markdown":
            text = "".join(self._engine.transcript_text(session))
            return attachment(text, MARKDOWN, f"{session}.md")
        return answer(self._engine.transcript(session, limit=asked.limit, cursor=asked.cursor))

    def stop(self, session: str) -> Response:
        bodies.body(bodies.NoBody)
        return self._control(session, "stop")

    def resume(self, session: str) -> Response:
        asked = bodies.body(bodies.Resume)
        if asked.as_ == "old":
            return self._control(
                session,
                "resume",
                max_iterations=asked.max_iterations,
                budget=asked.budget,
                after=asked.position,
            )
        bodies.query(NoQuery)
        view = self._engine.resume_as_new(
            session,
            max_iterations=asked.max_iterations,
            budget=asked.budget,
            after=asked.position,
            seen=bodies.if_match(),
        )
        return session_answer(view, 202)

    def exit(self, session: str) -> Response:
        return self._control(session, "exit", reason=bodies.body(bodies.Exit).reason)

    def abort(self, session: str) -> Response:
        return self._control(session, "abort", reason=bodies.body(bodies.Abort).reason)

    def answers(self, session: str) -> Response:
        asked = bodies.body(bodies.Answers)
        bodies.query(NoQuery)
        view = self._engine.give(session, asked.text, address=asked.address, by=current_visitor())
        return session_answer(view, 202)

    def rehome(self, session: str) -> Response:
        asked = bodies.body(bodies.Rehome)
        bodies.query(NoQuery)
        return session_answer(
            self._engine.rehome(session, asked.place, seen=bodies.if_match()), 202
        )

    def delete(self, session: str) -> Response:
        asked = bodies.query(bodies.DeleteQuery)
        view = self._engine.delete(session, force=asked.force, seen=bodies.if_match())
        return Response(status=204) if view is None else session_answer(view, 202)

    def _control(
        self,
        session: str,
        verb: Verb,
        *,
        reason: str = "",
        max_iterations: int | None = None,
        budget: Budget | None = None,
        after: str | None = None,
    ) -> Response:
        bodies.query(NoQuery)
        view = self._engine.control(
            session,
            verb,
            reason=reason,
            max_iterations=max_iterations,
            budget=budget,
            after=after,
            by=current_caller(),
            seen=bodies.if_match(),
        )
        return session_answer(view, 202)


def blueprint(engine: Engine) -> Blueprint:
    sessions = Sessions(engine)
    routes = Blueprint("sessions", __name__, url_prefix="/v1/sessions")
    routes.add_url_rule("", "submit", sessions.submit, methods=["POST"])
    routes.add_url_rule("", "listed", sessions.listed)
    routes.add_url_rule("/bulk", "bulk", sessions.bulk, methods=["POST"])
    routes.add_url_rule("/<session:session>", "one", sessions.one)
    routes.add_url_rule("/<session:session>", "delete", sessions.delete, methods=["DELETE"])
    for read in (
        sessions.result,
        sessions.steps,
        sessions.ledger,
        sessions.receipt,
        sessions.explain,
        sessions.diffs,
        sessions.transcript,
        sessions.export,
    ):
        routes.add_url_rule(f"/<session>/{read.__name__}", read.__name__, read)
    for verb in (
        sessions.stop, sessions.resume, sessions.exit, sessions.abort, sessions.rehome,
        sessions.answers,
    ):  # fmt: skip
        routes.add_url_rule(f"/<session>/{verb.__name__}", verb.__name__, verb, methods=["POST"])
    return routes
