"""Starts child sessions for bodies: the doers and checkers of a running step."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import InvalidDocument
from app.programs import Registry
from app.security.api_tokens import Owner, Tokens
from app.security.signatures import Caller
from app.sessions.submit import Request, Submissions, Submitted, hash_document, hash_run
from app.settings import Settings
from app.store.store import Store
from leadhand.contract.submissions import ParentEnd
from leadhand.flows.documents import AnyDocument, FlowRun
from leadhand.models.views.fleet import WorkerView


class Spawner:
    """Creates the child sessions of bodies; each child belongs to one attempt of a step."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        registry: Registry,
        tokens: Tokens,
        submissions: Submissions,
    ) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry
        self._tokens = tokens
        self._submissions = submissions

    def may_bring_commands(self, caller: Caller) -> bool:
        """Whether the calling step's children may have commands: its token had `exec:free`.

        That is the token that submitted the session; `exec:free` is a scope.
        """
        return self._registry.may_bring_commands(self._registry.ref(caller.session))

    def document(
        self,
        caller: Caller,
        document: AnyDocument,
        *,
        key: str | None,
        on_parent_end: ParentEnd,
        workers: Sequence[WorkerView] | None = None,
    ) -> Submitted:
        """Create a child session from a document; the same key again returns the same child.

        Raises ParentRests if the attempt has ended, TreeLimitReached, and the errors of a submit.
        """
        _refuse_webhook(document)
        request = self._request(
            caller, hash_document(document, self._settings.secret), key, on_parent_end
        )
        return self._submissions.document_of(request, document, workers=workers)

    def flow(
        self, caller: Caller, name: str, run: FlowRun, *, key: str | None, on_parent_end: ParentEnd
    ) -> Submitted:
        """Run a flow of the catalog as a child session. Raises FlowUnknown, FlowDisabled."""
        _refuse_webhook(run)
        request = self._request(
            caller, hash_run(name, run, self._settings.secret), key, on_parent_end
        )
        return self._submissions.flow_of(request, name, run)

    def _request(self, caller: Caller, body: str, key: str | None, policy: ParentEnd) -> Request:
        ref = self._registry.ref(caller.session)
        fields = self._store.values(ref, "session", ["place", "token"])
        return Request(
            body=body,
            key=child_key(caller, key, body, policy),
            parent={
                "session": ref.id,
                "address": caller.address,
                "fence": caller.fence,
                "base": self._store.keys.base(ref),
            },
            root=ref.root,
            owner=self._owner(fields.get("token", "")),
            on_parent_end=policy,
            place=fields.get("place", ""),
            limits=self._settings.tree_limits,
        )

    def _owner(self, token: str) -> Owner | None:
        """The token that the parent belongs to: its quotas hold for children too."""
        owner = self._tokens.owner(token) if token else None
        return owner._replace(webhook=None) if owner is not None else None


def child_key(caller: Caller, key: str | None, body: str, policy: ParentEnd) -> str:
    """Returns the idempotency key of a child session; by default the document's hash.

    A new attempt starts children of its own. Only a child with a key that is to continue after the
    end of its parent is found by the step's next attempts.

    >>> caller = Caller("5e551045", "loop~1[1]/do", 3, ())
    >>> child_key(caller, "docs", "c0ffee", "abort")
    '5e551045:loop~1[1]/do#3:docs'
    >>> child_key(caller, None, "c0ffee", "let-go-on")
    '5e551045:loop~1[1]/do#3:c0ffee'
    >>> child_key(caller, "docs", "c0ffee", "let-go-on")
    '5e551045:loop~1[1]/do#*:docs'
    """
    attempt = "*" if key is not None and policy == "let-go-on" else str(caller.fence)
    return f"{caller.session}:{caller.address}#{attempt}:{body if key is None else key}"


def _refuse_webhook(given: AnyDocument | FlowRun) -> None:
    if given.webhook is not None:
        hint = "a child session has none; give it to the session at the top of the tree"
        raise InvalidDocument("webhook", given.webhook.url, hint)
