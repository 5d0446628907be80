"""Reads what a folder defines, for the sessions that are submitted from it (decision 81)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.domain.environment.definitions import Definitions
from app.errors import InvalidDocument
from app.settings import Settings
from leadhand.models.approvals import FOREIGN, Approvals, is_foreign
from leadhand.models.definition_folder import (
    FILES,
    FLOWS,
    definition_files,
    folder_with_definitions,
)
from leadhand.models.folder_settings import FolderSettingInvalid, FolderSettings, SessionSettings
from leadhand.models.toml_file import TomlUnreadable, read_text

#: The most bytes of a file that are stored with each session.
LARGEST = 256 * 1024


class DefinitionFiles:
    """Finds and reads the definitions of folders; only embedded services have any."""

    def __init__(self, settings: Settings) -> None:
        self._kinds = settings.folder_definitions
        self._home = settings.user_home
        self._approvals = settings.approvals
        self._env = {"PATH": settings.search_path, "HOME": str(settings.user_home or "")}

    def of(self, folder: str | None, *, free: bool) -> Definitions | None:
        """Reads the agent and tool definitions that apply in a folder; None if there are none.

        Unless `free`, workers use only what the user has approved of it. Raises InvalidDocument if
        a file of another user would define something.
        """
        if not self._kinds or not folder:
            return None
        found = folder_with_definitions(Path(folder), self._home)
        if found is None:
            return None
        for foreign in _foreign_files(found):
            raise InvalidDocument("folder", str(foreign), f"this file {FOREIGN}")
        agents, tools = FILES
        unread = dict[str, str]()
        return Definitions(
            folder=str(found),
            agents=_read(found / agents, unread) if "agents" in self._kinds else "",
            tools=_read(found / tools, unread) if "agents" in self._kinds else "",
            unread=unread,
            functions="tools" in self._kinds,
            approved_only=not free,
        )

    def flows_of(self, folder: str | None) -> Path | None:
        """Returns the folder of the flow files that apply in a folder, which need not exist."""
        if "flows" not in self._kinds or not folder:
            return None
        found = folder_with_definitions(Path(folder), self._home)
        return (found or Path(folder)) / FLOWS

    def session_settings_in(self, folder: str | None, *, is_child: bool) -> SessionSettings:
        """Returns what leadhand.toml in a folder sets for sessions. Raises InvalidDocument.

        Of a child session only protected files, as they are committed: a doer may have changed or
        committed the file, and the other settings make checks weaker.
        """
        if not self._kinds or not folder:
            return SessionSettings()
        settings, field = FolderSettings(Path(folder), self._env), "protected"
        try:
            protected = settings.protected(committed_only=is_child)
            if is_child:
                return SessionSettings(protected)
            field = "quarantine"
            quarantine = settings.quarantine()
            field = "leave_out"
            return SessionSettings(protected, quarantine, settings.leave_out())
        except FolderSettingInvalid as error:
            hint = "correct the file; its settings apply to all sessions in its folder"
            raise InvalidDocument(field, str(error), hint) from None

    def why_no_commands(self, flows: Path) -> str | None:
        """Returns why flows of this folder may not have commands without exec:free; or None."""
        return Approvals(flows.parent, self._approvals, strict=True).why_not(flows)

    def are_approved(self, found: Definitions | None) -> bool:
        """Whether the user has approved the agents and tools of a folder as they were read."""
        if found is None:
            return True
        folder = Path(found.folder)
        approvals = Approvals(folder, self._approvals, strict=True)
        texts = zip(FILES, (found.agents, found.tools), strict=True)
        return not any(text and approvals.lack(folder / name, text) for name, text in texts)

    @property
    def are_read(self) -> bool:
        """Whether the settings allow folders to define agents, tools or flows of their own."""
        return bool(self._kinds)


def _foreign_files(folder: Path) -> Iterator[Path]:
    """The files of definitions, and folders of them, that neither this user nor root owns."""
    files = [*definition_files(folder)]
    yield from filter(is_foreign, dict.fromkeys([*files, *(file.parent for file in files)]))


def _read(file: Path, unread: dict[str, str]) -> str:
    try:
        text = read_text(file)
    except TomlUnreadable as error:
        unread[file.name] = error.why
        return ""
    if len(text.encode()) > LARGEST:
        unread[file.name] = f"is larger than {LARGEST // 1024} kB; make it smaller"
        return ""
    return text
