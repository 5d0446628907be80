"""Serves the operations on sessions: submit, read, annotate, control and delete."""

from __future__ import annotations

import re
from typing import Any, cast

from flask import Response
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from api.auth import (
    allow,
    current_author,
    current_caller,
    current_owner,
    may_bring_commands,
    own_caller,
)
from api.folder import folder_of_command
from api.problems import refusal_of
from api.requests import MARKDOWN, answer, attachment, drawing_response, session_answer
from api.serving import Call, serves
from api.store import current_workers
from api.validation_errors import field_problems
from app.core.states import Control
from app.engine import Engine
from app.security.api_tokens import Owner
from app.sessions.bulk import How
from app.sessions.drafts import Request, Submitted
from app.sessions.drawings import draw_svg, draw_text
from app.sessions.evidence import read_receipt
from app.sessions.outputs import list_outputs
from app.sessions.submit import Item, ItemRefused, Result, hash_document
from app.sessions.tree import read_tree
from leadhand.contract import messages, sessions, submissions
from leadhand.contract.operation import JSON_LINES, NoBody, NoQuery, PageQuery
from leadhand.contract.submissions import Batch, BatchItem, ParentEnd, SubmitQuery
from leadhand.errors import Refused, RequestInvalid
from leadhand.flows.documents import AnyDocument, FlowDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.forms import GivenAnswer
from leadhand.models.plans import PlanDocument
from leadhand.models.problems import FieldProblem, Problem
from leadhand.models.validation_messages import NAMED
from leadhand.models.views.explain import ExplainView, ReceiptView
from leadhand.models.views.result import LedgerEntry, ResultView
from leadhand.models.views.session import BatchItemView, BatchView, BulkView, SessionView, TreeView
from leadhand.models.views.step import DiffsPage, OutputView, StepsPage
from leadhand.models.views.view import Page

_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
_MODELS: dict[str, type[BaseModel]] = {
    "loop": LoopDocument,
    "workflow": WorkflowDocument,
    "flow": FlowDocument,
    "graph": GraphDocument,
    "plan": PlanDocument,
}
_INDEX = re.compile(r"\.(\d+)(?=\.|$)")


def parse_document(given: JsonValue, *, most: int = NAMED) -> AnyDocument:
    """Validates a JSON value as a document to run, of any kind. Raises Refused if it is invalid.

    At most `most` of its errors are named.
    """
    try:
        return _DOCUMENT.validate_python(given)
    except ValidationError as error:
        model = _model_of(given)
        problems = field_problems(error, given, model, most=most)
    if model is GraphDocument:
        # The paths of the structure's errors have brackets, and so have those of the fields.
        problems = tuple(
            one.model_copy(update={"field": _INDEX.sub(r"[\1]", one.field)}) for one in problems
        )
    raise RequestInvalid.of_fields(problems)


def _model_of(given: JsonValue) -> type[BaseModel] | None:
    """The model of a document, by its kind; None if the kind is missing or unknown."""
    kind = given.get("kind") if isinstance(given, dict) else None
    return _MODELS.get(str(kind))


@serves(submissions.SUBMIT)
def submit(engine: Engine, call: Call, given: JsonValue) -> SessionView:
    """Creates a session from a document; a child if a step sends it."""
    caller = current_caller()
    policy = parent_end(call.query, is_child=caller is not None)
    document = parse_document(given)
    free = may_bring_commands(engine)
    allow(document, free=free)
    workers = current_workers()
    if caller is not None:
        submitted = engine.spawner.document(
            caller, document, key=call.key, on_parent_end=policy, workers=workers
        )
    else:
        submitted = engine.submit.document(
            document,
            idempotency_key=call.key,
            owner=current_owner(),
            free=free,
            folder=folder_of_command(),
            workers=workers,
        )
    view = engine.queries.submitted(submitted.session, submitted.made)
    return _with_work_token(engine, view)


def parent_end(query: SubmitQuery, *, is_child: bool) -> ParentEnd:
    """Returns what becomes of a child at its parent's end. Raises Refused if it is no child."""
    if query.on_parent_end is not None and not is_child:
        message = "only a session that a doer or checker starts has a parent; leave it out"
        fault = FieldProblem(field="on_parent_end", message=message, place="query")
        raise RequestInvalid.of_fields((fault.model_copy(update={"value": query.on_parent_end}),))
    return query.on_parent_end or "abort"


@serves(sessions.LIST)
def list_all(engine: Engine, _: Call, asked: sessions.SessionsQuery) -> Page[SessionView]:
    """Returns one page of the sessions that match a filter."""
    page = engine.queries.sessions(asked.wanted(), limit=asked.limit, cursor=asked.cursor)
    if not page.items:  # an emptied store lists nothing
        engine.guard.check()
    return page


