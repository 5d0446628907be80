"""Runs the document of a session again, with changes, as a new session."""

from __future__ import annotations

import json
from collections.abc import Callable

from app.domain.environment.session import SessionEnvironment
from app.operations.registry import Registry
from app.operations.request_hashes import digest_of
from app.operations.step_verbs.documents import (
    Changes,
    stored_text,
    submitted_document,
    with_changes,
)
from app.operations.submit import Asker, Submissions, Submitted
from app.security.api_tokens import Owner
from app.security.environment_cipher import comparison
from app.settings import Settings
from app.store.store import Store
from leadhand.flows.documents import AnyDocument

VERB = "rerun"


class Reruns:
    """Submits the documents of sessions again."""

    def __init__(
        self, store: Store, settings: Settings, registry: Registry, submissions: Submissions
    ) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry
        self._submissions = submissions

    def rerun(
        self,
        session: str,
        changes: Changes,
        *,
        environment: SessionEnvironment = SessionEnvironment(),  # noqa: B008 - immutable
        key: str | None = None,
        owner: Owner | None = None,
        free: bool = False,
        check: Callable[[AnyDocument], None] = lambda _: None,
    ) -> Submitted:
        """Create a session that runs another one's document, with changes, again from the start.

        `check` refuses a document that the caller may not run. Raises SessionUnknown,
        ControlRefused if no signed document is stored, and the errors of a submit.
        """
        ref = self._registry.ref(session)
        fields = self._store.fields(ref)
        given = submitted_document(self._store, self._registry, ref, fields, VERB)
        document = with_changes(given, changes)
        check(document)
        passed = comparison(environment, secret=self._settings.secret)
        body = digest_of(f"rerun {session} {stored_text(document)}{passed}")
        made_from = json.dumps({"session": session, "verb": VERB})
        asker = Asker(
            body,
            key,
            owner=owner,
            free=free,
            made_from=made_from,
            environment=environment,
            folder=fields.get("defined_in", ""),
        )
        return self._submissions.document_of(asker, document)
