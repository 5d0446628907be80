"""The errors of the store of artifacts."""

from __future__ import annotations

from app.errors import LeadhandError
from leadhand.models.problems import Kind


class ArtifactUnknown(LeadhandError):
    """The session refers to no artifact with this digest, or its file is missing."""

    kind = Kind.ARTIFACT_UNKNOWN

    def __init__(self, session: str, digest: str) -> None:
        super().__init__(session, digest)
        self.session = session
        self.digest = digest

    def __str__(self) -> str:
        return (
            f"session {self.session!r} has no artifact {self.digest!r}; "
            f"`leadhand artifacts {self.session}` lists them"
        )


class ArtifactsFull(LeadhandError):
    """The store of artifacts has no room: its disk is full, or a limit is reached."""

    kind = Kind.ARTIFACTS_FULL

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def __str__(self) -> str:
        return self.why


class ArtifactChanged(LeadhandError):
    """The bytes of an upload do not have the digest that they were announced with."""

    kind = Kind.ARTIFACT_CHANGED

    def __init__(self, digest: str, why: str) -> None:
        super().__init__(digest, why)
        self.digest = digest
        self.why = why

    def __str__(self) -> str:
        return f"artifact {self.digest!r}: {self.why}; upload it again from the start"
