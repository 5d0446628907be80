"""The environments of new sessions: their own, and those of their parents."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.environment.session import SessionEnvironment
from app.domain.ids import SessionRef
from app.domain.states import SessionStatus
from app.errors import InvalidDocument, SpecForeign
from app.operations.registry import Registry
from app.security import environment_cipher
from app.settings import Settings
from app.store.store import Store
from leadhand.models.session_environment import check_values

#: Statuses of sessions that cannot be resumed.
_FINAL = (SessionStatus.COMPLETED, SessionStatus.EXITED, SessionStatus.ABORTED)


class Environments:
    """Checks, inherits and encrypts environments."""

    def __init__(self, store: Store, settings: Settings, registry: Registry) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry

    def effective(
        self,
        given: SessionEnvironment,
        parent: Mapping[str, JsonValue] | None = None,
        root: str | None = None,
    ) -> SessionEnvironment:
        """Return a new session's environment: its parent's, overridden by its own values.

        Raises InvalidDocument if it cannot be stored, is too large together, or if the values of a
        shell come from another machine than the worker's.
        """
        if given.shell and not self._settings.own_redis:
            hint = "only the embedded services of this machine take it; pass variables as env"
            raise InvalidDocument("shell_env", len(given.shell), hint)
        if parent is not None:
            given = given.below(self._of_parent(SessionRef(str(parent["session"]), str(root))))
        if not given.is_empty and not self._settings.secret:
            raise InvalidDocument("env", len(given.passed), "set LEADHAND_SECRET for the API first")
        for field, values in (("env", given.passed), ("shell_env", given.shell)):
            try:
                check_values({**values})
            except ValueError as error:
                raise InvalidDocument(field, len(values), f"with the parent's, {error}") from None
        return given

    def encrypt(self, ref: SessionRef, environment: SessionEnvironment | None) -> str:
        """Return a session's environment encrypted for the store; '' if it is empty."""
        if environment is None or environment.is_empty:
            return ""
        return environment_cipher.encrypt(environment, ref, secret=self._settings.secret)

    def _of_parent(self, parent: SessionRef) -> SessionEnvironment:
        fields = self._store.values(parent, "session", ["environment", "status"])
        if fields.get("status") in _FINAL:  # nothing starts below it, and its environment is gone
            return SessionEnvironment()
        try:
            return self._registry.environment(parent, fields.get("environment", ""))
        except SpecForeign as error:
            raise InvalidDocument("env", parent.id, f"{error.why} for its parent") from None
