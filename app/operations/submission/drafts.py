"""What a new session is made of, and where the request for it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.environment.definitions import Definitions
from app.domain.environment.session import SessionEnvironment
from app.domain.program import Program
from app.domain.workspaces import OwnFolder, Workspace
from app.security.api_tokens import Owner
from app.store.session_reads import CreatedSession
from leadhand.models.documents import Budget
from leadhand.models.views.fleet import WorkerView


class Found(NamedTuple):
    """The definitions of a session, and the folder from which they were looked up."""

    definitions: Definitions | None = None
    folder: str = ""
    #: Whether its bodies may bring commands; if not, only approved definitions apply.
    free: bool = False

    @property
    def text(self) -> str:
        """Return the definitions as stored (JSON text); '' for none."""
        return "" if self.definitions is None else self.definitions.text

    @property
    def mark(self) -> str:
        """Return the digest of the definitions; '' for none."""
        return "" if self.definitions is None else self.definitions.mark


class About(NamedTuple):
    """Descriptive fields of a new session: name, folder, place, budget, webhook."""

    kind: str
    name: str
    label: str = ""
    #: The label, with its scope, if no other session at work may have it there, or ''.
    unique_label: str = ""
    cwd: str = ""
    place: str = ""
    #: The real path of `cwd` if it is known, so that two names of a folder share a lock.
    folder: str = ""
    listed_in: str = ""
    priority: int = 5
    #: The webhook (JSON), and the events that it gets.
    webhook: str = ""
    rings: str = ""
    #: The budget in the document.
    budget: Budget = Budget()
    #: For a flow of the catalog: its Source (JSON).
    source: str = ""
    #: Not empty if its place was chosen automatically; it may change until a step is claimed.
    chosen: str = ""
    #: For a child that a body starts: what becomes of it at its parent's end.
    on_parent_end: str = ""
    #: The limits of cost and tokens that its document asks for (JSON), for such a child.
    own_budget: str = ""
    #: For a fork or rerun: the session that it was made from, and how (JSON).
    made_from: str = ""

    def within(self, own: OwnFolder | None, session: str) -> About:
        """Return the fields with the session's own folder as working folder; unchanged for None."""
        if own is None:
            return self
        cwd = own.cwd(session)
        return self._replace(cwd=cwd, folder=cwd)


class Asker(NamedTuple):
    """The origin of a request: Idempotency-Key, parent step and owning token."""

    body: str = ""
    key: str | None = None
    parent: Mapping[str, JsonValue] | None = None
    root: str | None = None
    owner: Owner | None = None
    #: Whether its bodies may bring commands; a child has the right of its parent.
    free: bool = False
    #: For a child that a body starts: its policy, its parent's place, and the limits of its tree.
    on_parent_end: str = ""
    place: str = ""
    limits: Mapping[str, int] | None = None
    #: For a task of a plan: the folder of its own that its first step makes.
    workspace: Workspace | None = None
    #: The folder that the session has to itself.
    own: OwnFolder | None = None
    #: For a rerun, as of About.
    made_from: str = ""
    #: What its bodies get in addition; of a child, with its parent's.
    environment: SessionEnvironment | None = None
    #: The folder of the command that submits it: its definitions apply. By default its own.
    folder: str = ""
    #: The definitions, once they are found.
    found: Found | None = None

    @property
    def stored_key(self) -> str | None:
        """Return the Idempotency-Key as stored, prefixed with the owner's id, or None."""
        return _own_key(self.owner, self.key)

    @property
    def is_taken_over(self) -> bool:
        """Whether a later attempt of the same step may take over the child with this key."""
        return self.on_parent_end == "let-go-on"


class Submitted(NamedTuple):
    """The session of a submitted document."""

    session: str
    #: False if an earlier call with the same key created it.
    created: bool
    #: What is known of it, if this call created it from a document.
    made: CreatedSession | None = None


class Draft(NamedTuple):
    """A checked and compiled document, from which a session can be created."""

    asker: Asker
    program: Program
    about: About
    #: Bytes of the document.
    size: int
    #: The document as it is stored (JSON); empty if there is none.
    request: str
    #: The live workers with which it was checked; None for a program without a document.
    workers: Sequence[WorkerView] | None = None
    #: About the document, for people.
    warnings: Sequence[str] = ()


def _own_key(owner: Owner | None, key: str | None) -> str | None:
    """The stored form of an Idempotency-Key: each token has its own namespace."""
    if key is None:
        return None
    return f"{owner.token if owner is not None else ''}/{key}"
