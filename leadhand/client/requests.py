"""The API's operations: each function builds a request and its response parser (pure)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from leadhand.client.calls import Answer, Call, Param
from leadhand.client.operator import limits, tokens
from leadhand.client.paths import flow_path, session_path
from leadhand.errors import AnswerUnreadable, SessionUnknown, TokenUnknown
from leadhand.flows.documents import AnyDocument
from leadhand.models.documents import Budget, Webhook
from leadhand.models.etags import etag
from leadhand.models.views import (
    AgentView,
    BulkView,
    DiffsPage,
    Event,
    ExplainView,
    ExportView,
    FleetView,
    FlowCheckView,
    FlowView,
    FsckView,
    InboxMessage,
    LedgerEntry,
    Limit,
    NewToken,
    OutputView,
    Page,
    QuestionView,
    QueueView,
    Quotas,
    ReceiptView,
    ResultView,
    SessionView,
    StepsPage,
    StoreView,
    TokenView,
    ToolView,
    TranscriptEntry,
    TreeView,
    WorkerView,
)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Document = AnyDocument | Mapping[str, Any]
BulkVerb = Literal["stop", "resume", "abort", "archive", "restore", "delete"]
SESSIONS = "/v1/sessions"
FLOWS = "/v1/flows"

#: The statuses after each verb: a repeated call that finds one of them was executed before.
_LEADS_TO = {
    "stop": {"stopping", "stopped"},
    "resume": {"active", "waiting"},
    "retry": {"active", "waiting"},
    "exit": {"exiting", "exited"},
    "abort": {"aborting", "aborted"},
}
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


class Ask(NamedTuple, Generic[T]):
    """One call and the parser of its response, which raises Refused for an error."""

    call: Call
    read: Callable[[Answer], T]


class Steer(NamedTuple):
    """A call that controls a session, with the statuses that show that it was executed."""

    call: Call
    session: str
    is_done: Callable[[SessionView], bool]


class SessionsWanted(BaseModel):
    """A filter of sessions; absent fields match all. Times are RFC 3339."""

    status: str | Sequence[str] | None = None
    kind: str | None = None
    name: str | None = None
    label: str | None = None
    folder: str | None = None
    reason: str | None = None
    parent: str | None = None
    archived: str | None = None
    created_after: str | None = None
    created_before: str | None = None

    def given(self) -> dict[str, str | list[str]]:
        """Return the filters that are set, with the statuses as a list."""
        found: dict[str, str | list[str]] = self.model_dump(exclude_none=True)
        if self.status is not None:
            found["status"] = [self.status] if isinstance(self.status, str) else [*self.status]
        return found


def session(id_: str) -> Ask[SessionView]:
    """Builds the request that gets a session, with its response parser."""
    return _reads(SessionView, Call("GET", session_path(id_)))


def sessions(
    wanted: SessionsWanted, limit: int | None, cursor: str | None
) -> Ask[Page[SessionView]]:
    """Builds the request that lists a page of sessions by filters, with its response parser."""
    params = {**wanted.given(), **_given(limit=limit, cursor=cursor)}
    return _reads(Page[SessionView], Call("GET", SESSIONS, params=params))


def bulk(
    verb: BulkVerb,
    wanted: SessionsWanted,
    dry_run: bool,
    reason: str,
    force: bool,
    cursor: str | None,
    token: str | None,
) -> Ask[BulkView]:
    """Builds the request that applies a verb to all matching sessions, with its response parser."""
    body = {"verb": verb, "filter": wanted.given(), "dry_run": dry_run, "reason": reason,
            "force": force, **_given(cursor=cursor, token=token)}  # fmt: skip
    return _reads(BulkView, Call("POST", f"{SESSIONS}/bulk", content=_JSON.dump_json(body)))


def result(id_: str) -> Ask[ResultView]:
    """Builds the request that gets the result of an ended session, with its response parser."""
    return _reads(ResultView, Call("GET", session_path(id_, "result")))


def steps(id_: str, limit: int | None, cursor: str | None) -> Ask[StepsPage]:
    """Builds the request that lists a page of a session's steps, with its response parser."""
    params = _given(limit=limit, cursor=cursor)
    return _reads(StepsPage, Call("GET", session_path(id_, "steps"), params=params))