@serves(sessions.BULK)
def bulk(engine: Engine, _: Call, asked: sessions.Bulk) -> BulkView:
    """Applies a verb to all sessions of a filter, or previews that."""
    if asked.dry_run:
        return engine.bulk.preview(asked.verb, asked.filter, cursor=asked.cursor)
    how = How(asked.verb, reason=asked.reason, force=asked.force, free=may_bring_commands(engine))
    if asked.token is not None:
        return engine.bulk.carry_out_token(how, asked.token)
    return engine.bulk.carry_out(how, asked.filter, cursor=asked.cursor)


@serves(sessions.SHOW)
def show(engine: Engine, call: Call, _: NoQuery) -> SessionView:
    """Shows a session."""
    return engine.queries.session(call.session)


@serves(sessions.EXPORT)
def export(engine: Engine, call: Call, asked: sessions.ExportQuery) -> Response:
    """Downloads all data of a session, or only its iterations as JSON lines."""
    exported = engine.queries.export(call.session)
    if asked.part == "all":
        text = exported.model_dump_json()
        return attachment(text, "application/json", f"{call.session}.json")
    lines = "".join(f"{entry.model_dump_json()}\n" for entry in exported.ledger)
    return attachment(lines, JSON_LINES, f"{call.session}.jsonl")


@serves(sessions.RESULT)
def result(engine: Engine, call: Call, _: NoQuery) -> ResultView:
    """Shows the result of an ended session."""
    return engine.queries.result(call.session)


@serves(sessions.STEPS)
def steps(engine: Engine, call: Call, asked: PageQuery) -> StepsPage:
    """Returns one page of a session's steps."""
    return engine.queries.steps(call.session, limit=asked.limit, cursor=asked.cursor)


@serves(sessions.LEDGER)
def ledger(engine: Engine, call: Call, asked: PageQuery) -> Page[LedgerEntry]:
    """Returns one page of a session's iterations, with their verdicts."""
    return engine.queries.ledger(call.session, limit=asked.limit, cursor=asked.cursor)


@serves(sessions.DIFFS)
def diffs(engine: Engine, call: Call, asked: sessions.DiffsQuery) -> DiffsPage:
    """Returns one page of the file changes that a session's doers made."""
    return engine.queries.diffs(
        call.session, iteration=asked.iteration, limit=asked.limit, cursor=asked.cursor
    )


@serves(sessions.OUTPUT)
def output(engine: Engine, call: Call, asked: sessions.OutputQuery) -> Page[OutputView]:
    """Returns the live output of the latest attempts, of one step or of all."""
    found = list_outputs(engine, call.session, step=asked.step, limit=asked.limit)
    return Page[OutputView](items=found)


@serves(sessions.RECEIPT)
def receipt(engine: Engine, call: Call, _: NoQuery) -> ReceiptView:
    """Shows the attempts that the last stop, exit or abort ended."""
    return read_receipt(engine, call.session)


@serves(sessions.TREE)
def tree(engine: Engine, call: Call, asked: sessions.TreeQuery) -> TreeView:
    """Lists a session and all its descendants."""
    return read_tree(engine, call.session, limit=asked.limit)


@serves(sessions.EXPLAIN)
def explain(engine: Engine, call: Call, _: NoQuery) -> ExplainView:
    """Explains why a session waits or ended."""
    return engine.explainer.explain(call.session)


@serves(sessions.TRANSCRIPT)
def transcript(engine: Engine, call: Call, asked: sessions.TranscriptQuery) -> Response:
    """Returns a page of a session's transcript, or all of it as Markdown."""
    if asked.format == "markdown":
        text = "".join(engine.queries.transcript_text(call.session))
        return attachment(text, MARKDOWN, f"{call.session}.md")
    return answer(engine.queries.transcript(call.session, limit=asked.limit, cursor=asked.cursor))


@serves(sessions.DRAWING)
def drawing(engine: Engine, call: Call, asked: sessions.DrawingQuery) -> Response:
    """Draws a session."""
    if asked.format == "text":
        text = draw_text(engine, call.session, asked.width)
        return drawing_response(text, sessions.PLAIN_TEXT)
    return drawing_response(draw_svg(engine, call.session), sessions.SVG)


@serves(sessions.STOP)
def stop(engine: Engine, call: Call, _: NoBody) -> SessionView:
    """Interrupts a session so that it can be resumed."""
    return _control(engine, call, "stop")


@serves(sessions.RESUME)
def resume(engine: Engine, call: Call, asked: sessions.Resume) -> SessionView:
    """Resumes a stopped or failed session, by the old or new flow file."""
    limits: dict[str, Any] = {
        "max_iterations": asked.max_iterations,
        "budget": asked.budget,
        "after": asked.position,
        "accept_protected": asked.accept_protected,
    }
    if asked.as_ == "old":
        return _with_work_token(engine, _control(engine, call, "resume", **limits))
    seen, free = call.seen, may_bring_commands(engine)
    return engine.migration.resume_as_new(call.session, seen=seen, free=free, **limits)


