"""REST routes for sessions: submit, read, control and delete."""

from __future__ import annotations

from flask import Blueprint, Response

from api import requests
from api.auth import (
    allow,
    current_author,
    current_caller,
    current_owner,
    may_bring_commands,
)
from api.batch.routes import submit_batch
from api.documents import submitted_document
from api.folder import folder_of_command
from api.requests import NoQuery, PageQuery, SessionsQuery, SubmitQuery
from api.responses import JSON_LINES, MARKDOWN, answer, attachment, session_answer
from api.steps.verbs import StepVerbs
from api.store import current_workers
from app.domain.control import Control
from app.engine import Engine
from app.operations.bulk import How
from leadhand.models.documents import Budget
from leadhand.models.forms import GivenAnswer
from leadhand.models.views import OutputView, Page, SessionView


class Sessions:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def submit(self) -> Response:
        """POST /v1/sessions: create a session from a document; a child if a step sends it."""
        caller = current_caller()
        policy = requests.query(SubmitQuery).policy_for(is_child=caller is not None)
        key = requests.idempotency_key()
        document = submitted_document(self._engine)
        free = may_bring_commands(self._engine)
        allow(document, free=free)
        workers = current_workers()
        if caller is not None:
            submitted = self._engine.spawner.document(
                caller, document, key=key, on_parent_end=policy, workers=workers
            )
        else:
            submitted = self._engine.submit.document(
                document,
                idempotency_key=key,
                owner=current_owner(),
                free=free,
                folder=folder_of_command(),
                workers=workers,
            )
        view = self._engine.queries.submitted(submitted.session, submitted.made)
        view = self._with_work_token(view)
        location = f"/v1/sessions/{submitted.session}"
        return session_answer(view, 202, headers={"Location": location})

    def batch(self) -> Response:
        """POST /v1/sessions/batch: create sessions from many documents."""
        return submit_batch(self._engine)

    def list_all(self) -> Response:
        """GET /v1/sessions: return one page of the sessions that match a filter."""
        asked = requests.query(SessionsQuery)
        page = self._engine.queries.sessions(asked.wanted(), limit=asked.limit, cursor=asked.cursor)
        if not page.items:  # an emptied store lists nothing
            self._engine.guard.check()
        return answer(page)

    def bulk(self) -> Response:
        """POST /v1/sessions/bulk: apply a verb to all sessions of a filter, or preview that."""
        requests.query(NoQuery)
        asked = requests.body(requests.Bulk)
        if asked.dry_run:
            return answer(self._engine.bulk.preview(asked.verb, asked.filter, cursor=asked.cursor))
        free = may_bring_commands(self._engine)
        how = How(asked.verb, reason=asked.reason, force=asked.force, free=free)
        if asked.token is not None:
            return answer(self._engine.bulk.carry_out_token(how, asked.token))
        return answer(self._engine.bulk.carry_out(how, asked.filter, cursor=asked.cursor))

    def one(self, session: str) -> Response:
        """GET /v1/sessions/ID: show a session."""
        requests.query(NoQuery)
        return session_answer(self._engine.queries.session(session))

    def export(self, session: str) -> Response:
        """GET .../export: download all data of a session, or only its iterations as JSON lines."""
        asked = requests.query(requests.ExportQuery)
        exported = self._engine.queries.export(session)
        if asked.part == "all":
            return attachment(exported.model_dump_json(), "application/json", f"{session}.json")
        lines = "".join(f"{entry.model_dump_json()}\n" for entry in exported.ledger)
        return attachment(lines, JSON_LINES, f"{session}.jsonl")

    def result(self, session: str) -> Response:
        """GET .../result: show the result of an ended session."""
        requests.query(NoQuery)
        return answer(self._engine.queries.result(session))

    def steps(self, session: str) -> Response:
        """GET .../steps: return one page of a session's steps."""
        asked = requests.query(PageQuery)
        return answer(self._engine.queries.steps(session, limit=asked.limit, cursor=asked.cursor))

    def ledger(self, session: str) -> Response:
        """GET .../ledger: return one page of a session's iterations, with their verdicts."""
        asked = requests.query(PageQuery)
        return answer(self._engine.queries.ledger(session, limit=asked.limit, cursor=asked.cursor))

    def diffs(self, session: str) -> Response:
        """GET .../diffs: return one page of the file changes that a session's doers made."""
        asked = requests.query(requests.DiffsQuery)
        return answer(
            self._engine.queries.diffs(
                session, iteration=asked.iteration, limit=asked.limit, cursor=asked.cursor
            )
        )

    def output(self, session: str) -> Response:
        """GET .../output: return the live output of the latest attempts, of one step or of all."""
        asked = requests.query(requests.OutputQuery)
        found = self._engine.outputs.outputs(session, step=asked.step, limit=asked.limit)
        return answer(Page[OutputView](items=found))

    def receipt(self, session: str) -> Response:
        """GET .../receipt: show the attempts that the last stop, exit or abort ended."""
        requests.query(NoQuery)
        return answer(self._engine.receipts.receipt(session))

    def tree(self, session: str) -> Response:
        """GET .../tree: list a session and all its descendants."""
        asked = requests.query(requests.TreeQuery)
        return answer(self._engine.trees.tree(session, limit=asked.limit))

    def explain(self, session: str) -> Response:
        """GET .../explain: explain why a session waits or ended."""
        requests.query(NoQuery)
        return answer(self._engine.explainer.explain(session))

    def transcript(self, session: str) -> Response:
        """GET .../transcript: return a page of a session's transcript, or all of it as Markdown."""
        asked = requests.query(requests.TranscriptQuery)
        if asked.format == "markdown":
            text = "".join(self._engine.queries.transcript_text(session))
            return attachment(text, MARKDOWN, f"{session}.md")
        return answer(
            self._engine.queries.transcript(session, limit=asked.limit, cursor=asked.cursor)
        )

    def stop(self, session: str) -> Response:
        """POST .../stop: interrupt a session so that it can be resumed."""
        requests.body(requests.NoBody)
        return self._control(session, "stop")

    def resume(self, session: str) -> Response:
        """POST .../resume: resume a stopped or failed session, by the old or new flow file."""
        asked = requests.body(requests.Resume)
        if asked.as_ == "old":
            return self._control(
                session,
                "resume",
                max_iterations=asked.max_iterations,
                budget=asked.budget,
                after=asked.position,
                accept_protected=asked.accept_protected,
            )
        requests.query(NoQuery)
        view = self._engine.migration.resume_as_new(
            session,
            max_iterations=asked.max_iterations,
            budget=asked.budget,
            after=asked.position,
            seen=requests.if_match(),
            free=may_bring_commands(self._engine),
            accept_protected=asked.accept_protected,
        )
        return session_answer(view, 202)

    def exit(self, session: str) -> Response:
        """POST .../exit: end a session whose task cannot succeed, with a reason."""
        return self._control(session, "exit", reason=requests.body(requests.Exit).reason)

    def abort(self, session: str) -> Response:
        """POST .../abort: cancel the running steps and end the session for good."""
        return self._control(session, "abort", reason=requests.body(requests.Abort).reason)

    def answers(self, session: str) -> Response:
        """POST .../answers: send a person's answer to a question that a session asks."""
        asked = requests.body(requests.Answers)
        requests.query(NoQuery)
        given = GivenAnswer(text=asked.text, choice=asked.choice, fields=asked.fields)
        view = self._engine.answers.give(session, given, address=asked.address, by=current_author())
        return session_answer(view, 202)

    def annotate(self, session: str) -> Response:
        """PATCH /v1/sessions/ID: set its title and note, and whether lists hide it."""
        asked = requests.body(requests.Annotation)
        requests.query(NoQuery)
        view = self._engine.annotations.annotate(
            session, title=asked.title, note=asked.note, archived=asked.archived
        )
        return session_answer(view)

    def rehome(self, session: str) -> Response:
        """POST .../rehome: move a session to another place (a worker's host)."""
        asked = requests.body(requests.Rehome)
        requests.query(NoQuery)
        return session_answer(
            self._engine.control.rehome(session, asked.place, seen=requests.if_match()), 202
        )

    def delete(self, session: str) -> Response:
        """DELETE /v1/sessions/ID: delete an ended session; with `force` abort it first."""
        asked = requests.query(requests.DeleteQuery)
        view = self._engine.deletion.delete(session, force=asked.force, seen=requests.if_match())
        return Response(status=204) if view is None else session_answer(view, 202)

    def _control(
        self,
        session: str,
        verb: Control,
        *,
        reason: str = "",
        max_iterations: int | None = None,
        budget: Budget | None = None,
        after: str | None = None,
        accept_protected: bool = False,
    ) -> Response:
        requests.query(NoQuery)
        caller = current_caller()
        view = self._engine.control.apply(
            session,
            verb,
            reason=reason,
            max_iterations=max_iterations,
            budget=budget,
            after=after,
            accept_protected=accept_protected,
            # The transition checks the attempt of a body that controls its own session.
            by=caller if caller is not None and caller.session == session else None,
            seen=requests.if_match(),
            free=may_bring_commands(self._engine),
        )
        return session_answer(self._with_work_token(view) if verb == "resume" else view, 202)

    def _with_work_token(self, view: SessionView) -> SessionView:
        """The session with the token for its local steps, if it has such steps."""
        token = self._engine.local_work.token(view.id) if view.kind == "graph" else None
        return view if token is None else view.model_copy(update={"work_token": token})


