"""The operations that start sessions: from documents, or from other sessions."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, JsonValue, SkipValidation, ValidationError
from pydantic.json_schema import SkipJsonSchema

from leadhand.contract.calls import Ask, Call, Op, Steps
from leadhand.contract.fleet import Fleet
from leadhand.contract.operation import (
    KEY_FORM,
    WITHOUT_DEFAULT,
    Body,
    BodyRight,
    Operation,
    Query,
    Scope,
    not_null,
    replies,
)
from leadhand.contract.requests import given, idempotent, parsed, reads, request, strictly_dumped
from leadhand.errors import BatchStopped, LeadhandError, Refused, RequestInvalid
from leadhand.flows.documents import AnyDocument, FlowRun
from leadhand.models.documents import Checker, Name, Text
from leadhand.models.problems import Problem
from leadhand.models.session_environment import REVEALED, WithEnvironment
from leadhand.models.validation_messages import first_error
from leadhand.models.views.fleet import AgentView
from leadhand.models.views.session import MOST, BatchItemView, BatchView, SessionView

#: What becomes of a child session once its parent, or the attempt that started it, has ended.
ParentEnd = Literal["abort", "let-go-on"]
_MADE = replies(SessionView, "The new session, or the one known by its key.", 202,
                headers=("Location", "ETag"))  # fmt: skip


Document = AnyDocument | Mapping[str, Any]
#: A checker: a command, or the fields of one.
CheckerSpec = str | Mapping[str, object] | Checker

#: The tokens of doers and checkers begin with this; a session that they start is a child.
STEP_TOKEN = "lhc1."  # noqa: S105 - a prefix
_ITEM = re.compile(r"^items\.(\d+)")
#: Sentences that this process has said; each is said once.
_SAID: set[str] = set()
_SESSION = "/v1/sessions"
_ONE = f"{_SESSION}/{{session}}"


class SubmitQuery(Query):
    """How a child session that a body starts depends on its parent."""

    #: What becomes of the child once its parent, or the attempt that started it, has ended.
    on_parent_end: ParentEnd | None = None


SUBMIT = Operation[JsonValue](
    name="sessions.submit", method="POST", path=_SESSION,
    summary="Start a session; with a step token, a child session",
    responses=(replies(SessionView, "The session, new or known by its key.", 202,
                       headers=("Location", "ETag")),),
    scope=Scope.SUBMIT,  # and exec:free for documents with commands or callables
    body_right=BodyRight("spawn", "any"),  # a child of its own session
    query=SubmitQuery, body=AnyDocument, body_required=True, headers=("Idempotency-Key",),
    refuses=(409, 429), makes="session",
)  # fmt: skip


Key = Annotated[str, Field(pattern=f"^{KEY_FORM}$")]
Mode = Literal["all", "each"]


class BatchItem(Body):
    """A document, and the key by which a repeated request finds its session."""

    #: Parsed item by item: with the mode `each` a request may have invalid ones.
    document: SkipValidation[AnyDocument]
    idempotency_key: Key | None = None


class Batch(Body):
    """Documents to submit, in order."""

    items: Annotated[list[BatchItem], Field(min_length=1, max_length=MOST)]
    #: With `all`, no session is created if a document is refused.
    mode: Mode = "all"


BATCH = Operation[Batch](
    name="sessions.batch", method="POST", path=f"{_SESSION}/batch",
    summary="Start many sessions, all or each",
    responses=(replies(BatchView, "What became of each item.", 202),),
    scope=Scope.SUBMIT, body=Batch, body_required=True, refuses=(409,),
)  # fmt: skip


_Position = Annotated[str, Field(min_length=1, max_length=1000)]
_Inputs = Annotated[dict[Name, JsonValue], Field(default_factory=dict, max_length=1000)]
_Tools = Annotated[dict[Name, Name], Field(default_factory=dict, max_length=1000)]

#: A list in JSON, which a strict model would not take for a tuple.
_Checkers = Annotated[tuple[Checker, ...], Field(min_length=1, max_length=100, strict=False)]


class Fork(Body, WithEnvironment):
    """Where a fork continues, and what is different in it."""

    #: The last point of the session that counts as done, as for a resume; without it the fork
    #: continues where the session had come to.
    after: Annotated[
        _Position | SkipJsonSchema[None], BeforeValidator(not_null), WITHOUT_DEFAULT
    ] = None
    #: New values of inputs; all that refers to them runs again.
    inputs: _Inputs
    #: Of a graph or flow: another tool for a step or in place of a tool, in the steps that run.
    tools: _Tools
    #: The agent that does the work from here on.
    agent: Name | None = None
    #: as-is: it works in the session's folder as that is now, and in no worktree of its own.
    folder: Literal["as-is"] | None = None
    label: Name | None = None


FORK = Operation[Fork](
    name="sessions.fork", method="POST", path=f"{_ONE}/fork",
    summary="Create a session that continues from a point of this one", responses=(_MADE,),
    scope=Scope.SUBMIT, body=Fork, headers=("Idempotency-Key",), refuses=(409, 422, 429),
)  # fmt: skip


class Rerun(Body, WithEnvironment):
    """What is different in the new session."""

    #: Another task of a loop, or request of a plan.
    task: Text | None = None
    checkers: _Checkers | None = None
    #: The agent that does the work.
    agent: Name | None = None
    #: New values of inputs of a flow or graph.
    inputs: _Inputs
    label: Name | None = None


RERUN = Operation[Rerun](
    name="sessions.rerun", method="POST", path=f"{_ONE}/rerun",
    summary="Run the document of a session again, with changes", responses=(_MADE,),
    scope=Scope.SUBMIT, body=Rerun, headers=("Idempotency-Key",), refuses=(409, 422, 429),
)  # fmt: skip


class Submissions(Fleet):
    """Starts sessions, with the environment of the calling process."""

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
        return (yield from self._start(SUBMIT, (), fields, idempotency_key, on_parent_end))

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
    def fork(
        self,
        session: str,
        after: str | None = None,
        *,
        inputs: Mapping[str, JsonValue] | None = None,
        tools: Mapping[str, str] | None = None,
        agent: str | None = None,
        folder: Literal["as-is"] | None = None,
        label: str | None = None,
        idempotency_key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Steps[SessionView]:
        """Create a session that copies another one's outcomes up to a point and runs the rest.

        `after` names the last step that counts as done. What refers to a changed input runs again.
        `folder="as-is"` lets it work in the session's folder as that is now; by default it works
        in a git worktree at the recorded state. Variables are as of
        `submit`: those that the other session got are not taken over.
        """
        return self._copy(
            FORK, session, idempotency_key, env,
            after=after, inputs=_plain(inputs), tools=_plain(tools), agent=agent, folder=folder,
            label=label,
        )  # fmt: skip

    @Op
    def rerun(
        self,
        session: str,
        *,
        task: str | None = None,
        checkers: Sequence[CheckerSpec] | None = None,
        agent: str | None = None,
        inputs: Mapping[str, JsonValue] | None = None,
        label: str | None = None,
        idempotency_key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Steps[SessionView]:
        """Start a new session that runs another one's document from the start, with changes."""
        return self._copy(
            RERUN, session, idempotency_key, env,
            task=task, agent=agent, inputs=_plain(inputs), label=label,
            checkers=None if checkers is None else [_checker(one) for one in checkers],
        )  # fmt: skip

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

    def _copy(
        self,
        operation: Operation[Any],
        session: str,
        key: str | None,
        env: Mapping[str, str] | None,
        **body: JsonValue,
    ) -> Steps[SessionView]:
        more = yield from self._with_environment({}, env)
        content = strictly_dumped(given(**body, **more))
        call = request(operation, session, headers=idempotent(key), content=content)
        return parsed(SessionView, (yield call))


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
        raise RequestInvalid(text, field="idempotency_keys")
    return [*keys]


def numbered(problem: Problem, before: int) -> Problem:
    """Returns a problem with `before` added to the item numbers in its field names (`items.2`).

    >>> numbered(RequestInvalid("t", field="items.2.document.task").problem, 100).field
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
        yield request(BATCH, content=json.dumps(body).encode())


def _plain(mapping: Mapping[str, JsonValue] | Mapping[str, str] | None) -> JsonValue:
    return None if mapping is None else {**mapping}


def _checker(spec: CheckerSpec) -> JsonValue:
    """A checker as a document has it. Raises RequestInvalid."""
    try:
        checker = Checker.model_validate(spec)
    except ValidationError as error:
        text = f"checkers: {first_error(error)}"
        raise RequestInvalid(text, field="checkers") from None
    return checker.model_dump(mode="json", exclude_unset=True)
