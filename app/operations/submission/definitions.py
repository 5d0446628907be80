"""The definitions of new sessions: those of their folder, or of their parent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, JsonValue

from app.domain.environment.definitions import Definitions
from app.domain.ids import SessionRef
from app.domain.states import FINAL, SessionStatus
from app.fleet.definition_files import DefinitionFiles
from app.operations.registry import Registry
from app.operations.submission.drafts import Asker, Found
from app.queries.fleet import Fleet
from app.resume.rewind import ResumePlan
from app.store.store import Store
from leadhand.flows.documents import AnyDocument
from leadhand.graphs.documents import GraphDocument, GraphStep
from leadhand.models.documents import WorkflowDocument
from leadhand.models.folder_settings import SessionSettings
from leadhand.models.views.fleet import WorkerView

_Part = TypeVar("_Part", bound=BaseModel)


class SubmitDefinitions:
    """Finds the definitions of a new session."""

    def __init__(self, store: Store, registry: Registry, files: DefinitionFiles) -> None:
        self._store = store
        self._registry = registry
        self._files = files

    def of(self, asker: Asker, cwd: str | None) -> Found:
        """Returns the agent and tool definitions for a new session: its folder's or its parent's.

        They are those of the folder of the command that submits it, by default of its own working
        folder. Who may not bring commands does not choose them for another folder than its own.
        Raises InvalidDocument if a file of another user would define something.
        """
        if asker.found is not None:
            return asker.found
        if asker.parent is not None:
            return self.of_session(SessionRef(str(asker.parent["session"]), str(asker.root)))
        folder = (asker.folder or cwd) if asker.free else (cwd or asker.folder)
        return self.of_folder(folder or "", free=asker.free)

    def with_folder_settings(self, document: AnyDocument, *, is_child: bool) -> AnyDocument:
        """Returns the document with the settings of leadhand.toml in its folder.

        Protected files and quarantined tests are added to those of the document; by-products are
        set unless it has its own. Raises InvalidDocument for an invalid file.
        """
        found = self._files.session_settings_in(document.cwd, is_child=is_child)
        if found.leave_out is None and not any(found):
            return document
        if isinstance(document, GraphDocument):
            steps = tuple(_with_session(step, found) for step in document.steps)
            document = document.model_copy(update={"steps": steps})
        if isinstance(document, WorkflowDocument):
            phases = tuple(_with_settings(phase, found) for phase in document.phases)
            return document.model_copy(update={"phases": phases})
        return _with_settings(document, found)

    def again(
        self,
        ref: SessionRef,
        fields: Mapping[str, str],
        *,
        free: bool,
        above: SessionRef | None = None,
    ) -> Found:
        """Returns the definitions with which a session is resumed: those of its folder now.

        Unless the one who resumes it is `free` to bring commands, a session that may have commands
        gets approved ones, and otherwise keeps its own. One that follows the session `above` gets
        those. Raises InvalidDocument if a file of another user would define something.
        """
        folder, is_free = fields.get("defined_in", ""), self._registry.is_free(ref, fields)
        if above is None:
            found = self.of_folder(folder, free=is_free)
            if free or not is_free or self._files.are_approved(found.definitions):
                return found
            above = ref
        mark = self._store.values(above, "session", ["definitions"]).get("definitions", "")
        return Found(self._registry.definitions(above, mark), folder, is_free)

    def of_folder(self, folder: str, *, free: bool) -> Found:
        """Reads the agent and tool definitions that apply in a folder, as its files are now."""
        if not self._files.are_read:
            return Found(free=free)
        return Found(self._files.of(folder, free=free), folder, free)

    def of_session(self, ref: SessionRef) -> Found:
        """Returns a session's stored definitions, for its child sessions; empty if it is final."""
        names = ["definitions", "defined_in", "status", "free"]
        fields = self._store.values(ref, "session", names)
        free = self._registry.is_free(ref, fields)
        if not self._files.are_read or fields.get("status") in FINAL:  # nothing starts below that
            return Found(free=free)
        mark, folder = fields.get("definitions", ""), fields.get("defined_in", "")
        return Found(self._registry.definitions(ref, mark), folder, free)

    def adopt_changes(
        self,
        ref: SessionRef,
        plan: ResumePlan,
        *,
        free: bool = False,
        above: SessionRef | None = None,
    ) -> tuple[ResumePlan, JsonValue]:
        """Reads a session's definitions again; returns the resume plan, and what to adopt or None.

        None if they did not change, if the session has not stopped or failed, or if this server may
        not sign them. Otherwise the plan holds for the session as it is now, since the signature
        covers all of it.
        """
        fields = self._store.fields(ref)
        if fields.get("status") not in (SessionStatus.STOPPED, SessionStatus.FAILED):
            return plan, None
        found = self.again(ref, fields, free=free, above=above)
        program = plan.adopts and plan.adopts.program.hash
        if found.mark == fields.get("definitions", ""):
            return plan, None
        signature = self._registry.sign_for_definitions(ref, fields, found.mark, program=program)
        if not signature:
            return plan, None  # the step that runs first says why it may not run
        defines: JsonValue = {"mark": found.mark, "text": found.text, "signature": signature}
        return plan._replace(as_of=plan.as_of or fields["updated"]), defines


def _with_settings(document: _Part, found: SessionSettings) -> _Part:
    """A document, or a phase of one, with these settings as far as it has such fields."""
    update: dict[str, object] = {}
    for name, values in found._asdict().items():
        if values is None or name not in type(document).model_fields:
            continue
        own = getattr(document, name)
        if name != "leave_out":
            update[name] = tuple(dict.fromkeys((*own, *values)))
        elif own is None:
            update[name] = values
    return document.model_copy(update=update)


def _with_session(step: GraphStep, found: SessionSettings) -> GraphStep:
    """A step of a graph whose child session gets the settings, which it does not read itself."""
    session = step.session
    if isinstance(session, WorkflowDocument):
        phases = tuple(_with_settings(phase, found) for phase in session.phases)
        session = session.model_copy(update={"phases": phases})
    elif session is not None:
        session = _with_settings(session, found)
    return step.model_copy(update={"session": session})


def workers_by_definitions(
    fleet: Fleet, without: Sequence[WorkerView] | None = None
) -> Callable[[Definitions | None], Sequence[WorkerView]]:
    """Returns a function that reads the live workers for definitions, once for each set of them.

    `without` are those for sessions without definitions, if the caller has just read them.
    """
    known = dict[str, Sequence[WorkerView]]() if without is None else {"": without}

    def read(definitions: Definitions | None) -> Sequence[WorkerView]:
        mark = "" if definitions is None else definitions.mark
        if mark not in known:
            known[mark] = fleet.inventories(definitions)
        return known[mark]

    return read