def ledger(id_: str, limit: int | None, cursor: str | None) -> Ask[Page[LedgerEntry]]:
    """Builds the request that lists a page of a session's iterations, with its response parser."""
    params = _given(limit=limit, cursor=cursor)
    return _reads(Page[LedgerEntry], Call("GET", session_path(id_, "ledger"), params=params))


def diffs(id_: str, iteration: int | None, limit: int | None, cursor: str | None) -> Ask[DiffsPage]:
    """Builds the request that lists a page of a session's file diffs, with its response parser."""
    params = _given(iteration=iteration, limit=limit, cursor=cursor)
    return _reads(DiffsPage, Call("GET", session_path(id_, "diffs"), params=params))


def output(id_: str, step: str | None, limit: int | None) -> Ask[Page[OutputView]]:
    """Builds the request that gets the live output of latest attempts, with its response parser."""
    params = _given(step=step, limit=limit)
    return _reads(Page[OutputView], Call("GET", session_path(id_, "output"), params=params))


def event_page(id_: str, after: str | None, limit: int | None) -> Ask[Page[Event]]:
    """Builds the request that lists a page of a session's events, with its response parser."""
    params = _given(after=after, limit=limit)
    return _reads(Page[Event], Call("GET", session_path(id_, "events"), params=params))


def export(id_: str) -> Ask[ExportView]:
    """Builds the request that gets all data of a session, with its response parser."""
    return _reads(ExportView, Call("GET", session_path(id_, "export")))


def transcript(id_: str, limit: int | None, cursor: str | None) -> Ask[Page[TranscriptEntry]]:
    """Builds the request that lists a page of a session's messages, with its response parser."""
    params = _given(limit=limit, cursor=cursor)
    return _reads(
        Page[TranscriptEntry], Call("GET", session_path(id_, "transcript"), params=params)
    )


def transcript_text(id_: str) -> Ask[str]:
    """Builds the request that gets a transcript as Markdown, with its response parser."""
    call = Call("GET", session_path(id_, "transcript"), params={"format": "markdown"})
    return Ask(call, lambda answer: answer.checked().text)


def export_text(id_: str, part: Literal["all", "ledger"]) -> Ask[str]:
    """Builds the request for a session as JSON, or its ledger as JSON lines, with the parser."""
    call = Call("GET", session_path(id_, "export"), params={"part": part})
    return Ask(call, lambda answer: answer.checked().text)


def control(id_: str, verb: str, seen: SessionView | None = None, **body: Any) -> Steer:
    """Builds the request for a verb on a session (stop, resume ...), with a check if it is done."""
    content = _JSON.dump_json(_given(**body))
    call = Call("POST", session_path(id_, verb), headers=_if_match(seen), content=content)
    return Steer(call, id_, lambda view: view.status in _LEADS_TO[verb])


def resume_body(
    max_iterations: int | None,
    budget: Budget | Mapping[str, float] | None,
    as_: Literal["old", "new"] | None,
    after: str | None,
    accept_protected: bool,
) -> dict[str, Any]:
    """Builds the JSON body of a resume. Raises ValueError for an unknown limit."""
    more: dict[str, Any] = {"max_iterations": max_iterations, "as": as_, "after": after}
    more["accept_protected"] = accept_protected or None
    if budget is None:
        return more
    given = budget if isinstance(budget, Budget) else Budget.model_validate(dict(budget))
    limits = given.model_dump(exclude_none=True)
    return more | {"budget": limits}


def answer(id_: str, **body: Any) -> Ask[SessionView]:
    """Builds the request that answers a session's question, with its response parser."""
    content = _JSON.dump_json(_given(**body))
    return _reads(SessionView, Call("POST", session_path(id_, "answers"), content=content))


def inbox(id_: str, unread: bool, limit: int | None, cursor: str | None) -> Ask[Page[InboxMessage]]:
    """Builds the request that lists a page of a session's inbox, with its response parser."""
    params = _given(unread="true" if unread else None, limit=limit, cursor=cursor)
    return _reads(Page[InboxMessage], Call("GET", session_path(id_, "inbox"), params=params))