@serves(sessions.EXIT)
def exit_session(engine: Engine, call: Call, asked: sessions.Exit) -> SessionView:
    """Ends a session whose task cannot succeed, with a reason."""
    return _control(engine, call, "exit", reason=asked.reason)


@serves(sessions.ABORT)
def abort(engine: Engine, call: Call, asked: sessions.Abort) -> SessionView:
    """Cancels the running steps and ends the session for good."""
    return _control(engine, call, "abort", reason=asked.reason)


@serves(messages.ANSWER)
def answer_question(engine: Engine, call: Call, asked: messages.Answers) -> SessionView:
    """Sends a person's answer to a question that a session asks."""
    given = GivenAnswer(text=asked.text, choice=asked.choice, fields=asked.fields)
    return engine.answers.give(call.session, given, address=asked.address, by=current_author())


@serves(sessions.ANNOTATE)
def annotate(engine: Engine, call: Call, asked: sessions.Annotation) -> SessionView:
    """Sets a session's title and note, and whether lists hide it."""
    return engine.annotations.annotate(
        call.session, title=asked.title, note=asked.note, archived=asked.archived
    )


@serves(sessions.REHOME)
def rehome(engine: Engine, call: Call, asked: sessions.Rehome) -> SessionView:
    """Moves a session to another place (a worker's host)."""
    return engine.control.rehome(call.session, asked.place, seen=call.seen)


@serves(sessions.DELETE)
def delete(engine: Engine, call: Call, asked: sessions.DeleteQuery) -> Response | None:
    """Deletes an ended session; with `force` aborts it first."""
    view = engine.deletion.delete(call.session, force=asked.force, seen=call.seen)
    return None if view is None else session_answer(view, 202)


def _control(engine: Engine, call: Call, verb: Control, **options: Any) -> SessionView:
    return engine.control.apply(
        call.session,
        verb,
        # The transition checks the attempt of a body that controls its own session.
        by=own_caller(call.session),
        seen=call.seen,
        free=may_bring_commands(engine),
        **options,
    )


def _with_work_token(engine: Engine, view: SessionView) -> SessionView:
    """The session with the token for its local steps, if it has such steps."""
    token = engine.local_work.token(view.id) if view.kind == "graph" else None
    return view if token is None else view.model_copy(update={"work_token": token})


@serves(submissions.BATCH)
def submit_batch(engine: Engine, _: Call, asked: Batch) -> BatchView:
    """Creates a session per item of a request (or all or none); returns sessions and problems."""
    all_or_none, free = asked.mode == "all", may_bring_commands(engine)
    parsed: list[Item | Problem] = []
    left = NAMED  # errors that may be named; each invalid item has one
    for number, given in enumerate(asked.items):
        try:
            parsed.append(_item(given, current_owner(), engine, free=free, most=max(1, left)))
        except Refused as refusal:
            refusal.problem = _of_item(refusal.problem, number)
            if all_or_none:
                raise
            parsed.append(refusal.problem)
            left -= len(refusal.problem.errors)
    items = [one for one in parsed if isinstance(one, Item)]
    try:
        results = iter(engine.batches.submit(items, all_or_none=all_or_none))
    except ItemRefused as first:
        whole = refusal_of(first.error)
        whole.problem = _of_item(whole.problem, first.number)
        raise whole from None
    views = [
        _view(next(results), number) if isinstance(one, Item) else BatchItemView(problem=one)
        for number, one in enumerate(parsed)
    ]
    return BatchView(items=views)


def _item(given: BatchItem, owner: Owner | None, engine: Engine, *, free: bool, most: int) -> Item:
    """Parse an item. Raises Refused, with at most `most` errors."""
    document = parse_document(cast("JsonValue", given.document), most=most)
    allow(document, free=free)
    key = given.idempotency_key
    body = hash_document(document, engine.settings.secret)
    return Item(document, Request(body, key, owner=owner, free=free, folder=folder_of_command()))


def _view(result: Result, number: int) -> BatchItemView:
    if isinstance(result, Submitted):
        return BatchItemView(session=result.session, created=result.created)
    return BatchItemView(problem=_of_item(refusal_of(result).problem, number))


def _of_item(problem: Problem, number: int) -> Problem:
    """A problem of one item, whose fields are named with the item."""

    def name(field: str | None) -> str:
        if field == "Idempotency-Key":
            return f"items.{number}.idempotency_key"
        return f"items.{number}.document" + (f".{field}" if field else "")

    errors = tuple(one.model_copy(update={"field": name(one.field)}) for one in problem.errors)
    return problem.model_copy(update={"field": name(problem.field), "errors": errors})
