"""The operations that start sessions, with the environment of their bodies, and on flows."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from pydantic import BaseModel

from leadhand.client.calls import Call
from leadhand.client.fleet import Fleet
from leadhand.client.operation import Ask, Op, Steps
from leadhand.client.requests import idempotent, items, parsed, reads, request
from leadhand.contract import flows, sessions
from leadhand.contract.operation import Operation
from leadhand.contract.sessions import ParentEnd
from leadhand.errors import BatchStopped, LeadhandError, Refused, local_error
from leadhand.flows.documents import NO_WISHES, AnyDocument, FlowRun
from leadhand.models.problems import Kind, Problem
from leadhand.models.session_environment import REVEALED
from leadhand.models.views.batch import MOST, BatchItemView, BatchView
from leadhand.models.views.fleet import AgentView
from leadhand.models.views.flow import FlowCheckView, FlowView
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page

Document = AnyDocument | Mapping[str, Any]
#: Whether a refused document refuses all others of its request.
Mode = Literal["all", "each"]

#: The tokens of doers and checkers begin with this; a session that they start is a child.
STEP_TOKEN = "lhc1."  # noqa: S105 - a prefix
_ITEM = re.compile(r"^items\.(\d+)")
#: Sentences that this process has said; each is said once.
_SAID: set[str] = set()


class Submissions(Fleet):
    """Starts sessions, with the environment of the calling process, and checks flows."""

    @Op
    def submit(
        self,
        document: Document,
        idempotency_key: str | None = None,
        *,
        on_parent_end: ParentEnd | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Steps[SessionView]:
        """Start a session from a document; the same key and document return the same session.

        Inside a doer or checker it is a child of the running session, and the same document
        without a key is the same child. `on_parent_end` says whether the child is to `abort`, as
        it does unless given, or to `let-go-on` at the end of what started it.

        `env` has variables for its doers and checkers. Embedded services also get PATH,
        VIRTUAL_ENV and the variables that agents' entries name, as they are in this process.
        """
        fields = yield from self._with_environment(fields_of(document), env)
        return (yield from self._start(sessions.SUBMIT, (), fields, idempotency_key, on_parent_end))

    @Op
    def run_flow(
        self,
        name: str,
        run: FlowRun | Mapping[str, Any] = NO_WISHES,
        idempotency_key: str | None = None,
        *,
        on_parent_end: ParentEnd | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Steps[SessionView]:
        """Run a flow of the catalog as a new session; the same key and run return the same one.

        Inside a doer or checker it is a child of the running session, as with `submit`.
        """
        fields = yield from self._with_environment(fields_of(run), env)
        return (yield from self._start(flows.RUN, (name,), fields, idempotency_key, on_parent_end))

    @Op
    def submit_many(
        self,
        documents: Sequence[Document],
        idempotency_keys: Sequence[str] | None = None,
        *,
        mode: Mode = "all",
        env: Mapping[str, str] | None = None,
    ) -> Steps[list[BatchItemView]]:
        """Start a session per document, 100 to a request; returns a session or problem for each.

        In the mode `all` a refused document refuses its whole request, and the requests before it
        stay; with `each` it is reported and the others start. The same keys with the same
        documents return the same sessions. A quota or label may refuse single items in both modes.
        Raises BatchStopped if a request fails after others had started sessions.
        """
        found: list[BatchItemView] = []
        fields = yield from self._all_with_environment([fields_of(one) for one in documents], env)
        keys = keys_of(fields, idempotency_keys)
        for call in _batches(fields, keys, mode):
            try:
                view = parsed(BatchView, (yield call))
            except LeadhandError as error:
                if not found:
                    raise
                raise batch_stopped(error, found, keys) from error
            found += numbered_items(view.items, len(found))
        return found

    @Op
    def flows(self) -> Ask[list[FlowView]]:
        """List the flows (stored workflow definitions); an invalid one is listed with its error."""
        return items(Page[FlowView], request(flows.LIST))

    @Op
    def flow(self, name: str) -> Ask[FlowView]:
        """Get a flow of the catalog by its name, with its definition. Raises FlowUnknown."""
        return reads(FlowView, request(flows.SHOW, name))

    @Op
    def check_flow(self, definition: Any) -> Ask[FlowCheckView]:
        """Validate a flow or graph, for the workers here, without storing it; list its errors."""
        return reads(FlowCheckView, request(flows.VALIDATE, body=definition))

    def _start(
        self,
        operation: Operation[Any],
        path: tuple[str, ...],
        fields: Mapping[str, Any],
        key: str | None,
        end: ParentEnd | None,
    ) -> Ask[SessionView]:
        # The same document of a step without a key is the same child.
        headers = {} if key is None and self._is_body else idempotent(key)
        call = request(operation, *path, body=fields, headers=headers, on_parent_end=end)
        return reads(SessionView, call)

    @property
    def _is_body(self) -> bool:
        return self.token.startswith(STEP_TOKEN)

    def _with_environment(
        self, fields: Mapping[str, Any], env: Mapping[str, str] | None
    ) -> Steps[dict[str, Any]]:
        """The fields of a request, with `env`, and for embedded services with `shell_env`."""
        return (yield from self._all_with_environment([fields], env))[0]

    def _all_with_environment(
        self, requests: Sequence[Mapping[str, Any]], env: Mapping[str, str] | None
    ) -> Steps[list[dict[str, Any]]]:
        """The fields of several requests, as of `_with_environment`."""
        say, here, agents = self._reach.say, self.here, list[AgentView]()
        if here.asks_for_agents(is_body=self._is_body):
            with suppress(Refused):  # the token may not read them
                agents = yield from self.agents()
        found = []
        for fields in requests:
            more = here.fields(fields, env, agents)
            found.append({**fields, **more})
            for text in here.notices(fields, more.get("env", {}), agents):
                if say is not None and text not in _SAID:
                    _SAID.add(text)
                    say(text)
        return found


def fields_of(given: Document | FlowRun | Mapping[str, Any]) -> dict[str, Any]:
    """Returns a document or flow run as JSON fields, with its environment values in plain text."""
    if not isinstance(given, BaseModel):
        return dict(given)
    is_run = isinstance(given, FlowRun)
    fields: dict[str, Any] = given.model_dump(mode="json", context=REVEALED, exclude_unset=is_run)
    return fields


def keys_of(documents: Sequence[Mapping[str, Any]], keys: Sequence[str] | None) -> list[str]:
    """Returns the given idempotency keys, or new random ones: one for each document.

    Raises RequestInvalid unless there is a key for each document.
    """
    keys = [uuid.uuid4().hex for _ in documents] if keys is None else keys
    if len(keys) != len(documents):
        text = f"there are {len(keys)} keys for {len(documents)} documents; give one for each"
        raise local_error(Kind.INVALID, text, field="idempotency_keys")
    return [*keys]


def numbered(problem: Problem, before: int) -> Problem:
    """Returns a problem with `before` added to the item numbers in its field names (`items.2`).

    >>> numbered(Problem.of(Kind.INVALID, "t", field="items.2.document.task"), 100).field
    'items.102.document.task'
    """

    def name(field: str | None) -> str | None:
        return field and _ITEM.sub(lambda found: f"items.{int(found[1]) + before}", field)

    errors = tuple(one.model_copy(update={"field": name(one.field)}) for one in problem.errors)
    return problem.model_copy(update={"field": name(problem.field), "errors": errors})


def numbered_items(items: Sequence[BatchItemView], before: int) -> list[BatchItemView]:
    """Returns the items of a batch response, with `before` added to item numbers in problems."""
    return [
        one
        if one.problem is None or not before
        else one.model_copy(update={"problem": numbered(one.problem, before)})
        for one in items
    ]


def batch_stopped(
    error: LeadhandError, items: Sequence[BatchItemView], keys: Sequence[str]
) -> BatchStopped:
    """Returns a BatchStopped error (not raised) for a failed request: items before it, all keys."""
    problem = numbered(error.problem, len(items)) if isinstance(error, Refused) else None
    item = _ITEM.match((problem and problem.field) or "")
    why = f"{item[0]}: {problem}" if item else str(error)
    return BatchStopped([*items], [*keys], why)


def _batches(
    documents: Sequence[Mapping[str, Any]], keys: Sequence[str], mode: Mode
) -> Iterator[Call]:
    """Yields the requests that submit documents with their keys, at most 100 documents in each."""
    items = [
        {"document": fields, "idempotency_key": key}
        for fields, key in zip(documents, keys, strict=True)
    ]
    for start in range(0, len(items), MOST):
        body = {"items": items[start : start + MOST], "mode": mode}
        yield request(sessions.BATCH, content=json.dumps(body).encode())
