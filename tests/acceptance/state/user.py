"""A user with folders that share one set of services."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.project import Project

LONG = 60.0


class User:
    """A user with a home of their own: no LEADHAND_HOME, and nothing else that names state."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._projects: list[Project] = []

    def project(self, name: str) -> Project:
        """A folder of this user."""
        project = Project(self.home / name, HOME=str(self.home), LEADHAND_CONCURRENCY="")
        for variable in ("LEADHAND_HOME", "LEADHAND_CONCURRENCY", "XDG_STATE_HOME"):
            project.env.pop(variable, None)
        project.env["XDG_CONFIG_HOME"] = str(self.home / ".config")
        folder = project.leadhand("status", "--folder", timeout=LONG)
        project.state = Path(folder.out.strip())
        self._projects.append(project)
        return project

    def close(self) -> None:
        for project in self._projects:
            project.close()