def questions_blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the route that lists open questions."""
    routes = Blueprint("questions", __name__, url_prefix="/v1/questions")

    def list_all() -> Response:
        asked = requests.query(requests.QuestionsQuery)
        if asked.session is not None:
            return answer(engine.questions.of_tree(asked.session, limit=asked.limit))
        return answer(engine.questions.page(limit=asked.limit, cursor=asked.cursor))

    routes.add_url_rule("", "listed", list_all)
    return routes


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of sessions."""
    sessions = Sessions(engine)
    routes = Blueprint("sessions", __name__, url_prefix="/v1/sessions")
    routes.add_url_rule("", "submit", sessions.submit, methods=["POST"])
    routes.add_url_rule("", "listed", sessions.list_all)
    routes.add_url_rule("/batch", "batch", sessions.batch, methods=["POST"])
    routes.add_url_rule("/bulk", "bulk", sessions.bulk, methods=["POST"])
    routes.add_url_rule("/<session:session>", "one", sessions.one)
    routes.add_url_rule("/<session:session>", "annotate", sessions.annotate, methods=["PATCH"])
    routes.add_url_rule("/<session:session>", "delete", sessions.delete, methods=["DELETE"])
    for read in (
        sessions.result,
        sessions.steps,
        sessions.ledger,
        sessions.receipt,
        sessions.explain,
        sessions.tree,
        sessions.diffs,
        sessions.output,
        sessions.transcript,
        sessions.export,
    ):
        routes.add_url_rule(f"/<session>/{read.__name__}", read.__name__, read)
    for verb in (
        sessions.stop, sessions.resume, sessions.exit, sessions.abort, sessions.rehome,
        sessions.answers, *StepVerbs(engine).routes,
    ):  # fmt: skip
        routes.add_url_rule(f"/<session>/{verb.__name__}", verb.__name__, verb, methods=["POST"])
    return routes
