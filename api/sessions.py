"""Sessions over HTTP: start them, read them, steer them, forget them."""

from __future__ import annotations

from flask import Blueprint, Response

from api import bodies
from api.answers import answer
from api.auth import allow, current_caller, current_owner
from api.bodies import NoQuery, PageQuery, SessionsQuery
from api.port import Engine, Verb


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
        return answer(view, 202, headers={"Location": f"/v1/sessions/{submitted.session}"})

    def listed(self) -> Response:
        asked = bodies.query(SessionsQuery)
        page = self._engine.sessions(
            status=asked.status, kind=asked.kind, limit=asked.limit, cursor=asked.cursor
        )
        return answer(page)

    def one(self, session: str) -> Response:
        bodies.query(NoQuery)
        return answer(self._engine.session(session))

    def result(self, session: str) -> Response:
        bodies.query(NoQuery)
        return answer(self._engine.result(session))

    def steps(self, session: str) -> Response:
        asked = bodies.query(PageQuery)
        return answer(self._engine.steps(session, limit=asked.limit, cursor=asked.cursor))

    def ledger(self, session: str) -> Response:
        asked = bodies.query(PageQuery)
        return answer(self._engine.ledger(session, limit=asked.limit, cursor=asked.cursor))

    def stop(self, session: str) -> Response:
        bodies.body(bodies.NoBody)
        return self._control(session, "stop")

    def resume(self, session: str) -> Response:
        asked = bodies.body(bodies.Resume)
        return self._control(session, "resume", max_iterations=asked.max_iterations)

    def exit(self, session: str) -> Response:
        return self._control(session, "exit", reason=bodies.body(bodies.Exit).reason)

    def abort(self, session: str) -> Response:
        return self._control(session, "abort", reason=bodies.body(bodies.Abort).reason)

    def rehome(self, session: str) -> Response:
        asked = bodies.body(bodies.Rehome)
        bodies.query(NoQuery)
        return answer(self._engine.rehome(session, asked.place), 202)

    def delete(self, session: str) -> Response:
        bodies.query(NoQuery)
        self._engine.delete(session)
        return Response(status=204)

    def _control(
        self, session: str, verb: Verb, *, reason: str = "", max_iterations: int | None = None
    ) -> Response:
        bodies.query(NoQuery)
        view = self._engine.control(
            session, verb, reason=reason, max_iterations=max_iterations, by=current_caller()
        )
        return answer(view, 202)


def blueprint(engine: Engine) -> Blueprint:
    sessions = Sessions(engine)
    routes = Blueprint("sessions", __name__, url_prefix="/v1/sessions")
    routes.add_url_rule("", "submit", sessions.submit, methods=["POST"])
    routes.add_url_rule("", "listed", sessions.listed)
    routes.add_url_rule("/<session>", "one", sessions.one)
    routes.add_url_rule("/<session>", "delete", sessions.delete, methods=["DELETE"])
    for read in (sessions.result, sessions.steps, sessions.ledger):
        routes.add_url_rule(f"/<session>/{read.__name__}", read.__name__, read)
    for verb in (
        sessions.stop, sessions.resume, sessions.exit, sessions.abort, sessions.rehome,
    ):  # fmt: skip
        routes.add_url_rule(f"/<session>/{verb.__name__}", verb.__name__, verb, methods=["POST"])
    return routes