def take_messages(id_: str, idempotency_key: str | None) -> Ask[list[InboxMessage]]:
    """Builds the request that marks inbox messages as read and gets them, with its parser."""
    call = _keyed(session_path(id_, "inbox/read"), {}, idempotency_key)
    return _items(Page[InboxMessage], call)


def notify_parent(
    id_: str, status: str, message: str, pr_number: int | None, idempotency_key: str | None
) -> Ask[InboxMessage]:
    """Builds the request that sends a message to a session's parent, with its parser."""
    body = _given(status=status, message=message, pr_number=pr_number)
    return _reads(InboxMessage, _keyed(session_path(id_, "inbox"), body, idempotency_key))


def hint(id_: str, text: str, idempotency_key: str | None) -> Ask[InboxMessage]:
    """Builds the request that sends a hint to a session's next turn, with its response parser."""
    return _reads(InboxMessage, _keyed(session_path(id_, "hints"), {"text": text}, idempotency_key))


def questions(
    session: str | None, limit: int | None, cursor: str | None
) -> Ask[Page[QuestionView]]:
    """Builds the request that lists a page of open questions to people, with its parser."""
    params = _given(session=session, limit=limit, cursor=cursor)
    return _reads(Page[QuestionView], Call("GET", "/v1/questions", params=params))


def flows() -> Ask[list[FlowView]]:
    """Builds the request that lists the flows of the catalog, with its response parser."""
    return _items(Page[FlowView], Call("GET", FLOWS))


def flow(name: str) -> Ask[FlowView]:
    """Builds the request that gets a flow by its name, with its response parser."""
    return _reads(FlowView, Call("GET", flow_path(name)))


def check_flow(definition: Any) -> Ask[FlowCheckView]:
    """Builds the request that validates a flow definition, with its response parser."""
    call = Call("POST", f"{FLOWS}/validate", content=_JSON.dump_json(definition))
    return _reads(FlowCheckView, call)


def rehome(id_: str, place: str, seen: SessionView | None) -> Steer:
    """Builds the request that moves a session to another place, with a check of whether it did."""
    content = _JSON.dump_json({"place": place})
    call = Call("POST", session_path(id_, "rehome"), headers=_if_match(seen), content=content)
    return Steer(call, id_, lambda view: view.place == place)


def delete(id_: str, *, force: bool, seen: SessionView | None) -> Ask[SessionView | None]:
    """Builds the request that deletes a session; its parser returns None once it is deleted."""

    def read(answer: Answer) -> SessionView | None:
        try:
            response = answer.checked()
        except SessionUnknown:
            if answer.repeated:
                return None
            raise
        return parsed(SessionView, response) if response.content else None

    params = {"force": "true"} if force else {}
    return Ask(Call("DELETE", session_path(id_), params=params, headers=_if_match(seen)), read)


def workers() -> Ask[list[WorkerView]]:
    """Builds the request that lists all live workers."""
    return _items(Page[WorkerView], Call("GET", "/v1/workers"))


def agents() -> Ask[list[AgentView]]:
    """Builds the request that lists all agents, each with the places that have it."""
    return _items(Page[AgentView], Call("GET", "/v1/agents"))


def tools() -> Ask[list[ToolView]]:
    """Builds the request that lists all tools of the workers."""
    return _items(Page[ToolView], Call("GET", "/v1/tools"))


def queues() -> Ask[list[QueueView]]:
    """Builds the request that lists the queues with their lengths."""
    return _items(Page[QueueView], Call("GET", "/v1/queues"))


def fleet() -> Ask[FleetView]:
    """Builds the request for the state of the whole fleet."""
    return _reads(FleetView, Call("GET", "/v1/fleet"))


def all_limits() -> Ask[list[Limit]]:
    """Builds the request that lists the limits of concurrency and rate."""
    return _items(Page[Limit], Call("GET", limits.PATH))


def limit(key: str) -> Ask[Limit]:
    """Builds the request for one limit by its key."""
    return _reads(Limit, Call("GET", limits.path_of(key)))


def set_limit(
    key: str, concurrency: int | None, per_minute: float | None, seen: Limit | None
) -> Ask[Limit]:
    """Builds the request that sets a limit, unless it changed since it was `seen`."""
    call = limits.setting(key, concurrency=concurrency, per_minute=per_minute, seen=seen)
    return _reads(Limit, call)


