"""`StateManager`: the state files of workflows, as mirrors of what Leadhand keeps."""

from __future__ import annotations

import json
import logging
import os
import re
import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from leadhand.models.secret_forms import MARK, without_forms
from leadhand.research.document import definition_of, hash_of, workflow_of
from leadhand.research.models import StateLoadError, Workflow, WorkflowState
from leadhand.research.tool_calls import in_thread
from leadhand.research.values import to_json_value

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,119}")
#: The statuses after which a file may be deleted by age.
_ENDED = ("completed", "failed")
_LISTED = (
    "session_id", "workflow_name", "status", "current_step", "started_at", "updated_at",
)  # fmt: skip
#: Names of arguments whose values are not logged.
_SECRET = re.compile(r"(?i)pass(word|wd|phrase)?$|secret|token|api_?key|credential|authorization")
#: Characters of a text in the log.
_LONGEST = 2_000
#: Characters of a whole result in the log.
_LONGEST_RESULT = 64_000


class StateManager:
    """Saves, loads and lists the states of workflows: one JSON file each."""

    def __init__(
        self, state_dir: str | Path = ".polyhedra/agent", logger: logging.Logger | None = None
    ) -> None:
        self.state_dir = Path(state_dir)
        self._logger = logger or logging.getLogger("leadhand.research")
        self.state_dir.mkdir(parents=True, exist_ok=True)

    async def save_state(self, state: WorkflowState) -> None:
        """Write the state of a workflow to its file, atomically.

        Raises ValueRefusedError for a result that JSON would change.
        """
        path = self._path(state.session_id)
        text = json.dumps(to_json_value(_fields(state), "state"), indent=2, ensure_ascii=False)
        await in_thread(_write, path, text)

    async def load_state(self, session_id: str, *, strict: bool = False) -> WorkflowState | None:
        """Read a workflow's stored state; None if its file is missing, or damaged and not `strict`.

        A damaged file is named in a warning of the log; with `strict` it raises StateLoadError.
        """
        try:
            return await in_thread(_read, self._path(session_id))
        except StateLoadError as error:
            if strict:
                raise
            self._logger.warning("%s", error)
            return None

    async def cleanup_state(self, session_id: str) -> None:
        """Delete the stored state of a workflow, if there is one."""
        await self.delete(session_id)

    async def delete(self, session_id: str) -> bool:
        """Delete a state; returns False if there is none."""
        path = self._path(session_id)
        try:
            await in_thread(path.unlink)
        except FileNotFoundError:
            return False
        return True

    async def list_sessions(self) -> list[dict[str, Any]]:
        """Return the stored states, the last changed first; damaged ones are skipped."""
        found = await in_thread(self._listed)
        return sorted(found, key=lambda one: str(one["updated_at"]), reverse=True)

    async def can_resume(self, session_id: str) -> bool:
        """Whether `resume_workflow` can continue the workflow."""
        state = await self.load_state(session_id)
        return state is not None and state.workflow is not None and state.status != "completed"

    async def cleanup_old_states(self, days: float = 7) -> int:
        """Delete old states of completed and failed workflows; returns how many.

        Others are kept: they can be resumed.
        """
        before = local_now() - timedelta(days=days)
        deleted = 0
        for one in await self.list_sessions():
            if one["status"] in _ENDED and _time(one["updated_at"]) < before:
                deleted += await self.delete(one["session_id"])
        return deleted

    def _listed(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.state_dir.glob("*.json")):
            try:
                fields = _load(path)
                _time(fields["updated_at"])
                found.append({name: fields[name] for name in _LISTED})
            except FileNotFoundError:
                continue  # its workflow has just completed
            except (StateLoadError, KeyError, TypeError, ValueError) as error:
                self._logger.warning("state %s is skipped: %s", path, error)
        return found

    def _path(self, session_id: str) -> Path:
        """The file of a state. Raises ValueError for an id that is no name of a file."""
        if not _ID.fullmatch(session_id):
            raise ValueError(
                f"session id {session_id!r} is not valid; give letters, digits, _, - and ."
            )
        return self.state_dir / f"{session_id}.json"


