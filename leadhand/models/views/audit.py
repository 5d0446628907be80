"""Views of an audit: its findings, page by page."""

from __future__ import annotations

from leadhand.models.views.view import View


class Finding(View):
    """A record in Redis or at the broker that does not agree with the others."""

    kind: str
    session: str | None = None
    what: str
    mended: bool = False
    #: The command or action that fixes it, if it was not repaired.
    way: str | None = None


class FsckView(View):
    """The findings of one call of an audit, and how much it checked."""

    items: list[Finding]
    #: The number of findings, and of those that are left; `items` has the first thousand.
    found: int = 0
    left: int = 0
    keys: int = 0
    sessions: int = 0
    #: How many folders and records of folders were compared; only the command asks for that.
    folders: int = 0
    #: The cursor of the next call; null if the audit is complete.
    next: str | None = None


class FolderAuditStarted(View):
    """A session that audits the folders of tasks and sessions at one place."""

    place: str
    #: Its result text is a FolderFindings as JSON.
    session: str


class FolderAuditView(View):
    """The sessions that audit the folders, one per place with a worker."""

    items: list[FolderAuditStarted] = []


class FolderFindings(View):
    """What an audit of the folders at a place found."""

    #: The first thousand.
    items: list[Finding] = []
    found: int = 0
    left: int = 0
    #: How many folders and records were compared.
    folders: int = 0