def remove_limit(key: str, seen: Limit | None) -> Ask[None]:
    """Builds the request that removes a limit, unless it changed since it was `seen`."""
    return Ask(limits.removal(key, seen=seen), _nothing)


def all_tokens() -> Ask[list[TokenView]]:
    """Builds the request that lists the API tokens, without their secrets."""
    return _items(Page[TokenView], Call("GET", tokens.PATH))


def create_token(
    name: str,
    scopes: Sequence[str],
    expires_s: int | None,
    quotas: Quotas | None,
    webhook: Webhook | Mapping[str, Any] | None,
    idempotency_key: str | None,
) -> Ask[NewToken]:
    """Builds the request that creates an API token; its response alone has the secret."""
    call = tokens.creation(
        name, scopes, expires_s=expires_s, quotas=quotas, webhook=webhook,
        idempotency_key=idempotency_key,
    )  # fmt: skip
    return _reads(NewToken, call)


def revoke_token(token: str) -> Ask[None]:
    """Builds the request that revokes an API token; a repeated call succeeds, too."""

    def read(answer: Answer) -> None:
        try:
            answer.checked()
        except TokenUnknown:
            if not answer.repeated:
                raise

    return Ask(tokens.revocation(token), read)


def ping() -> Ask[None]:
    """Builds the request that succeeds if the API and its Redis are ready."""
    return Ask(Call("GET", "/readyz"), _nothing)


def read_session(answer: Answer) -> SessionView:
    """Parses the session in a response. Raises Refused for an error, or AnswerUnreadable."""
    return parsed(SessionView, answer.checked())


def receipt(session: str) -> Ask[ReceiptView]:
    """Builds the request for the effect of a session's last stop, exit or abort."""
    return _reads(ReceiptView, Call("GET", session_path(session, "receipt")))


def tree(session: str, limit: int | None) -> Ask[TreeView]:
    """Builds the request that lists a session and at most `limit` below it."""
    params = _given(limit=limit)
    return _reads(TreeView, Call("GET", session_path(session, "tree"), params=params))


def explain(session: str) -> Ask[ExplainView]:
    """Builds the request for why a session waits or ended, and what to do next."""
    return _reads(ExplainView, Call("GET", session_path(session, "explain")))


def fsck(*, repair: bool, cursor: str | None) -> Ask[FsckView]:
    """Builds the request that audits one page of the store, and repairs it if asked to."""
    body = {"repair": repair} | ({} if cursor is None else {"cursor": cursor})
    return _reads(FsckView, Call("POST", "/v1/fsck", content=_JSON.dump_json(body)))


def store() -> Ask[StoreView]:
    """Builds the request for the identity of the store in Redis."""
    return _reads(StoreView, Call("GET", "/v1/store"))


def accept_store(*, new: bool, replaces: str | None) -> Ask[StoreView]:
    """Builds the request that accepts the data in Redis as the store, new or replaced."""
    body = {"new": new} | ({} if replaces is None else {"replaces": replaces})
    return _reads(StoreView, Call("POST", "/v1/store/accept", content=_JSON.dump_json(body)))


def _keyed(path: str, body: Mapping[str, Param], idempotency_key: str | None) -> Call:
    """A POST with an Idempotency-Key, so that it may be repeated."""
    headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
    return Call("POST", path, headers=headers, content=_JSON.dump_json(dict(body)))


def _reads(model: type[M], call: Call) -> Ask[M]:
    return Ask(call, lambda answer: parsed(model, answer.checked()))


def _items(page: type[Page[T]], call: Call) -> Ask[list[T]]:
    return Ask(call, lambda answer: parsed(page, answer.checked()).items)


def _nothing(answer: Answer) -> None:
    answer.checked()


def parsed(model: type[M], response: httpx2.Response) -> M:
    """Parses a response's JSON as the given model. Raises AnswerUnreadable if it does not fit."""
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        raise AnswerUnreadable(str(response.url), response.status_code) from error


def _if_match(seen: SessionView | None) -> dict[str, str]:
    return {} if seen is None else {"If-Match": etag(seen.status, seen.updated_at)}


def _given(**params: str | int | None) -> dict[str, Param]:
    return {name: value for name, value in params.items() if value is not None}