def _fields(state: WorkflowState) -> dict[str, Any]:
    workflow = state.workflow
    names = [step.name for step in workflow.steps] if workflow is not None else []
    current = names[state.current_step] if state.current_step < len(names) else None
    return {
        "session_id": state.session_id,
        "workflow_name": workflow.name if workflow is not None else None,
        "status": state.status,
        "current_step": state.current_step,
        "current_step_name": current,
        "completed_steps": state.completed_steps,
        "failed_steps": state.failed_steps,
        "step_results": state.step_results,
        "errors": state.errors,
        "error_count": len(state.errors),
        "last_error": state.errors[-1] if state.errors else None,
        "started_at": state.started_at.isoformat(),
        "updated_at": local_now().isoformat(),
        "workflow": definition_of(workflow) if workflow is not None else None,
        "workflow_hash": hash_of(workflow) if workflow is not None else None,
        "leadhand_session": state.leadhand_session,
        "run_key": state.run_key,
    }


def _write(path: Path, text: str) -> None:
    """Replace the file, so that a reader or a crash never sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _load(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise StateLoadError(f"state {path} cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise StateLoadError(f"state {path} cannot be read: it is no JSON object")
    return fields


def _read(path: Path) -> WorkflowState | None:
    try:
        fields = _load(path)
    except FileNotFoundError:
        return None
    try:
        return WorkflowState(
            session_id=fields["session_id"],
            workflow=_workflow(fields.get("workflow")),
            status=fields["status"],
            current_step=int(fields["current_step"]),
            completed_steps=list(fields["completed_steps"]),
            step_results=dict(fields["step_results"]),
            errors=list(fields["errors"]),
            started_at=_time(fields["started_at"]),
            failed_steps=list(fields.get("failed_steps", [])),
            leadhand_session=fields.get("leadhand_session"),
            run_key=fields.get("run_key"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise StateLoadError(f"state {path} cannot be read: {why}") from error


def _workflow(definition: Any) -> Workflow | None:
    return None if definition is None else workflow_of(definition)


def local_now() -> datetime:
    """Returns the local time without a time zone, as state files have it."""
    return datetime.now()  # noqa: DTZ005


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)


class StepLog:
    """Appends lines. A log that cannot be written never stops a workflow."""

    def __init__(self, folder: Path, session_id: str, logger: logging.Logger) -> None:
        self.path = folder / "logs" / f"{session_id}.log"
        self._logger = logger

    def begin(self, workflow: str, steps: list[str], *, ended: Collection[str]) -> None:
        """Append that an execution of the workflow begins; `ended` steps are not called again."""
        fields = {"workflow": workflow, "steps": steps}
        self._append("begin", fields | ({"ended": sorted(ended)} if ended else {}))

    def decision(self, step: str, decision: str, **fields: Any) -> None:
        """Append a decision about a step, such as to try it again."""
        self._append("decision", {"step": step, "decision": decision, **redacted(fields)})

    def end(self, status: str, message: str, *, elapsed: float) -> None:
        """Append how the execution ended."""
        fields = {"status": status, "message": redacted(message), "elapsed": round(elapsed, 3)}
        self._append("end", fields)

    def call(
        self,
        step: str,
        tool: str,
        arguments: dict[str, Any],
        *,
        elapsed: float,
        result: Any = None,
        error: str | None = None,
        attempt: int = 1,
    ) -> None:
        """Append one tool call without secrets; of a long result only the length."""
        shown = redacted(result)
        length = len(json.dumps(shown, default=repr))
        fields = {
            "step": step,
            "tool": tool,
            "attempt": attempt,
            "arguments": redacted(arguments),
            **(
                {"result": shown if length <= _LONGEST_RESULT else f"{length:,} characters"}
                if error is None
                else {"error": without_forms(error)[:_LONGEST]}
            ),
            "elapsed": round(elapsed, 3),
        }
        self._append("call", fields)

    def _append(self, event: str, fields: dict[str, Any]) -> None:
        line = {"time": datetime.now().astimezone().isoformat(), "event": event, **fields}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False, default=repr) + "\n")
        except OSError as failure:
            self._logger.warning("the log %s is not written: %s", self.path, failure)


def redacted(value: Any) -> Any:
    """Redacts secrets in a value, by the name or the form, and shortens its texts.

    >>> redacted({"api_key": "k", "query": "agents", "note": "curl -u me:hush-hush x.example"})
    {'api_key': '[redacted]', 'query': 'agents', 'note': 'curl -u me:[redacted] x.example'}
    """
    match value:
        case dict():
            return {
                name: MARK if _SECRET.search(str(name)) else redacted(item)
                for name, item in value.items()
            }
        case list() | tuple():
            return [redacted(item) for item in value]
        case str():
            text = without_forms(value)
            cut = f"{text[:_LONGEST]}… ({len(value):,} characters)"
            return cut if len(text) > _LONGEST else text
        case _:
            return value
